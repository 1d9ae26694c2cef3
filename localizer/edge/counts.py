"""What the localizer's process counts, for its log lines and its metrics.

The loop writes, the thread of a scrape reads: numbers one by one, and `status` as a whole.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from localizer.core import Core
from localizer.facts.agent_counts import AgentCounts
from localizer.facts.coverage import COVERED_SHARE, Coverage, total
from localizer.facts.heartbeats import HeartbeatBatch
from schemas.enums import FaultLifecycle
from schemas.metrics.family import Histogram
from schemas.process.lag import LogLag
from schemas.records import FaultEvent
from schemas.topics import HEARTBEAT
from schemas.units import SECOND_NS, us_to_ns

# Seconds. A decision takes a millisecond in health, and must stay below the grid of 0.25 s.
DECISION_BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
# From the event time of a transition until it is written: half a second when all goes well.
DELAY_BOUNDS_S: Final = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
SILENT: Final = "silent"


class FaultSort(NamedTuple):
    """What open faults are counted by."""

    kind: str
    severity: str


class Transition(NamedTuple):
    """What transitions are counted by."""

    state: FaultLifecycle
    kind: str
    severity: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What was true at one time.

    Attributes
    ----------
    agents
        Members of the cluster by what their last heartbeat says, or silent.
    clock_offset_s
        The largest distance of an agent's clock from the broker's; None: no agent says.
    """

    waiting: int
    late: int
    refused: Mapping[str, int]
    unknown_addresses: int
    pairs_without_way: int
    agents: Mapping[str, int]
    clock_offset_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageStatus:
    """Coverage of all ping lists; tasks of which too little is probed."""

    every: Coverage
    tasks: int
    below: tuple[str, ...]


class Counts:
    """Totals since the start of the process, and its latest status.

    Attributes
    ----------
    open
        Open faults by id.
    latest
        Of each sort of transition the latest fault.
    heard_s
        When the newest heartbeat came, seconds since the epoch; None: none was read.
    """

    def __init__(self, topics: Iterable[str], max_agents: int) -> None:
        self.records = Counter(dict.fromkeys(topics, 0))
        self.dead_letters = Counter(dict.fromkeys(self.records, 0))
        self.lag = LogLag()
        self.leads = False
        self.transitions: Counter[Transition] = Counter()
        self.latest: dict[Transition, str] = {}
        self.open: dict[str, FaultSort] = {}
        self.decisions = Histogram(DECISION_BOUNDS_S)
        self.delays = Histogram(DELAY_BOUNDS_S)
        self.agents = AgentCounts(max_agents)
        self.heard_s: float | None = None
        self.decided_ns: int | None = None
        self.status: Status | None = None
        self.coverage: CoverageStatus | None = None

    def restore_faults(self, history: Iterable[FaultEvent]) -> None:
        """Take over the open faults from what former processes published."""
        for event in history:
            self._set_open(event)

    def note_transition(self, event: FaultEvent) -> None:
        """Count a transition that was just written."""
        sort = Transition(event.state, event.fault_kind, event.severity)
        self.transitions[sort] += 1
        self.latest[sort] = event.fault_id
        delay_s = (time.time_ns() - us_to_ns(event.event_at)) / SECOND_NS
        self.delays.observe(delay_s, {"fault_id": event.fault_id})
        self._set_open(event)

    def note_heartbeats(self, batch: HeartbeatBatch) -> None:
        """Count heartbeats that were read."""
        self.records[HEARTBEAT.name] += len(batch)
        self.agents.observe_batch(batch)
        self.heard_s = int(batch.at_ns[-1]) / SECOND_NS

    def note_status(self, core: Core, unmarked: int) -> None:
        """Take the status of the core; `unmarked` of its anomalies were refused before it."""
        sources = core.sources
        silent, reports = sources.liveness.silent, sources.reports
        members = [agent.agent_id for agent in sources.members()]
        probing = Counter(
            SILENT if a in silent else reports.get(a).probing.value.lower() for a in members
        )
        offsets_ns = [
            abs(offset_ns) for a in members if (offset_ns := reports.get(a).offset_ns) is not None
        ]
        self.agents.keep(sources.liveness.agents.__contains__)
        self.status = Status(
            waiting=core.pending,
            late=core.late,
            refused=core.refused
            | {"unmarked": unmarked, "contradictory_components": core.intake.refused},
            unknown_addresses=sources.paths.unknown_addresses,
            pairs_without_way=len(core.without_way),
            agents=probing | Counter({SILENT: 0}),
            clock_offset_s=max(offsets_ns) / SECOND_NS if offsets_ns else None,
        )

    def note_coverage(self, core: Core) -> CoverageStatus:
        """Take the coverage; it is counted over all ping lists."""
        by_task = {t: total(agents.values()) for t, agents in core.sources.coverage().items()}
        self.coverage = CoverageStatus(
            every=total(by_task.values()),
            tasks=len(by_task),
            below=tuple(sorted(t for t, one in by_task.items() if one.share < COVERED_SHARE)),
        )
        return self.coverage

    def _set_open(self, event: FaultEvent) -> None:
        if event.state is FaultLifecycle.RESOLVED:
            self.open.pop(event.fault_id, None)
        else:
            self.open[event.fault_id] = FaultSort(event.fault_kind, event.severity)
