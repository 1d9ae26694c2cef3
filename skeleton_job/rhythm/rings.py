"""Which hosts share a ring that turns all the time, by the delays of what goes around it.

Hosts of one ring (a context group) run in lock step. What enters a host less what leaves at the
same RNIC has no gradient sum in it, which is balanced and would outweigh all else under wrong
clocks.
"""

from collections import Counter
from typing import Final

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from schemas.columns.arrays import Floats
from skeleton_job.rhythm.chains import own_delays, unit_rows
from skeleton_job.rhythm.clusters import Labels

# Hosts whose own delays correlate more than this share a ring.
MIN_CORRELATION: Final = 0.2
# Iterations with which delays can be told from noise.
MIN_ITERATIONS: Final = 4


def likeness_of_hosts(flows: Floats) -> Floats | None:
    """Return how the delays of each two hosts correlate, (n_hosts, n_hosts); None: unknown.

    Parameters
    ----------
    flows : (n_hosts, n_iterations, points), what enters hosts and what leaves them side by side;
        NaN where samples are missing
    """
    whole = ~np.isnan(flows).any(axis=(0, 2))
    if len(flows) < 2 or int(whole.sum()) < MIN_ITERATIONS:
        return None
    unit = unit_rows(own_delays(flows[:, whole]).reshape(len(flows), -1))
    out: Floats = unit @ unit.T
    return out


def linked(alike: Floats) -> Floats:
    """Return the tree of average linkage of hosts that correlate so, (n, n)."""
    apart = np.clip(1 - alike, 0, 2)
    np.fill_diagonal(apart, 0.0)
    out: Floats = linkage(squareform(apart, checks=False), "average")
    return out


def ring_size(stages: list[Floats]) -> int:
    """Return how many hosts share a ring, a divisor of the number of hosts above 1.

    The size of the clusters of hosts that hold most of them; all hosts, if they are not alike:
    a ring that all share leaves them only noise, since what hosts have in common is left out.

    Parameters
    ----------
    stages : likeness of the hosts of each stage, see `likeness_of_hosts`; equally many each
    """
    n = len(stages[0])
    held: Counter[int] = Counter()
    for alike in stages:
        labels = fcluster(linked(alike), 1 - MIN_CORRELATION, "distance")
        for size in np.bincount(labels).tolist():
            held[size] += size
    fitting = [size for size in held if 1 < size <= n and n % size == 0]
    best = max(fitting, key=lambda size: (held[size], -size), default=n)
    return best if held[best] >= held[1] else n


def equal_groups(alike: Floats, size: int) -> Labels:
    """Return the group of each host, in groups of equal size whose members are alike, (n,).

    Each group begins with the first host that is left, and takes the likest ones.
    """
    rest = list(range(len(alike)))
    labels = np.empty(len(alike), dtype=np.int64)
    group = 0
    while rest:
        members = [rest.pop(0)]
        while len(members) < size and rest:
            likest = int(np.argmax(alike[np.ix_(members, rest)].mean(axis=0)))
            members.append(rest.pop(likest))
        labels[members] = group
        group += 1
    return labels
