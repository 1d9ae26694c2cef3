"""Finds the iterations of a job: their period, and where each one begins.

In: the byte rates of its RNICs (`channels` condenses them to a few series). Out: a `Rhythm`. The
period is a peak of the autocorrelation; each start is where a template of the mean iteration
matches best, since iterations jitter and pause.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter1d
from scipy.signal import find_peaks

from schemas.columns.arrays import Bools, Floats
from skeleton_job.series.rates import RateMatrix

# Shortest iteration, in bins: it needs some bins to have a shape.
MIN_PERIOD_BINS: Final = 5
# Below this autocorrelation there is no period: white noise of 300 bins stays below 0.25 at every
# lag in 99 of 100 runs.
MIN_STRENGTH: Final = 0.3
# Number of lags tried; peaks far below the highest are not.
CANDIDATES: Final = 6
MIN_PEAK: Final = 0.4


# Series per job, and RNICs they are computed from.
CHANNELS: Final = 4
MAX_ROWS: Final = 256


def job_sum(matrix: RateMatrix, rows: Bools) -> Floats:
    """Return the mean rate over the chosen RNICs at each bin, (n_bins,), bytes per second.

    A missing sample does not lower it: each bin is the mean of the samples present; a bin without
    any is the mean over all bins.
    """
    # Missing rates are 0.
    chosen = slice(None) if rows.all() else rows
    count = int(rows.sum()) - matrix.missing[chosen].sum(axis=0)
    rates = (matrix.tx[chosen] + matrix.rx[chosen]).sum(axis=0)
    mean = np.divide(rates, count, out=np.zeros_like(rates), where=count > 0)
    if np.any(count > 0):
        mean[count == 0] = mean[count > 0].mean()
    out: Floats = mean
    return out


def channels(matrix: RateMatrix, rows: NDArray[np.int64]) -> Floats:
    """Return the mean rate and the main components of the RNICs' rates, (n_channels, n_bins).

    The sum over all RNICs may be flat although each one has bursts (stages take turns, sharded
    models send all the time), so the principal components of the rest are added. All are in bytes
    per second of one RNIC, so that their squares add up to what they explain.
    """
    if rows.size > MAX_ROWS:
        rows = rows[np.linspace(0, rows.size - 1, MAX_ROWS).round().astype(np.int64)]
    chosen = np.zeros(len(matrix.endpoints), dtype=np.bool_)
    chosen[rows] = True
    there = ~matrix.missing[rows]
    count = np.maximum(there.sum(axis=1, keepdims=True), 1)
    parts = []
    for rates in (matrix.tx[rows], matrix.rx[rows]):
        mean = np.where(there, rates, 0.0).sum(axis=1, keepdims=True) / count
        parts.append(np.where(there, rates - mean, 0.0))
    both = np.vstack(parts)
    main = job_sum(matrix, chosen)
    total = main - main.mean()
    # Remove what the mean already explains.
    weight = both @ total / max(float(total @ total), 1e-300)
    rest = both - weight[:, None] * total
    values, vectors = np.linalg.eigh(rest @ rest.T / rows.size)
    top = np.argsort(values)[::-1][: min(CHANNELS - 1, rows.size)]
    components = vectors[:, top].T @ rest / np.sqrt(rows.size)
    # Fix the signs, so that nothing depends on the solver.
    signs = np.where(components.sum(axis=1) < 0, -1.0, 1.0)
    out: Floats = np.vstack([main[None], signs[:, None] * components])
    return out


def autocorrelation(series: Floats) -> Floats:
    """Return the autocorrelation of series at lags 0 to n - 1; zeros for flat ones.

    Parameters
    ----------
    series : (n,), or (channels, n): their powers are added

    Returns
    -------
    (n,) float64, unbiased, 1 at lag 0

    Examples
    --------
    >>> autocorrelation(np.tile([1.0, 0.0], 50))[:3].round(6).tolist()
    [1.0, -1.0, 1.0]
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
    """Return whether anything repeats at least once, perhaps too seldom for an iteration."""
    acf = autocorrelation(series)
    peaks, _ = find_peaks(acf[: acf.size // 2 + 2])
    return bool(np.any(acf[peaks[peaks >= MIN_PERIOD_BINS]] >= MIN_STRENGTH))


def candidates(acf: Floats) -> list[tuple[float, float]]:
    """Return lags at which an autocorrelation peaks, and the heights of these peaks."""
    peaks, _ = find_peaks(acf)
    peaks = peaks[peaks >= MIN_PERIOD_BINS]
    if not peaks.size or float(acf[peaks].max()) < MIN_STRENGTH:
        return []
    peaks = peaks[acf[peaks] >= MIN_PEAK * float(acf[peaks].max())]
    # The highest peaks and the shortest lags: multiples of the period are often higher by chance.
    highest = peaks[np.argsort(-acf[peaks], kind="stable")][:CANDIDATES]
    chosen = sorted({int(p) for p in (*highest, *peaks[:CANDIDATES])})
    return [(refined(acf, p), float(acf[p])) for p in chosen]


def refined(values: Floats, at: int) -> float:
    """Return the position of the vertex of the parabola through a maximum and its neighbours."""
    if not 0 < at < values.size - 1:
        return float(at)
    left, top, right = values[at - 1 : at + 2]
    bend = left - 2 * top + right
    return float(at) if bend >= 0 else at + 0.5 * float((left - right) / bend)


# Fewer whole iterations cannot be told from chance.
MIN_ITERATIONS: Final = 4
# Multiples of the period fit as well as the period: the shortest lag with this share of the best
# fit wins.
NEARLY_BEST: Final = 0.85
# Widths of moving averages in bins, and how many independent bins must remain.
BLURS: Final = (1, 4, 10)
MIN_BLURRED: Final = 200
# Number of iterations in the first template.
ALIGNED: Final = 3
# Points of a folded profile: about two per sample of an iteration, since the samples of different
# iterations fall on different phases.
MIN_POINTS: Final = 24
MAX_POINTS: Final = 96
# Correlation with the template from which a section is an iteration.
MIN_MATCH: Final = 0.5
# Shortest distance of iterations, as a share of the period.
MIN_DISTANCE: Final = 0.75
# Largest change of an iteration's length, tried in steps finer than a point.
MAX_STRETCH: Final = 0.12
STRETCH_STEPS: Final = 25
# An iteration is unusual if its squared distance from the median one exceeds this many times the
# median distance
MAX_ODD: Final = 4.0
# … and this share of the median iteration's power.
ALIKE: Final = 0.05


@dataclass(frozen=True, slots=True)
class Rhythm:
    """The iterations of a job.

    Attributes
    ----------
    period_bins : usual length in bins
    starts : (iterations,) float64, positions of the whole iterations in bins
    strength : how alike they are, 0 to 1
    stretch : (iterations,) length of each over the usual one; empty: all 1
    """

    period_bins: float
    starts: Floats
    strength: float
    stretch: Floats = field(default_factory=lambda: np.zeros(0))

    @property
    def iterations(self) -> int:
        """Number of whole iterations."""
        return int(self.starts.size)

    @property
    def lengths(self) -> Floats:
        """Length of each iteration in bins, (iterations,)."""
        stretch = self.stretch if self.stretch.size else np.ones(self.starts.size)
        return self.period_bins * stretch


def _iterations(rows: Floats) -> Rhythm | None:
    """Return the iterations, not stretched, with the period that explains most of the series.

    If iterations jitter by more than the length of their bursts, they match only after averaging.
    """
    n = rows.shape[1]
    longest = n // MIN_ITERATIONS
    if longest <= MIN_PERIOD_BINS:
        return None
    tried: list[tuple[float, Rhythm]] = []
    for blur in BLURS:
        if blur > 1 and n < blur * MIN_BLURRED:
            continue
        view = rows if blur == 1 else uniform_filter1d(rows, blur, axis=1, mode="nearest")
        for lag, height in candidates(autocorrelation(view)[: longest + 2]):
            if lag < MIN_PERIOD_BINS * blur:
                continue
            fine = _finer(view, lag)
            starts = _starts(fine, lag)
            if starts is None:
                continue
            points = profile_points(lag)
            usual = float(np.median(np.diff(starts))) * lag / points
            rhythm = Rhythm(usual, starts * lag / points, min(1.0, height))
            share = _explained(fine, starts, points) * float(view.var(axis=1).sum())
            tried.append((share, rhythm))
    if not tried:
        return None
    most = max(share for share, _ in tried)
    if most <= 0:
        # Adjusted for the number of points: what explains less than chance would is no period.
        return None
    good = [(share, r) for share, r in tried if share >= NEARLY_BEST * most]
    shortest = min(r.period_bins for _, r in good)
    # Adjacent peaks are one that noise has split: take the best of them.
    return max(
        ((share, r) for share, r in good if r.period_bins < 1.1 * shortest), key=lambda x: x[0]
    )[1]


def _finer(rows: Floats, period: float) -> Floats:
    """Return the series less their means, sampled at the points of a folded profile."""
    at = np.arange(0, rows.shape[1] - 1, period / profile_points(period))
    return np.array([np.interp(at, np.arange(row.size), row - row.mean()) for row in rows])


def _starts(fine: Floats, period: float) -> Floats | None:
    """Return where iterations begin, in points; None if there are too few."""
    points = profile_points(period)
    count = fine.shape[1] // points
    template = fine[:, : count * points].reshape(len(fine), count, points).mean(axis=1)
    if count > ALIGNED:
        # Iterations drift: a few successive ones give a sharper template than all.
        first = fine[:, : ALIGNED * points].reshape(len(fine), ALIGNED, points).mean(axis=1)
        template = first if (first**2).sum() > (template**2).sum() else template
    starts = np.empty(0)
    for _ in range(3):
        match = _match(fine, template)
        # A match that still rises at the border is of an incomplete iteration, and no peak.
        peaks, _ = find_peaks(match, height=MIN_MATCH, distance=max(1, int(MIN_DISTANCE * points)))
        if peaks.size < MIN_ITERATIONS:
            return None
        starts = np.array([refined(match, int(p)) for p in peaks])
        template = _pieces(fine, starts, np.ones(starts.size), points).mean(axis=1)
    return starts


def _explained(fine: Floats, starts: Floats, points: int) -> float:
    """Return the share of the series' power that each half of the iterations predicts of the other.

    Parts of the series outside of iterations are not explained.
    """
    whole = starts[(starts >= 0) & (starts + points <= fine.shape[1])]
    if whole.size < MIN_ITERATIONS:
        return 0.0
    pieces = _pieces(fine, whole, np.ones(whole.size), points)
    odd, even = pieces[:, 1::2], pieces[:, ::2]
    left = ((odd - even.mean(axis=1, keepdims=True)) ** 2).sum()
    left += ((even - odd.mean(axis=1, keepdims=True)) ** 2).sum()
    # Overlapping iterations count once.
    share = min(1.0, float(np.median(np.diff(whole))) / points) if whole.size > 1 else 1.0
    return share * (float((pieces**2).sum()) - float(left)) / max(float((fine**2).sum()), 1e-300)


def profile_points(period_bins: float) -> int:
    """Return how many points a folded iteration of that length has.

    >>> profile_points(20.0)
    40
    """
    return int(np.clip(2 * round(period_bins), MIN_POINTS, MAX_POINTS))


def find_rhythm(series: Floats) -> Rhythm | None:
    """Return the iterations of a job, None where there are none.

    Iterations differ in length: starts and lengths are where the mean iteration matches the series
    best, so neither jitter nor a pause blurs the fold.

    Parameters
    ----------
    series : (n_bins,), or (channels, n_bins)
    """
    rows = np.atleast_2d(series)
    found = _iterations(rows)
    if found is None:
        return None
    period = found.period_bins
    points = profile_points(period)
    step = period / points
    fine = _finer(rows, period)
    starts, stretch = found.starts / step, np.ones(found.starts.size)
    for _ in range(2):
        template = _pieces(fine, starts, stretch, points).mean(axis=1)
        starts, stretch = _stretched(fine, template, found.starts / step)
    pieces = _pieces(fine, starts, stretch, points)
    usual = _usual(pieces)
    strength = max(found.strength, _alike(pieces[:, usual]))
    return Rhythm(period, starts[usual] * step, strength, stretch[usual])


def _alike(pieces: Floats) -> float:
    """Return the share of the amplitude that each half of the iterations predicts, 0 to 1."""
    odd, even = pieces[:, 1::2], pieces[:, ::2]
    left = ((odd - even.mean(axis=1, keepdims=True)) ** 2).sum()
    left += ((even - odd.mean(axis=1, keepdims=True)) ** 2).sum()
    share = 1.0 - float(left) / max(float((pieces**2).sum()), 1e-300)
    return float(np.sqrt(max(share, 0.0)))


def _usual(pieces: Floats) -> Bools:
    """Return which iterations are like most: without a checkpoint, an evaluation or an outage.

    Parameters
    ----------
    pieces : (channels, iterations, points)
    """
    middle = np.median(pieces, axis=1, keepdims=True)
    apart = ((pieces - middle) ** 2).sum(axis=(0, 2))
    power = float(((middle - middle.mean(axis=2, keepdims=True)) ** 2).sum())
    usual: Bools = apart <= MAX_ODD * max(float(np.median(apart)), ALIKE * power)
    return usual if int(usual.sum()) >= MIN_ITERATIONS else np.ones(apart.size, dtype=np.bool_)


def _pieces(fine: Floats, starts: Floats, stretch: Floats, points: int) -> Floats:
    """Return the series at the points of each iteration, (channels, iterations, points)."""
    at = starts[:, None] + np.arange(points) * stretch[:, None]
    low = np.clip(np.floor(at).astype(np.int64), 0, fine.shape[1] - 2)
    part = np.clip(at - low, 0.0, 1.0)
    out: Floats = np.take(fine, low, axis=1)
    out *= 1 - part
    rest = np.take(fine, low + 1, axis=1)
    rest *= part
    out += rest
    return out


def _stretched(fine: Floats, template: Floats, starts: Floats) -> tuple[Floats, Floats]:
    """Return the starts and stretches that fit the template best, by grid search."""
    points = template.shape[1]
    shape = template - template.mean(axis=1, keepdims=True)
    best = np.full(starts.size, -np.inf)
    out_start, out_stretch = starts.copy(), np.ones(starts.size)
    reach = MAX_STRETCH * points / 2
    for factor in np.linspace(1 - MAX_STRETCH, 1 + MAX_STRETCH, STRETCH_STEPS):
        # The middle stays in place; the begin moves by half of the change.
        middle = (1 - factor) * points / 2
        for shift in np.linspace(-reach, reach, 13):
            begin = starts + middle + shift
            pieces = _pieces(fine, begin, np.full(starts.size, factor), points)
            pieces = pieces - pieces.mean(axis=2, keepdims=True)
            energy = np.sqrt((pieces**2).sum(axis=(0, 2)) * float((shape**2).sum()))
            score = (pieces * shape[:, None]).sum(axis=(0, 2)) / np.maximum(energy, 1e-300)
            # A small penalty: nothing is stretched or moved without need.
            score -= 0.02 * abs(factor - 1) / MAX_STRETCH + 0.005 * abs(shift) / max(reach, 1e-9)
            inside = (begin >= 0) & (begin + factor * points <= fine.shape[1])
            better = inside & (score > best)
            best[better], out_start[better], out_stretch[better] = (
                score[better], begin[better], factor,
            )  # fmt: skip
    return out_start, out_stretch


def _match(fine: Floats, template: Floats) -> Floats:
    """Return the correlation of the template with the series at each position."""
    n = template.shape[1]
    shape = template - template.mean(axis=1, keepdims=True)
    product = sum(
        np.correlate(row, form, mode="valid") for row, form in zip(fine, shape, strict=True)
    )
    zeros = np.zeros((len(fine), 1))
    total = np.hstack([zeros, np.cumsum(fine, axis=1)])
    square = np.hstack([zeros, np.cumsum(fine**2, axis=1)])
    mean = (total[:, n:] - total[:, :-n]) / n
    energy = (square[:, n:] - square[:, :-n] - n * mean**2).sum(axis=0)
    scale = np.sqrt(np.maximum(energy, 0.0) * float((shape**2).sum()))
    out: Floats = np.divide(product, scale, out=np.zeros(scale.size), where=scale > 0)
    return out
