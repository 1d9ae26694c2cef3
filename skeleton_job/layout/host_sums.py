"""Whether gradients are summed across hosts, so that no stage lies in one host.

Blocks of one host share its clock, its reader and its storage, which makes each host look like a
stage of its own. But replicas that are all in one host sum their gradients there, and nobody sees
these: the hosts' traffic is that of the pipeline then, which goes one way at a time.
"""

from typing import Final

import numpy as np

from schemas.columns.arrays import Bools, Floats
from skeleton_job.rhythm.clusters import Labels

# Gradients are summed across hosts if less than this share of the traffic goes one way at a time,
# while most of an iteration's traffic is that of a pipeline ...
MAX_ONE_WAY: Final = 0.17
# ... and if hosts send and receive at once near the highest rate in less than this share of the
# iteration. Long pipelines pass activations and gradients both ways at once, but all the time. Of
# eight foreign jobs whose stages lie in one host each, none had less than 0.28 one way and less
# than 0.59 near the highest rate; of four whose hosts were taken for stages, all had at most 0.11
# and 0.17.
MAX_BURST: Final = 0.3
BURST_LEVEL: Final = 0.5
# Of two hosts each sends what the other receives, whether they are stages or replicas: two stages
# that lay in one host each, with short iterations, had 0.06 one way, and a burst.
MIN_HOSTS: Final = 3


def sums_cross_hosts(
    tx: Floats, rx: Floats, known: Bools, hosts: Labels, *, one_way: float
) -> bool:
    """Return whether hosts send and receive at once in a short burst, as for a gradient sum.

    Parameters
    ----------
    tx, rx : (n_blocks, points) mean iteration, bytes per second
    known : (n_blocks,) bool
    hosts : (n_blocks,) index of the host
    one_way : share of the hosts' traffic that goes one way at a time
    """
    if one_way >= MAX_ONE_WAY or np.unique(hosts[known]).size < MIN_HOSTS:
        return False
    both = _both(tx, rx, known, hosts)
    near_top = both > BURST_LEVEL * both.max(axis=1, keepdims=True)
    return float(near_top.mean()) < MAX_BURST


def classes_in_hosts(labels: Labels, hosts: Labels) -> bool:
    """Return whether half of the classes or more have several blocks, all in one host.

    Half, since a free layout that follows hosts may exchange blocks of a few.

    Examples
    --------
    >>> classes_in_hosts(np.array([0, 0, 1, 1]), np.array([0, 0, 1, 1]))
    True
    >>> classes_in_hosts(np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1]))
    False
    """
    classes, of_class = np.unique(labels, return_inverse=True)
    seats = np.unique(np.stack([of_class, hosts]), axis=1)[0]
    alone = (np.bincount(seats) == 1) & (np.bincount(of_class) > 1)
    return bool(2 * alone.sum() >= classes.size)


def _both(tx: Floats, rx: Floats, known: Bools, hosts: Labels) -> Floats:
    """Return what each host sends and receives at once, (n_hosts, points)."""
    of_host = np.unique(hosts[known], return_inverse=True)[1]
    sent, got = np.zeros((2, int(of_host.max(initial=0)) + 1, tx.shape[1]))
    np.add.at(sent, of_host, tx[known])
    np.add.at(got, of_host, rx[known])
    out: Floats = np.minimum(sent, got)
    return out
