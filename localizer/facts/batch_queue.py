"""Records as columns that wait for their time."""

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Protocol, Self, TypeVar

import numpy as np

from schemas.columns.arrays import Int64s


class TimedBatch(Protocol):
    """Records as columns, each with the time at which it takes effect."""

    def __len__(self) -> int:
        """Return how many there are."""

    @property
    def at_ns(self) -> Int64s:
        """Effective times, (n,) int64."""

    def select(self, rows: Int64s) -> Self:
        """Return some of them, in that order."""

    def in_order(self) -> Self:
        """Return them by effective time and place in the log."""


B = TypeVar("B", bound=TimedBatch)


class BatchQueue(Generic[B]):
    """Batches of one kind.

    Parameters
    ----------
    joined
        Makes one batch of several.
    """

    def __init__(self, joined: Callable[[Sequence[B]], B]) -> None:
        self._joined = joined
        # Of each batch when the next of its records is due, a number that is the batch's own, which
        # of its records that is, and all of them in order.
        self._batches: list[tuple[int, int, int, B]] = []
        self._numbered = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def next_ns(self) -> int | None:
        """When the first record is due; None: there is none."""
        return self._batches[0][0] if self._batches else None

    def add(self, batch: B) -> None:
        """Let a batch wait."""
        self._numbered += 1
        self._count += len(batch)
        self._wait(self._numbered, 0, batch.in_order())

    def _wait(self, number: int, begin: int, batch: B) -> None:
        if len(batch) // 2 < begin < len(batch):
            # What is due long after the others does not keep them.
            begin, batch = 0, batch.select(np.arange(begin, len(batch)))
        if begin < len(batch):
            heapq.heappush(self._batches, (int(batch.at_ns[begin]), number, begin, batch))

    def pop_due(self, now_ns: int) -> B | None:
        """Return the records that are due by then, in order; None: there are none."""
        due: list[B] = []
        while self._batches and self._batches[0][0] <= now_ns:
            _, number, begin, batch = heapq.heappop(self._batches)
            end = int(np.searchsorted(batch.at_ns, now_ns, side="right"))
            due.append(batch.select(np.arange(begin, end)))
            self._count -= end - begin
            self._wait(number, end, batch)
        return self._joined(due).in_order() if due else None

    def pop_all(self) -> Iterator[B]:
        """Yield what is left of all batches; then there are none."""
        while self._batches:
            _, _, begin, batch = self._batches.pop()
            self._count -= len(batch) - begin
            yield batch.select(np.arange(begin, len(batch)))
