"""Derive the components of a path from the addresses of a trace, or from the topology alone.

Traces have gaps: unknown addresses, and hops that never answer. A gap is filled if only one
component fits, else it stays open and the path is not `whole`.
"""

from dataclasses import dataclass
from typing import Final

from localizer.network.topology import FORWARDING, Topology
from schemas.enums import ComponentKind


@dataclass(frozen=True, slots=True, weakref_slot=True)
class KnownPath:
    """The components of a path, in order.

    Attributes
    ----------
    nodes
        Component of each hop, by ttl from 1; None where unknown.
    prefixes
        For each hop the components that a packet crosses to reach it, the hop included.
    whole
        Whether no part of the path is missing.
    """

    components: tuple[str, ...]
    nodes: tuple[str | None, ...]
    prefixes: tuple[tuple[str, ...], ...]
    whole: bool


NOTHING: Final = KnownPath((), (), (), whole=False)


def traced(
    topology: Topology, src: str, dst: str, addresses: tuple[str | None, ...], *, complete: bool
) -> KnownPath:
    """Return the path that a trace shows.

    Parameters
    ----------
    addresses
        Address that answered, by ttl from 1; None: no answer.
    complete
        Whether the last address is the target's.
    """
    # The target's address is not looked up: endpoints come and go, and their addresses with them.
    shown = addresses[:-1] if complete else addresses
    nodes = [None if a is None else topology.at_address(a) for a in shown]
    if complete and addresses:
        nodes.append(dst)
    # Components that never answer stand at the ends of every complete path. Of an incomplete one it
    # is unknown what lies beyond the hops that answered.
    near = _silent(topology, src, nodes) if complete else []
    crossed: dict[str, None] = dict.fromkeys(near)
    last = _rnic(topology, near)
    prefixes: list[tuple[str, ...]] = []
    whole, gap = complete, False
    for index, hop in enumerate(nodes):
        node = hop
        if complete and index == len(nodes) - 1:
            far = _silent(topology, dst, nodes)
            node = _rnic(topology, far)
            crossed |= dict.fromkeys(part for part in far if part != node)
            whole = whole and (node is not None or not gap)
        if node is None:
            gap = True
        else:
            between: list[str] = []
            closed = not gap
            if last is not None:
                between, closed = _between(topology, last, node, gap=gap)
            crossed |= dict.fromkeys(between)
            whole = whole and closed
            if topology.kind(node) in FORWARDING:
                crossed[node] = None
            last, gap = node, False
        prefixes.append(tuple(crossed))
    return KnownPath(tuple(crossed), tuple(nodes), tuple(prefixes), whole)


def derived(topology: Topology, src: str, dst: str) -> KnownPath:
    """Return the part of a path that the topology alone determines; it has no hops."""
    crossed: dict[str, None] = {}
    leaves: list[str] = []
    for end in (src, dst):
        for part in holders(topology, end):
            crossed[part] = None
            near = topology.neighbours(part)
            if topology.kind(part) is ComponentKind.RNIC and len(near) == 1:
                crossed |= dict.fromkeys((*topology.links_at(part), near[0]))
                leaves.append(near[0])
    whole = len(leaves) == 2
    if whole and leaves[0] != leaves[1]:
        between, whole = _between(topology, leaves[0], leaves[1], gap=True)
        crossed |= dict.fromkeys(between)
    return KnownPath(tuple(crossed), (), (), whole)


def holders(topology: Topology, endpoint_id: str) -> list[str]:
    """Return the RNIC and virtual switches that carry an endpoint, from the topology alone."""
    found = []
    for parent in topology.parents(endpoint_id):
        if topology.kind(parent) in FORWARDING:
            found.append(parent)
        elif topology.kind(parent) is ComponentKind.HOST:
            found += topology.children(parent, ComponentKind.VSWITCH)
    return found


def _silent(topology: Topology, endpoint_id: str, nodes: list[str | None]) -> list[str]:
    """Return components that an endpoint's packets cross for certain and that no hop shows."""
    return [part for part in holders(topology, endpoint_id) if part not in nodes]


def _rnic(topology: Topology, parts: list[str]) -> str | None:
    return next((part for part in parts if topology.kind(part) is ComponentKind.RNIC), None)


def _between(topology: Topology, a: str, b: str, *, gap: bool) -> tuple[list[str], bool]:
    """Return the links (and a silent node) between two hops, and whether nothing is missing."""
    direct = topology.link_between(a, b)
    if direct is not None:
        return [direct], True
    if not gap:
        return [], True  # neighbours without a cable: a virtual switch and its RNIC
    common = sorted(set(topology.neighbours(a)) & set(topology.neighbours(b)))
    if len(common) != 1:
        return [], False
    links = [topology.link_between(a, common[0]), topology.link_between(common[0], b)]
    return [common[0], *(link for link in links if link is not None)], True
