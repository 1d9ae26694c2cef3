"""The training iteration in the counters: its period, its starts, each RNIC's part in it.

A short-time Fourier transform says which RNICs beat with the job; its magnitude
throws the phase away, which is what tells pipeline stages apart. So the series
are also folded at the job's own iterations, found in the sum over all RNICs.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.signal import ShortTimeFFT, find_peaks
from scipy.signal.windows import hann

from skeleton_job.series import S_NS, Bools, Floats, RateMatrix

# An iteration needs some bins to have a shape.
MIN_PERIOD_BINS: Final = 5
# Fewer whole iterations than this in the window are not told from chance.
MIN_ITERATIONS: Final = 4
# Below this autocorrelation of the job-wide sum there is no iteration: white
# noise of 300 bins stays below 0.25 at every lag in 99 of 100 runs.
MIN_STRENGTH: Final = 0.3
# Microbatches repeat inside an iteration, iterations repeat outside: the
# shortest lag that is nearly as good as the best one is the iteration.
NEARLY_BEST: Final = 0.93
# Points of a folded profile: about twice the samples of an iteration, since
# iterations fall differently on the ticks and so see between them.
MIN_POINTS: Final = 24
MAX_POINTS: Final = 96
# A stretch of the series is an iteration when it looks like the mean one.
MIN_MATCH: Final = 0.5
# Iterations may be this much shorter than the usual one.
MIN_DISTANCE: Final = 0.75
# Endpoints folded at a time; bounds the memory, about 50 MB for 300 s.
CHUNK: Final = 128


@dataclass(frozen=True, slots=True)
class Rhythm:
    """The iterations of a job.

    `starts` are bin positions (float) of the whole iterations, `period_bins`
    their usual distance, `strength` (0..1) how alike they are.
    """

    period_bins: float
    starts: Floats
    strength: float

    @property
    def iterations(self) -> int:
        """How many whole iterations were found."""
        return int(self.starts.size)


@dataclass(frozen=True, slots=True)
class Profiles:
    """Mean iteration of each RNIC.

    Attributes
    ----------
    tx, rx : (n, points) bytes per second at each point of the iteration
    odd, even : (n, 2 * points) tx and rx of every other iteration, for the noise
    """

    tx: Floats
    rx: Floats
    odd: Floats
    even: Floats

    @property
    def both(self) -> Floats:
        """Tx and rx side by side, (n, 2 * points)."""
        return np.hstack([self.tx, self.rx])

    def repeatability(self) -> Floats:
        """Return how alike odd and even iterations are, a correlation for each RNIC, (n,).

        0 where an RNIC carries nothing.
        """
        odd = self.odd - self.odd.mean(axis=1, keepdims=True)
        even = self.even - self.even.mean(axis=1, keepdims=True)
        scale = np.linalg.norm(odd, axis=1) * np.linalg.norm(even, axis=1)
        product = (odd * even).sum(axis=1)
        out: Floats = np.divide(product, scale, out=np.zeros_like(product), where=scale > 0)
        return out


def job_sum(matrix: RateMatrix, rows: Bools) -> Floats:
    """Return the mean rate over the chosen RNICs at each bin, (n_bins,).

    A missing sample does not dent it: each bin is the mean of what is there;
    bins without any are the mean of all.
    """
    there = ~matrix.missing[rows]
    count = there.sum(axis=0)
    rates = np.where(there, matrix.tx[rows] + matrix.rx[rows], 0.0).sum(axis=0)
    mean = np.divide(rates, count, out=np.zeros_like(rates), where=count > 0)
    if np.any(count > 0):
        mean[count == 0] = mean[count > 0].mean()
    out: Floats = mean
    return out


def autocorrelation(series: Floats) -> Floats:
    """Return the autocorrelation of a series at lags 0 … n - 1; zeros for a flat one."""
    n = series.size
    centred = series - series.mean()
    power = np.abs(np.fft.rfft(centred, 2 * n)) ** 2
    raw = np.fft.irfft(power)[:n]
    # `not >`: a NaN counts as flat too
    if not raw[0] > (1e-9 * (1.0 + abs(float(series.mean())))) ** 2 * n:
        return np.zeros(n)
    unbiased: Floats = raw / raw[0] * (n / np.arange(n, 0, -1))
    return unbiased


def find_period(series: Floats) -> tuple[float, float] | None:
    """Return the period in bins and its autocorrelation, None where nothing repeats."""
    longest = series.size // MIN_ITERATIONS
    if longest <= MIN_PERIOD_BINS:
        return None
    acf = autocorrelation(series)
    peaks, _ = find_peaks(acf[: longest + 2])
    peaks = peaks[peaks >= MIN_PERIOD_BINS]
    if not peaks.size:
        return None
    best = float(acf[peaks].max())
    if best < MIN_STRENGTH:
        return None
    lag = int(peaks[acf[peaks] >= NEARLY_BEST * best][0])
    return _refined(acf, lag), min(1.0, float(acf[lag]))


def _refined(values: Floats, at: int) -> float:
    """Return the top of the parabola through a maximum and its neighbours."""
    if not 0 < at < values.size - 1:
        return float(at)
    left, top, right = values[at - 1 : at + 2]
    bend = left - 2 * top + right
    return float(at) if bend >= 0 else at + 0.5 * float((left - right) / bend)


def find_rhythm(series: Floats) -> Rhythm | None:
    """Return the iterations of a job from its job-wide sum, None where there are none.

    Iterations are not equally long: the starts are where the mean iteration
    matches the series best, so that neither jitter nor a pause blurs the fold.
    """
    found = find_period(series)
    if found is None:
        return None
    period, strength = found
    points = profile_points(period)
    step = period / points
    fine = np.interp(
        np.arange(0, series.size - 1, step), np.arange(series.size), series - series.mean()
    )
    count = fine.size // points
    template = fine[: count * points].reshape(count, points).mean(axis=0)
    starts = np.empty(0)
    for _ in range(3):
        match = _match(fine, template)
        # A match that still rises at the border is of an iteration cut in two: no peak.
        peaks, _ = find_peaks(match, height=MIN_MATCH, distance=max(1, int(MIN_DISTANCE * points)))
        if peaks.size < MIN_ITERATIONS:
            return None
        starts = np.array([_refined(match, int(p)) for p in peaks])
        rows = starts[:, None] + np.arange(points)
        template = np.interp(rows, np.arange(fine.size), fine).mean(axis=0)
    usual = float(np.median(np.diff(starts))) * step
    return Rhythm(usual, starts * step, strength)


def _match(fine: Floats, template: Floats) -> Floats:
    """Return the correlation of the template with the series at each position."""
    n = template.size
    shape = template - template.mean()
    product = np.correlate(fine, shape, mode="valid")
    total = np.concatenate([[0.0], np.cumsum(fine)])
    square = np.concatenate([[0.0], np.cumsum(fine**2)])
    mean = (total[n:] - total[:-n]) / n
    energy = square[n:] - square[:-n] - n * mean**2
    scale = np.sqrt(np.maximum(energy, 0.0) * float(shape @ shape))
    out: Floats = np.divide(product, scale, out=np.zeros_like(product), where=scale > 0)
    return out


def profile_points(period_bins: float) -> int:
    """Return how many points a folded iteration of that length has."""
    return int(np.clip(2 * round(period_bins), MIN_POINTS, MAX_POINTS))


def _edges(n_bins: int, rhythm: Rhythm) -> Floats:
    """Return the edges of the points of all whole iterations, in bins, (n, points + 1)."""
    points = profile_points(rhythm.period_bins)
    edges = rhythm.starts[:, None] + np.arange(points + 1) * (rhythm.period_bins / points)
    whole: Floats = edges[np.all((edges >= 0) & (edges <= n_bins), axis=1)]
    return whole


def iterations_of(rates: Floats, rhythm: Rhythm) -> Floats:
    """Return every iteration of each series, cut out on cumulated bytes.

    Parameters
    ----------
    rates : (n, n_bins)

    Returns
    -------
    (n, n_iterations, points), in the unit of `rates`
    """
    edges = _edges(rates.shape[1], rhythm)
    low = np.minimum(edges.astype(np.int64), rates.shape[1] - 1)
    curve = _at(np.cumsum(rates, axis=1), low, edges - low)
    out: Floats = np.diff(curve, axis=2) * (profile_points(rhythm.period_bins) / rhythm.period_bins)
    return out


def fold(matrix: RateMatrix, rhythm: Rhythm) -> Profiles:
    """Return the mean iteration of each RNIC.

    An iteration of which an RNIC misses samples counts only where they are there.
    """
    out: dict[str, list[Floats]] = {"tx": [], "rx": [], "odd": [], "even": []}
    for begin in range(0, len(matrix.endpoints), CHUNK):
        rows = slice(begin, begin + CHUNK)
        lost = iterations_of(matrix.missing[rows].astype(np.float64), rhythm)
        weight = (lost <= 1e-9).astype(np.float64)
        odd_rows = np.arange(weight.shape[1]) % 2 == 1
        halves: list[Floats] = []
        for name, rates in (("tx", matrix.tx), ("rx", matrix.rx)):
            pieces = iterations_of(rates[rows], rhythm)
            out[name].append(_mean(pieces, weight))
            halves += [_mean(pieces[:, s], weight[:, s]) for s in (odd_rows, ~odd_rows)]
        out["odd"].append(np.hstack([halves[0], halves[2]]))
        out["even"].append(np.hstack([halves[1], halves[3]]))
    return Profiles(**{name: np.vstack(parts) for name, parts in out.items()})


def _at(ends: Floats, low: NDArray[np.int64], part: Floats) -> Floats:
    """Return the cumulated curve, given at the bins' ends, at positions low + part."""
    curve = np.concatenate([np.zeros((ends.shape[0], 1)), ends], axis=1)
    value: Floats = curve[:, low] * (1 - part) + curve[:, low + 1] * part
    return value


