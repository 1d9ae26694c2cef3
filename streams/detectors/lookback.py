"""The last windows of each 5-tuple: what detectors of raised latency compare a new one with.

All detectors share one look-back, the largest part of a 5-tuple's state. Every window enters it.
A detector marks the windows of its own anomalies, and compares with those that it has not marked:
what one takes for an anomaly may be another's normal.

The look-back of window k is the windows from k-1-n to k-2: the one just before k is left out,
since a fault that began in it may be in it already.
"""

from math import isnan
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.columns.arrays import Bools, Floats, Int64s
from schemas.columns.compiled import compiled
from streams.columns.quantities import FEATURES, NONE, OBSERVED
from streams.columns.rounds import FlowKey
from streams.columns.table import NO_ROW, Column, Table
from streams.config import DetectionConfig
from streams.detectors.base import MIN_ANSWERS, P50, FeatureBatch, FirstOpen
from streams.detectors.levels import Compared, LookBackArrays, medians, risen
from streams.detectors.lof import MIN_HISTORY

# Windows kept beyond the look-back: the one before the newest, and one more, so
# that the newest can be judged again after a restart.
EXTRA_WINDOWS: Final = 2
NEVER: Final = -(2**62)
NO_CYCLE: Final = -(2**31)
# 32 bits hold two seconds. Slower features are cut to this, so that a path whose normal is slower
# raises no anomaly.
MOST_NS: Final = 2**31 - 1
# Bits of a window's marks, one for each detector.
MOST_MARKS: Final = 8
# For comparing with windows that no detector leaves out.
ALL_MARKS: Final = 2**MOST_MARKS - 1
# The prober's own delay among the medians of a batch.
HOST_DELAY: Final = "host_delay_p50_ns"
_HOST_DELAY: Final = OBSERVED.index(HOST_DELAY)


