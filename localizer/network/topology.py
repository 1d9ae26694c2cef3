"""The network as a graph: components by id and by address, links by their ends.

In: topology.v1 records, one at a time and in any order. A record that contradicts itself is
refused; the rest stays usable.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from schemas.enums import ComponentKind
from schemas.records import Component

# Depth of nesting (endpoint, RNIC, host); deeper means a loop in the records.
MAX_PARENTS: Final = 8
# Kinds that forward packets: the nodes of a path.
FORWARDING: Final = frozenset(
    {ComponentKind.SWITCH, ComponentKind.RNIC, ComponentKind.VSWITCH, ComponentKind.VTEP}
)
# Kinds that are only at the ends of paths; containers come and go by the thousand a minute.
ENDS: Final = frozenset({ComponentKind.ENDPOINT, ComponentKind.AGENT})
# Components known at once: those of 65,536 RNICs with a container each are some 300,000.
MAX_COMPONENTS: Final = 1_000_000
# Addresses remembered as looked up; beyond the bound every change counts as one of the fabric.
MAX_LOOKED_UP: Final = 1_000_000
# So many of them are kept in any case, and so many for each component and for each traced 5-tuple.
SPARE_LOOKED_UP: Final = 4_096
LOOKED_UP_EACH: Final = 2
HOPS_EACH: Final = 8

# Versions that a path between two ends depends on: of the fabric, and of each end.
Basis = tuple[int, int, int]


class Holders(NamedTuple):
    """What carries an endpoint, nearest first: all, the RNIC, and the others."""

    parts: tuple[str, ...]
    rnic: str | None
    others: tuple[str, ...]


class TopologyError(ValueError):
    """A component that cannot be part of the graph; the message says why."""


class Topology:
    """The components of one cluster.

    Attributes
    ----------
    version
        Grows with every change.
    fabric_version
        Grows only with changes that may affect paths beyond those of one end.
    refused
        Components beyond the bound.
    """

    def __init__(self, max_components: int = MAX_COMPONENTS) -> None:
        self.refused = 0
        self._max_components = max_components
        self.version = 0
        self.fabric_version = 0
        self._components: dict[str, Component] = {}
        self._by_address: dict[str, str] = {}
        self._link_of: dict[tuple[str, str], str] = {}
        self._links_at: defaultdict[str, set[str]] = defaultdict(set)
        self._children: defaultdict[tuple[str, ComponentKind], set[str]] = defaultdict(set)
        # Version at which each present end was last changed.
        self._since: dict[str, int] = {}
        # Ends that came, went or moved since `pop_moved_ends`.
        self._moved: set[str] = set()
        # Components that forward packets.
        self._forwarding: set[str] = set()
        # What carries each endpoint, as far as it was asked for since a change.
        self._holders: dict[str, Holders] = {}
        # Addresses that were looked up since the fabric changed.
        self._looked_up: set[str] = set()

    def __len__(self) -> int:
        return len(self._components)

    def __contains__(self, component_id: str) -> bool:
        return component_id in self._components

    def __iter__(self) -> Iterator[Component]:
        return iter(self._components.values())

    def set_component(self, component: Component) -> bool:
        """Add or replace a component; return whether anything changed.

        Raises
        ------
        TopologyError
            If a link lacks an end or joins a component with itself.
        """
        if component.kind is ComponentKind.LINK and (
            not component.a or not component.b or component.a == component.b
        ):
            raise TopologyError(
                f"link {component.component_id} joins {component.a!r} and {component.b!r}"
            )
        known = self._components.get(component.component_id)
        if known is not None and _same(known, component):
            return False
        if known is None and len(self._components) >= self._max_components:
            self.refused += 1
            return False
        self._unlink(component.component_id)
        self._components[component.component_id] = component
        if component.kind in FORWARDING:
            self._forwarding.add(component.component_id)
        for address in component.addresses:
            self._by_address[address] = component.component_id
        for a, b in _ends(component):
            # Of parallel cables the same one, in whatever order they became known.
            known_link = self._link_of.get((a, b), component.component_id)
            self._link_of[a, b] = min(known_link, component.component_id)
            self._links_at[a].add(component.component_id)
        if component.parent is not None:
            self._children[component.parent, component.kind].add(component.component_id)
        self._record_change(component.component_id, known, component)
        return True

    def remove_component(self, component_id: str) -> None:
        """Remove a component; does nothing if there is none of that id."""
        known = self._unlink(component_id)
        if known is not None:
            self._record_change(component_id, known, None)

    def basis(self, src: str, dst: str) -> Basis:
        """Return the versions that a path between two ends depends on."""
        since = self._since.get
        return self.fabric_version, since(src, 0), since(dst, 0)

    def end_version(self, component_id: str) -> int:
        """Return the version at which an end that is present was last changed; 0: it is none."""
        return self._since.get(component_id, 0)

    def pop_moved_ends(self) -> set[str]:
        """Return the ends that came, went or moved since the last call or fabric change."""
        found, self._moved = self._moved, set()
        return found

    def forget_lookups(self, traced: int) -> None:
        """Forget the addresses looked up if most are of traces that are forgotten.

        All paths are then computed anew, since they may depend on any of the addresses.

        Parameters
        ----------
        traced
            5-tuples with a trace now.
        """
        most = SPARE_LOOKED_UP + LOOKED_UP_EACH * len(self._components) + HOPS_EACH * traced
        if len(self._looked_up) > most:
            self.version += 1
            self._change_fabric()

    def _unlink(self, component_id: str) -> Component | None:
        component = self._components.pop(component_id, None)
        if component is None:
            return None
        self._forwarding.discard(component_id)
        for address in component.addresses:
            if self._by_address.get(address) == component_id:
                del self._by_address[address]
        for a, b in _ends(component):
            self._links_at[a].discard(component_id)
            if self._link_of.get((a, b)) == component_id:
                del self._link_of[a, b]
                others = self._links_at[a] & self._links_at.get(b, set())
                if others:
                    self._link_of[a, b] = min(others)
            if not self._links_at[a]:
                del self._links_at[a]
        if component.parent is not None:
            held = self._children[component.parent, component.kind]
            held.discard(component_id)
            if not held:
                del self._children[component.parent, component.kind]
        return component

    def _record_change(
        self, component_id: str, before: Component | None, now: Component | None
    ) -> None:
        """Record a change: of one end, or of the fabric."""
        self.version += 1
        self._holders.pop(component_id, None)
        if now is not None and now.kind in ENDS:
            self._since[component_id] = self.version
        else:
            self._since.pop(component_id, None)
        if all(c is None or self._is_end(c) for c in (before, now)):
            self._moved.add(component_id)
            return
        self._change_fabric()

    def _change_fabric(self) -> None:
        self.fabric_version = self.version
        self._moved.clear()
        self._holders.clear()
        self._looked_up.clear()

    def _is_end(self, component: Component) -> bool:
        """Return whether only paths from and to the component depend on it."""
        return (
            component.kind in ENDS
            and not any((component.component_id, kind) in self._children for kind in ComponentKind)
            and len(self._looked_up) < MAX_LOOKED_UP
            and self._looked_up.isdisjoint(component.addresses)
        )

    def get(self, component_id: str) -> Component | None:
        """Return the component of that id."""
        return self._components.get(component_id)

    def kind(self, component_id: str) -> ComponentKind:
        """Return the kind of a component; UNKNOWN if there is none of that id."""
        found = self._components.get(component_id)
        return ComponentKind.UNKNOWN if found is None else found.kind

    def forwards(self, component_id: str) -> bool:
        """Return whether packets pass through a component of that id."""
        return component_id in self._forwarding

    def at_address(self, address: str) -> str | None:
        """Return the component that has an address, None if there is none."""
        if len(self._looked_up) < MAX_LOOKED_UP:
            self._looked_up.add(address)
        return self._by_address.get(address)

    def at_addresses(self, addresses: Sequence[str | None]) -> list[str | None]:
        """Return the same for each of some addresses; None for none."""
        if len(self._looked_up) < MAX_LOOKED_UP:
            self._looked_up.update(a for a in addresses if a is not None)
        by_address = self._by_address
        return [None if a is None else by_address.get(a) for a in addresses]

    def link_between(self, a: str, b: str) -> str | None:
        """Return the link that joins two components, in either order; of parallel ones the first.

        No trace tells parallel cables apart: it stands for all of them.
        """
        return self._link_of.get((a, b))

    def parallels(self, link_id: str) -> list[str]:
        """Return the other links that join the same two components, sorted."""
        ends = self.ends(link_id)
        if len(ends) != 2:
            return []
        a, b = (self._links_at.get(end, set()) for end in ends)
        return sorted((a & b) - {link_id})

    def crossed_as(self, component_id: str) -> str:
        """Return what stands for a component on paths: of parallel links one does for all."""
        found = self._components.get(component_id)
        if found is None or found.a is None or found.b is None:
            return component_id
        return self._link_of.get((found.a, found.b), component_id)

    def links_at(self, component_id: str) -> list[str]:
        """Return the links that end at a component, sorted."""
        return sorted(self._links_at.get(component_id, ()))

    def ends(self, link_id: str) -> tuple[str, ...]:
        """Return what a link joins; nothing for what is no link."""
        link = self._components.get(link_id)
        return () if link is None else tuple(end for end in (link.a, link.b) if end is not None)

    def rnics_at(self, link_id: str) -> list[str]:
        """Return the RNICs that a link joins."""
        return [end for end in self.ends(link_id) if self.kind(end) is ComponentKind.RNIC]

    def bond_at(self, component_id: str) -> tuple[str, ...]:
        """Return the cables to switches, sorted, of an RNIC that has several; else none.

        Of parallel cables one stands for all: no trace tells which of them a probe took.
        """
        if self.kind(component_id) is not ComponentKind.RNIC:
            return ()
        cables = {
            self.crossed_as(cable)
            for cable in self.links_at(component_id)
            if any(self.kind(end) is ComponentKind.SWITCH for end in self.ends(cable))
        }
        return tuple(sorted(cables)) if len(cables) > 1 else ()

    def neighbours(self, component_id: str) -> list[str]:
        """Return the components at the other ends of its links, sorted."""
        found = set()
        for link_id in self._links_at.get(component_id, ()):
            link = self._components[link_id]
            found.add(link.b if link.a == component_id else link.a)
        return sorted(end for end in found if end is not None)

    def parents(self, component_id: str) -> list[str]:
        """Return what contains the component, nearest first: an endpoint's RNIC, then host."""
        found: list[str] = []
        at = self._components.get(component_id)
        while at is not None and at.parent is not None and len(found) < MAX_PARENTS:
            if at.parent in found or at.parent == component_id:
                break
            found.append(at.parent)
            at = self._components.get(at.parent)
        return found

    def holders(self, endpoint_id: str) -> Holders:
        """Return the RNIC and virtual switches that carry an endpoint."""
        known = self._holders.get(endpoint_id)
        if known is None:
            found: list[str] = []
            for parent in self.parents(endpoint_id):
                if self.forwards(parent):
                    found.append(parent)
                elif self.kind(parent) is ComponentKind.HOST:
                    found += self.children(parent, ComponentKind.VSWITCH)
            rnic = next((p for p in found if self.kind(p) is ComponentKind.RNIC), None)
            known = Holders(tuple(found), rnic, tuple(p for p in found if p != rnic))
            # Only of what is known: names that nobody registered would fill the memory.
            if endpoint_id in self._components:
                self._holders[endpoint_id] = known
        return known

    def steps(
        self, first: str | None, nodes: Sequence[str | None]
    ) -> tuple[list[str], list[int]] | None:
        """Return the cables and nodes of a walk, and how many of them lead to each node.

        None where a node is missing or does not forward packets.
        """
        links, forwarding = self._link_of, self._forwarding
        walked: list[str] = []
        lengths: list[int] = []
        last = first
        for node in nodes:
            if node is None or node not in forwarding:
                return None
            link = None if last is None else links.get((last, node))
            if link is not None:
                walked.append(link)
            walked.append(node)
            lengths.append(len(walked))
            last = node
        return walked, lengths

    def host_of(self, component_id: str) -> str | None:
        """Return the host of a component; None if the records do not say."""
        for parent in self.parents(component_id):
            if self.kind(parent) is ComponentKind.HOST:
                return parent
        return None

    def children(self, parent_id: str, kind: ComponentKind) -> list[str]:
        """Return the components of a kind whose parent is `parent_id`, sorted."""
        return sorted(self._children.get((parent_id, kind), ()))


def _ends(component: Component) -> tuple[tuple[str, str], ...]:
    if component.kind is not ComponentKind.LINK or component.a is None or component.b is None:
        return ()
    return (component.a, component.b), (component.b, component.a)


def _same(known: Component, new: Component) -> bool:
    """Return whether only the time and the writer's version differ."""
    return (known.kind, known.layer, known.a, known.b, known.parent, known.tier) == (
        new.kind,
        new.layer,
        new.a,
        new.b,
        new.parent,
        new.tier,
    ) and known.addresses == new.addresses