def _mean(values: Floats, weight: Floats) -> Floats:
    total = (values * weight).sum(axis=1)
    count = weight.sum(axis=1)
    out: Floats = np.divide(total, count, out=np.zeros_like(total), where=count > 0)
    return out


def stft_magnitude(matrix: RateMatrix, rhythm: Rhythm) -> Floats:
    """Return each RNIC's short-time spectrum, averaged over the window.

    The Hann window spans four iterations, so that the harmonics of the
    iteration stand apart; it moves by one iteration.

    Returns
    -------
    (n, n_frequencies) float64, bytes per second; the mean is taken out before.
    """
    span = int(min(matrix.n_bins, max(16, round(4 * rhythm.period_bins))))
    transform = ShortTimeFFT(
        hann(span, sym=False),
        hop=max(1, round(rhythm.period_bins)),
        fs=S_NS / matrix.bin_ns,
        scale_to="magnitude",
    )
    both = matrix.tx + matrix.rx
    there = ~matrix.missing
    count = np.maximum(there.sum(axis=1, keepdims=True), 1)
    mean = np.where(there, both, 0.0).sum(axis=1, keepdims=True) / count
    centred = np.where(there, both - mean, 0.0)
    first = transform.lower_border_end[1]
    last = max(first + 1, transform.upper_border_begin(matrix.n_bins)[1])
    spectrum: Floats = np.abs(transform.stft(centred, p0=first, p1=last, axis=-1)).mean(axis=-1)
    return spectrum
