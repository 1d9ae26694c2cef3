"""Which hosts of a stage vary alike from iteration to iteration: they share groups or pipelines.

Members of a context or expert group work on the same sequences and wait for each other, so the
bytes that they move and the times at which they do vary together; replicas vary each by itself.
Octaves are compared one by one (`skeleton_job.rhythm.chains.octaves`): in some jobs only the bytes
of whole iterations vary, in others only the times. Only the slowest octaves tell: a host whose
clock is wrong is late or early whenever all are, and this shows the more the faster rates change.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from schemas.columns.arrays import Floats
from skeleton_job.rhythm.chains import octaves
from skeleton_job.rhythm.clusters import divisors
from skeleton_job.rhythm.rings import MIN_ITERATIONS

Labels = NDArray[np.int64]

# Members of a group correlate by so much more than they do with any other host. With iterations
# shuffled for each host by itself, 99 in 100 draws stay below 0.66 for four hosts, which have three
# splits only, 0.12 for six and 0.07 for eight; of four replicas, two have 0.94 now and then.
MIN_GAP: Final = 0.2
MIN_GAP_FEW: Final = 1.0
FEW_HOSTS: Final = 5
# The bytes of an iteration, and what happens once in it.
SLOW_OCTAVES: Final = 2


@dataclass(frozen=True, slots=True)
class HostGroups:
    """Groups of hosts that vary alike.

    Attributes
    ----------
    size : hosts of a group
    of_stage : for each stage the group of each host, from 0 on
    gap : by how much members correlate more than with any other host, 0 to 2; 0: not known
    """

    size: int
    of_stage: tuple[Labels, ...]
    gap: float = 0.0


def alike_hosts(stages: Sequence[Floats]) -> HostGroups | None:
    """Return the groups of equal size whose members are nearer to each other than to any other.

    Parameters
    ----------
    stages : (n_hosts, n_iterations, points) of each stage, what hosts send and receive; NaN where
        samples are missing; equally many hosts each

    Returns
    -------
    The groups of the size and octave with the widest gap; None: there are none, or a single one
    holds the whole stage
    """
    by_stage = [_by_octave(total) for total in stages]
    found = [alike for alike in by_stage if alike is not None]
    if len(found) < len(stages):
        return None
    n = len(stages[0])
    least = MIN_GAP_FEW if n <= FEW_HOSTS else MIN_GAP
    groups = None
    for size in divisors(n)[1:-1]:
        for octave in zip(*found, strict=False):
            labels = [_groups(alike, size) for alike in octave]
            gap = sum(map(_gap, octave, labels)) / len(labels)
            if gap >= (least if groups is None else groups.gap):
                groups = HostGroups(size, tuple(labels), gap)
    return groups


def _by_octave(total: Floats) -> list[Floats] | None:
    """Return how hosts correlate in each slow octave, (n, n) each; None: too few whole iterations.

    The means over hosts and over iterations are removed.
    """
    whole = ~np.isnan(total).any(axis=(0, 2))
    if int(whole.sum()) < MIN_ITERATIONS:
        return None
    own = total[:, whole] - total[:, whole].mean(axis=0)
    parts = octaves(own - own.mean(axis=1, keepdims=True))[:SLOW_OCTAVES]
    return [part @ part.T for part in parts]


def _groups(alike: Floats, size: int) -> Labels:
    """Return the group of each host by average linkage, (n,)."""
    apart = np.clip(1 - alike, 0, 2)
    np.fill_diagonal(apart, 0.0)
    tree = linkage(squareform(apart, checks=False), "average")
    labels: Labels = fcluster(tree, len(alike) // size, "maxclust").astype(np.int64)
    return labels - 1


def _gap(alike: Floats, label: Labels) -> float:
    """Return by how much the least likeness inside groups exceeds the greatest across.

    Minus two, the least there is, where groups are not of one size.
    """
    if np.unique(np.bincount(label)).size > 1:
        return -2.0
    first, second = np.triu_indices(len(label), 1)
    inside = label[first] == label[second]
    each = alike[first, second]
    return float(each[inside].min() - each[~inside].max())
