"""Switches, RNICs and cables, and where routing sends a packet.

Nodes are numbered, RNICs first. A cable `c` is two directed links: `2 * c` from its end `a` to its
end `b`, and `2 * c + 1` back. Switches forward along shortest paths (BGP in a Clos fabric does) and
choose among equal next hops by a hash of the 5-tuple with a salt of their own (RFC 2992).
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from arena.sealed.hashing import mixed

LEAF, SPINE, CORE = 0, 1, 2
# Light in glass, and what a cut-through switch adds.
NS_PER_METRE: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """An RNIC or a switch.

    Attributes
    ----------
    tier : of a switch (LEAF, SPINE, CORE); None for an RNIC
    pod : -1 for a core switch
    latency_ns : what it adds to a packet
    """

    name: str
    tier: int | None
    pod: int
    latency_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cable:
    """A cable between two nodes; `a` is the lower end."""

    name: str
    a: int
    b: int
    metres: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """Nodes and cables of a cluster.

    Attributes
    ----------
    rnics : number of RNICs; they are the first nodes
    """

    nodes: tuple[Node, ...]
    cables: tuple[Cable, ...]
    rnics: int

    @property
    def dlinks(self) -> int:
        """Number of directed links."""
        return 2 * len(self.cables)

    def tail(self, dlink: int) -> int:
        """Return the node that a directed link leaves."""
        cable = self.cables[dlink >> 1]
        return cable.b if dlink & 1 else cable.a

    def head(self, dlink: int) -> int:
        """Return the node that a directed link enters."""
        cable = self.cables[dlink >> 1]
        return cable.a if dlink & 1 else cable.b

    def cables_of(self, node: int) -> list[int]:
        """Return the cables at a node."""
        return [i for i, cable in enumerate(self.cables) if node in (cable.a, cable.b)]

    def parallel(self, cable: int) -> list[int]:
        """Return the cables between the same two nodes, that one included."""
        ends = (self.cables[cable].a, self.cables[cable].b)
        return [i for i, other in enumerate(self.cables) if (other.a, other.b) == ends]

    def base_ns(self) -> np.ndarray:
        """Return the least time over each directed link, and 0 for the padding behind the last.

        It is the light in the cable and what the node at its head adds.
        """
        base = np.zeros(self.dlinks + 1)
        for dlink in range(self.dlinks):
            metres = self.cables[dlink >> 1].metres
            base[dlink] = metres * NS_PER_METRE + self.nodes[self.head(dlink)].latency_ns
        return base


@dataclass(slots=True, kw_only=True)
class Routing:
    """Next hops of all switches, as far as routing knows.

    Attributes
    ----------
    salts : of each node's hash
    resilient : whether a switch keeps the choice of 5-tuples whose next hop stays (highest random
        weight) or reduces the hash modulo the number of next hops
    """

    fabric: Fabric
    salts: tuple[int, ...]
    resilient: bool
    withdrawn: set[int] = field(default_factory=set)
    _distances: dict[int, list[int]] = field(default_factory=dict)
    _out: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._out = [[] for _ in self.fabric.nodes]
        for dlink in range(self.fabric.dlinks):
            self._out[self.fabric.tail(dlink)].append(dlink)

    def withdraw(self, cable: int) -> None:
        """Forward nothing over a cable any more."""
        self.withdrawn.add(cable)
        self._distances.clear()

    def restore(self, cable: int) -> None:
        """Forward over a cable again."""
        self.withdrawn.discard(cable)
        self._distances.clear()

    def path(self, src: int, dst: int, key: int) -> tuple[int, ...]:
        """Return the directed links of a 5-tuple from a node to an RNIC; empty: no route."""
        distance = self._distances.get(dst)
        if distance is None:
            distance = self._distances[dst] = self._distances_to(dst)
        if distance[src] < 0:
            return ()
        hops = []
        node = src
        while node != dst:
            closer = [
                dlink
                for dlink in self._out[node]
                if dlink >> 1 not in self.withdrawn
                and distance[self.fabric.head(dlink)] == distance[node] - 1
            ]
            chosen = self._choose(node, key, closer)
            hops.append(chosen)
            node = self.fabric.head(chosen)
        return tuple(hops)

    def _choose(self, node: int, key: int, choices: list[int]) -> int:
        if len(choices) == 1:
            return choices[0]
        salt = self.salts[node]
        if self.resilient:
            return max(choices, key=lambda dlink: mixed(key, salt, dlink))
        return choices[mixed(key, salt) % len(choices)]

    def _distances_to(self, dst: int) -> list[int]:
        """Return the hops from each node to an RNIC; -1: unreachable. RNICs forward nothing."""
        distance = [-1] * len(self.fabric.nodes)
        distance[dst] = 0
        waiting = deque([dst])
        while waiting:
            node = waiting.popleft()
            for dlink in self._out[node]:
                other = self.fabric.head(dlink)
                if dlink >> 1 in self.withdrawn or distance[other] >= 0:
                    continue
                distance[other] = distance[node] + 1
                if other >= self.fabric.rnics:
                    waiting.append(other)
        return distance


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Measures of a fabric.

    Attributes
    ----------
    hosts, rails : RNICs are `hosts * rails`
    pods : hosts are dealt to them in runs
    rail_leaves : whether each rail of a pod has leaves of its own, or each rack
    racks : of each pod, unless its rails have leaves of their own
    homes : leaves that each RNIC is cabled to, 1 or 2
    spines : of each pod in a fabric of three tiers, of the whole in one of two
    cores : 0 in a fabric of two tiers
    parallel : cables between a leaf and a spine
    """

    hosts: int
    rails: int
    pods: int
    rail_leaves: bool
    racks: int
    homes: int
    spines: int
    cores: int
    parallel: int


