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
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from schemas.columns.arrays import Bools, Floats
from skeleton_job.rhythm.clusters import Labels, divisors
from skeleton_job.rhythm.iterations import Rhythm
from skeleton_job.rhythm.limits import cut_level
from skeleton_job.rhythm.profiles import iterations_of
from skeleton_job.rhythm.rings import MIN_ITERATIONS
from skeleton_job.series.rates import RateMatrix

# Hosts of two groups lag behind each other this many times as much as those of one, at least.
MIN_APART: Final = 1.5
# and this many bins: hosts are read some milliseconds apart, by slow readers more.
MIN_APART_BINS: Final = 0.2
# Groups are seen, too, if hosts of two groups lag more by this many deviations of a pair: the
# greatest in 300 draws of noise for six hosts or more, clustered in the same way, is 3.5.
MIN_EXCESS: Final = 4.0
# Fewer pairs say nothing of how pairs deviate: four hosts leave one.
MIN_FREEDOM: Final = 8
# Hosts whose own RNICs are compared: their median needs no more.
MAX_TWINS: Final = 8
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


def host_lags(
    matrix: RateMatrix, rhythm: Rhythm, hosts: Sequence[Labels], twins: Sequence[tuple[int, int]]
) -> Lags | None:
    """Return how much hosts lag behind each other; None where too few iterations are whole.

    A lag is the difference of two series over their slope: least squares over all points of all
    iterations, after the mean iteration, which clock offsets change, is taken away. A host's
    series are the means of two halves of its RNICs, since each RNIC has a time of reading of its
    own.

    Parameters
    ----------
    hosts : for each host its rows of the matrix
    twins : for each host two rows, of RNICs in lock step; twice the same if there is one only
    """
    if len(hosts) < 2:
        return None
    parts = [rows[k::2] if rows.size > 1 else rows for k in (0, 1) for rows in hosts]
    total, missing = zip(*(_mean_rates(matrix, rows) for rows in parts), strict=True)
    between = _all_lags(np.array(total), np.array(missing), rhythm)
    if between is None:
        return None
    inside = [
        _all_lags(matrix.tx[[a, b]] + matrix.rx[[a, b]], matrix.missing[[a, b]], rhythm)
        for a, b in twins[:MAX_TWINS]
        if a != b
    ]
    own = [float(lag[0, 1]) for lag in inside if lag is not None]
    n = len(hosts)
    power = (between[:n, :n] ** 2 + between[n:, n:] ** 2) / 2
    return Lags(np.sqrt(power), float(np.median(own)) if own else None)


def _mean_rates(matrix: RateMatrix, rows: Labels) -> tuple[Floats, Bools]:
    """Return the mean traffic of RNICs over those with a sample, and where there is none."""
    there = ~matrix.missing[rows]
    count = there.sum(axis=0)
    total = np.where(there, matrix.tx[rows] + matrix.rx[rows], 0.0).sum(axis=0)
    return total / np.maximum(count, 1), count == 0


def _all_lags(total: Floats, missing: Bools, rhythm: Rhythm) -> Floats | None:
    """Return the lag of each two series in bins, (n, n); None: too few whole iterations.

    Parameters
    ----------
    total, missing : (n, n_bins)
    """
    total = np.minimum(total, float(np.median(cut_level(total))))
    pieces = iterations_of(total, rhythm)
    gone = iterations_of(np.any(missing, axis=0, keepdims=True).astype(np.float64), rhythm)[0]
    whole = np.flatnonzero(gone.sum(axis=1) <= 1e-9)
    if whole.size < MIN_ITERATIONS:
        return None
    pieces = pieces[:, whole]
    steep = (np.gradient(pieces, axis=2) ** 2).sum(axis=(1, 2))
    apart = (pieces - pieces.mean(axis=1, keepdims=True)).reshape(len(total), -1)
    norm = (apart**2).sum(axis=1)
    power = norm[:, None] + norm[None] - 2 * apart @ apart.T
    slope = np.maximum((steep[:, None] + steep[None]) / 2, 1e-300)
    out: Floats = np.sqrt(np.maximum(power, 0.0) / slope) * (rhythm.period_bins / pieces.shape[2])
    np.fill_diagonal(out, 0.0)
    return out


def shared_size(stages: Sequence[Lags]) -> int:
    """Return how many hosts form a group, a divisor of their number; 1: no groups are seen.

    The size at which the hosts of all stages fall into groups of that size, each member of which is
    much nearer to the others than to any other host, or nearer by far more than chance. Where one
    group is the whole stage there are no others to compare with, and nothing is seen: replicas
    whose delays are short look the same.

    Parameters
    ----------
    stages : equally many hosts each
    """
    n = len(stages[0].between)
    clear = {g: sum(_gap(lags, g) for lags in stages) / len(stages) for g in divisors(n)[1:-1]}
    best = max(clear, key=lambda g: clear[g], default=1)
    if clear.get(best, 0.0) >= np.log(MIN_APART):
        return best
    excess = {g: sum(_excess(lags, g) for lags in stages) / len(stages) for g in clear}
    best = max(excess, key=lambda g: excess[g], default=1)
    return best if excess.get(best, 0.0) >= MIN_EXCESS else 1


def groups_of(lags: Lags, size: int) -> Labels:
    """Return the group of each host, (n,)."""
    n = len(lags.between)
    labels: Labels = fcluster(_tree(lags), n // size, "maxclust").astype(np.int64)
    return labels - 1


def _gap(lags: Lags, size: int) -> float:
    """Return how much farther groups are apart than their members, as a logarithm; 0: no groups."""
    n = len(lags.between)
    tree = _tree(lags)
    inside, apart = float(tree[n - n // size - 1, 2]), float(tree[n - n // size, 2])
    if not _lock_step(lags, size, inside) or apart < MIN_APART_BINS:
        return 0.0
    return float(np.log(apart / max(inside, 1e-300)))


def _lock_step(lags: Lags, size: int, inside: float) -> bool:
    """Return whether groups have that size, and members that lag so much are in lock step."""
    near = inside <= max(LOCK_STEP * (lags.own or 0.0), MIN_APART_BINS)
    return near and not np.any(np.bincount(groups_of(lags, size)) != size)


def _excess(lags: Lags, size: int) -> float:
    """Return by how many deviations pairs across groups lag more than pairs inside; 0: no groups.

    The mean square lag of two hosts is the sum of a share of either, and of an excess if they are
    in two groups, least squares; the deviation is that of pairs from this sum.
    """
    n = len(lags.between)
    first, second = np.triu_indices(n, 1)
    label = groups_of(lags, size)
    across = label[first] != label[second]
    square = lags.between[first, second] ** 2
    if not _lock_step(lags, size, float(np.sqrt(square[~across].mean()))):
        return 0.0
    pair = np.arange(first.size)
    design = np.zeros((first.size, n + 1))
    design[pair, first] = design[pair, second] = 1.0
    design[:, n] = across
    freedom = first.size - n - 1
    if freedom < MIN_FREEDOM:
        return 0.0
    fitted = np.linalg.lstsq(design, square, rcond=None)[0]
    misfit = square - design @ fitted
    return float(fitted[n]) / max(float(np.sqrt(misfit @ misfit / freedom)), 1e-300)


def _tree(lags: Lags) -> Floats:
    """Return the tree of average linkage of the hosts."""
    out: Floats = linkage(squareform(lags.between, checks=False), "average")
    return out
