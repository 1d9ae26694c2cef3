"""The mean iteration of each RNIC: its rates folded at the job's iterations.

SkeletonHunter (SIGCOMM 2025) compares magnitudes of a short-time Fourier transform. These lose the
phase, which distinguishes pipeline stages. So the rates are folded at the iterations found by
`skeleton_job.rhythm.iterations` instead.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.columns.arrays import Floats
from skeleton_job.rhythm.iterations import Rhythm, profile_points
from skeleton_job.series.rates import RateMatrix

# Endpoints folded together: the data in work stays in the processor's cache.
CHUNK: Final = 16


@dataclass(frozen=True, slots=True)
class Profiles:
    """The mean iteration of each RNIC.

    Attributes
    ----------
    tx, rx : (n, points) bytes per second at each point of the iteration
    odd, even : (n, 2 * points) tx and rx of every other iteration, to estimate noise
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
        """Return the correlation of odd and even iterations of each RNIC, (n,); 0 if idle."""
        odd = self.odd - self.odd.mean(axis=1, keepdims=True)
        even = self.even - self.even.mean(axis=1, keepdims=True)
        scale = np.linalg.norm(odd, axis=1) * np.linalg.norm(even, axis=1)
        product = (odd * even).sum(axis=1)
        out: Floats = np.divide(product, scale, out=np.zeros_like(product), where=scale > 0)
        return out


def _edges(n_bins: int, rhythm: Rhythm) -> Floats:
    """Return the edges of the points of all whole iterations, in bins, (n, points + 1)."""
    points = profile_points(rhythm.period_bins)
    edges = rhythm.starts[:, None] + np.arange(points + 1) * (rhythm.lengths[:, None] / points)
    whole: Floats = edges[np.all((edges >= 0) & (edges <= n_bins), axis=1)]
    return whole


def iterations_of(rates: Floats, rhythm: Rhythm) -> Floats:
    """Return every iteration of each series, resampled by way of cumulated bytes.

    Parameters
    ----------
    rates : (n, n_bins)

    Returns
    -------
    (n, n_iterations, points), in the unit of `rates`
    """
    edges = _edges(rates.shape[1], rhythm)
    low = np.minimum(edges.astype(np.int64), rates.shape[1] - 1)
    curve = np.zeros((rates.shape[0], rates.shape[1] + 1))
    np.cumsum(rates, axis=1, out=curve[:, 1:])
    out: Floats = np.diff(_interpolate(curve, low, edges - low), axis=2)
    out *= profile_points(rhythm.period_bins) / rhythm.period_bins
    return out


def fold(matrix: RateMatrix, rhythm: Rhythm) -> Profiles:
    """Return the mean iteration of each RNIC.

    Points of an iteration with missing samples of an RNIC do not count for that RNIC.
    """
    n = len(matrix.endpoints)
    points = profile_points(rhythm.period_bins)
    tx, rx, odd, even = (np.empty((n, points * width)) for width in (1, 1, 2, 2))
    for begin in range(0, n, CHUNK):
        rows = slice(begin, begin + CHUNK)
        missing = matrix.missing[rows]
        weight = None
        if missing.any():
            weight = (iterations_of(missing.astype(np.float64), rhythm) <= 1e-9).astype(np.float64)
        for out, rates, side in (
            (tx, matrix.tx, slice(0, points)),
            (rx, matrix.rx, slice(points, None)),
        ):
            pieces = iterations_of(rates[rows], rhythm)
            out[rows] = _mean(pieces, weight)
            odd[rows, side] = _mean(pieces[:, 1::2], None if weight is None else weight[:, 1::2])
            even[rows, side] = _mean(pieces[:, ::2], None if weight is None else weight[:, ::2])
    return Profiles(tx=tx, rx=rx, odd=odd, even=even)


def _interpolate(curve: Floats, low: NDArray[np.int64], part: Floats) -> Floats:
    """Return curves, given at the bin edges, at the positions low + part."""
    value: Floats = np.take(curve, low, axis=1)
    value *= 1 - part
    rest = np.take(curve, low + 1, axis=1)
    rest *= part
    value += rest
    return value


def _mean(values: Floats, weight: Floats | None) -> Floats:
    """Return the weighted mean over iterations, 0 without any; weight None: all equal."""
    if weight is None:
        n, count, points = values.shape
        return values.sum(axis=1) / count if count else np.zeros((n, points))
    total = (values * weight).sum(axis=1)
    share = weight.sum(axis=1)
    out: Floats = np.divide(total, share, out=np.zeros_like(total), where=share > 0)
    return out
