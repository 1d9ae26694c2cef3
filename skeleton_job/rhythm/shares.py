"""Finds RNICs of a host that move the same number of bytes, as those of one tensor group (TP) do.

Experts are popular or not, and routing changes slowly: RNICs that serve different ones move
different numbers of bytes for as long as one looks, though expert groups keep them in lock step,
so that no lag tells them apart. RNICs of one tensor-parallel group hold parts of the same experts
and move the same tokens.
"""

from typing import Final

import numpy as np

from schemas.columns.arrays import Bools, Floats
from skeleton_job.rhythm.clusters import Labels, divisors
from skeleton_job.series.rates import RateMatrix

# Bytes are the same if they differ by less than this share (retransmissions), by twice what changes
# between the halves of the window, or by a fifth of what groups differ; they are not if they differ
# by more than the second share (acknowledgements of what goes the other way are some thousandths)
# and by four times the change.
SAME: Final = 0.001
SAME_CHANGES: Final = 2.0
SAME_PART: Final = 0.2
OTHER: Final = 0.003
OTHER_CHANGES: Final = 4.0
# Of the pairs in groups, and of those across them, so many must be as they should: one RNIC of a
# host may read storage as well.
AGREE: Final = 0.8
# Samples that all RNICs of a host have.
MIN_SAMPLES: Final = 20
MAX_HOSTS: Final = 32


def share_width(matrix: RateMatrix, rows: Labels, known: Bools) -> int:
    """Return how many neighbouring RNICs of a host move the same number of bytes.

    Parameters
    ----------
    rows : (n_hosts, n_rails) rows of the matrix
    known : (n_hosts, n_rails) bool

    Returns
    -------
    A divisor of the number of rails, at which groups differ and their members do not; the number
    itself if there is none
    """
    n_rails = int(rows.shape[1])
    whole = rows[known.all(axis=1)][:MAX_HOSTS]
    measured = [pair for pair in (_apart(matrix, host) for host in whole) if pair is not None]
    if n_rails == 1 or not measured:
        return n_rails
    apart, changes = np.median(np.array(measured), axis=0)
    first, second = np.triu_indices(n_rails, 1)
    apart, changes = apart[first, second], changes[first, second]
    other = apart > np.maximum(OTHER, OTHER_CHANGES * changes)
    for width in divisors(n_rails)[-2::-1]:
        inside = first // width == second // width
        least = max(SAME, SAME_PART * float(np.median(apart[~inside])))
        same = apart[inside] <= np.maximum(least, SAME_CHANGES * changes[inside])
        alike = width == 1 or float(same.mean()) >= AGREE
        if alike and float(other[~inside].mean()) >= AGREE:
            return width
    return n_rails


def _apart(matrix: RateMatrix, host: Labels) -> tuple[Floats, Floats] | None:
    """Return by what share the bytes of RNICs differ, and how much of that changes.

    Returns
    -------
    Each (n_rails, n_rails), of the way in which two RNICs differ more; None: too few samples, or
    most RNICs move nothing
    """
    there = np.flatnonzero(~matrix.missing[host].any(axis=0))
    if there.size < MIN_SAMPLES:
        return None
    halves = []
    for part in np.array_split(there, 2):
        moved = np.array([rates[host][:, part].mean(axis=1) for rates in (matrix.tx, matrix.rx)])
        usual = np.median(moved, axis=1, keepdims=True)
        if not usual.all():
            return None
        moved /= usual
        halves.append(moved[:, :, None] - moved[:, None, :])
    lasting: Floats = np.abs(halves[0] + halves[1]).max(axis=0) / 2
    changing: Floats = np.abs(halves[0] - halves[1]).max(axis=0) / 2
    return lasting, changing
