"""Which RNICs exchange data, given the replica groups and the pipelines of a job.

Counters do not show who is whose neighbour in the ring of a replica group (DP): all members carry
the same bytes at the same time. Small groups are meshed. In larger ones each member gets peers at
distances 1, 2 and 4 in the platform's order: 1, since frameworks number ranks in that order and
build rings along ranks; 2 and 4, which binary trees and rings that skip a host use most.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from skeleton_job.job import Pair, Rnic, ordered

# Groups up to this size are meshed: at most 3 peers each, of which a ring uses 2.
MESH_SIZE: Final = 4
RING_DISTANCES: Final = (1, 2, 4)


def group_pairs(group: Sequence[Rnic], distances: Sequence[int] = RING_DISTANCES) -> set[Pair]:
    """Return the pairs of a replica group.

    Members on one host talk inside it and make no pair. If hosts have several members, the ring
    goes from host to host: on each member's rail, or from the last member of a host to the first of
    the next.

    Parameters
    ----------
    group : members in the platform's order
    distances : along the ring, for groups above `MESH_SIZE`
    """
    hosts: dict[str, list[Rnic]] = {}
    for rnic in group:
        hosts.setdefault(rnic.host, []).append(rnic)
    rows = list(hosts.values())
    if len(rows) < len(group):
        around = zip(rows, rows[1:] + rows[:1], strict=True)
        steps = [(*pair,) for a, b in around for pair in (*zip(a, b, strict=False), (a[-1], b[0]))]
    else:
        n = len(group)
        mesh = range(1, n) if n <= MESH_SIZE and distances == RING_DISTANCES else distances
        steps = [(a, group[(i + d) % n]) for i, a in enumerate(group) for d in mesh]
    return {ordered(a.endpoint_id, b.endpoint_id) for a, b in steps if a.host != b.host}


# A pipeline of two stages has one boundary.
CLOSED: Final = 2


def chain_pairs(chains: Iterable[Sequence[Rnic]]) -> set[Pair]:
    """Return the pairs of neighbours along pipelines, without those inside a host.

    The last stage and the first are neighbours as well: interleaved schedules return to the first
    stage, and tied embeddings are summed over the two. That costs one pair per pipeline.
    """
    return {
        ordered(a.endpoint_id, b.endpoint_id)
        for chain in chains
        for a, b in pairwise([*chain, chain[0]] if len(chain) > CLOSED else chain)
        if a.host != b.host
    }
