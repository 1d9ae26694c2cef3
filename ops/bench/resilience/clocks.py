"""One agent's clock is wrong: what the worker publishes about the others, and finds of its own.

The worker's core gets the log of one partition, a second of arrivals at a time.
"""

from collections import Counter
from collections.abc import Hashable, Sequence, Set
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from ops.bench.resilience.clock_world import (
    WRONG_CLOCKS,
    ClockWorld,
    Round,
    logged,
)
from ops.bench.rig.load import CLUSTER
from ops.bench.rig.report import Figure, Parts, Say, figure
from schemas.bounds import MAX_TIME_US
from schemas.codec import Codec
from schemas.enums import AnomalyKind, AnomalyState
from schemas.records import Anomaly, PathWindow
from schemas.units import SECOND_NS
from streams.config import DetectionConfig
from streams.core.feed import Feed
from streams.core.machine import PartitionMachine
from streams.core.partition import Identity

# A window begins with it, and a half-hour.
BEGIN_NS: Final = 1_790_001_000 * SECOND_NS
CONFIG: Final = DetectionConfig(
    window_ns=10 * SECOND_NS, lateness_ns=2 * SECOND_NS, loss_clear_probes=15
)
# Others' records may be published with the next batch, not later.
LATER_S: Final = 1

# A fault as it is found: kind and 5-tuple.
Found = tuple[str, str, str, int]


@dataclass(slots=True)
class Published:
    """What is published of some agents, one of which may have a wrong clock.

    Parameters
    ----------
    wrong
        That agent.
    until_us
        Windows that end later are left out; they may be open still.

    Attributes
    ----------
    others
        Windows and onsets of the other agents, and when (s) they were published.
    own
        Onsets of the agent.
    """

    wrong: str
    until_us: int = MAX_TIME_US
    others: dict[Hashable, int] = field(default_factory=dict)
    own: set[Found] = field(default_factory=set)

    def observe(self, record: PathWindow | Anomaly, at_s: int = 0) -> None:
        """Observe what was published; a forged name over the wrong agent's endpoints is its own."""
        own = record.agent_id == self.wrong or record.src.startswith(f"{self.wrong}/")
        if isinstance(record, PathWindow):
            if not own and record.window_end_at <= self.until_us:
                self.others[record] = at_s
        elif record.kind is not AnomalyKind.PROGRESS and record.state is AnomalyState.ONSET:
            found = record.kind.value, record.src, record.dst, record.flow
            if own:
                self.own.add(found)
            else:
                self.others[(*found, record.onset_at)] = at_s

    def differences(self, right: "Published") -> int:
        """Return how many of the others' records are missing, too many, not the same, or late."""
        both = self.others.keys() & right.others.keys()
        late = sum(self.others[one] - right.others[one] > LATER_S for one in both)
        return len(self.others.keys() ^ right.others.keys()) + late

    def own_differences(self, right: "Published", refused: Set[tuple[str, str]]) -> int:
        """Return how many own faults were not found, or are false, but on these paths."""
        return sum((src, dst) not in refused for _, src, dst, _ in self.own ^ right.own)


@dataclass(slots=True)
class CoreRun:
    """What the worker's core publishes, and how many results it refused or counted as late."""

    published: Published
    refused: int = 0
    late: int = 0


def run_core(
    world: ClockWorld, rounds: Sequence[Round], config: DetectionConfig = CONFIG
) -> CoreRun:
    """Feed rounds, in the order of their arrival, to a worker's core."""
    codec, begin_ns = Codec(), rounds[0].arrival_ns
    machine = PartitionMachine(config, Identity(CLUSTER, 0))
    feed, out = Feed(machine, codec), CoreRun(Published(world.wrong))
    log = logged(rounds, codec)
    for second, batch in groupby(log, key=lambda one: (one.arrival_ns - begin_ns) // SECOND_NS):
        for processed in feed.process(list(batch)):
            for output in processed.outputs:
                out.published.observe(output.record, second)
            if processed.refused is not None:
                out.refused += processed.refused.message.results
    out.late = machine.counts["late"]
    return out


def clocks(runs: int, say: Say) -> list[Figure]:
    """Give one of six agents each wrong clock, then rounds with one field mutated."""
    del runs  # The core gives the same each time.
    world = ClockWorld(begin_ns=BEGIN_NS)
    rounds = world.rounds()
    right = run_core(world, rounds).published
    say(f"all clocks right: {len(right.others)} windows and onsets of the other agents, own "
        f"onsets {_kinds(right.own)}")  # fmt: skip
    rows = []
    for clock in WRONG_CLOCKS:
        rows += _rows(f"clock {clock.name}", world, world.with_clock(rounds, clock), right, say)
    # Own faults are forged among these.
    return rows + _rows("mutated rounds", world, world.with_mutations(rounds), right, say)[:1]


def _rows(
    what: str, world: ClockWorld, rounds: Sequence[Round], right: Published, say: Say
) -> list[Figure]:
    run = run_core(world, rounds)
    found = run.published
    others = found.differences(right)
    own = found.own_differences(right, world.refused_paths(rounds))
    say(
        f"{what}: {others} of {len(right.others)} windows and onsets of others differ; "
        f"own onsets {_kinds(found.own)}; results: {run.refused} refused, "
        f"{run.late} late"
    )
    return [
        figure(f"{what}: others' windows and onsets that differ", [float(others)], "", 0.0),
        figure(f"{what}: own faults not found, or false", [float(own)], "", 0.0),
        figure(f"{what}: results refused or late", [float(run.refused + run.late)]),
    ]  # fmt: skip


def _kinds(found: set[Found]) -> dict[str, int]:
    return dict(sorted(Counter(kind for kind, *_ in found).items()))


PARTS: Final[Parts] = {"clocks": clocks}
