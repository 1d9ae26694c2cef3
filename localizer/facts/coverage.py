"""Coverage: 5-tuples that agents should probe, against those that they say they probe."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from schemas.records import PingList

# From this share on, what should be probed is probed.
COVERED_SHARE: Final = 0.9


@dataclass(slots=True)
class Coverage:
    """5-tuples of a task, or of all."""

    expected: int = 0
    seen: float = 0.0

    @property
    def share(self) -> float:
        """Share that is probed, 0 to 1; 1 if nothing is expected."""
        return min(1.0, self.seen / self.expected) if self.expected else 1.0


def coverage_by_task(
    lists: Iterable[PingList],
    flows_active: Mapping[str, int],
    is_registered: Callable[[str], bool],
) -> dict[str, dict[str, Coverage]]:
    """Return the coverage of each task by agent.

    An agent says only how many 5-tuples it probes, so its tasks share them in proportion to what
    is expected.

    Parameters
    ----------
    lists
        Ping lists in force; those of agents that say nothing are left out.
    flows_active
        5-tuples that each agent probes now.
    is_registered
        Whether an endpoint is registered: others are not probed.
    """
    found: defaultdict[str, dict[str, Coverage]] = defaultdict(dict)
    for pinglist in lists:
        agent = pinglist.agent_id
        if agent not in flows_active:
            continue
        mine: list[Coverage] = []
        for target in pinglist.targets:
            if is_registered(target.src) and is_registered(target.dst):
                by_agent = found[target.task_id]
                if agent not in by_agent:
                    by_agent[agent] = Coverage()
                    mine.append(by_agent[agent])
                by_agent[agent].expected += target.flows
        total = sum(one.expected for one in mine)
        for one in mine:
            one.seen = min(flows_active[agent], total) * one.expected / total
    return dict(found)


def total(coverages: Iterable[Coverage]) -> Coverage:
    """Return the sum of coverages."""
    found = Coverage()
    for one in coverages:
        found.expected += one.expected
        found.seen += one.seen
    return found
