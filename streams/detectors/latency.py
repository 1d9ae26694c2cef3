"""Raised latency of a window: LOF over the look-back, and an effect worth an alarm.

A window is suspicious when its LOF passes the threshold of the stated
false-alarm rate *and* its upper quartile has risen by the least effect. LOF sees a
change of any of the seven features, also of the greatest round trip, which on a
busy machine is wild without any fault; the upper quartile moves only when a quarter
of the probes slow down. Only slower is an anomaly; faster is not. One strongly
suspicious window is an anomaly, or two weakly suspicious ones in a row. A window is
weak if it has few answers, or if its median has not risen as well: half a window may
be a burst of the job; a delay that comes and goes is there in the next one too.

The look-back of window k is the windows from k-1-n to k-2: the one just before
k is left out, since a fault that began in it may be in it already.

What is kept per 5-tuple is a function of the published windows and of which of
them were anomalous, nothing else: a restart reads both from the output topics.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from schemas.columns.arrays import Bools, Floats, Int64s
from schemas.enums import Transport
from schemas.transports import CAPABILITIES
from streams.columns.rounds import FlowKey
from streams.columns.table import NO_ROW, Column, Table
from streams.config import DetectionConfig
from streams.detectors.levels import levels
from streams.detectors.lof import STRONG, WEAK, lof_scores, log_features, thresholds

# Least answers in a window: with fewer there are no quartiles.
MIN_ANSWERS: Final = 4
# Least answers for one window to decide alone: the median of five is too restless.
MIN_STRONG_ANSWERS: Final = 8
# The rise must be this many standard deviations of the look-back's upper quartiles. With
# five answers a window the quartile itself jumps about; with thirty it hardly does.
EFFECT_DEVIATIONS: Final = 3.0
# An anomaly ends when less than this share of the effect is left: hysteresis.
CLEAR_SHARE: Final = 0.5
# Windows kept beyond the look-back: the one before the newest, and one more, so
# that the newest can be judged again after a restart.
EXTRA_WINDOWS: Final = 2
# Positions in FEATURES.
P50: Final = 1
P75: Final = 2
NEVER: Final = -(2**62)
NO_LAP: Final = -(2**31)
# The look-back is the largest part of a 5-tuple's state: 32 bits hold two seconds, and a path
# whose normal is above that is not told from worse.
MOST_NS: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What LOF and effect say about each window: arrays of one length.

    Both are False where answers or history are too few. `score` is nan where nothing has
    risen. `baseline_ns` is the
    median of the look-back's upper quartiles, nan without one; `effect_ns` the rise
    above it that counts; `baseline_p50_ns` the median of the medians.
    """

    strong: Bools
    weak: Bools
    score: Floats
    baseline_ns: Floats
    effect_ns: Floats
    baseline_p50_ns: Floats


def least_effect_ns(config: DetectionConfig, transport: Transport) -> int:
    """Return the absolute rise below which no change of a window of that transport counts."""
    capabilities = CAPABILITIES.get(transport)
    bypasses = capabilities is not None and capabilities.kernel_bypass
    return config.effect_rdma_ns if bypasses else config.effect_ns


def least_effects_ns(config: DetectionConfig) -> Floats:
    """Return the same of each transport, in their order."""
    return np.array([least_effect_ns(config, t) for t in Transport], np.float64)


def outlasted(config: DetectionConfig, onset_at: int, end_at: int) -> bool:
    """Return whether an anomaly lasted so long that its level is the new normal; microseconds."""
    return (end_at - onset_at) * 1000 >= config.latency_max_ns


