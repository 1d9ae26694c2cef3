"""Groups of RNICs at the same position of different replicas.

The unit that is clustered is a block: the RNICs of one host that carry one
tensor-parallel group, which look alike. The classes of blocks are the pipeline
stages; the RNICs of a class with the same place in their block form a group.
Three rules hold for every result: groups are equally large, their size divides
the number of RNICs, and no two RNICs of a host share a group.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.optimize import linear_sum_assignment, linprog
from scipy.sparse import coo_array
from scipy.spatial.distance import cdist

from skeleton_job.series import Bools, Floats

Labels = NDArray[np.int64]

# Classes count as apart from this ratio of distance to spread on. The best split of a
# uniform smear in two has 3.5 without the floors that `Spread` adds, below 2 with them.
MIN_SEPARATION: Final = 2.5
# Sub-blocks of a host count as different from this ratio of standard errors on.
MIN_SPLIT: Final = 4.0
# Real copies of the same traffic differ by some per cent (retransmissions, storage).
AMPLITUDE_FLOOR: Final = 0.03
MAX_ROUNDS: Final = 12


@dataclass(frozen=True, slots=True)
class Classes:
    """A split of the blocks into equally large classes.

    Attributes
    ----------
    labels : (n_blocks,) class of each block
    count : number of classes
    separation
        Smallest distance between two classes over the spread inside them; for
        one class 0.
    runner_up : largest separation among the other numbers of classes, 0 without any
    agreement : share of blocks that an unconstrained cut puts into the same class
    """

    labels: Labels
    count: int
    separation: float
    runner_up: float
    agreement: float


def divisors(n: int) -> list[int]:
    """Return the divisors of n in ascending order.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    return [d for d in range(1, n + 1) if n % d == 0]


def block_width(rails: Floats, known: Bools, noise: float) -> tuple[int, float]:
    """Return how many neighbouring RNICs of a host look alike, and how sure that is.

    RNICs of one tensor-parallel group carry the same bytes under the same clock.
    An analysis of variance: sub-blocks differ if their means vary more than the
    RNICs inside them allow.

    Parameters
    ----------
    rails : (n_hosts, n_rails, n_features)
    known : (n_hosts, n_rails), where there is data
    noise : expected norm of one RNIC's error

    Returns
    -------
    width : a divisor of n_rails
    margin : ratio of what decided to its threshold, above 1
    """
    n_rails = rails.shape[1]
    complete = rails[known.all(axis=1)]
    if not complete.size or n_rails == 1:
        return n_rails, 1.0 if n_rails > 1 else np.inf
    width, margin = n_rails, np.inf
    scores = {w: _split_score(complete, w, noise) for w in divisors(n_rails)[:-1]}
    best = max(scores, key=lambda w: (scores[w], w))
    if scores[best] >= MIN_SPLIT:
        width, margin = best, scores[best] / MIN_SPLIT
    elif scores[best] > 0:
        margin = MIN_SPLIT / scores[best]
    return width, float(margin)


