"""The published detectors of slowness: LOF over windows of seven features, Z-test of half-hours.

As printed (SIGCOMM 2025): P25, P50, P75, minimum, mean, standard deviation and maximum
of a 30-s window, compared by LOF with the windows of the last five minutes; and the
logarithms of the round trips of 30-minute windows, fitted at T and tested at T+0.5 h,
T+1 h and T+1.5 h. Thresholds are not printed. Ours are set in the detectors' favour.
"""

from dataclasses import dataclass
from math import sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from arena.baselines.observing import Window
from schemas.columns.arrays import Floats, Int64s
from schemas.ids import FlowId
from schemas.units import SECOND_NS
from streams.detectors.lof import lof_scores

FEATURES: Final = 7
# The look-back of five minutes.
WINDOWS: Final = 10
# A healthy window of 30 log-normal round trips exceeds 5 about once in 10,000
# (`streams.detectors.calibration`), for as long as no straggler is in it.
LEAST_LOF: Final = 5.0
# "New windows" that cannot join the previous ones: two. With one, stragglers alone would
# make hundreds of false alarms an hour.
IN_A_ROW: Final = 2
BLOCK_NS: Final = 1800 * SECOND_NS
# Comparisons with a fit before it is made anew.
TESTS: Final = 3
# Five sigma: one false alarm in three million tests.
LEAST_Z: Final = 5.0

Rows = NDArray[np.float64]


def features(window: Window) -> Floats:
    """Return the seven features of each 5-tuple in ns, shape (n, 7); nan without an answer."""
    found = np.full((len(window), FEATURES), np.nan)
    count = np.diff(window.starts)
    some = count > 0
    first, last = window.starts[:-1][some], window.starts[1:][some] - 1
    values = window.rtt_ns.astype(np.float64)
    # Sums of round trips less a constant keep the squares exact.
    centre = float(values.mean()) if len(values) else 0.0
    values_off = values - centre
    sums, squares = (_runs(v, window.starts)[some] for v in (values_off, values_off**2))
    mean = sums / count[some]
    found[:, :3] = window.quartiles_ns
    found[some, 3] = values[first]
    found[some, 4] = mean + centre
    found[some, 5] = np.sqrt(np.maximum(squares / count[some] - mean**2, 0.0))
    found[some, 6] = values[last]
    return found


def _runs(values: Floats, starts: Int64s) -> Floats:
    total = np.concatenate([np.zeros(1), np.cumsum(values)])
    found: Floats = total[starts[1:]] - total[starts[:-1]]
    return found


class LookBack:
    """LOF of each 5-tuple's new window against those of the last five minutes.

    A window that is outside does not enter the look-back.
    """

    def __init__(self, least_lof: float = LEAST_LOF, in_a_row: int = IN_A_ROW) -> None:
        self._least_lof = least_lof
        self._in_a_row = in_a_row
        self._place: dict[FlowId, int] = {}
        self._history: Rows = np.full((0, WINDOWS, FEATURES), np.nan)
        self._outside = np.zeros(0, np.int64)

    def put(self, window: Window) -> set[FlowId]:
        """Take in a window; return the 5-tuples that are anomalous now."""
        rows = self._rows(window)
        points = features(window)
        answered = ~np.isnan(points[:, 0])
        rows, points = rows[answered], points[answered]
        reference = self._history[rows]
        valid = ~np.isnan(reference[:, :, 0])
        scores = lof_scores(np.nan_to_num(reference), valid, points)
        outside = np.nan_to_num(scores) > self._least_lof
        self._outside[rows] = np.where(outside, self._outside[rows] + 1, 0)
        joined = rows[~outside]
        self._history[joined, :-1] = self._history[joined, 1:]
        self._history[joined, -1] = points[~outside]
        keys = [key for key, good in zip(window.flows, answered.tolist(), strict=True) if good]
        anomalous = (self._outside[rows] >= self._in_a_row).tolist()
        return {key for key, bad in zip(keys, anomalous, strict=True) if bad}

    def _rows(self, window: Window) -> Int64s:
        for key in window.flows:
            self._place.setdefault(key, len(self._place))
        more = len(self._place) - len(self._outside)
        if more:
            empty = np.full((more, WINDOWS, FEATURES), np.nan)
            self._history = np.concatenate([self._history, empty])
            self._outside = np.concatenate([self._outside, np.zeros(more, np.int64)])
        return np.array([self._place[key] for key in window.flows], np.int64)


@dataclass(slots=True)
class _Block:
    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    @property
    def mean(self) -> float:
        return self.total / self.count

    @property
    def error_squared(self) -> float:
        return max(self.squares / self.count - self.mean**2, 0.0) / self.count


@dataclass(slots=True)
class _Fit:
    block: _Block
    tests: int = 0


class HalfHours:
    """Z-test of each 5-tuple's half-hours, log-normal when healthy."""

    def __init__(self, block_ns: int = BLOCK_NS, least_z: float = LEAST_Z) -> None:
        self._block_ns = block_ns
        self._least_z = least_z
        self._begin_ns: int | None = None
        self._blocks: dict[FlowId, _Block] = {}
        self._fits: dict[FlowId, _Fit] = {}

    def put(self, window: Window) -> set[FlowId]:
        """Take in a window; return the 5-tuples that are slower than at T, once a half-hour."""
        if self._begin_ns is None:
            self._begin_ns = window.begin_ns
        logs = np.log(np.maximum(window.rtt_ns, 1))
        total, squares = _runs(logs, window.starts), _runs(logs**2, window.starts)
        for place, key in enumerate(window.flows):
            block = self._blocks.setdefault(key, _Block())
            block.count += int(window.starts[place + 1] - window.starts[place])
            block.total += float(total[place])
            block.squares += float(squares[place])
        if window.end_ns - self._begin_ns < self._block_ns:
            return set()
        self._begin_ns = window.end_ns
        blocks, self._blocks = self._blocks, {}
        return {key for key, block in blocks.items() if block.count and self._slower(key, block)}

    def _slower(self, key: FlowId, block: _Block) -> bool:
        fit = self._fits.get(key)
        if fit is None or fit.tests >= TESTS:
            self._fits[key] = _Fit(block)
        if fit is None:
            return False
        fit.tests += 1
        error = sqrt(fit.block.error_squared + block.error_squared)
        return block.mean - fit.block.mean > self._least_z * error
