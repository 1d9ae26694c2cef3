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

from schemas.topics import Topic
from schemas.units import MS_NS, US_PER_MS

SLOT_MS: Final = 1_000


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
R = TypeVar("R", bound=Timed)


@dataclass(frozen=True, slots=True)
class Slot(Generic[R, T]):
    """Records that are written together: `others`, then `rounds`.

    `start_ms` is the slot's event time, milliseconds since the epoch.
    """

    start_ms: int
    others: list[T]
    rounds: list[R]


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


def slots(
    rounds: Iterable[Iterator[R]], others: Iterable[Iterator[T]], slot_ms: int = SLOT_MS
) -> Iterator[Slot[R, T]]:
    """Merge the partitions into slots.

    Parameters
    ----------
    rounds, others
        One iterator per partition, its `at_ms` never going back.
    slot_ms
        Length of a slot, milliseconds of event time.

    Yields
    ------
    Slot
        By event time; within each partition the order is the stream's.
    """
    round_heads, other_heads = _Heads(rounds), _Heads(others)
    while True:
        firsts = [ms for ms in (round_heads.first_ms, other_heads.first_ms) if ms is not None]
        if not firsts:
            return
        start_ms = min(firsts) // slot_ms * slot_ms
        taken = round_heads.before(start_ms + slot_ms)
        reach_ms = max((item.end_ms for item in taken), default=start_ms)
        lead_ms = (reach_ms // slot_ms + 1) * slot_ms
        yield Slot(start_ms, other_heads.before(lead_ms), taken)


def round_end_ms(started_us: int, last_sent_ns: int) -> int:
    """Return when a round's last probe was sent (rounded up), from its start and that offset."""
    return started_us // US_PER_MS + last_sent_ns // MS_NS + 1


def between(stream: Iterator[T], from_ms: int | None, to_ms: int | None) -> Iterator[T]:
    """Keep what lies in the bounds; what compacted topics said earlier is state, and stays."""
    for item in stream:
        if to_ms is not None and item.at_ms >= to_ms:
            return
        if from_ms is None or item.at_ms >= from_ms or item.topic.compacted:
            yield item