def _split_score(rails: Floats, width: int, noise: float) -> float:
    """Return the variation between sub-blocks of that width in standard errors."""
    n_hosts, n_rails, n_features = rails.shape
    parts = rails.reshape(n_hosts, n_rails // width, width, n_features)
    means = parts.mean(axis=2)
    count = n_rails // width
    between = ((means - means.mean(axis=1, keepdims=True)) ** 2).sum(axis=2).sum(axis=1)
    between = between / (count - 1)
    within = np.full(n_hosts, noise**2)
    if width > 1:
        inside = ((parts - means[:, :, None]) ** 2).sum(axis=3).sum(axis=(1, 2))
        within = np.maximum(within, inside / (n_rails - count))
    error = within / width + (AMPLITUDE_FLOOR * np.linalg.norm(rails, axis=2).mean(axis=1)) ** 2
    return float(np.sqrt(between.mean() / max(float(error.mean()), 1e-300)))


def best_classes(
    features: Floats, halves: tuple[Floats, Floats], known: Bools, hosts: Labels, floor: float
) -> Classes:
    """Return the split into equal classes that stands apart most clearly.

    For each number of classes that the rules allow, blocks are clustered
    hierarchically, the clusters made equal, and the distance between classes
    compared with the spread inside; one class if no split stands apart.

    Parameters
    ----------
    features : (n_blocks, n_features)
    halves : each (n_blocks, any), the same from independent halves of the data
    known : (n_blocks,), blocks without data take whatever place is left
    hosts : (n_blocks,) index of each block's host
    floor : norm of a difference that means nothing (noise, clocks)

    Raises
    ------
    ValueError
        If no block is known, or no number of classes obeys the rules.
    """
    n = features.shape[0]
    if not known.any():
        raise ValueError("no block has data")
    n_hosts = np.unique(hosts).size
    allowed = [k for k in divisors(n) if n // k <= n_hosts and k <= int(known.sum())]
    if not allowed:
        raise ValueError(f"{n} blocks on {n_hosts} hosts: no equal classes without two of a host")
    tree = linkage(features[known], "average") if int(known.sum()) > 1 else None
    found: list[Classes] = []
    for count in allowed:
        if count == 1 or tree is None:
            continue
        natural = fcluster(tree, count, "maxclust").astype(np.int64) - 1
        labels = _equal_classes(features, known, hosts, count, natural)
        if labels is not None:
            score = _separation(features, halves, known, labels, floor)
            found.append(Classes(labels, count, score, 0.0, _agreement(natural, labels[known])))
    found.sort(key=lambda c: -c.separation)
    one = Classes(np.zeros(n, dtype=np.int64), 1, 0.0, 0.0, 1.0)
    if not found:
        return one
    first = found[0]
    if first.separation < MIN_SEPARATION and 1 in allowed:
        return Classes(one.labels, 1, 0.0, first.separation, 1.0)
    second = found[1].separation if len(found) > 1 else 0.0
    return Classes(first.labels, first.count, first.separation, second, first.agreement)


def _equal_classes(
    features: Floats, known: Bools, hosts: Labels, count: int, natural: Labels
) -> Labels | None:
    """Return equal classes by rounds of constrained assignment, None where impossible.

    Started from the hierarchical cut and from points far apart: the cut spends
    clusters on outliers, the other start does not see shapes.
    """
    best: tuple[float, Labels] | None = None
    points = features[known]
    starts = [_cut_centres(points, natural, count), _far_centres(points, count)]
    for centres in starts:
        labels: Labels | None = None
        for _ in range(MAX_ROUNDS):
            cost = np.zeros((features.shape[0], count))
            cost[known] = cdist(points, centres, "sqeuclidean")
            new = _assign(cost, hosts, count)
            if new is None or (labels is not None and np.array_equal(new, labels)):
                break
            labels = new
            for c in range(count):
                inside = known & (labels == c)
                if inside.any():
                    centres[c] = features[inside].mean(axis=0)
        if labels is None:
            continue
        loss = float(cost[np.arange(labels.size), labels].sum())
        if best is None or loss < best[0]:
            best = (loss, labels)
    return None if best is None else best[1]


def _cut_centres(points: Floats, natural: Labels, count: int) -> Floats:
    centres = [points[natural == c].mean(axis=0) for c in np.unique(natural)]
    # Ties give fewer clusters than asked for.
    while len(centres) < count:
        centres.append(points[_farthest(points, np.array(centres))])
    return np.array(centres)


def _far_centres(points: Floats, count: int) -> Floats:
    centres = [points[int(np.argmax(((points - points.mean(axis=0)) ** 2).sum(axis=1)))]]
    while len(centres) < count:
        centres.append(points[_farthest(points, np.array(centres))])
    return np.array(centres)


def _farthest(points: Floats, centres: Floats) -> int:
    return int(np.argmax(cdist(points, centres, "sqeuclidean").min(axis=1)))


def _assign(cost: Floats, hosts: Labels, count: int) -> Labels | None:
    """Return the cheapest equal classes without two blocks of a host, None if there are none."""
    n = cost.shape[0]
    size = n // count
    if np.unique(hosts).size == n:
        rows, columns = linear_sum_assignment(np.repeat(cost, size, axis=1))
        labels = np.empty(n, dtype=np.int64)
        labels[rows] = columns // size
        return labels
    # A transport problem; its constraint matrix is totally unimodular, so the
    # simplex method ends at whole numbers.
    block = np.repeat(np.arange(n), count)
    klass = np.tile(np.arange(count), n)
    ones = np.ones(n * count)
    at = np.arange(n * count)
    equal = coo_array((np.tile(ones, 2), (np.concatenate([block, n + klass]), np.tile(at, 2))))
    per_host = coo_array((ones, (hosts[block] * count + klass, at)))
    solve: Any = linprog  # its stubs do not know sparse matrices
    solved = solve(
        cost.ravel() / max(float(cost.max()), 1e-300),  # the solver's tolerances are absolute
        A_eq=equal.tocsr(),
        b_eq=np.concatenate([np.ones(n), np.full(count, size)]),
        A_ub=per_host.tocsr(),
        b_ub=np.ones(per_host.shape[0]),
        bounds=(0, 1),
        method="highs-ds",
    )
    if not solved.success:
        return None
    shares: Floats = np.asarray(solved.x, dtype=np.float64).reshape(n, count)
    whole: Labels = np.argmax(shares, axis=1)
    return whole


def _separation(
    features: Floats, halves: tuple[Floats, Floats], known: Bools, labels: Labels, floor: float
) -> float:
    """Return the smallest distance between classes over the spread inside them.

    The distance is cross-validated: the product of the differences in two
    independent halves of the data, which noise does not make larger.
    """
    points, inside = features[known], labels[known]
    names = np.unique(inside)
    centres = np.array([points[inside == c].mean(axis=0) for c in names])
    spread = 0.0
    free = points.shape[0] - names.size
    if free > 0:
        residual = points - centres[np.searchsorted(names, inside)]
        spread = float((residual**2).sum()) / free
    if names.size < 2:
        return 0.0
    odd, even = (
        np.array([half[known][inside == c].mean(axis=0) for c in names]) for half in halves
    )
    product = odd @ even.T
    product = (product + product.T) / 2
    own = np.diag(product)
    square = (own[:, None] + own[None] - 2 * product)[np.triu_indices(names.size, 1)]
    return float(np.sqrt(max(float(square.min()), 0.0) / (spread + floor**2)))


def _agreement(natural: Labels, labels: Labels) -> float:
    """Return the share of blocks on which two splits agree, classes matched best."""
    table = np.zeros((natural.max() + 1, labels.max() + 1))
    np.add.at(table, (natural, labels), 1)
    rows, columns = linear_sum_assignment(-table)
    return float(table[rows, columns].sum() / labels.size)
