"""Derive the components of a path from the addresses of a trace, or from the topology alone.

Traces have gaps: unknown addresses, and hops that never answer. A gap is filled if only one
component fits, else it stays open and the path is not `whole`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from localizer.network.topology import Topology
from schemas.enums import ComponentKind


@dataclass(slots=True)
class KnownPath:
    """The components of a path, in order.

    Attributes
    ----------
    nodes
        Component of each hop, by ttl from 1; None where unknown.
    lengths
        For each hop how many of the components a packet crosses to reach it, the hop included.
    whole
        Whether no part of the path is missing.
    """

    components: tuple[str, ...]
    nodes: tuple[str | None, ...]
    lengths: tuple[int, ...]
    whole: bool
    # Few of a million paths are ever asked for them.
    _prefixes: tuple[tuple[str, ...], ...] | None = field(default=None, compare=False)

    @property
    def prefixes(self) -> tuple[tuple[str, ...], ...]:
        """For each hop the components that a packet crosses to reach it, the hop included."""
        if self._prefixes is None:
            self._prefixes = tuple([self.components[:length] for length in self.lengths])
        return self._prefixes


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
    plain = _plain(topology, src, dst, addresses) if complete and addresses else None
    if plain is not None:
        return plain
    # The target's address is not looked up: endpoints come and go, and their addresses with them.
    shown = addresses[:-1] if complete else addresses
    at_address, forwards, link_between = (
        topology.at_address, topology.forwards, topology.link_between
    )  # fmt: skip
    nodes = [None if a is None else at_address(a) for a in shown]
    if complete and addresses:
        nodes.append(dst)
    # Components that never answer stand at the ends of every complete path. Of an incomplete one it
    # is unknown what lies beyond the hops that answered.
    near = _silent(topology, src, nodes) if complete else []
    crossed: dict[str, None] = dict.fromkeys(near)
    last = _rnic(topology, near)
    lengths: list[int] = []
    whole, gap, target = complete, False, len(nodes) - 1 if complete else len(nodes)
    for index, hop in enumerate(nodes):
        node = hop
        if index == target:
            far = _silent(topology, dst, nodes)
            node = _rnic(topology, far)
            for part in far:
                if part != node:
                    crossed[part] = None
            whole = whole and (node is not None or not gap)
        if node is None:
            gap = True
        else:
            link = None if last is None else link_between(last, node)
            if link is not None:
                crossed[link] = None
            elif gap:
                between, closed = ([], False) if last is None else _across(topology, last, node)
                crossed |= dict.fromkeys(between)
                whole = whole and closed
            # Else neighbours without a cable: a virtual switch and its RNIC.
            if forwards(node):
                crossed[node] = None
            last, gap = node, False
        lengths.append(len(crossed))
    return KnownPath(tuple(crossed), tuple(nodes), tuple(lengths), whole=whole)


def _plain(
    topology: Topology, src: str, dst: str, addresses: tuple[str | None, ...]
) -> KnownPath | None:
    """Return the path of a complete trace without gaps: most of all; None for any other."""
    nodes = topology.at_addresses(addresses[:-1])
    near, far = topology.holders(src), topology.holders(dst)
    walk = topology.steps(near.rnic, [*nodes, far.rnic])
    if walk is None:
        return None
    walked, lengths = walk
    last = lengths[-2] if nodes else 0
    components = (*near.parts, *walked[:last], *far.others, *walked[last:])
    if len(set(components)) != len(components):
        return None
    begin = len(near.parts)
    return KnownPath(
        components,
        (*nodes, dst),
        (*[begin + length for length in lengths[:-1]], len(components)),
        whole=True,
    )


def derived(topology: Topology, src: str, dst: str) -> KnownPath:
    """Return the part of a path that the topology alone determines; it has no hops."""
    crossed: dict[str, None] = {}
    leaves: list[str] = []
    for end in (src, dst):
        for part in topology.holders(end).parts:
            crossed[part] = None
            near = topology.neighbours(part)
            if topology.kind(part) is ComponentKind.RNIC and len(near) == 1:
                crossed |= dict.fromkeys((*topology.links_at(part), near[0]))
                leaves.append(near[0])
    whole = len(leaves) == 2
    if whole and leaves[0] != leaves[1]:
        link = topology.link_between(leaves[0], leaves[1])
        between, whole = _across(topology, leaves[0], leaves[1]) if link is None else ([link], True)
        crossed |= dict.fromkeys(between)
    return KnownPath(tuple(crossed), (), (), whole=whole)


def _silent(topology: Topology, endpoint_id: str, nodes: list[str | None]) -> list[str]:
    """Return components that an endpoint's packets cross for certain and that no hop shows."""
    return [part for part in topology.holders(endpoint_id).parts if part not in nodes]


def _rnic(topology: Topology, parts: Sequence[str]) -> str | None:
    for part in parts:
        if topology.kind(part) is ComponentKind.RNIC:
            return part
    return None


def _across(topology: Topology, a: str, b: str) -> tuple[list[str], bool]:
    """Return what lies between two hops around a silent one, and whether nothing is missing."""
    common = sorted(set(topology.neighbours(a)) & set(topology.neighbours(b)))
    if len(common) != 1:
        return [], False
    links = [topology.link_between(a, common[0]), topology.link_between(common[0], b)]
    return [common[0], *(link for link in links if link is not None)], True