def build_fabric(shape: Shape, rnic_names: list[str], rng: np.random.Generator) -> Fabric:
    """Return the fabric of a shape.

    Parameters
    ----------
    rnic_names
        Of RNIC `host * rails + rail`.
    """
    builder = _Builder(rng)
    for i, name in enumerate(rnic_names):
        pod = (i // shape.rails) * shape.pods // shape.hosts
        builder.add_node(name, None, pod, float(rng.uniform(900, 1600)))
    groups = shape.rails if shape.rail_leaves else shape.racks
    leaves: dict[tuple[int, int], list[int]] = {}
    for pod in range(shape.pods):
        for group in range(groups):
            leaves[pod, group] = [
                builder.add_switch(f"sw:p{pod}-l{group * shape.homes + home + 1:02d}", LEAF, pod)
                for home in range(shape.homes)
            ]
    for rnic in range(len(rnic_names)):
        host, rail = divmod(rnic, shape.rails)
        group = rail if shape.rail_leaves else host % shape.racks
        for leaf in leaves[builder.nodes[rnic].pod, group]:
            builder.add_cables(rnic, leaf, 1, (1.0, 6.0))
    if shape.cores:
        spines = [
            [builder.add_switch(f"sw:p{pod}-s{i + 1:02d}", SPINE, pod) for i in range(shape.spines)]
            for pod in range(shape.pods)
        ]
        for core in range(shape.cores):
            node = builder.add_switch(f"sw:c{core + 1:02d}", CORE, -1)
            for of_pod in spines:
                builder.add_cables(of_pod[core % shape.spines], node, 1, (40.0, 120.0))
    else:
        shared = [builder.add_switch(f"sw:s{i + 1:02d}", SPINE, -1) for i in range(shape.spines)]
        spines = [shared] * shape.pods
    for (pod, _), of_group in leaves.items():
        for leaf in of_group:
            for spine in spines[pod]:
                builder.add_cables(leaf, spine, shape.parallel, (10.0, 60.0))
    return Fabric(nodes=tuple(builder.nodes), cables=tuple(builder.cables), rnics=len(rnic_names))


class _Builder:
    """Nodes and cables so far."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.nodes: list[Node] = []
        self.cables: list[Cable] = []
        self._rng = rng
        # Vendors state 0.3 to 1.2 us for cut-through; each tier has one model of switch.
        self._tier_ns = rng.uniform((400.0, 450.0, 500.0), (900.0, 1000.0, 1200.0))

    def add_node(self, name: str, tier: int | None, pod: int, latency_ns: float) -> int:
        self.nodes.append(Node(name=name, tier=tier, pod=pod, latency_ns=latency_ns))
        return len(self.nodes) - 1

    def add_switch(self, name: str, tier: int, pod: int) -> int:
        latency_ns = float(self._tier_ns[tier] + self._rng.uniform(-30.0, 30.0))
        return self.add_node(name, tier, pod, latency_ns)

    def add_cables(self, low: int, high: int, count: int, metres: tuple[float, float]) -> None:
        ends = "~".join(self.nodes[node].name.partition(":")[2] for node in (low, high))
        for port in range(count):
            number = f"#{port + 1}" if count > 1 else ""
            length = float(self._rng.uniform(*metres))
            self.cables.append(Cable(name=f"cable:{ends}{number}", a=low, b=high, metres=length))
