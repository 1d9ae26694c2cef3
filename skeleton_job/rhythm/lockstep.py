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
from scipy.special import ndtr

from schemas.columns.arrays import Bools, Floats
from skeleton_job.rhythm.chains import MIN_FOR_CLOCKS, own_delays
from skeleton_job.rhythm.clusters import divisors
from skeleton_job.series.rates import RateMatrix

Labels = NDArray[np.int64]

# Neighbours on both sides of a border differ at least by this factor more than those beside it.
MIN_EXTRA: Final = 1.35
# Spread of that factor's logarithm: over hosts, and what is common to the borders of all hosts.
USUAL_EXTRA_SPREAD: Final = 0.15
BORDER_SPREAD: Final = 0.1
# RNICs are compared in sections of the window: some iterations long, and not more than so many.
SECTION_BINS: Final = 100
MAX_SECTIONS: Final = 20
# A host is split if that is more probable than not.
SPLIT_FROM: Final = 0.5
# RNICs of a host are read one after the other: 0.4 ms between readings that are 0.1 s apart cause
# this share of their variance.
READ_SHARE: Final = 2e-5
# Blocks whose own delays correlate more than this run in lock step.
MIN_CORRELATION: Final = 0.2
# Experts receive changing numbers of tokens: what they send and receive differs by this share at
# least.
MIN_IMBALANCE: Final = 0.01
MIN_ITERATIONS: Final = 6


@dataclass(frozen=True, slots=True)
class HostWidth:
    """How many neighbouring RNICs of a host move the same bytes at the same time.

    Attributes
    ----------
    width : a divisor of the number of rails
    certainty : probability that it is right, 0.5 to 1
    """

    width: int
    certainty: float


def host_width(matrix: RateMatrix, rows: Labels, known: Bools) -> HostWidth:
    """Return how many neighbouring RNICs of a host move the same bytes at the same time.

    Compared sample by sample under the host's one clock, not in the mean iteration: replicas on one
    host are alike in the mean, but not in their delays.

    Neighbours at a border between two groups must differ more than the neighbours beside the
    border do. Other pairs say nothing: a host reads its RNICs, and sends on them, one after the
    other, so that RNICs differ the more the farther apart they are (live, 1.7 times as much over
    four RNICs as over two).

    Parameters
    ----------
    rows : (n_hosts, n_rails) rows of the matrix
    known : (n_hosts, n_rails) bool
    """
    n_rails = int(rows.shape[1])
    widths: list[int] = [w for w in divisors(n_rails)[:-1] if w > 1]
    whole = rows[known.all(axis=1)][:64]
    steps = np.array([s for s in (_steps(matrix, host) for host in whole) if s is not None])
    if not widths or not steps.size:
        return HostWidth(n_rails, 1.0)
    certainty = 1.0
    for width in widths:
        split = _split_probability(steps, width)
        if split > SPLIT_FROM:
            return HostWidth(width, min(certainty, split))
        certainty = min(certainty, 1.0 - split)
    return HostWidth(n_rails, certainty)


def _steps(matrix: RateMatrix, host: Labels) -> Floats | None:
    """Return how far neighbouring RNICs of a host are apart; None if none of them sends.

    The median over sections of the window: a fault that cuts RNICs off makes two groups of them for
    as long as it lasts.

    Returns
    -------
    (n_rails - 1,) mean square difference, as a share of the RNICs' variance
    """
    there = ~matrix.missing[host].any(axis=0)
    series = np.stack([matrix.tx[host], matrix.rx[host]])[:, :, there]
    power = float(series.var(axis=2).mean()) if series.size else 0.0
    if power <= 0:
        return None
    apart = (np.diff(series, axis=1) ** 2).sum(axis=0) / 4
    count = min(MAX_SECTIONS, max(1, apart.shape[1] // SECTION_BINS))
    sections = np.array_split(apart, count, axis=1)
    out: Floats = np.median([section.mean(axis=1) for section in sections], axis=0) / power
    return out + READ_SHARE


def _split_probability(steps: Floats, width: int) -> float:
    """Return the probability that groups of this width are apart: that of the least clear border.

    Parameters
    ----------
    steps : (n_hosts, n_rails - 1), see `_steps`
    """
    count = steps.shape[0]
    least = 1.0
    for border in range(width - 1, steps.shape[1], width):
        beside = np.maximum(steps[:, border - 1], steps[:, border + 1])
        extra = np.log(steps[:, border] / beside)
        mean = float(extra.mean())
        # Few hosts say little of how hosts differ: two more of the usual spread are assumed.
        total = float(((extra - mean) ** 2).sum()) + 2 * USUAL_EXTRA_SPREAD**2
        variance = total / (count + 1) / count + BORDER_SPREAD**2
        least = min(least, float(ndtr((mean - np.log(MIN_EXTRA)) / np.sqrt(variance))))
    return least


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
