"""The description length of blocks, given which of them share a class (minimum description length).

Differences between hosts that are no evidence of different stages are removed first: clock offsets
(a shift of the whole iteration), and unequal shares of a collective.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from scipy.special import logsumexp, multigammaln

from schemas.columns.arrays import Bools, Floats
from skeleton_job.rhythm.clusters import Labels

# Number of principal axes on which blocks are compared.
MAX_AXES: Final = 6
# Deviations are cut at this many times the median deviation.
STRANGE: Final = 3.0
# Weight of the prior of the covariance inside classes, as a number of vectors (above 1).
PRIOR_VECTORS: Final = 2.0
# Usual deviation inside a class, in units of the floor, on generated jobs.
USUAL_SPREAD: Final = 0.3
# Alternative variances, as multiples of the usual one, with their costs in nats: counters that
# stand still or are read at irregular times.
SPREADS: Final = ((1.0, 0.5), (8.0, 1.5), (64.0, 3.5))
# A gradient burst is where at least this share of its height is sent and received at once.
BURST_SHARE: Final = 0.1
# Rounds of fitting clock, blur and burst in turn.
ROUNDS: Final = 6
# Nats per block against a job without replicas, beyond this number of blocks.
ALONE_COST: Final = 1.0
FEW: Final = 4
# Nats against any split: otherwise one job in fifty would be split by chance.
SPLIT_COST: Final = 4.0
# Nats for each block's own share of the gradient sum.
UNEVEN_COST: Final = 2.0


@dataclass(frozen=True)
class Evidence:
    """What a layout is chosen from; "blocks" may be cells, see `skeleton_job.layout.blocks`.

    Attributes
    ----------
    profiles : (n_blocks, 2 * points) mean iteration, tx and rx, bytes per second
    known : (n_blocks,) bool
    hosts : (n_blocks,) index of each block's host
    floor : norm of a meaningless difference
    max_shift : largest clock offset, in points
    one_way : share of the hosts' traffic that goes one way at a time, see `blocks.one_way`
    replicas : whether blocks of one host may share a class
    halves : each (n_blocks, 2 * points), mean odd and even iteration; None: flows are not looked at
    """

    profiles: Floats
    known: Bools
    hosts: Labels
    floor: float
    max_shift: float
    one_way: float = 0.02
    replicas: bool = False
    halves: tuple[Floats, Floats] | None = None

    @property
    def apart(self) -> Labels:
        """Blocks with one number are in different classes, (n_blocks,)."""
        return np.arange(self.known.size, dtype=np.int64) if self.replicas else self.hosts

    @cached_property
    def axes(self) -> Floats:
        """The directions in which the known blocks differ most, (n_axes, 2 * points)."""
        return main_axes(self.profiles[self.known])


def description(evidence: Evidence, labels: Labels, *, uneven: bool) -> float:
    """Return the description length of the blocks by the means of their classes, in nats.

    Two normal distributions, one of the class means and one of the blocks around them, both with
    the covariance that fits best, on the few axes on which blocks differ most (a multivariate
    analysis of variance). Clocks, collectives and storage each move blocks along one line, so a
    split along one line must be very clear.

    Parameters
    ----------
    labels : (n_blocks,) class of each block
    uneven : whether each block has its own share of what is sent and received at once, as inner
        nodes of a tree have more than leaves; costs one number per block
    """
    means, left = deviations(evidence, labels, uneven=uneven)
    axes = evidence.axes
    around, centres = left @ axes.T, means @ axes.T
    n, k, d = around.shape[0], centres.shape[0], axes.shape[0]
    # One unusual host must not outweigh all others.
    size = np.linalg.norm(around, axis=1)
    shrink = STRANGE * np.median(size) / np.maximum(size, 1e-9)
    around = around * np.minimum(1.0, shrink)[:, None]
    floor = (USUAL_SPREAD * evidence.floor) ** 2 / d
    scatter = around.T @ around
    length = -float(
        logsumexp([-cost - _evidence(scatter, n - k, wide * floor) for wide, cost in SPREADS])
    )
    if k == n:
        length += ALONE_COST * max(0, n - FEW)
    if k > 1:
        total = float((around**2).sum() + (centres**2).sum()) / (n - 1) / d
        length += _evidence(centres.T @ centres, k - 1, max(total, floor))
        length += SPLIT_COST * (1.0 + 0.5 * float(np.log2(k)))
    return length + (UNEVEN_COST * n if uneven else 0.0)


def _evidence(scatter: Floats, count: int, scale: float) -> float:
    """Return the description length of `count` normal vectors of unknown covariance, in nats.

    The covariance is integrated out under an inverse Wishart prior, as wide as possible around
    `scale`.

    Parameters
    ----------
    scatter : (d, d) sum of the vectors' outer products
    """
    d = scatter.shape[0]
    weight = d + PRIOR_VECTORS
    prior = scale * (weight - d - 1)
    after = float(np.linalg.slogdet(scatter + prior * np.eye(d))[1])
    return float(
        0.5 * (count + weight) * after
        - 0.5 * weight * d * np.log(prior)
        - multigammaln((count + weight) / 2, d)
        + multigammaln(weight / 2, d)
        + 0.5 * count * d * np.log(np.pi)
    )


def deviations(evidence: Evidence, labels: Labels, *, uneven: bool) -> tuple[Floats, Floats]:
    """Return how classes deviate from the mean of all blocks, and blocks from their class.

    What a clock offset explains is removed from both; means over several blocks have smaller
    offsets.

    Returns
    -------
    means : (n_classes, n_features), times the square root of the class's size
    left : (n_known, n_features)
    """
    points = evidence.profiles[evidence.known]
    inside = np.unique(labels[evidence.known], return_inverse=True)[1]
    size = np.bincount(inside).astype(np.float64)
    # No class is empty; summed row by row, so that the result does not depend on the layout.
    begin = np.cumsum(np.append(0, size[:-1])).astype(np.int64)
    means = np.add.reduceat(points[np.argsort(inside, kind="stable")], begin, axis=0)
    means /= size[:, None]
    centre, max_shift = points.mean(axis=0, keepdims=True), evidence.max_shift
    apart = unexplained(means - centre, centre, max_shift, uneven=uneven, share=size**-0.5)
    left = unexplained(points - means[inside], means, max_shift, uneven=uneven,
                  share=np.ones(len(inside)), of=inside)  # fmt: skip
    # A block is part of its own class's mean; a single one has no deviation.
    return apart * np.sqrt(size)[:, None], left


def main_axes(profiles: Floats) -> Floats:
    """Return the orthonormal directions in which profiles differ most, (n_axes, n_features)."""
    apart = profiles - profiles.mean(axis=0)
    values, vectors = np.linalg.eigh(apart @ apart.T)
    top = np.argsort(values)[::-1][: max(1, min(MAX_AXES, len(profiles) - 1))]
    axes = vectors[:, top].T @ apart
    out: Floats = axes / np.maximum(np.linalg.norm(axes, axis=1, keepdims=True), 1e-300)
    return out


def unexplained(
    apart: Floats,
    around: Floats,
    max_shift: float,
    *,
    uneven: bool,
    share: Floats,
    of: Labels | None = None,
) -> Floats:
    """Return deviations from profiles, without what clocks and (if uneven) collectives explain.

    Parameters
    ----------
    apart : (n, n_features), the deviations
    around : (k, n_features), the profiles
    max_shift : largest clock offset, in points
    share : (n,) scales the bounds of what may be explained
    of : (n,) the profile that each row deviates from; None: the single one
    """
    return _without(
        apart,
        _shapes(around, uneven=uneven),
        _bounds(max_shift, share, uneven=uneven),
        of=of,
        rounds=ROUNDS if uneven else 1,
    )


def unexplained_from_each(
    points: Floats, centres: Floats, max_shift: float, *, uneven: bool, share: Floats
) -> Iterator[Floats]:
    """Yield for each profile how all points deviate from it; see `unexplained`."""
    shapes = _shapes(centres, uneven=uneven)
    bounds = _bounds(max_shift, share, uneven=uneven)
    for k, centre in enumerate(centres):
        yield _without(
            points - centre, shapes[:, k : k + 1], bounds, of=None, rounds=ROUNDS if uneven else 1
        )


def _shapes(around: Floats, *, uneven: bool) -> Floats:
    """Return what clocks and (if uneven) collectives add to profiles, (n_shapes, k, n_features)."""
    # A shift between points is a blur as well; so are readings between ticks.
    shapes = [_slope(around), _bend(around)]
    if uneven:
        half = around.shape[1] // 2
        both = np.minimum(around[:, :half], around[:, half:])
        # Only the burst: pipelines send and receive at once as well, but far less.
        both = np.where(both > BURST_SHARE * both.max(axis=1, keepdims=True), both, 0.0)
        shapes.append(np.hstack([both, both]))
    return np.stack(shapes)


def _bounds(max_shift: float, share: Floats, *, uneven: bool) -> tuple[Floats, Floats]:
    """Return the least and the greatest multiple of each shape, (n_shapes, n) each."""
    low, high = [-max_shift * share] * 2, [max_shift * share] * 2
    if uneven:
        low, high = [*low, -share], [*high, 2.0 * share]
    return np.stack(low), np.stack(high)


def _without(
    apart: Floats,
    shapes: Floats,
    bounds: tuple[Floats, Floats],
    *,
    of: Labels | None,
    rounds: int,
) -> Floats:
    """Return deviations less the best-fitting multiples of shapes, within bounds.

    Shapes are fitted in turn, several times: a burst's bend looks much like less of the burst. Only
    the inner products with the shapes are needed for this, and they are updated in place of the
    features.
    """
    gram = np.einsum("skf,tkf->stk", shapes, shapes)
    if of is None:
        products = shapes[:, 0] @ apart.T
    else:
        products = np.stack([np.einsum("nf,nf->n", apart, shape[of]) for shape in shapes])
        gram = gram[:, :, of]
    taken = np.zeros_like(products)
    for _ in range(rounds):
        for i in range(len(shapes)):
            wanted = taken[i] + products[i] / np.maximum(gram[i, i], 1e-300)
            wanted = np.clip(wanted, bounds[0][i], bounds[1][i])
            products -= (wanted - taken[i]) * gram[i]
            taken[i] = wanted
    if of is None:
        explained: Floats = taken.T @ shapes[:, 0]
        return apart - explained
    out = apart.copy()
    for multiple, shape in zip(taken, shapes, strict=True):
        out -= multiple[:, None] * shape[of]
    return out


def _bend(rows: Floats) -> Floats:
    """Return the second difference of tx and of rx, cyclic."""
    points = rows.shape[1] // 2
    parts = [rows[:, :points], rows[:, points:]]
    return np.hstack([(np.roll(p, -1, axis=1) - 2 * p + np.roll(p, 1, axis=1)) / 2 for p in parts])


def _slope(rows: Floats) -> Floats:
    """Return the change per point of tx and of rx, cyclic."""
    points = rows.shape[1] // 2
    parts = [rows[:, :points], rows[:, points:]]
    return np.hstack([(np.roll(p, -1, axis=1) - np.roll(p, 1, axis=1)) / 2 for p in parts])
