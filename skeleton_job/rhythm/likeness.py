"""Which hosts of a stage vary alike from iteration to iteration: they share groups or pipelines.

Members of a context or expert group work on the same sequences and wait for each other, so the
bytes that they move and the times at which they do vary together; replicas vary each by itself.
The bytes of whole iterations and what happens once in each are compared one by one: in some jobs
only the bytes vary, in others only the times. Faster changes do not tell: a host whose clock is
wrong is late or early whenever all are, and this shows the more the faster rates change.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.cluster.hierarchy import fcluster

from schemas.columns.arrays import Floats
from skeleton_job.rhythm.chains import unit_rows
from skeleton_job.rhythm.clusters import Labels, divisors
from skeleton_job.rhythm.rings import MIN_ITERATIONS, linked

# Members of a group correlate by so much more than they do with any other host. With iterations
# shuffled for each host by itself, 99 in 100 draws stay below 0.12 for six hosts. Four hosts have
# three splits only: of four replicas two have 1.06 now and then, and in two groups they have 1.88
# or more.
MIN_GAP: Final = 0.2
MIN_GAP_FEW: Final = 1.5
FEW_HOSTS: Final = 5
# In even and in odd iterations they correlate on average by so much more than with others: what
# happened once is no likeness.
MIN_CONTRAST: Final = 0.3
# The bytes of an iteration, and what happens once in it.
SLOW: Final = 2
# There is no smaller gap: groups are not of one size.
NO_GAP: Final = -2.0


@dataclass(frozen=True, slots=True)
class HostGroups:
    """Groups of hosts, equally large, of each stage.

    Attributes
    ----------
    size : hosts of a group
    of_stage : for each stage the group of each host, from 0 on
    """

    size: int
    of_stage: tuple[Labels, ...]


def alike_hosts(stages: Sequence[Floats]) -> HostGroups | None:
    """Return the groups of equal size whose members are nearer to each other than to any other.

    Parameters
    ----------
    stages : (n_hosts, n_iterations, points) of each stage, what hosts send and receive; NaN where
        samples are missing; equally many hosts each

    Returns
    -------
    The groups with the widest gap; None: there are none, or a single one holds the whole stage
    """
    n = len(stages[0])
    best, groups = MIN_GAP_FEW if n <= FEW_HOSTS else MIN_GAP, None
    found = [_by_frequency(total) for total in stages]
    for size in divisors(n)[1:-1]:
        for k, alike in enumerate(zip(*found, strict=False)):
            labels = [_groups(each, size) for each in alike]
            gap = sum(_gap(*pair, size) for pair in zip(alike, labels, strict=True)) / len(stages)
            if gap >= best and _lasts(stages, labels, k):
                best, groups = gap, HostGroups(size, tuple(labels))
    return groups


def _lasts(stages: Sequence[Floats], labels: Sequence[Labels], k: int) -> bool:
    """Return whether groups show at a slow frequency in even and in odd iterations alike."""
    for half in (0, 1):
        found = [_by_frequency(total[:, half::2]) for total in stages]
        if any(len(each) <= k for each in found):
            return False
        alike = (each[k] for each in found)
        if sum(map(_contrast, alike, labels)) < MIN_CONTRAST * len(stages):
            return False
    return True


def _by_frequency(total: Floats) -> list[Floats]:
    """Return how hosts correlate at each slow frequency, (n, n) each; none: too few whole.

    What all hosts share is taken away, at each frequency in the size and with the delay that it
    has at that host: hosts whose clocks are wrong, or that move more bytes than others, as some
    nodes of trees do, would vary alike otherwise.
    """
    whole = ~np.isnan(total).any(axis=(0, 2))
    if int(whole.sum()) < MIN_ITERATIONS:
        return []
    varying = total[:, whole] - total[:, whole].mean(axis=1, keepdims=True)
    spectrum = np.fft.rfft(varying, axis=2)[:, :, :SLOW]
    shared = spectrum.mean(axis=0)
    power = np.maximum((np.abs(shared) ** 2).sum(axis=0), 1e-300)
    size = (spectrum * shared.conj()).sum(axis=1) / power
    own = spectrum - size[:, None] * shared
    parts = (unit_rows(np.hstack([part.real, part.imag])) for part in np.moveaxis(own, 2, 0))
    return [part @ part.T for part in parts]


def _groups(alike: Floats, size: int) -> Labels:
    """Return the group of each host by average linkage, (n,)."""
    labels: Labels = fcluster(linked(alike), len(alike) // size, "maxclust").astype(np.int64)
    return labels - 1


def _gap(alike: Floats, label: Labels, size: int) -> float:
    """Return by how much the least likeness inside groups exceeds the greatest across.

    `NO_GAP` where the groups are not of that size: hosts that move the same bytes are all alike.
    """
    if np.any(np.bincount(label) != size):
        return NO_GAP
    inside, across = _pairs(alike, label)
    return float(inside.min() - across.max())


def _contrast(alike: Floats, label: Labels) -> float:
    """Return by how much hosts of a group are more alike than others on average."""
    inside, across = _pairs(alike, label)
    return float(inside.mean() - across.mean()) if inside.size and across.size else 0.0


def _pairs(alike: Floats, label: Labels) -> tuple[Floats, Floats]:
    """Return the likeness of each two hosts of one group, and of two."""
    first, second = np.triu_indices(len(label), 1)
    inside = label[first] == label[second]
    each = alike[first, second]
    return each[inside], each[~inside]
