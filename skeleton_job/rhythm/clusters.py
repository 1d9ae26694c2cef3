"""Blocks of alike RNICs, and their assignment to classes of equal size.

A block is the RNICs of one host that carry one tensor-parallel group (TP) and look alike. Classes
of blocks are pipeline stages (PP); the RNICs of a class with the same place in their blocks form a
replica group (DP). Classes have equal sizes, and no two blocks of a host share a class unless the
host is seen to hold several replicas. These are the constraints of SkeletonHunter (SIGCOMM 2025).
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment, linprog
from scipy.sparse import coo_array

from schemas.columns.arrays import Bools, Floats

Labels = NDArray[np.int64]

# Sub-blocks of a host differ from this many standard errors on.
MIN_SPLIT: Final = 4.0
# Copies of the same traffic differ by some per cent (retransmissions, storage).
AMPLITUDE_FLOOR: Final = 0.03
MAX_ROUNDS: Final = 12


def divisors(n: int) -> list[int]:
    """Return the divisors of n in ascending order.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    return [d for d in range(1, n + 1) if n % d == 0]


def block_width(rails: Floats, known: Bools, noise: float) -> tuple[int, float]:
    """Return how many neighbouring RNICs of a host look alike, and how certain that is.

    RNICs of one tensor-parallel group carry the same bytes under the same clock. An analysis of
    variance: sub-blocks differ if their means vary more than the RNICs inside them allow.

    Parameters
    ----------
    rails : (n_hosts, n_rails, n_features)
    known : (n_hosts, n_rails) bool, where there is data
    noise : expected norm of one RNIC's error

    Returns
    -------
    width : a divisor of n_rails
    margin : ratio of the deciding score to its threshold, above 1
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
    """Return the variation between sub-blocks of that width, in standard errors."""
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


def assign(cost: Floats, hosts: Labels, count: int) -> Labels | None:
    """Return the cheapest classes of equal size without two blocks of a host in one class.

    Parameters
    ----------
    cost : (n_blocks, count) cost of each block in each class
    hosts : (n_blocks,) host of each block

    Returns
    -------
    (n_blocks,) class of each block; None if there is no such assignment
    """
    n = cost.shape[0]
    size = n // count
    if np.unique(hosts).size == n:
        rows, columns = linear_sum_assignment(np.repeat(cost, size, axis=1))
        labels = np.empty(n, dtype=np.int64)
        labels[rows] = columns // size
        return labels
    # A transport problem: its constraint matrix is totally unimodular, so the simplex method ends
    # at integers.
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
