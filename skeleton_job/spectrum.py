"""Each RNIC's part in the job's iteration.

The magnitude of a short-time Fourier transform throws the phase away, which is what tells
pipeline stages apart. So the series are folded at the job's own iterations instead
(`skeleton_job.rhythm`).
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from skeleton_job.arrays import Floats
from skeleton_job.rhythm import Rhythm, profile_points
from skeleton_job.series import RateMatrix

# Endpoints folded at a time; bounds the memory, about 50 MB for 300 s.
CHUNK: Final = 128


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


def _edges(n_bins: int, rhythm: Rhythm) -> Floats:
    """Return the edges of the points of all whole iterations, in bins, (n, points + 1)."""
    points = profile_points(rhythm.period_bins)
    edges = rhythm.starts[:, None] + np.arange(points + 1) * (rhythm.lengths[:, None] / points)
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
