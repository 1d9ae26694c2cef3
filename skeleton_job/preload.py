"""The list before anything is known: the full mesh of a job less its cross-rail pairs.

Rail-optimised fabrics and the collectives made for them keep traffic between
hosts on one rail, so pairs across rails, seven of eight with eight rails, are
left out (SkeletonHunter, SIGCOMM 2025: the preload phase).
"""

from collections.abc import Iterable
from typing import Final

from skeleton_job.job import Job, Rnic
from skeleton_job.pairs import Pair, ordered

# Of a job of more hosts each endpoint gets the nearest in the platform's order; a published list
# has room for fewer still (`skeleton_job.pinglists`).
DEFAULT_MAX_PEERS: Final = 1023


def rails_of(job: Job) -> dict[int, tuple[Rnic, ...]]:
    """Return the RNICs of each rail, in the platform's order."""
    rails: dict[int, list[Rnic]] = {}
    for rnic in job.ordered:
        rails.setdefault(rnic.rail, []).append(rnic)
    return {rail: tuple(rnics) for rail, rnics in sorted(rails.items())}


def ring_pairs(rnics: tuple[Rnic, ...], distances: Iterable[int]) -> set[Pair]:
    """Return the pairs at these distances around the ring of `rnics`, none inside a host.

    Every RNIC gets both neighbours of each distance, so that nobody is left out
    and the list stays symmetric.
    """
    n = len(rnics)
    return {
        ordered(a.endpoint_id, b.endpoint_id)
        for d in distances
        for i, a in enumerate(rnics)
        if a.host != (b := rnics[(i + d) % n]).host
    }


def basic_pairs(job: Job, max_peers: int = DEFAULT_MAX_PEERS) -> set[Pair]:
    """Return the unordered pairs of the basic list.

    Raises
    ------
    ValueError
        If max_peers is below 2: a ring needs two.
    """
    if max_peers < 2:
        raise ValueError(f"max_peers={max_peers}: at least 2")
    pairs: set[Pair] = set()
    for rnics in rails_of(job).values():
        farthest = min(len(rnics) // 2, max_peers // 2)
        pairs |= ring_pairs(rnics, range(1, farthest + 1))
    return pairs
