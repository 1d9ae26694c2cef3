"""Counts what happens in a pipeline, from its topics: the numbers of the demo."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from ops.log.decoding import SeenRecord
from ops.log.watch import WatchedRecord
from ops.view.cluster import ClusterView
from schemas import topics
from schemas.enums import AgentState, PingListPhase, ProbeStatus
from schemas.ids import path_id
from schemas.records import FaultEvent, ProbeRound

# Rates are taken over this stretch of event time: long enough to hold two
# rounds of every agent, short enough to show a fault at once.
RATE_WINDOW_US: Final = 2_000_000
WATCHED: Final = (
    topics.PROBE_ROUND,
    topics.HEARTBEAT,
    topics.PINGLIST,
    topics.PATH_TRACE,
    topics.SKELETON_TOPIC,
    topics.ANOMALY,
    topics.FAULT_EVENT,
)


@dataclass(slots=True)
class Scoreboard:
    """What the view of the topics says, and the rates of rounds, which it does not keep.

    Attributes
    ----------
    view
        The topics as `skeletonhunter web` and `doctor` fold them.
    faults
        Transitions, as they came.
    probes, lost
        Results of all rounds.
    """

    view: ClusterView = field(default_factory=ClusterView)
    faults: list[FaultEvent] = field(default_factory=list)
    probes: int = 0
    lost: int = 0
    _rounds: deque[tuple[int, int, int]] = field(default_factory=deque)

    def count_record(self, seen: WatchedRecord) -> None:
        """Fold one record in; tombstones remove what they name."""
        self.view.apply(
            SeenRecord(
                topic=topics.BY_NAME[seen.topic], partition=seen.partition, offset=seen.offset,
                timestamp_ms=seen.timestamp_ms, key=seen.key, record=seen.record,
            )
        )  # fmt: skip
        if isinstance(seen.record, ProbeRound):
            self._add_round(seen.record)
        elif isinstance(seen.record, FaultEvent):
            self.faults.append(seen.record)

    def _add_round(self, record: ProbeRound) -> None:
        lost = sum(result.status is not ProbeStatus.OK for result in record.results)
        self.probes += len(record.results)
        self.lost += lost
        self._rounds.append((record.started_at, len(record.results), lost))
        newest = max(at for at, _, _ in self._rounds)
        while self._rounds and self._rounds[0][0] <= newest - RATE_WINDOW_US:
            self._rounds.popleft()

    @property
    def probes_per_s(self) -> float:
        """Results per second of event time, over the last two seconds."""
        return sum(n for _, n, _ in self._rounds) / (RATE_WINDOW_US / 1e6)

    @property
    def loss_ratio(self) -> float:
        """Share of the probes of the last two seconds without a valid answer."""
        sent = sum(n for _, n, _ in self._rounds)
        return sum(lost for _, _, lost in self._rounds) / sent if sent else 0.0

    @property
    def anomalies(self) -> int:
        """How many there were."""
        return len(self.view.anomalies) + self.view.anomalies.dropped

    @property
    def open_anomalies(self) -> int:
        """Those that have not ended."""
        return sum(span.cleared_at is None for span in self.view.anomalies.values())

    @property
    def targets_active(self) -> int:
        """Targets that the agents probe now."""
        return sum(agent.beat.record.targets_active for agent in self.view.agents.values())

    @property
    def targets_waiting(self) -> int:
        """Targets on ping lists that have not registered yet."""
        return sum(agent.beat.record.targets_waiting for agent in self.view.agents.values())

    @property
    def running_agents(self) -> int:
        """Agents whose last heartbeat says RUNNING."""
        agents = self.view.agents.values()
        return sum(agent.beat.record.state is AgentState.RUNNING for agent in agents)

    @property
    def runtime_lists(self) -> int:
        """Agents that follow a list made from an inferred skeleton."""
        return sum(p.phase is PingListPhase.RUNTIME for p in self.view.pinglists.values())

    @property
    def lists_followed(self) -> bool:
        """Whether every agent's heartbeat names the latest list made for it."""
        return all(
            (agent := self.view.agents.get(agent_id)) is not None
            and agent.beat.record.pinglist_version == pinglist.version
            for agent_id, pinglist in self.view.pinglists.items()
        )

    @property
    def wanted_flows(self) -> int:
        """5-tuples that all ping lists together ask for."""
        return sum(t.flows for p in self.view.pinglists.values() for t in p.targets)

    @property
    def traced_flows(self) -> int:
        """Those of them whose path is known."""
        traced = {(one.path_id, one.flow) for one in self.view.traces.values() if one.complete}
        return sum(
            (path_id(t.src, t.dst), flow) in traced
            for p in self.view.pinglists.values()
            for t in p.targets
            for flow in range(t.flows)
        )