class LookBack:
    """The look-back windows of all 5-tuples of a partition."""

    def __init__(self, config: DetectionConfig) -> None:
        self._config = config
        self._length = config.lookback_windows + EXTRA_WINDOWS
        self.table: Table[FlowKey] = Table(
            {
                # What is slower than MOST_NS is as slow.
                "features": Column(np.int32, 0, (self._length, 7)),
                # A window has its place by its index; this is how often all places came before.
                "lap": Column(np.int32, NO_LAP, (self._length,)),
                "weak": Column(np.int64, NEVER),
            }
        )

    def __len__(self) -> int:
        return len(self.table)

    @property
    def windows(self) -> int:
        """Number of windows that are kept."""
        return self._length

    def insert(self, key: FlowKey, window: int, features_ns: Int64s) -> None:
        """Take a window that is not anomalous, features of shape (7,), into the look-back."""
        row = self.table.row(key)
        lap, place = divmod(window, self._length)
        self.table["features"][row, place] = np.minimum(features_ns, MOST_NS)
        self.table["lap"][row, place] = lap

    def insert_all(self, rows: Int64s, window: int, features_ns: Int64s) -> None:
        """Take windows of different 5-tuples, features of shape (n, 7), as `insert` does each.

        Parameters
        ----------
        rows
            Their rows of `table`.
        """
        lap, place = divmod(window, self._length)
        self.table["features"][rows, place] = np.minimum(features_ns, MOST_NS)
        self.table["lap"][rows, place] = lap

    def reset(self, key: FlowKey) -> None:
        """Forget all windows of a 5-tuple."""
        if self.table.find(key) is not None:
            self.table.remove(key)

    def note_weak(self, key: FlowKey, window: int) -> None:
        """Remember that the newest window is weakly suspicious."""
        self.table["weak"][self.table.row(key)] = window

    def take_back(self, key: FlowKey, window: int) -> bool:
        """Remove a window from the look-back if it was weakly suspicious; return whether it was."""
        row = self.table.find(key)
        if row is None or self.table["weak"][row] != window:
            return False
        lap, place = divmod(window, self._length)
        if self.table["lap"][row, place] == lap:
            self.table["lap"][row, place] = NO_LAP
        return True

    def was_weak(self, key: FlowKey, window: int) -> bool:
        """Return whether that window was the last weakly suspicious one."""
        row = self.table.find(key)
        return row is not None and bool(self.table["weak"][row] == window)

    def judge(
        self, window: int, rows: Int64s, features_ns: Int64s, answers: Int64s, least_ns: Floats
    ) -> Verdicts:
        """Judge windows of one index against their look-backs; nothing is taken in.

        Parameters
        ----------
        window
            Index of the windows.
        rows
            The 5-tuples' rows of `table`; NO_ROW: never heard of.
        features_ns, answers, least_ns
            Their features (n, 7), probes answered, and least effects (`least_effect_ns`).
        """
        known = (rows != NO_ROW) & (answers >= MIN_ANSWERS)
        held = self._held(rows)
        oldest, newest = window - 1 - self._config.lookback_windows, window - 2
        valid = (held >= oldest) & (held <= newest) & known[:, None]
        count = valid.sum(axis=1)
        score = np.full(len(rows), np.nan)
        features = self.table["features"]
        baseline, spread = levels(features, rows, valid, P75)
        medians, scatter = levels(features, rows, valid, P50)
        effect = self._effects(least_ns, baseline, spread)
        half = self._effects(least_ns, medians, scatter)
        with np.errstate(invalid="ignore"):
            raised = features_ns[:, P75] - baseline >= effect
            most = features_ns[:, P50] - medians >= half
            # LOF costs the most by far, and decides nothing where nothing has risen.
            asked = np.flatnonzero(raised)
            score[asked] = lof_scores(
                log_features(features[rows[asked]]), valid[asked], log_features(features_ns[asked])
            )
            strong = raised & most & (answers >= MIN_STRONG_ANSWERS)
            strong &= score > thresholds(STRONG, count)
            weak = raised & (score > thresholds(WEAK, count))
        return Verdicts(strong, weak, score, baseline, effect, medians)

    def baseline_p50_ns(self, key: FlowKey, next_window: int) -> int | None:
        """Return the median of the last windows' medians, None without one."""
        row = self.table.find(key)
        if row is None:
            return None
        held = self._held(np.array([row]))[0]
        valid = (held < next_window) & (held >= next_window - self._config.lookback_windows)
        if not valid.any():
            return None
        return int(np.median(self.table["features"][row][valid, P50]))

    def forget(self, window: int) -> None:
        """Drop the 5-tuples without a window that a later one than `window` is judged by."""
        rows = self.table.rows()
        newest = self._held(rows).max(axis=1, initial=NEVER)
        for row in rows[newest < window - self._length].tolist():
            self.table.remove(self.table.key(row))

    def _held(self, rows: Int64s) -> Int64s:
        """Return indices of the windows that are kept of some rows, (n, windows)."""
        index = self.table["lap"][rows].astype(np.int64)
        index *= self._length
        index += np.arange(self._length)
        return index

    def _effects(self, least_ns: Floats, baseline_ns: Floats, deviation_ns: Floats) -> Floats:
        """Return the rise that counts: absolute by transport, relative, beyond the scatter."""
        relative = self._config.effect_ratio * baseline_ns
        return np.maximum(np.maximum(least_ns, relative), EFFECT_DEVIATIONS * deviation_ns)
