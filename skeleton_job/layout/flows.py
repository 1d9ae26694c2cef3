"""Which classes of blocks are no pipeline stages, by what they send less what they receive.

Blocks differ for many reasons: other delays, popular experts, the inner nodes of a tree. Only
stages exchange bytes with each other. So the net flow of a class (sent less received, mean over
its blocks) has three laws, whatever the schedule:

* A class that no other class talks to has none: a collective receives what it sends. Clocks do not
  matter, since an RNIC's two counters are read together.
* A pipeline returns as many bytes as it brings, the gradients of the activations. So the net flow
  of a stage changes its sign; one that keeps it is that of a ring's end or of a popular expert.
* The stages of one pipeline have no net flow together, and no part of them has none. Where several
  groups of classes are closed, each is a pipeline of its own: replicas, or units of replicas that
  run in lockstep (experts, context), each with its own delays or its own share of a collective.

Energies are products of odd and even iterations, so that noise does not count.
"""

from typing import Final

import numpy as np
from scipy.optimize import linear_sum_assignment

from schemas.columns.arrays import Bools, Floats
from skeleton_job.rhythm.clusters import Labels, divisors

Halves = tuple[Floats, Floats]

# Below this share of the traffic a class exchanges nothing: acknowledgements and retransmissions
# are some thousandths of all bytes.
MIN_FLOW: Final = 1e-3
# A net flow keeps its sign if its mean exceeds this many times its deviation; a pipeline's mean is
# 0, but storage adds to it.
ONE_SIGN: Final = 1.0
# A group of classes is closed if its net flow has less than this part of its classes' energy. Of a
# pipeline cut in two, each part has that of the link that was cut: about half.
CLOSED: Final = 0.1
# Net flows of one stage in several pipelines differ in amplitude by less than this part of the
# greatest: noise and clocks change it by some per cent, a stage's place by most of it.
UNLIKE: Final = 0.5


def pipelines_of(
    labels: Labels, count: int, halves: Halves, known: Bools, hosts: Labels
) -> tuple[Labels, int]:
    """Return the classes that exchange bytes with each other, after joining those that do not.

    Parameters
    ----------
    labels : (n_blocks,) class of each block, 0 to count - 1
    halves : each (n_blocks, 2 * points), tx and rx of the mean odd and even iteration
    known : (n_blocks,) bool
    hosts : (n_blocks,) index of the host; classes of one host may exchange bytes unseen, so
        only groups of whole hosts are believed to be closed

    Returns
    -------
    labels : (n_blocks,) int64
    count : number of classes that are left, a divisor of the former number
    """
    while count > 1:
        net, traffic = _net_flows(labels, count, halves, known)
        groups = _closed_groups(net, traffic)
        if len(groups) == 1 or not _own_hosts(groups, labels, hosts):
            return labels, count
        stage = np.empty(count, dtype=np.int64)
        first = groups[0]
        for group in groups:
            # The stage of a class is that of the class of the first group with the likest flow.
            alike = net[0][first] @ net[1][group].T + net[1][first] @ net[0][group].T
            rows, columns = linear_sum_assignment(-alike)
            stage[np.array(group)[columns]] = rows
        if len(first) > 1 and not _alike(net, stage):
            return labels, count
        labels, count = stage[labels], len(first)
    return labels, count


def one_sign(labels: Labels, count: int, halves: Halves, known: Bools, hosts: Labels) -> bool:
    """Return whether net flows of classes, and of hosts, keep their sign: they are no stages.

    Inside a host, messages may be relayed from rail to rail, so that a rail only sends; so hosts
    must show it, too. For the arguments see `pipelines_of`.
    """
    of_host = np.unique(hosts, return_inverse=True)[1]
    return _one_sign(_net_flows(labels, count, halves, known)[0]) and _one_sign(
        _net_flows(of_host, int(of_host.max()) + 1, halves, known)[0]
    )


