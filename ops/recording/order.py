"""The order in which a recording is written again: slot by slot of event time.

When the rounds have moved the localizer's clock to some time, everything that other topics said up
to that time must have arrived, as it would live. Therefore each slot's other records are written
and acknowledged before its rounds. They lead by the length of a round, since a round is decided
with its last probe.
"""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from schemas.bounds import MAX_AHEAD_NS, MAX_ROUND_SPAN_NS
from schemas.topics import Topic
from schemas.units import MS_NS, US_PER_MS

SLOT_MS: Final = 1_000
# Workers refuse a round that ends later after its timestamp.
MAX_LEAD_MS: Final = (MAX_AHEAD_NS + MAX_ROUND_SPAN_NS) // MS_NS


class Timed(Protocol):
    """What the order goes by: see `ops.recording.source.Item`."""

    @property
    def topic(self) -> Topic:
        """Topic of the record."""
        ...

    @property
    def at_ms(self) -> int:
        """When it is due."""
        ...

    @property
    def end_ms(self) -> int:
        """Up to when it decides things."""
        ...


T = TypeVar("T", bound=Timed)
# What stands for the rounds of a slot: themselves, or what was made of them.
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class RoundSlot(Generic[R]):
    """The rounds of a second of event time, at least one, or what was made of them.

    `start_ms` is the slot's event time, milliseconds since the epoch; `reach_ms` is up to when
    its rounds decide things.
    """

    start_ms: int
    reach_ms: int
    rounds: R


@dataclass(frozen=True, slots=True)
class Slot(Generic[R, T]):
    """Records that are written together: `others`, then `rounds`; None: it has none.

    `start_ms` is the slot's event time, milliseconds since the epoch.
    """

    start_ms: int
    others: list[T]
    rounds: R | None


class _Heads(Generic[T]):
    """Several streams, each in its own order, taken by event time."""

    def __init__(self, streams: Iterable[Iterator[T]]) -> None:
        self._heap: list[tuple[int, int, T, Iterator[T]]] = []
        for number, stream in enumerate(streams):
            first = next(stream, None)
            if first is not None:
                # The number breaks ties.
                heapq.heappush(self._heap, (first.at_ms, number, first, stream))

    @property
    def first_ms(self) -> int | None:
        """Event time of the earliest item; None when all is taken."""
        return self._heap[0][0] if self._heap else None

    def before(self, end_ms: int) -> list[T]:
        """Take what is earlier than that."""
        taken = []
        heap = self._heap
        while heap and heap[0][0] < end_ms:
            _, number, item, stream = heap[0]
            taken.append(item)
            following = next(stream, None)
            if following is None:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, (following.at_ms, number, following, stream))
        return taken


def round_slots(rounds: Iterable[Iterator[T]]) -> Iterator[RoundSlot[list[T]]]:
    """Merge the partitions' rounds into slots, by event time.

    Parameters
    ----------
    rounds
        One iterator per partition, its `at_ms` never going back. Within each partition the order
        stays.
    """
    heads = _Heads(rounds)
    while (first_ms := heads.first_ms) is not None:
        start_ms = first_ms // SLOT_MS * SLOT_MS
        taken = heads.before(start_ms + SLOT_MS)
        yield RoundSlot(start_ms, max(item.end_ms for item in taken), taken)


def slots(rounds: Iterable[RoundSlot[R]], others: Iterable[Iterator[T]]) -> Iterator[Slot[R, T]]:
    """Put the records of all other topics into the rounds' slots, and into slots of their own.

    Parameters
    ----------
    rounds
        By event time.
    others
        One iterator per partition, its `at_ms` never going back.

    Yields
    ------
    Slot
        By event time; within each partition the order is the stream's.
    """
    waiting = iter(rounds)
    ahead, heads = next(waiting, None), _Heads(others)
    while True:
        starts_ms = (None if ahead is None else ahead.start_ms, heads.first_ms)
        firsts = [ms for ms in starts_ms if ms is not None]
        if not firsts:
            return
        start_ms = reach_ms = min(firsts) // SLOT_MS * SLOT_MS
        own: R | None = None
        if ahead is not None and ahead.start_ms == start_ms:
            own, reach_ms = ahead.rounds, ahead.reach_ms
            ahead = next(waiting, None)
        yield Slot(start_ms, heads.before((reach_ms // SLOT_MS + 1) * SLOT_MS), own)


def round_end_ms(started_us: int, last_sent_ns: int, timestamp_ms: int | None) -> int:
    """Return when a round's last probe was sent (rounded up), from its start and that offset.

    By the clock of its agent. A round that says to be far later than its timestamp is refused by
    workers, and must not let all other records go first.
    """
    end_ms = started_us // US_PER_MS + last_sent_ns // MS_NS + 1
    return end_ms if not timestamp_ms else min(end_ms, timestamp_ms + MAX_LEAD_MS)


def between(stream: Iterator[T], from_ms: int | None, to_ms: int | None) -> Iterator[T]:
    """Keep what lies in the bounds; what compacted topics said earlier is state, and stays."""
    for item in stream:
        if to_ms is not None and item.at_ms >= to_ms:
            return
        if from_ms is None or item.at_ms >= from_ms or item.topic.compacted:
            yield item
