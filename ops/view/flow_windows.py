"""The last windows of each 5-tuple, in columns, and what is usual of it.

A window costs some look-ups in dictionaries; everything else happens to batches of them at once.
Windows of one time stand in one column, which copies share until it is written: between two
moments of a recording few columns change.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ops.log.windows import FIELDS, LOST, P50, P99, SENT, WindowColumns
from schemas.columns.arrays import Bools, Int32s, Int64s
from schemas.columns.interpreter import NULL

UInt32s = NDArray[np.uint32]

# What is kept of a window.
QUANTITIES: Final = len(FIELDS)
# Stands for a quantity that was not measured; a time of four seconds is kept as one less.
MISSING: Final = 2**32 - 1
# Windows that a series shows: twelve minutes of 30 s.
DEPTH: Final = 24
# What is usual is told by blocks of windows, so that a fault of an hour does not become usual: the
# least of the blocks' medians of three hours. A block is whole before its windows are overwritten.
BLOCK: Final = 12
BLOCKS: Final = 30
# Fewer windows before say nothing about what is usual.
LEAST_WINDOWS: Final = 3
# 5-tuples kept: the skeleton of 40,000 RNICs has some 400,000. Half a gigabyte of columns.
MAX_FLOWS: Final = 524_288
# When there are more, this share of them goes at once, so that sorting out costs little a window.
SLACK: Final = 8
# Windows that are laid by before all are entered at once.
BATCH: Final = 4_096
# A key holds source, target and number of the flow in 64 bits.
END_BITS: Final = 24
FLOW_BITS: Final = 16


@dataclass(frozen=True, slots=True)
class LatestWindows:
    """The latest window of each 5-tuple, a row for each; times in nanoseconds.

    Attributes
    ----------
    src, dst
        Ends of the 5-tuple: places in `FlowWindows.ends`.
    flow
        Number of the 5-tuple in its pair.
    end_at, length_us
        End and length of the window, microseconds (since the epoch).
    sent, lost
        Probes.
    time_ns, usual_ns
        Shape (n, 2): P50 and P99 of the window, and what is usual of them; `MISSING` where it was
        not measured, or there are too few windows before.
    """

    src: Int32s
    dst: Int32s
    flow: Int32s
    end_at: Int64s
    length_us: Int64s
    sent: Int64s
    lost: Int64s
    time_ns: UInt32s
    usual_ns: UInt32s


@dataclass(frozen=True, slots=True)
class FlowSeries:
    """The windows of one 5-tuple, the oldest first.

    Attributes
    ----------
    end_at
        Ends of the windows, microseconds since the epoch.
    numbers
        Shape (n, `QUANTITIES`), `MISSING` where not measured.
    usual_ns
        What is usual of P50 and P99; None: too few windows.
    """

    end_at: Int64s
    numbers: UInt32s
    usual_ns: tuple[int | None, int | None]


class FlowWindows:
    """Windows by 5-tuple, of as many 5-tuples as are to be kept.

    Parameters
    ----------
    limit
        How many. Of more those go whose last window is oldest: that does not depend on the order in
        which partitions are read.

    Attributes
    ----------
    ends
        Endpoints, in the order in which they came; columns name them by their place here.
    generation
        Changes whenever places in `ends` change their meaning.
    dropped
        5-tuples that went.
    """

    def __init__(self, limit: int = MAX_FLOWS) -> None:
        self._limit = limit
        self.ends: list[str] = []
        self.generation = 0
        self.dropped = 0
        self._place: dict[str, int] = {}
        self._slot: dict[int, int] = {}
        # Laid by: where windows are to be entered, the keys of these places, and the windows.
        self._waiting: list[tuple[list[int], list[int], WindowColumns]] = []
        self._count = 0
        self._columns: _Columns | None = None
        # Whether a copy holds the same dictionaries.
        self._names_shared = False

    def __len__(self) -> int:
        return len(self._slot)

    def add(self, windows: WindowColumns) -> None:
        """Take windows; one that is not later than the last of its 5-tuple changes nothing."""
        while len(windows):
            windows = windows[self._lay_by(windows) :]
            if len(windows):
                self._drop_oldest()

    def _lay_by(self, windows: WindowColumns) -> int:
        """Lay windows by; return the number of the first for whose 5-tuple there is no room."""
        slots: list[int] = []
        keys: list[int] = []
        known = self._slot
        flows = windows.flow.tolist()
        for src, dst, flow in zip(windows.src, windows.dst, flows, strict=True):
            key = (self._place_of(src) << END_BITS | self._place_of(dst)) << FLOW_BITS | flow
            slot = known.get(key)
            if slot is None:
                if len(known) >= self._limit:
                    break
                known = self._own_names()
                slot = known[key] = len(known)
            slots.append(slot)
            keys.append(key)
        if slots:
            self._waiting.append((slots, keys, windows[: len(slots)]))
            self._count += len(slots)
        if self._count >= BATCH:
            self._enter()
        return len(slots)

    def latest(self) -> LatestWindows:
        """Return the latest window of each 5-tuple."""
        self._enter()
        columns = self._columns or _Columns(0)
        count = len(self._slot)
        numbers = columns.latest(count)
        keys = columns.key[:count]
        return LatestWindows(
            src=(keys >> (END_BITS + FLOW_BITS)).astype(np.int32),
            dst=((keys >> FLOW_BITS) & (2**END_BITS - 1)).astype(np.int32),
            flow=(keys & (2**FLOW_BITS - 1)).astype(np.int32),
            end_at=columns.last_at[:count].copy(),
            length_us=columns.length_us[:count].copy(),
            sent=numbers[:, SENT].astype(np.int64),
            lost=numbers[:, LOST].astype(np.int64),
            time_ns=numbers[:, [P50, P99]],
            usual_ns=columns.usual_ns[:count].copy(),
        )

    def series(self, src: str, dst: str) -> dict[int, FlowSeries]:
        """Return the windows of a pair's 5-tuples, by their numbers."""
        self._enter()
        ends = self._place.get(src), self._place.get(dst)
        if ends[0] is None or ends[1] is None or self._columns is None:
            return {}
        pair = ends[0] << END_BITS | ends[1]
        keys = self._columns.key[: len(self._slot)]
        slots = np.flatnonzero(keys >> FLOW_BITS == pair)
        flows = {int(keys[slot]) & (2**FLOW_BITS - 1): int(slot) for slot in slots}
        return {flow: self._columns.series(flows[flow]) for flow in sorted(flows)}

    def copy(self) -> "FlowWindows":
        """Return the same windows, to which others can be added."""
        self._enter()
        other = FlowWindows(self._limit)
        other.ends, other._place, other._slot = self.ends, self._place, self._slot
        other.generation, other.dropped = self.generation, self.dropped
        self._names_shared = other._names_shared = True
        if self._columns is not None:
            other._columns = self._columns.copy(len(self._slot))
        return other

    def _place_of(self, end: str) -> int:
        place = self._place.get(end)
        if place is None:
            self._own_names()
            place = self._place[end] = len(self.ends)
            self.ends.append(end)
        return place

    def _own_names(self) -> dict[int, int]:
        """Leave the dictionaries to the copies that share them; return the own one of slots."""
        if self._names_shared:
            self.ends, self._place = self.ends.copy(), self._place.copy()
            self._slot = self._slot.copy()
            self._names_shared = False
        return self._slot

    def _enter(self) -> None:
        """Enter what waits."""
        if not self._waiting:
            return
        if self._columns is None:
            self._columns = _Columns(self._limit)
        slots, keys = (
            np.concatenate([np.array(each[place], np.int64) for each in self._waiting])
            for place in (0, 1)
        )
        windows = [each[2] for each in self._waiting]
        start_at = np.concatenate([each.start_at for each in windows])
        end_at = np.concatenate([each.end_at for each in windows])
        values = np.concatenate([each.values for each in windows], axis=1)
        self._waiting.clear()
        self._count = 0
        self._columns.key[slots] = keys
        left = np.arange(len(slots))
        while len(left):
            # One window of each 5-tuple at a time, in their order.
            first = np.sort(np.unique(slots[left], return_index=True)[1])
            rows = left[first]
            self._columns.enter(
                slots[rows], start_at[rows], end_at[rows], values[:, rows], len(self._slot)
            )
            left = np.delete(left, first)

    def _drop_oldest(self) -> None:
        """Drop the 5-tuples whose last windows are oldest, and the ends that go with them."""
        latest = self.latest()
        assert self._columns is not None  # noqa: S101 - the limit is above 0
        names = self.ends
        # By name where times are equal, so that it does not matter which came first.
        order = sorted(
            range(len(self._slot)),
            key=lambda s: (
                int(latest.end_at[s]),
                names[latest.src[s]],
                names[latest.dst[s]],
                int(latest.flow[s]),
            ),
        )
        gone = max(1, self._limit // SLACK)
        kept = np.sort(np.array(order[gone:], np.int64))
        self.dropped += gone
        self.ends, self._place, self._slot = [], {}, {}
        self._names_shared = False
        self.generation += 1
        for slot in kept:
            src, dst = (self._place_of(names[place[slot]]) for place in (latest.src, latest.dst))
            key = (src << END_BITS | dst) << FLOW_BITS | int(latest.flow[slot])
            self._slot[key] = len(self._slot)
        self._columns = self._columns.picked(kept)
        self._columns.key[: len(kept)] = np.fromiter(self._slot, np.int64)


class _Columns:
    """Columns of so many 5-tuples; memory is taken as rows come into use.

    Attributes
    ----------
    key, last_at, number, length_us, usual_ns
        Of each 5-tuple: its key; end, number and length of its last window; what is usual.
    ends, numbers
        Of the windows whose numbers are alike modulo `DEPTH`: when they end, 0 for none, and what
        is kept of them.
    blocks_ns
        Of the blocks whose numbers are alike modulo `BLOCKS`: medians of P50 and P99, 0 for none.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.key: Int64s = np.zeros(limit, np.int64)
        self.last_at: Int64s = np.zeros(limit, np.int64)
        self.number: Int64s = np.zeros(limit, np.int64)
        self.length_us: Int64s = np.zeros(limit, np.int64)
        self.usual_ns: UInt32s = np.zeros((limit, 2), np.uint32)
        self.ends: list[Int64s] = [np.zeros(limit, np.int64) for _ in range(DEPTH)]
        self.numbers: list[UInt32s] = [
            np.zeros((limit, QUANTITIES), np.uint32) for _ in range(DEPTH)
        ]
        self.blocks_ns: list[UInt32s] = [np.zeros((limit, 2), np.uint32) for _ in range(BLOCKS)]
        # Columns that a copy holds as well.
        self._shared: set[tuple[str, int]] = set()

    def copy(self, count: int) -> "_Columns":
        """Return columns with the same first rows; those by time are shared until written."""
        other = _Columns(0)
        other.limit = self.limit
        for name in ALONE:
            setattr(other, name, self._grown(getattr(self, name)[:count]))
        for name in BY_TIME:
            columns = getattr(self, name)
            setattr(other, name, columns.copy())
            self._shared |= {(name, place) for place in range(len(columns))}
        other._shared = self._shared.copy()
        return other

    def picked(self, rows: Int64s) -> "_Columns":
        """Return columns with some of the rows, and nothing shared."""
        other = _Columns(0)
        other.limit = self.limit
        for name in ALONE:
            setattr(other, name, self._grown(getattr(self, name)[rows]))
        for name in BY_TIME:
            setattr(other, name, [self._grown(column[rows]) for column in getattr(self, name)])
        return other

    def latest(self, count: int) -> UInt32s:
        """Return what is kept of the last windows of the first rows."""
        found = np.empty((count, QUANTITIES), np.uint32)
        place = self.number[:count] % DEPTH
        for own in np.unique(place):
            rows = np.flatnonzero(place == own)
            found[rows] = self.numbers[own][rows]
        return found

    def series(self, slot: int) -> FlowSeries:
        """Return the windows of a 5-tuple."""
        ends = np.array([column[slot] for column in self.ends])
        numbers = np.array([column[slot] for column in self.numbers])
        order = np.argsort(ends)
        order = order[self._there(ends[None], np.array([slot]))[0][order]]
        usual = [None if n == MISSING else int(n) for n in self.usual_ns[slot]]
        return FlowSeries(end_at=ends[order], numbers=numbers[order], usual_ns=(usual[0], usual[1]))

    def enter(
        self, slots: Int64s, start_at: Int64s, end_at: Int64s, values: Int64s, count: int
    ) -> None:
        """Enter one window for each of some 5-tuples, none twice; `count` rows are in use."""
        later = end_at > self.last_at[slots]
        if not later.all():
            slots, start_at, end_at = slots[later], start_at[later], end_at[later]
            values = values[:, later]
        length_us = np.maximum(end_at - start_at, 1)
        number = start_at // length_us
        self._begin_anew(slots[self.length_us[slots] != length_us], count)
        self._close_blocks(slots, number // BLOCK, count)
        self._tell_usual(slots)
        numbers = np.where(values == NULL, MISSING, np.clip(values, 0, MISSING - 1))
        numbers = numbers.T.astype(np.uint32)
        place = number % DEPTH
        for own in np.unique(place):
            rows = place == own
            self._written("numbers", own, count)[slots[rows]] = numbers[rows]
            self._written("ends", own, count)[slots[rows]] = end_at[rows]
        self.last_at[slots], self.number[slots], self.length_us[slots] = end_at, number, length_us

    def _begin_anew(self, slots: Int64s, count: int) -> None:
        """Forget the windows of 5-tuples whose windows are of another length now."""
        known = slots[self.length_us[slots] > 0]
        self.usual_ns[slots] = MISSING
        if len(known):
            for name in ("ends", "blocks_ns"):
                for place in range(len(getattr(self, name))):
                    self._written(name, place, count)[known] = 0
            self.length_us[known] = 0

    def _close_blocks(self, slots: Int64s, block: Int64s, count: int) -> None:
        """Note the median of each block that is over, before the next one's windows come."""
        over = (block != self.number[slots] // BLOCK) & (self.length_us[slots] > 0)
        slots, block = slots[over], block[over]
        if not len(slots):
            return
        last = self.number[slots] // BLOCK
        medians = self._medians(slots, last)
        # One that is older than all that are kept says nothing of what is usual now.
        medians[(medians == MISSING) | (block - last > BLOCKS)[:, None]] = 0
        # Blocks in which there was no window say nothing; they may hold what is older.
        for ahead in range(int(min(BLOCKS, (block - last).max()))):
            here = block - last > ahead
            place = (last[here] + ahead) % BLOCKS
            for own in np.unique(place):
                rows = slots[here][place == own]
                column = self._written("blocks_ns", own, count)
                column[rows] = medians[here][place == own] if ahead == 0 else 0
        least = np.stack([column[slots] for column in self.blocks_ns])
        least[least == 0] = MISSING
        self.usual_ns[slots] = least.min(axis=0)

    def _tell_usual(self, slots: Int64s) -> None:
        """Until a block is over, what is usual is the median of the windows there."""
        blocks = np.stack([column[slots] for column in self.blocks_ns])
        young = ~blocks.any(axis=0) & (self.length_us[slots] > 0)[:, None]
        rows = np.flatnonzero(young.any(axis=1))
        if len(rows):
            medians = self._medians(slots[rows], None)
            self.usual_ns[slots[rows]] = np.where(young[rows], medians, self.usual_ns[slots[rows]])

    def _medians(self, slots: Int64s, block: Int64s | None) -> UInt32s:
        """Return the medians of P50 and P99: of the windows there, or of a block of them."""
        ends = np.stack([column[slots] for column in self.ends], axis=1)
        there = self._there(ends, slots)
        if block is not None:
            first = block * BLOCK * self.length_us[slots]
            whole = BLOCK * self.length_us[slots]
            there &= (ends > first[:, None]) & (ends <= (first + whole)[:, None])
        times = np.stack([column[slots, : P99 + 1] for column in self.numbers], axis=1)
        return lower_medians(np.where(there[:, :, None], times, np.uint32(MISSING)))

    def _there(self, ends: Int64s, slots: Int64s) -> Bools:
        """Return which windows are of the last `DEPTH` lengths of their 5-tuples."""
        oldest = self.last_at[slots] - DEPTH * self.length_us[slots]
        there: Bools = (ends > 0) & (ends > oldest[:, None])
        return there

    def _written(self, name: str, place: int, count: int) -> NDArray[np.int64 | np.uint32]:
        """Return a column to write to: an own one, if a copy holds it as well."""
        columns: list[NDArray[np.int64 | np.uint32]] = getattr(self, name)
        if (name, place) in self._shared:
            columns[place] = self._grown(columns[place][:count])
            self._shared.discard((name, place))
        return columns[place]

    def _grown(self, column: NDArray[np.int64 | np.uint32]) -> NDArray[np.int64 | np.uint32]:
        """Return a copy of a column with room for all rows."""
        grown = np.zeros((self.limit, *column.shape[1:]), column.dtype)
        grown[: len(column)] = column
        return grown


ALONE: Final = ("key", "last_at", "number", "length_us", "usual_ns")
BY_TIME: Final = ("ends", "numbers", "blocks_ns")


def lower_medians(numbers: UInt32s) -> UInt32s:
    """Return the lower median of each 5-tuple's quantities.

    Parameters
    ----------
    numbers
        Shape (n, windows, quantities), `MISSING` where not measured.

    Returns
    -------
    UInt32s
        Shape (n, quantities); `MISSING` where fewer than `LEAST_WINDOWS` were measured.
    """
    ordered = np.sort(numbers, axis=1)
    known = (numbers != MISSING).sum(axis=1)
    middle = np.maximum(known - 1, 0) // 2
    found = np.take_along_axis(ordered, middle[:, None, :], axis=1)[:, 0]
    return np.where(known >= LEAST_WINDOWS, found, np.uint32(MISSING))
