"""Bounds on the records that wait for their time: of unknown names, and in all.

Records wait until the worker's progress marks have passed them. A flood of names that nobody
registered must not fill the memory meanwhile: of these so many wait as would be accepted later. And
where no mark comes for long, the oldest heartbeats and traces go, of all agents alike: what remains
is a log that paused, and a pause makes no agent dead (`localizer.facts.liveness`).
"""

import heapq
from collections import Counter
from collections.abc import Hashable
from operator import itemgetter
from typing import Final, TypeVar

import numpy as np

from localizer.config import CoreConfig
from localizer.facts.inputs import Event, Order, Sources
from localizer.network.paths import MAX_STRANGERS
from localizer.network.trace_batches import TraceBatch, joined
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
        # Traces as columns: when the first of each batch is due, a number that is the batch's own,
        # and the batch, in order.
        self._batches: list[tuple[int, int, TraceBatch]] = []
        self._numbered = 0
        self._in_batches = 0
        # Unknown agents and 5-tuples of waiting records, and endpoints of waiting registrations.
        self._agents: Counter[str] = Counter()
        self._flows: Counter[FlowId] = Counter()
        self._announced: Counter[str] = Counter()
        # Heartbeats and traces up to this time were dropped, and of how many the next are.
        self._dropped_ns = -1
        self._drop_at = config.max_waiting

    def __len__(self) -> int:
        return len(self._sorted) + len(self._unsorted) + self._in_batches

    def add_event(self, event: Event) -> None:
        """Let an event wait, unless it is beyond the bounds."""
        if not self._admits(event):
            return
        self._unsorted.append((event.order, event))
        if len(self) > self._drop_at:
            self._drop_oldest()

    def add_batch(self, batch: TraceBatch) -> None:
        """Let traces wait; of ends that nobody registered each as an event of its own."""
        plain = batch.between([self._is_registered(end) for end in batch.ends])
        plain &= batch.at_ns > self._dropped_ns
        if not plain.all():
            for event in _events(batch, np.flatnonzero(~plain)):
                self.add_event(event)
        self._keep_batch(batch.where(plain).in_order())
        if len(self) > self._drop_at:
            self._drop_oldest()

    def _keep_batch(self, batch: TraceBatch) -> None:
        if len(batch):
            self._numbered += 1
            self._in_batches += len(batch)
            heapq.heappush(self._batches, (int(batch.at_ns[0]), self._numbered, batch))

    def pop_batch(self, now_ns: int) -> TraceBatch | None:
        """Return the traces of batches that are due by then, in order; None: there are none."""
        due: list[TraceBatch] = []
        while self._batches and self._batches[0][0] <= now_ns:
            _, _, batch = heapq.heappop(self._batches)
            self._in_batches -= len(batch)
            count = int(np.searchsorted(batch.at_ns, now_ns, side="right"))
            if count < len(batch):
                self._keep_batch(batch.select(np.arange(count, len(batch))))
                batch = batch.select(np.arange(count))
            due.append(batch)
        return joined(due).in_order() if due else None

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
        times = [at_ns for at_ns, *_ in self._batches[:1]]
        times += [order[0] for order, _ in self._sorted[-1:]]
        return min(times, default=None)

    def pop_due(self, now_ns: int) -> Event | None:
        """Return the next of the sorted events that are due by then; None: there is none."""
        self._max_strangers = MAX_STRANGERS
        if not self._sorted or self._sorted[-1][0][0] > now_ns:
            return None
        _, event = self._sorted.pop()
        self._forget_names(event)
        return event

    def _admits(self, event: Event) -> bool:
        """Return whether an event may wait, and count the names in it, or that it may not."""
        record, liveness, paths = event.record, self._sources.liveness, self._sources.paths
        match record:
            case Heartbeat() | FlowTrace() if event.at_ns <= self._dropped_ns:
                self.dropped += 1
                return False
            case Heartbeat():
                name = record.agent_id
                if liveness.get(name) is None and not self._sources.roster.is_registered(name):
                    admitted = _count(self._agents, name, self._max_agents)
                    liveness.refused += not admitted
                    return admitted
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
        for _, _, batch in self._batches:
            events = _events(batch, np.arange(len(batch)))
            self._unsorted += [(event.order, event) for event in events]
        self._batches, self._in_batches = [], 0
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


def _events(batch: TraceBatch, rows: Int64s) -> list[Event]:
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
