"""Traces that show one path each, as rows of arrays, linked by 5-tuple from the newest added back.

A row says which hops of the path answered, and how fast; the path itself is its 5-tuple's
(`localizer.network.flow_rows`). So a row takes sixty bytes.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from localizer.network.trace_batches import MAX_WHOLE, NO_HOP, TraceBatch, padded, trace_of_row
from localizer.network.traces import (
    BASELINE_REFERENCES,
    EVIDENCE,
    EVIDENCE_NS,
    REFERENCES,
    Trace,
)
from schemas.columns.arrays import Bools, Int32s, Int64s
from schemas.columns.interpreter import NULL

ROWS: Final = 1_024
# Before the first trace of a 5-tuple.
NO_TRACE: Final = -1
NEVER_NS: Final = np.iinfo(np.int64).min // 2


class Places:
    """Numbers of rows in use; those that were given back come first again."""

    def __init__(self) -> None:
        self.used = 0
        self._free: list[int] = []

    def __len__(self) -> int:
        return self.used - len(self._free)

    def take(self, count: int) -> list[int]:
        """Return so many rows."""
        keep = max(0, len(self._free) - count)
        reused = self._free[keep:]
        del self._free[keep:]
        begin, self.used = self.used, self.used + count - len(reused)
        return [*reused, *range(begin, self.used)]

    def give_back(self, rows: Sequence[int]) -> None:
        """Let rows be taken again."""
        self._free += rows

    def room(self, room: int) -> int:
        """Return how many rows there must be room for, where there is room for so many."""
        return room if self.used <= room else max(2 * room, self.used)


def grow(holder: object, names: Sequence[str], room: int) -> None:
    """Give some columns of an object room for so many rows."""
    for name in names:
        column = getattr(holder, name)
        found = np.zeros((room, *column.shape[1:]), column.dtype)
        found[: len(column)] = column
        setattr(holder, name, found)


class TraceRows:
    """Traces of many 5-tuples."""

    def __init__(self) -> None:
        self._places = Places()
        self._traced_ns: Int64s = np.zeros(ROWS, np.int64)
        self._rtts_ns: Int64s = np.zeros((ROWS, 1), np.int64)
        self._discovery: Bools = np.zeros(ROWS, np.bool_)
        self._complete: Bools = np.zeros(ROWS, np.bool_)
        # How many hops stand in it, and as bits which of them answered.
        self._length: NDArray[np.uint8] = np.zeros(ROWS, np.uint8)
        self._answered: NDArray[np.uint8] = np.zeros(ROWS, np.uint8)
        # The trace of the same 5-tuple that was added before.
        self._older: Int32s = np.zeros(ROWS, np.int32)

    def __len__(self) -> int:
        return len(self._places)

    def add_traces(self, batch: TraceBatch, older: Int32s) -> Int64s:
        """Add traces, each behind the one that was added before; return their rows."""
        place = np.array(self._places.take(len(batch)), np.int64)
        self._make_room(batch.hops.shape[1])
        self._traced_ns[place] = batch.traced_ns
        self._rtts_ns[place] = padded(batch.rtts_ns, self._rtts_ns.shape[1], NULL)
        self._discovery[place] = batch.discovery
        self._complete[place] = batch.complete
        self._length[place] = (batch.hops != NO_HOP).sum(axis=1)
        self._answered[place] = np.packbits(batch.hops >= 0, axis=1, bitorder="little")[:, 0]
        self._older[place] = older
        return place

    def chain(self, last: int) -> list[int]:
        """Return the rows of a 5-tuple in the order in which they were added."""
        found = []
        while last != NO_TRACE:
            found.append(last)
            last = self._older.item(last)
        return found[::-1]

    def traces(self, rows: Sequence[int], path: Sequence[str]) -> list[tuple[Trace, bool]]:
        """Return traces of a path, and whether each was made without a cause."""
        found = []
        # Nearly always one or two: values by themselves are had sooner than arrays of them.
        for row in rows:
            length, answered = self._length.item(row), self._answered.item(row)
            trace = trace_of_row(
                self._traced_ns.item(row),
                [path[n] if answered >> n & 1 else None for n in range(length)],
                self._rtts_ns[row, :length].tolist(),
                complete=self._complete.item(row),
            )
            found.append((trace, self._discovery.item(row)))
        return found

    def trim(self, last: Int32s) -> tuple[Int32s, Int64s]:
        """Drop traces of 5-tuples that count no more, as `FlowTraces.insert` would, or fewer.

        Of traces of the same time all stay.

        Returns
        -------
        last : (n,) int32
            The last row of each 5-tuple.
        count : (n,) int64
            How many traces it has.
        """
        # The last place is NO_TRACE for all.
        chain = self._chains(last)
        there = chain != NO_TRACE
        at_ns = self._traced_ns[chain]
        complete = there & self._complete[chain]
        since_ns = np.where(there, at_ns, NEVER_NS).max(axis=1, keepdims=True) - EVIDENCE_NS
        kept = _newest(at_ns, there, EVIDENCE) & (at_ns >= since_ns)
        kept |= _newest(at_ns, complete, REFERENCES)
        kept |= _newest(at_ns, complete & self._discovery[chain], BASELINE_REFERENCES)
        self._places.give_back(chain[there & ~kept].tolist())
        count: Int64s = kept.sum(axis=1)
        left = np.take_along_axis(chain, np.argsort(~kept, axis=1, kind="stable"), axis=1)
        left[np.arange(left.shape[1]) >= count[:, None]] = NO_TRACE
        linked = left[:, :-1] != NO_TRACE
        self._older[left[:, :-1][linked]] = left[:, 1:][linked]
        return left[:, 0], count

    def broke_off(self, last: Int32s, since_ns: Int64s, latest: int) -> tuple[Int64s, Bools]:
        """Return how far the traces of 5-tuples got that broke off.

        Parameters
        ----------
        last : (n,) int32
            The last row of each 5-tuple.
        since_ns : (n,) int64
            Only traces that were finished from then on.
        latest
            Only this many of the latest traces.

        Returns
        -------
        hop : (n,) int64
            Index of the farthest hop that was the last to answer in a trace; -1 if none did.
        certain : (n,) bool
            False where traces have the same time: then `hop` may be another trace's.
        """
        chain = self._chains(last)
        there = chain != NO_TRACE
        at_ns = np.where(there, self._traced_ns[chain], NEVER_NS)
        times = -np.sort(-at_ns, axis=1)
        certain: Bools = ((np.diff(times, axis=1) != 0) | (times[:, 1:] == NEVER_NS)).all(axis=1)
        newest_ns = times[:, 0]
        since_ns = np.maximum(since_ns, newest_ns - EVIDENCE_NS)
        counts = _newest(at_ns, there, latest) & (at_ns >= since_ns[:, None])
        counts &= ~self._complete[chain]
        # The highest bit of those that answered.
        hops = np.frexp(self._answered[chain].astype(np.float64))[1] - 1
        return np.where(counts, hops, -1).max(axis=1).astype(np.int64), certain

    def drop(self, last: int) -> None:
        """Drop all traces of a 5-tuple."""
        self._places.give_back(self.chain(last))

    def _chains(self, last: Int32s) -> Int32s:
        """Return the rows of 5-tuples, from the last added back, padded with NO_TRACE: (n, most).

        There is one NO_TRACE at least in each.
        """
        links = [last]
        while (links[-1] != NO_TRACE).any():
            links.append(np.where(links[-1] == NO_TRACE, NO_TRACE, self._older[links[-1]]))
        return np.stack(links, axis=1)

    def _make_room(self, width: int) -> None:
        room = self._places.room(len(self._older))
        if room > len(self._older):
            names = (
                "_traced_ns", "_rtts_ns", "_discovery", "_complete", "_length", "_answered",
                "_older",
            )  # fmt: skip
            grow(self, names, room)
        if width > self._rtts_ns.shape[1]:
            # Which hops answered is one byte.
            if width > MAX_WHOLE:
                raise ValueError(f"a trace of {width} hops is too long to be a row")
            self._rtts_ns = padded(self._rtts_ns, width, NULL)


def _newest(at_ns: Int64s, of: Bools, most: int) -> Bools:
    """Return by 5-tuple which of some traces have one of the newest times, of so many times."""
    times = -np.sort(-np.where(of, at_ns, NEVER_NS), axis=1)
    rank = np.cumsum(np.diff(times, axis=1, prepend=0) != 0, axis=1)
    least_ns = np.where(rank <= most, times, np.iinfo(np.int64).max).min(axis=1, keepdims=True)
    found: Bools = of & (at_ns >= least_ns)
    return found