def flows_differ(labels: Labels, count: int, halves: Halves, known: Bools) -> bool:
    """Return whether classes have net flows of their own, as stages do and tree nodes do not.

    For the arguments see `pipelines_of`.
    """
    net = _moving(_net_flows(labels, count, halves, known)[0])
    odd, even = (flow - flow.mean(axis=0) for flow in net)
    return _energy(odd, even) > CLOSED * max(_energy(*net), 0.0)


def _net_flows(labels: Labels, count: int, halves: Halves, known: Bools) -> tuple[Halves, float]:
    """Return the net flow of each class in odd and even iterations, and the energy of all traffic.

    Returns
    -------
    net : each (count, points)
    traffic : mean over blocks of the squared traffic of both directions, summed over points
    """
    size = np.maximum(np.bincount(labels[known], minlength=count), 1)[:, None]
    net, both = [], []
    for half in halves:
        points = half.shape[1] // 2
        tx, rx = half[known, :points], half[known, points:]
        total = np.zeros((count, points))
        np.add.at(total, labels[known], tx - rx)
        net.append(total / size)
        both.append((tx + rx).mean(axis=0))
    return (net[0], net[1]), float(both[0] @ both[1])


def _closed_groups(net: Halves, traffic: float) -> list[list[int]]:
    """Return the classes in as many closed groups of equal size as there are."""
    count = net[0].shape[0]
    moving = _moving(net)
    energy = _energy(*moving)
    if energy < count * MIN_FLOW**2 * traffic:
        return [[c] for c in range(count)]
    for number in divisors(count)[-2:0:-1]:
        groups = _grouped(moving, count // number)
        together = [np.array([flow[g].sum(axis=0) for g in groups]) for flow in moving]
        if _energy(*together) <= CLOSED * energy:
            return groups
    return [list(range(count))]


def _moving(net: Halves) -> Halves:
    """Return net flows less their means: storage sends all the time."""
    odd, even = (flow - flow.mean(axis=1, keepdims=True) for flow in net)
    return odd, even


def _one_sign(net: Halves) -> bool:
    """Return whether net flows keep their sign."""
    mean = [flow.mean(axis=1) for flow in net]
    steady = net[0].shape[1] * float(np.abs(mean[0] * mean[1]).sum())
    return bool(steady > ONE_SIGN**2 * _energy(*_moving(net)))


def _grouped(moving: Halves, size: int) -> list[list[int]]:
    """Return groups of that size; each begins with the strongest class that is left.

    Those follow that leave least net flow, as the next stage of a pipeline does.
    """
    rest = list(range(moving[0].shape[0]))
    groups = []
    while rest:
        group = [max(rest, key=lambda c: float(moving[0][c] @ moving[1][c]))]
        rest.remove(group[0])
        while len(group) < size:
            odd, even = (flow[group].sum(axis=0) for flow in moving)
            left = [float((odd + moving[0][c]) @ (even + moving[1][c])) for c in rest]
            group.append(rest.pop(int(np.argmin(left))))
        groups.append(group)
    return groups


def _alike(net: Halves, stage: Labels) -> bool:
    """Return whether classes of one stage have net flows of like size, as those of replicas have.

    The first and the last stage of one pipeline together have little, and so has its middle, where
    delays between stages are short; but then each stage of the middle has little alone.
    """
    size = np.sqrt(np.maximum(np.prod(_moving(net), axis=0).sum(axis=1), 0.0))
    spread = max(float(np.ptp(size[stage == s])) for s in np.unique(stage))
    return spread <= UNLIKE * float(size.max())


def _own_hosts(groups: list[list[int]], labels: Labels, hosts: Labels) -> bool:
    """Return whether no host has blocks of two groups."""
    of_class = np.empty(sum(map(len, groups)), dtype=np.int64)
    for number, group in enumerate(groups):
        of_class[group] = number
    seats = np.unique(np.stack([hosts, of_class[labels]]), axis=1)
    return bool(seats.shape[1] == np.unique(hosts).size)


def _energy(odd: Floats, even: Floats) -> float:
    return float((odd * even).sum())
