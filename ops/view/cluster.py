"""Folds the records of the topics into the state that an operator looks at.

The fold does not depend on the order in which partitions are read against each other; within a
partition records must come in their order. What it holds is bounded, and counted where the bound
drops something (`dropped`). All that it keeps is immutable, so that `copy` is cheap.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np

from ops.log.decoding import Seen, SeenRecord
from ops.log.windows import SeenWindows, WindowColumns, columns_of
from ops.view.agents import AgentView, Beat
from ops.view.counters import RnicCounters
from ops.view.crossing import TopologyBook
from ops.view.faults import FaultBook
from ops.view.flow_windows import FlowWindows
from ops.view.job_ranks import RankBook
from ops.view.newest import Newest
from ops.view.places import PlaceBook
from ops.view.symptoms import AnomalySpan, StateChange, changed
from ops.view.windows import AgentWindows, counted
from schemas import topics as t
from schemas.enums import AnomalyKind, AnomalyState
from schemas.records import (
    Anomaly,
    Component,
    ComponentState,
    Endpoint,
    FaultEvent,
    FaultState,
    Heartbeat,
    IncidentNote,
    PathTrace,
    PathWindow,
    PingList,
    Silence,
    Skeleton,
    Task,
)
from schemas.topics import Topic
from schemas.units import US_PER_MS

# An hour of a bad day: a leaf of 64 hosts that goes down makes some thousand anomalies.
MAX_ANOMALIES: Final = 20_000
MAX_TRACES: Final = 20_000
MAX_CHANGES: Final = 20_000
MAX_NOTES: Final = 20_000
# Ids that writers can invent freely; far above the 40,000 RNICs of the largest cluster.
MAX_KEYS: Final = 1_000_000
# Too many to keep one by one, and the localizer alone pools them.
POOLED: Final = frozenset(
    {AnomalyKind.STRAY_LOSS, AnomalyKind.WEAK_LATENCY, AnomalyKind.BRIEF_LATENCY}
)

# Topics that are folded; of the first one it is only noted when the last record came.
FOLDED: Final[tuple[Topic, ...]] = (
    t.PROBE_ROUND, t.HEARTBEAT, t.ENDPOINT, t.PINGLIST, t.TASK, t.SKELETON_TOPIC, t.TOPOLOGY,
    t.COMPONENT_STATE, t.PATH_TRACE, t.PROBE_WINDOW, t.ANOMALY, t.FAULT_EVENT, t.FAULT_STATE,
    t.SILENCE, t.INCIDENT_NOTE,
)  # fmt: skip

Place = tuple[str, int]  # topic of the contract, partition
AnomalyKey = tuple[str, int, AnomalyKind, int]  # path, flow, kind, onset
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Progress:
    """A progress mark of the worker, in milliseconds since the epoch.

    Attributes
    ----------
    event_ms
        Event time up to which the partition is decided; 0: it never had input.
    arrived_ms
        When the mark came.
    idle
        Whether no rounds come.
    """

    event_ms: int
    arrived_ms: int
    idle: bool


class ClusterView:
    """What is known of a cluster, from the records folded so far.

    Attributes
    ----------
    faults
        Open and past faults with their transitions.
    agents
        By agent id: last heartbeat, clock, drops.
    endpoints, pinglists, tasks, skeletons, topology, silences
        Latest record of each key.
    notes
        What people said and did about faults, by note id.
    states
        By state id, then by the reader that says so.
    windows
        By agent id: how many 5-tuples had a window.
    flow_windows
        The last windows of each 5-tuple.
    places, wiring
        Where endpoints stand in the network; what paths are derived from.
    counters, ranks
        Of RNICs and of training jobs; not folded from all there are: a reader adds those that
        somebody looks at.
    anomalies, traces, changes
        The newest anomalies, traces, and changes of states.
    rounds_ms
        By partition: timestamp of the last round.
    progress
        By partition: the worker's last progress mark.
    positions, times_ms
        By place: the offset after the last record folded; the latest Kafka timestamp.
    records, refused, dropped
        By topic: what was folded; what could not be used; what the bounds dropped.
    """

    def __init__(self) -> None:
        self.faults = FaultBook()
        self.agents: dict[str, AgentView] = {}
        self.endpoints: dict[str, Endpoint] = {}
        self.pinglists: dict[str, PingList] = {}
        self.tasks: dict[str, Task] = {}
        self.skeletons: dict[str, Skeleton] = {}
        self.topology: dict[str, Component] = {}
        self.silences: dict[str, Silence] = {}
        self.notes: Newest[str, IncidentNote] = Newest(MAX_NOTES)
        self.states: dict[str, dict[str, ComponentState]] = {}
        self.windows: dict[str, AgentWindows] = {}
        self.flow_windows = FlowWindows()
        self.places = PlaceBook()
        self.wiring = TopologyBook()
        self.counters = RnicCounters()
        self.ranks = RankBook()
        self.anomalies: Newest[AnomalyKey, AnomalySpan] = Newest(MAX_ANOMALIES)
        self.traces: Newest[tuple[str, int, int], PathTrace] = Newest(MAX_TRACES)
        self.changes: Newest[tuple[str, str, int], StateChange] = Newest(MAX_CHANGES)
        self.rounds_ms: dict[int, int] = {}
        self.progress: dict[int, Progress] = {}
        self.positions: dict[Place, int] = {}
        self.times_ms: dict[Place, int] = {}
        self.records: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()

    def apply(self, seen: Seen) -> None:
        """Fold a record in, or several windows; what was folded already changes nothing."""
        if isinstance(seen, SeenWindows):
            self._windows_of(seen)
        else:
            self._record_of(seen)

    def _windows_of(self, seen: SeenWindows) -> None:
        """Fold windows of a partition."""
        place = (seen.topic.name, seen.partition)
        new = seen[int(np.searchsorted(seen.offsets, self.positions.get(place, 0))) :]
        if len(new):
            self.positions[place] = int(new.offsets[-1]) + 1
            latest_ms = int(new.timestamps_ms.max())
            self.times_ms[place] = max(latest_ms, self.times_ms.get(place, 0))
            self.records[seen.topic.name] += len(new)
            self._windows(new.windows)

    def _record_of(self, seen: SeenRecord) -> None:
        name = seen.topic.name
        place = (name, seen.partition)
        if seen.offset < self.positions.get(place, 0):
            return
        self.positions[place] = seen.offset + 1
        at_ms = max(seen.timestamp_ms or 0, 0)
        self.times_ms[place] = max(at_ms, self.times_ms.get(place, 0))
        self.records[name] += 1
        if seen.refused is not None:
            self.refused[name] += 1
        elif name == t.PROBE_ROUND.name:
            if seen.timestamp_ms is not None:
                self.rounds_ms[seen.partition] = seen.timestamp_ms
        elif seen.tombstone:
            self._forget(name, seen.key)
        elif name in _FOLDS:
            _FOLDS[name](self, seen, at_ms)

    @property
    def dropped(self) -> Counter[str]:
        """What the bounds dropped, by topic."""
        return self._dropped + Counter(
            {
                t.FAULT_EVENT.name: self.faults.dropped,
                t.PROBE_WINDOW.name: self.flow_windows.dropped,
                t.ANOMALY.name: self.anomalies.dropped,
                t.PATH_TRACE.name: self.traces.dropped,
                t.COMPONENT_STATE.name: self.changes.dropped,
                t.INCIDENT_NOTE.name: self.notes.dropped,
            }
        )

    @property
    def latest_ms(self) -> int:
        """The latest Kafka timestamp of all records folded; 0: none."""
        return max(self.times_ms.values(), default=0)

    def prepare(self) -> None:
        """Find out, before somebody waits for it, what takes seconds in a large cluster."""
        self.places.of(self)
        self.wiring.of(self)

    def copy(self) -> "ClusterView":
        """Return a view with the same content that changes by itself."""
        other = ClusterView()
        for name, value in vars(self).items():
            setattr(other, name, value.copy())
        return other

    def _latest(self, into: dict[str, Any], seen: SeenRecord) -> None:
        """Keep the latest record of a key."""
        if seen.key in into or len(into) < MAX_KEYS:
            into[seen.key] = seen.record
        else:
            self._dropped[seen.topic.name] += 1

    def _forget(self, topic: str, key: str) -> None:
        if topic == t.FAULT_STATE.name:
            self.faults.withdraw(key)
        elif topic in _KEPT_BY_KEY:
            _KEPT_BY_KEY[topic](self).pop(key, None)

    def _heartbeat(self, seen: SeenRecord, at_ms: int) -> None:
        beat = Beat(_record(seen, Heartbeat), at_ms)
        known = self.agents.get(seen.key)
        if known is not None:
            self.agents[seen.key] = known.with_beat(beat)
        elif len(self.agents) < MAX_KEYS:
            self.agents[seen.key] = AgentView(beat)
        else:
            self._dropped[seen.topic.name] += 1

    def _state(self, seen: SeenRecord, _at_ms: int) -> None:
        state = _record(seen, ComponentState)
        known = self.states.get(seen.key)
        if known is None:
            if len(self.states) >= MAX_KEYS:
                self._dropped[seen.topic.name] += 1
                return
            known = {}
        change = changed(known.get(state.source), state)
        if change is not None:
            key = (state.state_id, state.source, change.at)
            self.changes.put(key, change.at // US_PER_MS, change)
        # A new dict: copies share the old one.
        self.states[seen.key] = {**known, state.source: state}

    def _window(self, seen: SeenRecord, _at_ms: int) -> None:
        self._windows(columns_of([_record(seen, PathWindow)]))

    def _windows(self, windows: WindowColumns) -> None:
        self.flow_windows.add(windows)
        for agent, more in counted(windows):
            known = self.windows.get(agent)
            if known is None and len(self.windows) >= MAX_KEYS:
                self._dropped[t.PROBE_WINDOW.name] += more.flows
            else:
                self.windows[agent] = (known or AgentWindows()).with_more(more)

    def _anomaly(self, seen: SeenRecord, at_ms: int) -> None:
        record = _record(seen, Anomaly)
        if record.kind is AnomalyKind.PROGRESS:
            self.progress[seen.partition] = Progress(
                event_ms=record.event_at // US_PER_MS,
                arrived_ms=at_ms,
                idle=record.state is AnomalyState.IDLE,
            )
        elif record.kind not in POOLED:
            # Each record has an id of its own; an anomaly is what began on a 5-tuple at a time.
            key = (record.path_id, record.flow, record.kind, record.onset_at)
            span = AnomalySpan.after(self.anomalies.get(key), record)
            self.anomalies.put(key, span.onset_at // US_PER_MS, span)

    def _trace(self, seen: SeenRecord, _at_ms: int) -> None:
        trace = _record(seen, PathTrace)
        key = (trace.path_id, trace.flow, trace.traced_at)
        self.traces.put(key, trace.traced_at // US_PER_MS, trace)

    def _note(self, seen: SeenRecord, _at_ms: int) -> None:
        note = _record(seen, IncidentNote)
        self.notes.put(note.note_id, note.noted_at // US_PER_MS, note)

    def _fault(self, seen: SeenRecord, _at_ms: int) -> None:
        self.faults.add(_record(seen, FaultEvent))

    def _fault_state(self, seen: SeenRecord, _at_ms: int) -> None:
        self.faults.add_state(_record(seen, FaultState))


def _record(seen: SeenRecord, kind: type[R]) -> R:
    """Return the record that a topic holds; the codec made it of that class."""
    assert isinstance(seen.record, kind)  # noqa: S101 - see above
    return seen.record


def _keeper(of: Callable[[ClusterView], dict[str, Any]]) -> Callable[..., None]:
    def keep(view: ClusterView, seen: SeenRecord, _at_ms: int) -> None:
        view._latest(of(view), seen)

    return keep


_KEPT_BY_KEY: Final[dict[str, Callable[[ClusterView], dict[str, Any]]]] = {
    t.HEARTBEAT.name: lambda view: view.agents,
    t.ENDPOINT.name: lambda view: view.endpoints,
    t.PINGLIST.name: lambda view: view.pinglists,
    t.TASK.name: lambda view: view.tasks,
    t.SKELETON_TOPIC.name: lambda view: view.skeletons,
    t.TOPOLOGY.name: lambda view: view.topology,
    t.SILENCE.name: lambda view: view.silences,
    t.COMPONENT_STATE.name: lambda view: view.states,
}
_FOLDS: Final[dict[str, Callable[[ClusterView, SeenRecord, int], None]]] = {
    **{name: _keeper(of) for name, of in _KEPT_BY_KEY.items()},
    t.HEARTBEAT.name: ClusterView._heartbeat,
    t.COMPONENT_STATE.name: ClusterView._state,
    t.PROBE_WINDOW.name: ClusterView._window,
    t.ANOMALY.name: ClusterView._anomaly,
    t.PATH_TRACE.name: ClusterView._trace,
    t.FAULT_EVENT.name: ClusterView._fault,
    t.FAULT_STATE.name: ClusterView._fault_state,
    t.INCIDENT_NOTE.name: ClusterView._note,
}
