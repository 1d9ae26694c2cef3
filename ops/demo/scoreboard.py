"""Counts what happens in a pipeline, from its topics: the numbers of the demo."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from ops.log.watch import WatchedRecord
from schemas import topics
from schemas.enums import AgentState, AnomalyKind, AnomalyState, PingListPhase, ProbeStatus
from schemas.ids import path_id
from schemas.records import Anomaly, FaultEvent, Heartbeat, PathTrace, PingList, ProbeRound

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
    """Counts and latest states; `add` folds one record in."""

    agents: dict[str, Heartbeat] = field(default_factory=dict)
    pinglists: dict[str, PingList] = field(default_factory=dict)
    traced: dict[tuple[str, int], PathTrace] = field(default_factory=dict)
    open_anomalies: set[tuple[str, int, str]] = field(default_factory=set)
    faults: list[FaultEvent] = field(default_factory=list)
    progress: dict[int, int] = field(default_factory=dict)
    probes: int = 0
    lost: int = 0
    anomalies: int = 0
    _rounds: deque[tuple[int, int, int]] = field(default_factory=deque)

    def count_record(self, seen: WatchedRecord) -> None:
        """Fold one record in; tombstones remove what they name."""
        match seen.record:
            case ProbeRound() as record:
                self._add_round(record)
            case Heartbeat() as record:
                self.agents[record.agent_id] = record
            case PingList() as record:
                self.pinglists[record.agent_id] = record
            case PathTrace() as record if record.complete:
                self.traced[record.path_id, record.flow] = record
            case Anomaly() as record:
                self._add_anomaly(record, seen.partition)
            case FaultEvent() as record:
                self.faults.append(record)
            case None if seen.topic == topics.HEARTBEAT.name:
                self.agents.pop(seen.key, None)
            case None if seen.topic == topics.PINGLIST.name:
                self.pinglists.pop(seen.key, None)

    def _add_round(self, record: ProbeRound) -> None:
        lost = sum(result.status is not ProbeStatus.OK for result in record.results)
        self.probes += len(record.results)
        self.lost += lost
        self._rounds.append((record.started_at, len(record.results), lost))
        newest = max(at for at, _, _ in self._rounds)
        while self._rounds and self._rounds[0][0] <= newest - RATE_WINDOW_US:
            self._rounds.popleft()

    def _add_anomaly(self, record: Anomaly, partition: int) -> None:
        if record.kind is AnomalyKind.PROGRESS:
            self.progress[partition] = record.event_at
            return
        key = (record.path_id, record.flow, record.kind.value)
        if record.state is AnomalyState.CLEARED:
            self.open_anomalies.discard(key)
        else:
            self.anomalies += key not in self.open_anomalies
            self.open_anomalies.add(key)

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
    def targets_active(self) -> int:
        """Targets that the agents probe now."""
        return sum(beat.targets_active for beat in self.agents.values())

    @property
    def targets_waiting(self) -> int:
        """Targets on ping lists that have not registered yet."""
        return sum(beat.targets_waiting for beat in self.agents.values())

    @property
    def running_agents(self) -> int:
        """Agents whose last heartbeat says RUNNING."""
        return sum(beat.state is AgentState.RUNNING for beat in self.agents.values())

    @property
    def runtime_lists(self) -> int:
        """Agents that follow a list made from an inferred skeleton."""
        return sum(p.phase is PingListPhase.RUNTIME for p in self.pinglists.values())

    @property
    def lists_followed(self) -> bool:
        """Whether every agent's heartbeat names the latest list made for it."""
        return all(
            (beat := self.agents.get(agent_id)) is not None
            and beat.pinglist_version == pinglist.version
            for agent_id, pinglist in self.pinglists.items()
        )

    @property
    def wanted_flows(self) -> int:
        """5-tuples that all ping lists together ask for."""
        return sum(t.flows for p in self.pinglists.values() for t in p.targets)

    @property
    def traced_flows(self) -> int:
        """Those of them whose path is known."""
        return sum(
            (path_id(t.src, t.dst), flow) in self.traced
            for p in self.pinglists.values()
            for t in p.targets
            for flow in range(t.flows)
        )
