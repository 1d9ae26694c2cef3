"""Which peers along a ring of RNICs an endpoint probes if nobody knows with whom it talks.

A covering design. Frameworks number ranks in the platform's order and nest their axes (tensor,
context, data, pipeline), so the members of a group follow each other at a fixed distance, and the
n places of a rail are a multiple of that distance times the size of the group. So the distances
that divide n reach a peer of each kind, whatever the degrees: a handful instead of all n / 2.

Distances in the widest gaps between them fill the list. They join RNICs that are near and far in
the platform's order, so that cables of all tiers are crossed, and meet members of groups that do
not follow the order.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from skeleton_job.job import Pair, Rnic, ordered

# Peers of an endpoint if nothing is known. Sixteen are eight distances: all that divide a power of
# two up to 256 hosts, and the likely ones of other numbers. Up to 17 hosts a rail is meshed.
DEFAULT_MAX_PEERS: Final = 16


def ring_pairs(ring: Sequence[Rnic], distances: Iterable[int]) -> set[Pair]:
    """Return the pairs at these distances around a ring, without those inside a host.

    Every RNIC gets both neighbours at each distance, so the list stays symmetric.
    """
    n = len(ring)
    return {
        ordered(a.endpoint_id, b.endpoint_id)
        for d in distances
        for i, a in enumerate(ring)
        if a.host != (b := ring[(i + d) % n]).host
    }


def covering_distances(n: int, max_peers: int) -> tuple[int, ...]:
    """Return the distances to probe along a ring of n places, the most useful first.

    Parameters
    ----------
    n : places of the ring
    max_peers : peers of each place; a distance gives two, half the ring one

    Raises
    ------
    ValueError
        If max_peers is below 2.

    Examples
    --------
    >>> covering_distances(64, 12)
    (1, 2, 32, 4, 16, 8)
    """
    if max_peers < 2:
        raise ValueError(f"max_peers={max_peers}: at least 2, since a distance gives two peers")
    half = n // 2
    if n - 1 <= max_peers:
        return tuple(range(1, half + 1))
    # Of two axes the inner one has the distance 1, the outer one that of the inner's size. Either
    # may be the small one, and small degrees are the usual ones.
    dividing = [d for d in range(1, half + 1) if n % d == 0]
    chosen = sorted(dividing, key=lambda d: (min(d, n // d), d))[: max_peers // 2]
    while len(chosen) < max_peers // 2:
        chosen.append(_widest_gap(chosen, half))
    return tuple(chosen)


def _widest_gap(chosen: Sequence[int], half: int) -> int:
    """Return the middle of the widest gap between distances of 1 to half a ring."""
    marks = sorted({0, *chosen, half + 1})
    low, high = max(pairwise(marks), key=lambda gap: gap[1] - gap[0])
    return (low + high) // 2
