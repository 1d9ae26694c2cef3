"""Which hosts of a stage run in lock step: expert (EP) and context (CP) groups.

Replicas start an iteration together and then lag behind each other, each by small delays of its
own, until their gradients are summed. Hosts of one expert or context group wait for each other all
the time: they lag behind each other no more than RNICs of one host do. The gradient sum, which all
hosts begin together, moves far more bytes than all else, so rates are cut at a level that most of
the traffic reaches.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from schemas.columns.arrays import Floats
from skeleton_job.rhythm.clusters import divisors
from skeleton_job.rhythm.iterations import Rhythm
from skeleton_job.rhythm.profiles import iterations_of
from skeleton_job.rhythm.rings import MIN_ITERATIONS
from skeleton_job.series.rates import RateMatrix

Labels = NDArray[np.int64]

# Rates are cut at this many times their mean, which is that of the cut rates, found in so many
# rounds: each takes more of the weight from short bursts.
CUT: Final = 3.0
CUT_ROUNDS: Final = 3
# Hosts of two groups lag behind each other this many times as much as those of one, at least.
MIN_APART: Final = 1.5
# and this many bins: hosts are read some milliseconds apart, by slow readers more.
MIN_APART_BINS: Final = 0.2
# Hosts in lock step lag at most this many times as much as RNICs of one host do.
LOCK_STEP: Final = 2.0


@dataclass(frozen=True, slots=True)
class Lags:
    """How much the hosts of a stage lag behind each other, and RNICs of a host.

    Attributes
    ----------
    between : (n, n) root mean square lag of each two hosts in bins, without its mean
    own : that of two RNICs of one host, the median over hosts; None: hosts have one RNIC each
    """

    between: Floats
    own: float | None


def host_lags(matrix: RateMatrix, rhythm: Rhythm, rows: Sequence[tuple[int, int]]) -> Lags | None:
    """Return how much hosts lag behind each other; None where too few iterations are whole.

    A lag is the difference of two series over their slope: least squares over all points of all
    iterations, after the mean iteration, which clock offsets change, is taken away.

    Parameters
    ----------
    rows : for each host two rows of the matrix, RNICs at the same places; twice the same if there
        is one only
    """
    flat = np.array(rows, dtype=np.int64).T.ravel()
    total = matrix.tx[flat] + matrix.rx[flat]
    cut = float(np.median([cut_level(series) for series in total]))
    total = np.minimum(total, cut)
    pieces = iterations_of(total, rhythm)
    missing: Floats = np.any(matrix.missing[flat], axis=0, keepdims=True).astype(np.float64)
    gone = iterations_of(missing, rhythm)[0]
    whole = np.flatnonzero(gone.sum(axis=1) <= 1e-9)
    if len(rows) < 2 or whole.size < MIN_ITERATIONS:
        return None
    pieces = pieces[:, whole]
    slope = (np.gradient(pieces, axis=2) ** 2).sum(axis=(1, 2))
    apart = (pieces - pieces.mean(axis=1, keepdims=True)).reshape(flat.size, -1)
    n = len(rows)
    power = np.zeros((n, n))
    steep = np.zeros((n, n))
    for one in (slice(0, n), slice(n, None)):
        norm = (apart[one] ** 2).sum(axis=1)
        power += norm[:, None] + norm[None] - 2 * apart[one] @ apart[one].T
        steep += (slope[one][:, None] + slope[one][None]) / 2
    per_point = rhythm.period_bins / pieces.shape[2]
    between = np.sqrt(np.maximum(power, 0.0) / np.maximum(steep, 1e-300)) * per_point
    np.fill_diagonal(between, 0.0)
    two = np.array([a != b for a, b in rows])
    inside = ((apart[:n] - apart[n:]) ** 2).sum(axis=1)
    inside = np.sqrt(inside / np.maximum((slope[:n] + slope[n:]) / 2, 1e-300)) * per_point
    return Lags(between, float(np.median(inside[two])) if two.any() else None)


def cut_level(rates: Floats) -> float:
    """Return the level at which rates are cut, see `CUT`.

    Examples
    --------
    >>> cut_level(np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 100.0])) < 10
    True
    """
    level = np.inf
    for _ in range(CUT_ROUNDS):
        level = CUT * float(np.minimum(rates, level).mean())
    return level


def shared_size(stages: Sequence[Lags]) -> int:
    """Return how many hosts form a group, a divisor of their number; 1: no groups are seen.

    The size at which the hosts of all stages fall into groups of that size, each member of which is
    much nearer to the others than to any other host. Where one group is the whole stage there are
    no others to compare with, and nothing is seen: replicas whose delays are short look the same.

    Parameters
    ----------
    stages : equally many hosts each
    """
    n = len(stages[0].between)
    clear = {g: sum(_gap(lags, g) for lags in stages) / len(stages) for g in divisors(n)[1:-1]}
    best = max(clear, key=lambda g: clear[g], default=1)
    return best if clear.get(best, 0.0) >= np.log(MIN_APART) else 1


def groups_of(lags: Lags, size: int) -> Labels:
    """Return the group of each host, (n,)."""
    n = len(lags.between)
    labels: Labels = fcluster(_tree(lags), n // size, "maxclust").astype(np.int64)
    return labels - 1


def _gap(lags: Lags, size: int) -> float:
    """Return how much farther groups are apart than their members, as a logarithm; 0: no groups."""
    n = len(lags.between)
    counts = np.bincount(groups_of(lags, size))
    tree = _tree(lags)
    inside, apart = float(tree[n - n // size - 1, 2]), float(tree[n - n // size, 2])
    near = inside <= max(LOCK_STEP * (lags.own or 0.0), MIN_APART_BINS)
    if np.any(counts != size) or not near or apart < MIN_APART_BINS:
        return 0.0
    return float(np.log(apart / max(inside, 1e-300)))


def _tree(lags: Lags) -> Floats:
    """Return the tree of average linkage of the hosts."""
    out: Floats = linkage(squareform(lags.between, checks=False), "average")
    return out
