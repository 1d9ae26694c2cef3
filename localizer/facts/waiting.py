"""Bounds on the records that wait for their time: of unknown names, and in all.

Records wait until the worker's progress marks have passed them. A flood of names that nobody
registered must not fill the memory meanwhile: of these so many wait as would be accepted later. And
where no mark comes for long, the oldest heartbeats and traces go, of all agents alike: what remains
is a log that paused, and a pause makes no agent dead (`localizer.facts.liveness`).
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from operator import itemgetter
from typing import Final, TypeVar

import numpy as np

from localizer.config import CoreConfig
from localizer.facts import heartbeats
from localizer.facts.batch_queue import BatchQueue
from localizer.facts.heartbeats import HeartbeatBatch
from localizer.facts.inputs import Event, Order, Sources, heartbeat_events
from localizer.network import trace_batches
from localizer.network.paths import MAX_STRANGERS
from localizer.network.trace_batches import TraceBatch
from localizer.network.traces import FlowTrace
from schemas import topics
from schemas.columns.arrays import Int64s
from schemas.ids import FlowId, path_id
from schemas.records import Endpoint, Heartbeat, Task

K = TypeVar("K", bound=Hashable)

# Of a queue that is full, this part makes room for what comes.
ROOM_SHARE: Final = 0.25


class WaitingEvents:
    """Events that wait for their time, in order.

    Attributes
    ----------
    dropped
        Heartbeats and traces that were the oldest of too many. Those of unknown names beyond the
        bounds count as refused by liveness and paths.
    """

    def __init__(self, config: CoreConfig, sources: Sources) -> None:
        self.dropped = 0
        self._max_agents = config.max_agents
        self._max_waiting = config.max_waiting
        self._sources = sources
        # Before the first step nobody is known, and what waits is a whole look-back.
        self._max_strangers = config.max_flows
        # Sorted in reverse, and not sorted in yet.
        self._sorted: list[tuple[Order, Event]] = []
        self._unsorted: list[tuple[Order, Event]] = []
        self._traces = BatchQueue[TraceBatch](trace_batches.joined)
        self._heartbeats = BatchQueue[HeartbeatBatch](heartbeats.joined)
        # Unknown agents and 5-tuples of waiting records, and endpoints of waiting registrations.
        self._agents: Counter[str] = Counter()
        self._flows: Counter[FlowId] = Counter()
        self._announced: Counter[str] = Counter()
        # Heartbeats and traces up to this time were dropped, and of how many the next are.
        self._dropped_ns = -1
        self._drop_at = config.max_waiting

    def __len__(self) -> int:
        return len(self._sorted) + len(self._unsorted) + len(self._traces) + len(self._heartbeats)

    def add_event(self, event: Event) -> None:
        """Let an event wait, unless it is beyond the bounds."""
        if not self._admits(event):
            return
        self._unsorted.append((event.order, event))
        if len(self) > self._drop_at:
            self._drop_oldest()

    def add_traces(self, batch: TraceBatch) -> None:
        """Let traces wait; of ends that nobody registered each as an event of its own."""
        plain = batch.between([self._is_registered(end) for end in batch.ends])
        plain &= batch.at_ns > self._dropped_ns
        self._add_events(_trace_events(batch, np.flatnonzero(~plain)))
        self._traces.add(batch.where(plain))
        if len(self) > self._drop_at:
            self._drop_oldest()

    def add_heartbeats(self, batch: HeartbeatBatch) -> None:
        """Let heartbeats wait, unless they are beyond the bounds."""
        fresh = batch.at_ns > self._dropped_ns
        self.dropped += int((~fresh).sum())
        known = {name: self._is_known(name) for name in set(batch.agents)}
        if not all(known.values()):
            for row in np.flatnonzero(fresh).tolist():
                fresh[row] = self._admits_agent(batch.agents[row], known=known[batch.agents[row]])
        self._heartbeats.add(batch if fresh.all() else batch.select(np.flatnonzero(fresh)))
        if len(self) > self._drop_at:
            self._drop_oldest()

    def _add_events(self, events: Iterable[Event]) -> None:
        for event in events:
            self.add_event(event)

    def pop_traces(self, now_ns: int) -> TraceBatch | None:
        """Return the traces of batches that are due by then, in order; None: there are none."""
        return self._traces.pop_due(now_ns)

    def pop_heartbeats(self, now_ns: int) -> HeartbeatBatch | None:
        """Return the heartbeats of batches that are due by then, in order; None: none is."""
        due = self._heartbeats.pop_due(now_ns)
        if due is not None and self._agents:
            for name in due.agents:
                _uncount(self._agents, name)
        return due

    def sort(self) -> None:
        """Sort in what came since the last call."""
        if self._unsorted:
            # One sort of mostly sorted runs; a heap takes three times as long.
            self._sorted += self._unsorted
            self._sorted.sort(key=itemgetter(0), reverse=True)
            self._unsorted = []

    @property
    def next_ns(self) -> int | None:
        """When the first of the sorted events, or of the batches, is due; None: there is none."""
        times = [self._traces.next_ns, self._heartbeats.next_ns]
        times += [order[0] for order, _ in self._sorted[-1:]]
        return min((at_ns for at_ns in times if at_ns is not None), default=None)

    def pop_events(self, now_ns: int) -> list[Event]:
        """Return the sorted events that are due by then, in order."""
        self._max_strangers = MAX_STRANGERS
        due: list[Event] = []
        while self._sorted and self._sorted[-1][0][0] <= now_ns:
            _, event = self._sorted.pop()
            self._forget_names(event)
            due.append(event)
        return due

    def _admits(self, event: Event) -> bool:
        """Return whether an event may wait, and count the names in it, or that it may not."""
        record, paths = event.record, self._sources.paths
        match record:
            case Heartbeat() | FlowTrace() if event.at_ns <= self._dropped_ns:
                self.dropped += 1
                return False
            case Heartbeat(agent_id=agent_id):
                return self._admits_agent(agent_id, known=self._is_known(agent_id))
            case FlowTrace():
                src, dst, _ = record.key
                if not (self._is_registered(src) and self._is_registered(dst)):
                    admitted = _count(self._flows, record.key, self._max_strangers)
                    paths.refused += not admitted
                    return admitted
            case Endpoint():
                self._announced[record.endpoint_id] += 1
            case Task():
                self._announced.update(member.endpoint_id for member in record.endpoints)
        return True

    def _admits_agent(self, agent_id: str, *, known: bool) -> bool:
        """Return whether one more heartbeat of an agent may wait, and count it."""
        admitted = known or _count(self._agents, agent_id, self._max_agents)
        self._sources.liveness.refused += not admitted
        return admitted

    def _is_known(self, agent_id: str) -> bool:
        """Return whether an agent was heard or has a registered endpoint or a ping list."""
        sources = self._sources
        return agent_id in sources.liveness.agents or sources.roster.is_registered(agent_id)

    def _is_registered(self, endpoint_id: str) -> bool:
        """Return whether an endpoint is registered, or will be when its record is applied."""
        return (
            self._sources.roster.agent_of(endpoint_id) is not None or endpoint_id in self._announced
        )

    def _forget_names(self, event: Event) -> None:
        """Take the names of an event that no longer waits out of the counts."""
        record = event.record
        match record:
            case Heartbeat():
                _uncount(self._agents, record.agent_id)
            case FlowTrace():
                _uncount(self._flows, record.key)
            case Endpoint():
                _uncount(self._announced, record.endpoint_id)
            case Task():
                for member in record.endpoints:
                    _uncount(self._announced, member.endpoint_id)

    def _drop_oldest(self) -> None:
        """Drop the oldest heartbeats and traces."""
        for traces in self._traces.pop_all():
            self._unsorted += _ordered(_trace_events(traces, np.arange(len(traces))))
        for beats in self._heartbeats.pop_all():
            self._unsorted += _ordered(heartbeat_events(beats, np.arange(len(beats))))
        self.sort()
        excess = len(self) - round((1 - ROOM_SHARE) * self._max_waiting)
        kept: list[tuple[Order, Event]] = []
        while self._sorted and excess > 0:
            order, event = self._sorted.pop()
            if isinstance(event.record, Heartbeat | FlowTrace):
                self._forget_names(event)
                self._dropped_ns = order[0]
                self.dropped += 1
                excess -= 1
            else:
                kept.append((order, event))
        self._sorted += reversed(kept)
        # Other records stay, however many.
        self._drop_at = max(self._max_waiting, len(self) + round(ROOM_SHARE * self._max_waiting))


def _ordered(events: Iterable[Event]) -> Iterator[tuple[Order, Event]]:
    return ((event.order, event) for event in events)


def _trace_events(batch: TraceBatch, rows: Int64s) -> list[Event]:
    """Return some of the traces of a batch as events."""
    return [
        Event(
            at_ns,
            topics.PATH_TRACE.name,
            path_id(*found.key[:2]),
            partition,
            offset,
            found,
        )
        for found, at_ns, partition, offset in zip(
            batch.flow_traces(rows.tolist()),
            batch.at_ns[rows].tolist(),
            batch.partition[rows].tolist(),
            batch.offset[rows].tolist(),
            strict=True,
        )
    ]


def _count(counts: Counter[K], name: K, most: int) -> bool:
    """Count a name once more, unless it is new and beyond the bound; return whether it was."""
    if name not in counts and len(counts) >= most:
        return False
    counts[name] += 1
    return True


def _uncount(counts: Counter[K], name: K) -> None:
    if name in counts:
        counts[name] -= 1
        if not counts[name]:
            del counts[name]