class LookBack:
    """The look-back windows of all 5-tuples of a partition, each a ring buffer.

    Attributes
    ----------
    table
        One row for each 5-tuple.
    """

    def __init__(self, config: DetectionConfig) -> None:
        self._config = config
        self._length = config.lookback_windows + EXTRA_WINDOWS
        self._marks = 0
        self.table: Table[FlowKey] = Table(
            {
                "features": Column(np.int32, 0, (self._length, len(FEATURES))),
                # Median of the prober's own delay; negative: not measured.
                "delay": Column(np.int32, NONE, (self._length,)),
                # Which cycle of the ring buffer the window of each place belongs to.
                "cycle": Column(np.int32, NO_CYCLE, (self._length,)),
                # Bits of the detectors that leave the window out.
                "marks": Column(np.uint8, 0, (self._length,)),
            }
        )

    def __len__(self) -> int:
        return len(self.table)

    @property
    def windows(self) -> int:
        """Number of windows that are kept."""
        return self._length

    def new_mark(self) -> int:
        """Return the bit by which one more detector marks the windows that it leaves out."""
        if self._marks == MOST_MARKS:
            raise ValueError(f"more than {MOST_MARKS} detectors share a look-back")
        self._marks += 1
        return 1 << (self._marks - 1)

    def insert(self, windows: FeatureBatch) -> None:
        """Insert windows; no detector has marked them yet."""
        rows = windows.rows(self.table, create=True)
        cycle, place = divmod(windows.index, self._length)
        _insert(
            *self._arrays(), self.table["delay"], rows, cycle, place,
            np.ascontiguousarray(windows.features_ns), np.ascontiguousarray(windows.medians_ns),
        )  # fmt: skip

    def leave_out(self, windows: FeatureBatch, mark: int) -> None:
        """Mark windows that are in the look-back."""
        rows = windows.rows(self.table)
        cycle, place = divmod(windows.index, self._length)
        rows = rows[(rows != NO_ROW) & (self.table["cycle"][rows, place] == cycle)]
        self.table["marks"][rows, place] |= mark

    def leave_out_before(self, key: FlowKey, window: int, mark: int) -> None:
        """Mark all windows of a 5-tuple that were before one."""
        row = self.table.find(key)
        if row is not None:
            earlier = self._held(np.array([row]))[0] < window
            self.table["marks"][row, earlier] |= mark

    def leave_out_one(self, key: FlowKey, window: int, mark: int) -> None:
        """Mark one window of a 5-tuple, if it is in the look-back."""
        row = self.table.find(key)
        cycle, place = divmod(window, self._length)
        if row is not None and self.table["cycle"][row, place] == cycle:
            self.table["marks"][row, place] |= mark

    def may_have_risen(
        self, windows: FeatureBatch, column: int, least_ns: Floats, least_ratio: float, mark: int
    ) -> Int64s:
        """Return the places of windows of which a feature may lie above its look-back's median.

        A quick test, by which nearly all windows of a healthy network are done with. All that have
        risen by so much are among them, and some that have risen by less.

        Parameters
        ----------
        windows
            Windows in the look-back.
        column
            The feature.
        least_ns : (n,) float64
            Least rise of each that counts.
        least_ratio
            The same, relative to the median; the greater one counts.
        mark
            The detector's.
        """
        compared = Compared(*self._span(windows.index), mark, MIN_HISTORY)
        return risen(
            self._arrays(), windows.rows(self.table), column, windows.features_ns, least_ns,
            least_ratio, compared,
        )  # fmt: skip

    def medians(self, rows: Int64s, window: int, least: int) -> Floats:
        """Return medians over what a window is compared with, (n, features), by row of the table.

        Windows that any detector leaves out do not count; nan with fewer than `least`.
        """
        compared = Compared(*self._span(window), ALL_MARKS, least)
        return medians(self._arrays(), rows, compared)

    def compared(self, windows: FeatureBatch, mark: int) -> Bools:
        """Return which kept windows the windows of one index are compared with, (n, windows)."""
        rows = windows.rows(self.table)
        known = (rows != NO_ROW) & (windows.answers >= MIN_ANSWERS)
        out: Bools = self._counted(rows, *self._span(windows.index), mark) & known[:, None]
        return out

    def usual_delay_ns(self, key: FlowKey, window: int, mark: int) -> int | None:
        """Return the greatest median of the prober's own delay in the windows before one.

        None if it was not measured. The greatest: what is above it is no usual variation.
        """
        row = self.table.find(key)
        if row is None:
            return None
        counted = self._counted(np.array([row]), *self._span(window), mark)[0]
        delays = self.table["delay"][row][counted]
        delays = delays[delays >= 0]
        return int(delays.max()) if len(delays) else None

    def baseline_p50_ns(self, key: FlowKey, next_window: int, mark: int) -> int | None:
        """Return the median of the last windows' medians, None without one."""
        row = self.table.find(key)
        if row is None:
            return None
        # By the kernel also for one 5-tuple: each record of an anomaly asks, thousands in a storm.
        oldest = next_window - self._config.lookback_windows
        compared = Compared(oldest, next_window - 1, mark, 1)
        median_ns = float(medians(self._arrays(), np.array([row]), compared)[0, P50])
        return None if isnan(median_ns) else int(median_ns)

    def forget(self, first_open: FirstOpen) -> None:
        """Drop the 5-tuples without a window that an open one is judged by."""
        rows = self.table.rows()
        newest = np.empty(len(rows), np.int64)
        _newest(self.table["cycle"], rows, newest)
        # Few lie behind the others; only theirs are looked at one by one.
        behind = newest < newest.max(initial=NEVER) - self._length
        for row, window in zip(rows[behind].tolist(), newest[behind].tolist(), strict=True):
            key = self.table.key(row)
            if window < first_open(key[0]) - 1 - self._length:
                self.table.remove(key)

    def _arrays(self) -> LookBackArrays:
        """Return the columns that kernels read."""
        return LookBackArrays(*(self.table[name] for name in LookBackArrays._fields))

    def _span(self, window: int) -> tuple[int, int]:
        """Return the first and the last window that one is compared with."""
        return window - 1 - self._config.lookback_windows, window - 2

    def _held(self, rows: Int64s) -> Int64s:
        """Return indices of the windows that are kept of some rows, (n, windows)."""
        index = self.table["cycle"][rows].astype(np.int64)
        index *= self._length
        index += np.arange(self._length)
        return index

    def _counted(self, rows: Int64s, oldest: int, newest: int, mark: int) -> Bools:
        """Return which kept windows lie within a span and are not marked, (n, windows)."""
        held = self._held(rows)
        out: Bools = (held >= oldest) & (held <= newest) & (self.table["marks"][rows] & mark == 0)
        return out


@compiled
def _insert(
    features: NDArray[np.int32],
    cycles: NDArray[np.int32],
    marks: NDArray[np.uint8],
    delays: NDArray[np.int32],
    rows: NDArray[np.int64],
    cycle: int,
    place: int,
    features_ns: NDArray[np.int64],
    medians_ns: NDArray[np.int64],
) -> None:
    """Write windows of one index to their place, without a mark."""
    for number in range(len(rows)):
        row = rows[number]
        for feature in range(features.shape[2]):
            features[row, place, feature] = min(features_ns[number, feature], MOST_NS)
        delays[row, place] = min(medians_ns[number, _HOST_DELAY], MOST_NS)
        cycles[row, place] = cycle
        marks[row, place] = 0


@compiled
def _newest(cycles: NDArray[np.int32], rows: NDArray[np.int64], newest: NDArray[np.int64]) -> None:
    """Write the index of the newest window of each row."""
    length = cycles.shape[1]
    for number in range(len(rows)):
        row = rows[number]
        window = NEVER
        for place in range(length):
            window = max(window, np.int64(cycles[row, place]) * length + place)
        newest[number] = window
