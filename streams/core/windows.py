"""Event-time tumbling windows per 5-tuple: exact statistics, closed all at once.

A result belongs to the window that holds its sending time. The kernel for plain rounds
(`streams.core.absorb`) writes results into tables of fixed size, the slots of the open windows.
Other results, and those that find no free slot, are kept in lists of column chunks. When a window
closes, one pass gives the statistics of every 5-tuple in it (`streams.columns.slots`,
`streams.columns.closing`).
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from schemas.columns.arrays import Bools, Int32s, Int64s
from streams.columns import closing, memory
from streams.columns.closing import Chunk, Values
from streams.columns.quantities import COUNT
from streams.columns.rounds import RoundColumns
from streams.columns.slots import slot_values
from streams.core.absorb import OPEN_WINDOWS, SPILL, SlotArrays

# Probes of a 5-tuple in a window: once a second for half a minute, and some sent again.
FIRST_SLOTS: Final = 32
MOST_SLOTS: Final = 128
# Rows are added for an agent's 5-tuples at a time, some 80. Five megabytes, a quarter of it used.
SPARE_ROWS: Final = 4_096
# With a larger share of a window's results without a slot there will be more slots; each slot
# takes 12 bytes of every 5-tuple.
SPILLED_SHARE: Final = 0.05
# From this size on (40,000 5-tuples of a partition, with 32 slots) the slots of a closed window
# are given back to the system. To get them again costs 3 % of a worker's time for the window.
LARGE_BYTES: Final = 16 * 2**20


@dataclass(slots=True)
class _Open:
    """Chunks of one open window; `repeats` are rows of duplicate results."""

    chunks: list[Chunk] = field(default_factory=list)
    repeats: list[Int64s] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ClosedWindow:
    """Statistics of one window, one entry per row (5-tuple) with results.

    All arrays have one length, `values` has len(COLUMNS) columns; -1 stands for "no
    probe answered" or "not measured". `index` times the window's length is its start.
    """

    index: int
    rows: Int64s
    sent: Int64s
    ok: Int64s
    repeats: Int64s
    values: Int64s


class Windows:
    """The open windows of one partition.

    Parameters
    ----------
    window_ns
        Length of a window.
    floor_ns
        Windows that end by this time were closed before a restart.
    lateness_ns
        How long a window stays open after its end; the next ones are open meanwhile.

    Attributes
    ----------
    slots
        Results of the open windows that the kernel entered.
    """

    def __init__(self, window_ns: int, floor_ns: int = 0, *, lateness_ns: int = 0) -> None:
        self.window_ns = window_ns
        self._open: dict[int, _Open] = {}
        # Windows with a smaller index are closed.
        self._next = 0
        # Results before this time were published by windows of another length.
        self._floor_ns = floor_ns
        count = min(OPEN_WINDOWS, 2 + lateness_ns // window_ns)
        self._slots_wanted = FIRST_SLOTS
        self.slots = SlotArrays(
            counts=np.zeros((count, 0), np.int32),
            values=np.zeros((count, COUNT, FIRST_SLOTS, 0), np.int32),
            spilled=np.zeros(count, np.int64),
            spill_rows=np.zeros((count, SPILL), np.int64),
            spill=np.zeros((count, COUNT, SPILL), np.int64),
        )

    @property
    def closed_ns(self) -> int:
        """Time up to which all windows are closed."""
        return max(self._next * self.window_ns, self._floor_ns)

    @property
    def entry_ns(self) -> int:
        """Results from this time on may be given to `add_chunk`.

        After a restart it lies before `closed_ns`; results of published windows are dropped then.
        Where the floor lies inside a window, only `add_round` can tell its results apart.
        """
        if self._floor_ns % self.window_ns:
            return self.closed_ns
        return self._next * self.window_ns

    @property
    def first_open(self) -> int:
        """Index of the first window that is not closed."""
        return self._next

    def add_round(self, rows: Int64s, columns: RoundColumns) -> Bools:
        """Add the results of a round; return which of them came in time."""
        sent_ns = columns.sent_ns
        timely = sent_ns >= self._next * self.window_ns
        counted = timely & (sent_ns >= self._floor_ns)
        index = sent_ns // self.window_ns
        if counted.all() and len(index) and index.min() == index.max():
            # Usually a round lies in one window as a whole.
            self.add_chunk(int(index[0]), rows, columns.values)
            return timely
        for window in np.unique(index[counted]).tolist():
            here = counted & (index == window)
            self.add_chunk(window, rows[here], columns.values[:, here])
        return timely

    def add_chunk(self, window: int, rows: Int64s, values: Int64s) -> None:
        """Add results of one window that is open; -1 as in the chunks."""
        if self._is_wanted(window):
            self._window(window).chunks.append((rows, values))

    def add_repeats(self, rows: Int64s, sent_ns: Int64s) -> None:
        """Note duplicate results in the windows that are still open."""
        index = sent_ns // self.window_ns
        for window in np.unique(index[sent_ns >= self.closed_ns]).tolist():
            self._window(window).repeats.append(rows[index == window])

    def close(self, until_ns: int) -> list[ClosedWindow]:
        """Close all windows that end by `until_ns`, oldest first."""
        upto = until_ns // self.window_ns
        if upto <= self._next:
            return []
        self.spill_slots()
        self._next = upto
        due = sorted(index for index in self._open if index < upto)
        popped = [(index, self._open.pop(index)) for index in due]
        closed = [self._closed(index, window) for index, window in popped]
        return [window for window in closed if len(window.rows)]

    def fit_slots(self, rows: int) -> None:
        """Give so many rows slots."""
        slots = self.slots
        windows, had = slots.counts.shape
        count = slots.values.shape[2]
        if rows <= had and self._slots_wanted == count:
            return
        # More than needed, since growing copies everything.
        counts = np.zeros((windows, max(rows + max(rows // 8, SPARE_ROWS), had)), np.int32)
        counts[:, :had] = slots.counts
        values = np.zeros((windows, COUNT, self._slots_wanted, counts.shape[1]), np.int32)
        values[:, :, :count, :had] = slots.values
        self.slots = slots._replace(counts=counts, values=values)

    def spill_slots(self) -> None:
        """Make chunks of results without a slot; open windows that slots have results of.

        Slots of a window that was closed before a restart are emptied.
        """
        slots, first = self.slots, self._next
        count = len(slots.spilled)
        for place in range(count):
            window = first + (place - first) % count
            used = int(slots.spilled[place])
            if used:
                rows = slots.spill_rows[place, :used].copy()
                self.add_chunk(window, rows, slots.spill[place, :, :used].copy())
                slots.spilled[place] = 0
            if slots.counts[place].any():
                if self._is_wanted(window):
                    self._window(window)
                else:
                    slots.counts[place] = 0

    def _values(self, window: int, chunks: list[Chunk]) -> Values:
        """Return a window's values of each row; its slots are free afterwards."""
        place = window % len(self.slots.spilled)
        counts, slots = self.slots.counts[place], self.slots.values[place]
        values = self._mixed(counts, slots, chunks) if chunks else slot_values(counts, slots)
        counts[:] = 0
        if slots.nbytes >= LARGE_BYTES:
            # The next window needs memory only as its slots fill.
            memory.empty(slots)
        return values

    def _mixed(self, counts: Int32s, slots: Int32s, chunks: list[Chunk]) -> Values:
        """Return the values of slots and chunks; some rows are in one, some in both."""
        mixed = closing.chunk_values(chunks, counts, slots)
        rows = mixed[0][mixed[0] < len(counts)]
        own = counts[rows]
        spilled = sum(len(chunk[0]) for chunk in chunks)
        if spilled > SPILLED_SHARE * counts.sum() and int(own.max(initial=0)) >= len(slots[0]):
            self._slots_wanted = min(2 * len(slots[0]), MOST_SLOTS)
        counts[rows] = 0
        plain = slot_values(counts, slots)
        order = np.argsort(np.concatenate((plain[0], mixed[0])))
        joined = [np.concatenate(pair)[order] for pair in zip(plain, mixed, strict=True)]
        return joined[0], joined[1], joined[2], joined[3]

    def _closed(self, index: int, window: _Open) -> ClosedWindow:
        rows, sent, ok, values = self._values(index, window.chunks)
        return ClosedWindow(
            index=index,
            rows=rows,
            sent=sent,
            ok=ok,
            repeats=_repeats(rows, window.repeats),
            values=values,
        )

    def _is_wanted(self, window: int) -> bool:
        return (window + 1) * self.window_ns > self._floor_ns

    def _window(self, index: int) -> _Open:
        window = self._open.get(index)
        if window is None:
            window = self._open[index] = _Open()
        return window


def _repeats(rows: Int64s, chunks: list[Int64s]) -> Int64s:
    if not chunks:
        return np.zeros(len(rows), np.int64)
    repeated = np.concatenate(chunks)
    place = np.searchsorted(rows, repeated)
    known = (place < len(rows)) & (rows[np.minimum(place, len(rows) - 1)] == repeated)
    return np.bincount(place[known], minlength=len(rows)).astype(np.int64)
