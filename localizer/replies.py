"""Which ways replies may take: ECMP chooses theirs anew, and no trace shows it.

A trace follows the probe. What comes back has another 5-tuple, and between the same two
leaves it may take any way that probes between them are known to take, in either direction.
"""

from collections import Counter
from typing import Final

from localizer.flow_index import FlowIndex
from localizer.topology import Topology
from schemas.enums import ComponentKind

Leaves = frozenset[str]
Shares = dict[str, float]
NONE: Final[Shares] = {}


class ReplyWays:
    """Shares of the known ways between two leaves that cross each component.

    Parameters
    ----------
    topology
        Where endpoints are joined to leaves.
    index
        The 5-tuples whose ways are known.
    """

    def __init__(self, topology: Topology, index: FlowIndex) -> None:
        self._topology = topology
        self._index = index
        self._joined: dict[str, Leaves] = {}
        self._between: dict[frozenset[Leaves], Shares] = {}

    def of(self, src: str, dst: str) -> Shares:
        """Return by component the chance that a reply from `dst` to `src` crosses it.

        Only of switches and the cables between them: that either cable of an RNIC may bring
        replies would excuse the RNIC itself. Empty where the topology does not say which
        leaves the endpoints are joined to.
        """
        groups = frozenset((self._leaves(src), self._leaves(dst)))
        if not all(groups):
            return NONE
        if groups not in self._between:
            self._between[groups] = self._counted(groups)
        return self._between[groups]

    def _counted(self, groups: frozenset[Leaves]) -> Shares:
        """Return the shares among all known ways between two groups of leaves."""
        leaves = min(groups, key=sorted)
        flows, at = self._index.flows, self._index.at
        places = {place for leaf in leaves for place in at.get(leaf, ())}
        ways = [
            flow.components
            for flow in (flows[place] for place in places)
            if {self._leaves(end) for end in flow.key[:2]} == groups
        ]
        crossed = Counter(c for way in ways for c in way)
        shares = {c: n / len(ways) for c, n in sorted(crossed.items()) if self._shared(c)}
        if ways and len(groups) > 1:
            # Few ways are known between two leaves, and more of those that leave either.
            for group in sorted(groups, key=sorted):
                for uplink, share in self._uplinks(group).items():
                    shares[uplink] = max(share, shares.get(uplink, 0.0))
        return shares

    def _uplinks(self, leaves: Leaves) -> Shares:
        """Return the shares of all that leaves some leaves, or comes to them, by its cable."""
        crossed = {
            cable: len(self._index.at.get(cable, ()))
            for leaf in sorted(leaves)
            for cable in self._topology.links_at(leaf)
            if self._shared(cable)
        }
        total = sum(crossed.values())
        return {cable: count / total for cable, count in crossed.items() if count}

    def _shared(self, component_id: str) -> bool:
        """Say whether a component belongs to the fabric, and not to one host."""
        known = self._topology.get(component_id)
        if known is None or known.kind is ComponentKind.SWITCH:
            return known is not None
        kinds = {self._topology.kind(end) for end in (known.a, known.b) if end is not None}
        return known.kind is ComponentKind.LINK and kinds == {ComponentKind.SWITCH}

    def _leaves(self, endpoint_id: str) -> Leaves:
        """Return the leaves that an endpoint's RNIC is joined to."""
        if endpoint_id not in self._joined:
            kinds = self._topology.kind
            held = self._topology.parents(endpoint_id)
            rnic = next((p for p in held if kinds(p) is ComponentKind.RNIC), None)
            near = [] if rnic is None else self._topology.neighbours(rnic)
            self._joined[endpoint_id] = frozenset(
                n for n in near if kinds(n) is ComponentKind.SWITCH
            )
        return self._joined[endpoint_id]
