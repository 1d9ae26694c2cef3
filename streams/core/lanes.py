"""Where a kernel gathers the results of the open windows, and what comes of them at their end."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from schemas.columns.arrays import Int32s
from streams.columns import closing, memory
from streams.columns.slots import slot_values
from streams.core.absorb import LANES, SPILL, LaneArrays
from streams.core.windows import Chunk, Values, Windows

# Probes of a 5-tuple in a window: once a second for half a minute, and some sent again.
FIRST_SLOTS: Final = 32
MOST_SLOTS: Final = 128
# An agent's 5-tuples come 80 at a time. Five megabytes, of which a quarter is touched.
SPARE_ROWS: Final = 4_096
# More of a window's results without a slot want more slots: each slot costs all 5-tuples 12 bytes.
SPILLED_SHARE: Final = 0.05
# From this size on (40,000 5-tuples of a partition, with 32 slots) a lane that is free is given
# back to the system. To get it again costs 3 % of what a worker takes for the window.
LARGE_BYTES: Final = 16 * 2**20


class Lanes:
    """Slots of the windows that are open, each window in a lane.

    What a slot cannot hold, and what comes by other ways, is in the window's chunks; 5-tuples
    with any of that are put together with it.

    Parameters
    ----------
    lateness_ns
        How long a window stays open behind its end: the next ones are open beside it.
    """

    def __init__(self, windows: Windows, lateness_ns: int) -> None:
        self._windows = windows
        lanes = min(LANES, 2 + lateness_ns // windows.window_ns)
        self._slots = FIRST_SLOTS
        self.arrays = LaneArrays(
            counts=np.zeros((lanes, 0), np.int32),
            slots=np.zeros((lanes, 3, FIRST_SLOTS, 0), np.int32),
            spilled=np.zeros(lanes, np.int64),
            spill=np.zeros((lanes, 4, SPILL), np.int64),
        )
        windows.before_closing = self.spill
        windows.values_of = self._values

    def fit(self, rows: int) -> None:
        """See that so many rows have slots."""
        arrays = self.arrays
        lanes, had = arrays.counts.shape
        slots = arrays.slots.shape[2]
        if rows <= had and self._slots == slots:
            return
        # Some more: rows come by and by, and all is copied.
        counts = np.zeros((lanes, max(rows + max(rows // 8, SPARE_ROWS), had)), np.int32)
        counts[:, :had] = arrays.counts
        grown = np.zeros((lanes, 3, self._slots, counts.shape[1]), np.int32)
        grown[:, :, :slots, :had] = arrays.slots
        self.arrays = arrays._replace(counts=counts, slots=grown)

    def spill(self) -> None:
        """Give what no slot holds to the windows; tell them of which ones slots hold some."""
        arrays, first = self.arrays, self._windows.first_open
        lanes = len(arrays.spilled)
        for lane in range(lanes):
            window = first + (lane - first) % lanes
            used = int(arrays.spilled[lane])
            if used:
                rows, rtt_ns, host_ns, responder_ns = arrays.spill[lane, :, :used].copy()
                self._windows.add_chunk(window, rows, rtt_ns, host_ns, responder_ns)
                arrays.spilled[lane] = 0
            if arrays.counts[lane].any() and not self._windows.hold(window):
                arrays.counts[lane] = 0

    def _values(self, window: int, chunks: Sequence[Chunk]) -> Values:
        """Return what a window says of each row; its lane is free afterwards."""
        arrays = self.arrays
        lane = window % len(arrays.spilled)
        counts, slots = arrays.counts[lane], arrays.slots[lane]
        found = self._mixed(counts, slots, chunks) if chunks else slot_values(counts, slots)
        counts[:] = 0
        if slots.nbytes >= LARGE_BYTES:
            # Its next window takes pages only as its slots fill; until then the other lane's is
            # not full.
            memory.empty(slots)
        return found

    def _mixed(self, counts: Int32s, slots: Int32s, chunks: Sequence[Chunk]) -> Values:
        """Return the same of slots and chunks, row by row from one or from both."""
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
