"""Who sends how much to whom in a collective: rings, trees, all-to-all.

Every function returns edges (src lane, dst lane, share): the share of the collective's bytes
per NIC that goes over this edge. Steps inside a host take no edge.
"""

from collections.abc import Sequence

from arena.workload.layout import Layout, group_by_host

Edge = tuple[int, int, float]


def ring(layout: Layout, lanes: Sequence[int]) -> list[Edge]:
    """Return the edges of a ring through hosts, in the order of `lanes`.

    With PXN the channels spread over a host's NICs and each stays on its rail; without, the ring
    enters a host at its first lane and leaves at its last.
    """
    hosts = group_by_host(list(lanes), layout.spec.slots)
    if len(hosts) < 2:
        return []
    return [e for i, h in enumerate(hosts) for e in _hop(layout, h, hosts[(i + 1) % len(hosts)], 1)]


def tree(layout: Layout, lanes: Sequence[int], *, double: bool) -> list[Edge]:
    """Return the edges of a binary tree over hosts, up and down; `double`: of two shifted ones."""
    hosts = group_by_host(list(lanes), layout.spec.slots)
    n = len(hosts)
    edges: list[Edge] = []
    for shift, share in ((0, 0.5), (1, 0.5)) if double else ((0, 1.0),):
        for child in range(n):
            parent = tree_parent(child, n)
            if parent is None:
                continue
            low, high = hosts[(child + shift) % n], hosts[(parent + shift) % n]
            edges += _hop(layout, low, high, share) + _hop(layout, high, low, share)
    return edges


def tree_parent(rank: int, size: int) -> int | None:
    """Return the parent in a binary tree whose odd ranks are leaves; None of the root.

    >>> [tree_parent(r, 8) for r in range(8)]
    [None, 2, 4, 2, 0, 6, 4, 6]
    """
    if rank == 0:
        return None
    bit = rank & -rank
    up = (rank ^ bit) | (bit << 1)
    return up if up < size else rank ^ bit


def all_to_all(layout: Layout, lanes: Sequence[int]) -> list[Edge]:
    """Return the edges between all members on different hosts; each sends one share to the rest."""
    share = 1.0 / max(1, len(lanes) - 1)
    edges = []
    for a in lanes:
        for b in lanes:
            way = layout.across(a, b)
            if way is not None:
                edges.append((*way, share))
    return edges


def _hop(layout: Layout, here: list[int], there: list[int], share: float) -> list[Edge]:
    """Return the edges from one host's members to another's."""
    slots = layout.spec.slots
    if not layout.spec.pxn:
        return [(here[-1], there[0], share)]
    base, to = here[0] - here[0] % slots, there[0] - there[0] % slots
    rails = sorted({lane % slots for lane in there} | {lane % slots for lane in here})
    return [(base + r, to + r, share / len(rails)) for r in rails]
