"""Tables of fixed size into which the kernel writes the results of open windows.

When a window closes, its statistics are computed from them. Results that find no free slot go to
the window's chunks (`streams.core.windows`), and are joined at the close.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from schemas.columns.arrays import Int32s
from streams.columns import closing, memory
from streams.columns.slots import slot_values
from streams.core.absorb import OPEN_WINDOWS, SPILL, SlotArrays
from streams.core.windows import Chunk, Values, Windows

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


class WindowSlots:
    """Slots of the open windows.

    Results that no slot can hold, and those of rounds that are not plain, are in the window's
    chunks (`streams.core.windows`). The values of a 5-tuple are computed from both.

    Parameters
    ----------
    lateness_ns
        How long a window stays open after its end; the next ones are open meanwhile.
    """

    def __init__(self, windows: Windows, lateness_ns: int) -> None:
        self._windows = windows
        count = min(OPEN_WINDOWS, 2 + lateness_ns // windows.window_ns)
        self._slots = FIRST_SLOTS
        self.arrays = SlotArrays(
            counts=np.zeros((count, 0), np.int32),
            values=np.zeros((count, 3, FIRST_SLOTS, 0), np.int32),
            spilled=np.zeros(count, np.int64),
            spill=np.zeros((count, 4, SPILL), np.int64),
        )
        windows.before_closing = self.spill
        windows.values_of = self._values

    def fit(self, rows: int) -> None:
        """Give so many rows slots."""
        arrays = self.arrays
        windows, had = arrays.counts.shape
        slots = arrays.values.shape[2]
        if rows <= had and self._slots == slots:
            return
        # More than needed, since growing copies everything.
        counts = np.zeros((windows, max(rows + max(rows // 8, SPARE_ROWS), had)), np.int32)
        counts[:, :had] = arrays.counts
        values = np.zeros((windows, 3, self._slots, counts.shape[1]), np.int32)
        values[:, :, :slots, :had] = arrays.values
        self.arrays = arrays._replace(counts=counts, values=values)

    def spill(self) -> None:
        """Add results without a slot to the windows; open windows that slots have results of."""
        arrays, first = self.arrays, self._windows.first_open
        count = len(arrays.spilled)
        for place in range(count):
            window = first + (place - first) % count
            used = int(arrays.spilled[place])
            if used:
                rows, rtt_ns, host_ns, responder_ns = arrays.spill[place, :, :used].copy()
                self._windows.add_chunk(window, rows, rtt_ns, host_ns, responder_ns)
                arrays.spilled[place] = 0
            if arrays.counts[place].any() and not self._windows.ensure_open(window):
                arrays.counts[place] = 0

    def _values(self, window: int, chunks: Sequence[Chunk]) -> Values:
        """Return a window's values of each row; its slots are free afterwards."""
        arrays = self.arrays
        place = window % len(arrays.spilled)
        counts, slots = arrays.counts[place], arrays.values[place]
        values = self._mixed(counts, slots, chunks) if chunks else slot_values(counts, slots)
        counts[:] = 0
        if slots.nbytes >= LARGE_BYTES:
            # The next window needs memory only as its slots fill.
            memory.empty(slots)
        return values

    def _mixed(self, counts: Int32s, slots: Int32s, chunks: Sequence[Chunk]) -> Values:
        """Return the values of slots and chunks; some rows are in one, some in both."""
        mixed = closing.chunk_values(chunks, counts, slots)
        rows = mixed[0][mixed[0] < len(counts)]
        own = counts[rows]
        spilled = sum(len(chunk[0]) for chunk in chunks)
        if spilled > SPILLED_SHARE * counts.sum() and int(own.max(initial=0)) >= len(slots[0]):
            self._slots = min(2 * len(slots[0]), MOST_SLOTS)
        counts[rows] = 0
        plain = slot_values(counts, slots)
        order = np.argsort(np.concatenate((plain[0], mixed[0])))
        joined = [np.concatenate(pair)[order] for pair in zip(plain, mixed, strict=True)]
        return joined[0], joined[1], joined[2], joined[3]
