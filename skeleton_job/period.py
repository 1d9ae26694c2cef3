"""At which lags a job's series repeat."""

from typing import Final

import numpy as np
from scipy.signal import find_peaks

from skeleton_job.arrays import Floats

# An iteration needs some bins to have a shape.
MIN_PERIOD_BINS: Final = 5
# Below this autocorrelation there is no iteration: white noise of 300 bins stays
# below 0.25 at every lag in 99 of 100 runs.
MIN_STRENGTH: Final = 0.3
# Lags that are tried; peaks far below the highest are not.
CANDIDATES: Final = 6
MIN_PEAK: Final = 0.4


def autocorrelation(series: Floats) -> Floats:
    """Return the autocorrelation of series at lags 0 … n - 1; zeros for flat ones.

    Parameters
    ----------
    series : (n,), or (channels, n): their powers are added
    """
    rows = np.atleast_2d(series)
    n = rows.shape[1]
    centred = rows - rows.mean(axis=1, keepdims=True)
    power = (np.abs(np.fft.rfft(centred, 2 * n, axis=1)) ** 2).sum(axis=0)
    raw = np.fft.irfft(power)[:n]
    # `not >`: a NaN counts as flat too
    if not raw[0] > (1e-9 * (1.0 + float(np.abs(rows.mean(axis=1)).max()))) ** 2 * n:
        return np.zeros(n)
    unbiased: Floats = raw / raw[0] * (n / np.arange(n, 0, -1))
    return unbiased


def repeats(series: Floats) -> bool:
    """Return whether anything repeats at least once, if too seldom for an iteration."""
    acf = autocorrelation(series)
    peaks, _ = find_peaks(acf[: acf.size // 2 + 2])
    return bool(np.any(acf[peaks[peaks >= MIN_PERIOD_BINS]] >= MIN_STRENGTH))


def candidates(acf: Floats) -> list[tuple[float, float]]:
    """Return lags at which an autocorrelation peaks, and the peaks' heights."""
    peaks, _ = find_peaks(acf)
    peaks = peaks[peaks >= MIN_PERIOD_BINS]
    if not peaks.size or float(acf[peaks].max()) < MIN_STRENGTH:
        return []
    peaks = peaks[acf[peaks] >= MIN_PEAK * float(acf[peaks].max())]
    # The highest peaks, and the shortest: multiples are higher by chance as often as not.
    highest = peaks[np.argsort(-acf[peaks], kind="stable")][:CANDIDATES]
    chosen = sorted({int(p) for p in (*highest, *peaks[:CANDIDATES])})
    return [(refined(acf, p), float(acf[p])) for p in chosen]


def refined(values: Floats, at: int) -> float:
    """Return the top of the parabola through a maximum and its neighbours."""
    if not 0 < at < values.size - 1:
        return float(at)
    left, top, right = values[at - 1 : at + 2]
    bend = left - 2 * top + right
    return float(at) if bend >= 0 else at + 0.5 * float((left - right) / bend)
