"""x."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from skeleton_job.job import Pair, Rnic, ordered

# Up to this size all pairs of a group are taken: 3 peers each, of which a ring uses 2.
MESH_SIZE: Final = 4
RING_DISTANCES: Final = (1, 2, 4)


def group_pairs(group: Sequence[Rnic], distances: Sequence[int] = RING_DISTANCES) -> set[Pair]:
    """Return the pairs of a gradient group, its members in the platform's order.

    Members on one host talk inside it and make no pair. Where hosts have several members, a ring
    goes from host to host: on each member's rail, or from the last member to the first.

    Parameters
    ----------
    distances : along the ring, of groups above `MESH_SIZE`
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


# A pipeline of two stages has one joint.
CLOSED: Final = 2


def chain_pairs(chains: Iterable[Sequence[Rnic]]) -> set[Pair]:
    """Return the pairs of neighbours along pipelines, those inside a host left out.

    The last stage and the first are neighbours as well: interleaved schedules go round, and
    tied embeddings are summed over the two. It costs one pair for each pipeline.
    """
    return {
        ordered(a.endpoint_id, b.endpoint_id)
        for chain in chains
        for a, b in pairwise([*chain, chain[0]] if len(chain) > CLOSED else chain)
        if a.host != b.host
    }
