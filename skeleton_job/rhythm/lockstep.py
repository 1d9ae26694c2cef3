"""Finds blocks that run in lock step: TP groups in a host, expert (EP) and context (CP) groups.

RNICs of a tensor-parallel group inside a host have the same samples. Replicas do the same work,
each with small delays of its own: blocks that share these delays exchange data throughout the
iteration, as an expert- or context-parallel group inside a stage does.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from schemas.columns.arrays import Bools, Floats
from skeleton_job.rhythm.chains import MIN_FOR_CLOCKS, own_delays
from skeleton_job.rhythm.clusters import divisors
from skeleton_job.series.rates import RateMatrix

Labels = NDArray[np.int64]

# RNICs of one tensor-parallel group vary by at most this factor more than neighbours do.
MAX_EXTRA: Final = 1.35
# RNICs of a host are read one after the other: 0.4 ms between readings that are 0.1 s apart cause
# this share of their variance.
READ_SHARE: Final = 2e-5
# Blocks whose own delays correlate more than this run in lock step.
MIN_CORRELATION: Final = 0.2
# Experts receive changing numbers of tokens: what they send and receive differs by this share at
# least.
MIN_IMBALANCE: Final = 0.01
MIN_ITERATIONS: Final = 6


def host_width(matrix: RateMatrix, rows: Labels, known: Bools) -> int:
    """Return how many neighbouring RNICs of a host move the same bytes at the same time.

    Compared sample by sample under the host's one clock, not in the mean iteration: replicas on one
    host are alike in the mean, but not in their delays.

    Parameters
    ----------
    rows : (n_hosts, n_rails) rows of the matrix
    known : (n_hosts, n_rails) bool
    """
    n_rails = int(rows.shape[1])
    widths: list[int] = [w for w in divisors(n_rails) if w > 1]
    whole = rows[known.all(axis=1)][:64]
    if len(widths) < 2 or not whole.size:
        return n_rails
    inside, floor = np.zeros(len(widths)), 0.0
    for host in whole:
        there = ~matrix.missing[host].any(axis=0)
        series = np.hstack([matrix.tx[host], matrix.rx[host]])
        if not there.all():
            series = series[:, np.tile(there, 2)]
        power = float(series.var(axis=1).mean())
        if power <= 0:
            continue
        floor += READ_SHARE * series.shape[1]
        for i, w in enumerate(widths):
            parts = series.reshape(n_rails // w, w, -1)
            apart = ((parts - parts.mean(axis=1, keepdims=True)) ** 2).sum() / (n_rails // w)
            inside[i] += float(apart) / (w - 1) / power
    fits = inside <= MAX_EXTRA * inside[0] + floor
    found = 1
    for width, fit in zip(widths, fits, strict=True):
        if not fit:
            break
        found = width
    return found


@dataclass(frozen=True, slots=True)
class Lockstep:
    """Groups of blocks of a class that run in lock step.

    Attributes
    ----------
    size : members of each group; 1: no groups
    groups : (n,) group of each block
    uneven : whether members send and receive different amounts, as experts do
    """

    size: int
    groups: Labels
    uneven: bool


def find_lockstep(tx: Floats, rx: Floats) -> Lockstep:
    """Return groups of equal size of a class's blocks whose delays correlate.

    Parameters
    ----------
    tx, rx : (n_blocks, n_iterations, points), NaN where samples are missing
    """
    n = tx.shape[0]
    none = Lockstep(1, np.arange(n), False)
    whole = ~np.isnan(tx).any(axis=(0, 2)) & ~np.isnan(rx).any(axis=(0, 2))
    if n < MIN_FOR_CLOCKS or int(whole.sum()) < MIN_ITERATIONS:
        return none
    # What is particular to one block and one iteration.
    parts = [own_delays(pieces[:, whole]).reshape(n, -1) for pieces in (tx, rx)]
    own = np.hstack(parts)
    size = np.linalg.norm(own, axis=1)
    if not np.all(size > 0):
        return none
    alike = (own @ own.T) / size[:, None] / size[None]
    tree = linkage(squareform(np.clip(1 - alike, 0, 2), checks=False), "average")
    labels: Labels = fcluster(tree, 1 - MIN_CORRELATION, "distance").astype(np.int64) - 1
    counts = np.bincount(labels)
    if counts.size in {1, n} or np.unique(counts).size > 1:
        return none
    sent, got = tx[:, whole].sum(axis=2), rx[:, whole].sum(axis=2)
    apart = (sent - got) - (sent - got).mean(axis=1, keepdims=True)
    share = float(np.median(np.abs(apart)) / max(float(np.median(sent + got)), 1e-300))
    return Lockstep(int(counts[0]), labels, share > MIN_IMBALANCE)
