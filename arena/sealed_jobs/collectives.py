"""Which RNICs a collective joins, and the share of its payload that each pair carries.

Sources: the algorithms of NCCL (ring, double binary tree, PAT, CollNet, PXN) and of DeepEP, from
their publications. What stays in a host goes over NVLink and is not seen here.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from arena.sealed_jobs.fleet import FloatArray, IntArray, Layout

Shares = dict[tuple[int, int], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """Directed pairs of RNICs, and the bytes that each carries per byte of payload.

    Attributes
    ----------
    shares
        (source, destination) → bytes per byte of payload.
    rnics, tx, rx
        What each RNIC sends and receives per byte of payload; all of one shape.
    """

    shares: Shares
    rnics: IntArray
    tx: FloatArray
    rx: FloatArray

    @property
    def peak(self) -> float:
        """Bytes per byte of payload through the busiest port in its busier direction."""
        if not len(self.rnics):
            return 0.0
        return float(max(self.tx.max(), self.rx.max()))


def pattern(shares: Iterable[Shares], *, through_switch: IntArray | None = None) -> Pattern:
    """Add up what runs at the same time.

    Parameters
    ----------
    shares
        Parts of the pattern.
    through_switch
        RNICs that send the payload to an aggregating switch and receive the sum from it.
    """
    total: Shares = defaultdict(float)
    for part in shares:
        for pair, share in part.items():
            total[pair] += share
    tx: dict[int, float] = defaultdict(float)
    rx: dict[int, float] = defaultdict(float)
    for (source, destination), share in total.items():
        tx[source] += share
        rx[destination] += share
    for rnic in () if through_switch is None else through_switch.tolist():
        tx[rnic] += 1.0
        rx[rnic] += 1.0
    rnics = sorted({*tx, *rx})
    return Pattern(
        shares=dict(sorted(total.items())),
        rnics=np.array(rnics, np.int64),
        tx=np.array([tx.get(r, 0.0) for r in rnics]),
        rx=np.array([rx.get(r, 0.0) for r in rnics]),
    )


def channels(layout: Layout, members: IntArray) -> list[list[int]]:
    """Return for each channel the RNIC of each host, in the order of the hosts' first ranks.

    A group with several ranks in a host uses all their RNICs, one for each channel. A host with
    fewer RNICs than others uses them several times.
    """
    of_host: dict[int, list[int]] = {}
    for rank in members:
        rnics = of_host.setdefault(int(layout.host[rank]), [])
        if int(layout.rnic[rank]) not in rnics:
            rnics.append(int(layout.rnic[rank]))
    count = max(len(rnics) for rnics in of_host.values())
    return [[rnics[c % len(rnics)] for rnics in of_host.values()] for c in range(count)]


def ring(layout: Layout, members: IntArray, *, passes: int) -> Shares:
    """Ring all-reduce (two passes), all-gather or reduce-scatter (one pass) of a payload."""
    lines = channels(layout, members)
    shares: Shares = defaultdict(float)
    if len(lines[0]) > 1:
        share = passes * (len(members) - 1) / len(members) / len(lines)
        for line in lines:
            for source, destination in pairwise([*line, line[0]]):
                shares[source, destination] += share
    return shares


def hierarchical(layout: Layout, members: IntArray) -> Shares:
    """All-reduce in three steps: inside the host, over each rail by a ring, inside the host."""
    lines = channels(layout, members)
    hosts = len(lines[0])
    shares: Shares = defaultdict(float)
    if hosts > 1:
        for line in lines:
            for source, destination in pairwise([*line, line[0]]):
                shares[source, destination] += 2 * (hosts - 1) / hosts / len(lines)
    return shares


def double_tree(layout: Layout, members: IntArray) -> Shares:
    """All-reduce over two binary trees, each for half of the payload, up and down."""
    shares: Shares = defaultdict(float)
    lines = channels(layout, members)
    for line in lines:
        hosts = len(line)
        for child, parent in _tree(hosts):
            mirrored = (hosts - 1 - child, hosts - 1 - parent)
            shifted = ((child + 1) % hosts, (parent + 1) % hosts)
            second = mirrored if hosts % 2 == 0 else shifted
            for low, high in ((child, parent), second):
                shares[line[low], line[high]] += 0.5 / len(lines)
                shares[line[high], line[low]] += 0.5 / len(lines)
    return shares


def _tree(count: int) -> list[tuple[int, int]]:
    """Return (child, parent) of a binary tree in which ranks stand in order."""
    edges = []
    for rank in range(1, count):
        bit = rank & -rank
        parent = (rank ^ bit) | (bit << 1)
        edges.append((rank, parent if parent < count else rank ^ bit))
    return edges


def power_steps(layout: Layout, members: IntArray, *, passes: int) -> Shares:
    """All-gather or reduce-scatter over distances 1, 2, 4, ... for one rank a host (PAT)."""
    lines = channels(layout, members)
    hosts = len(lines[0])
    shares: Shares = defaultdict(float)
    distances = [1 << k for k in range((hosts - 1).bit_length())]
    weights = [1.0 / distance for distance in distances]
    for line in lines:
        for distance, weight in zip(distances, weights, strict=True):
            share = passes * (hosts - 1) / hosts * weight / sum(weights) / len(lines)
            for place, source in enumerate(line):
                shares[source, line[(place + distance) % hosts]] += share
    return shares


def all_to_all(
    layout: Layout, members: IntArray, *, way: str, popularity: FloatArray | None = None
) -> Shares:
    """Each rank spreads a payload over all ranks of the group.

    Parameters
    ----------
    way
        `direct`: from the sender's RNIC to the receiver's. `pxn`: over NVLink to the GPU of the
        sender's host on the receiver's rail, and on along that rail. `rail`: along the sender's
        rail, and over NVLink in the receiver's host.
    popularity
        How much each member receives, relative to the mean; shape (members,).
    """
    count = len(members)
    weights = np.ones(count) if popularity is None else popularity * count / popularity.sum()
    local: dict[int, list[int]] = {}
    for rank in members.tolist():
        local.setdefault(int(layout.host[rank]), []).append(int(layout.rnic[rank]))
    place: dict[int, int] = {}
    for rank in members.tolist():
        place[rank] = local[int(layout.host[rank])].index(int(layout.rnic[rank]))
    shares: Shares = defaultdict(float)
    for source in members.tolist():
        for destination, weight in zip(members.tolist(), weights.tolist(), strict=True):
            here, there = int(layout.host[source]), int(layout.host[destination])
            if here == there:
                continue
            out, into = int(layout.rnic[source]), int(layout.rnic[destination])
            if way == "pxn":
                out = local[here][place[destination] % len(local[here])]
            elif way == "rail":
                into = local[there][place[source] % len(local[there])]
            shares[out, into] += weight / count
    return shares


def send(layout: Layout, sources: IntArray, destinations: IntArray, *, pxn: bool) -> Shares:
    """Each source sends a payload to its destination.

    With `pxn`, data for another rail goes over NVLink to the GPU on that rail first.
    """
    fleet = layout.fleet
    shares: Shares = defaultdict(float)
    for source, destination in zip(sources.reshape(-1), destinations.reshape(-1), strict=True):
        here, there = int(layout.host[source]), int(layout.host[destination])
        if here == there:
            continue
        out, into = int(layout.rnic[source]), int(layout.rnic[destination])
        if pxn:
            relay = fleet.rnic_at(here, fleet.rnic_rail[into])
            out = relay if relay is not None and relay in layout.rnics else out
        shares[out, into] += 1.0
    return shares


def pass_around(layout: Layout, members: IntArray) -> Shares:
    """Each rank sends a payload to the next of the group, the last one to the first."""
    return send(layout, members, np.roll(members, -1), pxn=False)


def sum_gradients(layout: Layout, groups: Sequence[IntArray], algorithm: str) -> Pattern:
    """All-reduce of the groups of a stage at the same time."""
    if algorithm == "switch":
        members = np.unique(np.concatenate([layout.rnic[group] for group in groups]))
        crossing = len({int(layout.host[rank]) for rank in groups[0]}) > 1
        return pattern((), through_switch=members if crossing else None)
    if algorithm == "tree":
        return pattern(double_tree(layout, group) for group in groups)
    if algorithm == "hierarchical":
        return pattern(hierarchical(layout, group) for group in groups)
    return pattern(ring(layout, group, passes=2) for group in groups)


def gather(layout: Layout, groups: Sequence[IntArray], algorithm: str) -> Pattern:
    """All-gather or reduce-scatter of the groups of a stage at the same time."""
    if algorithm == "power_steps":
        return pattern(power_steps(layout, group, passes=1) for group in groups)
    return pattern(ring(layout, group, passes=1) for group in groups)
