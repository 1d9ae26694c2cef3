"""The neighbourhood of a fault: what is suspected, the paths through it, and what they cross.

What the paths do not tell apart is one node: the RNICs of a leaf, the pods that are only the other
ends of paths, the switches of the top tier that nothing bad crosses.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from ops.view.cluster import ClusterView
from ops.view.crossing import FlowPath, paths
from ops.view.faults import FaultHistory
from ops.view.places import Places
from schemas.enums import ComponentKind
from schemas.ids import FlowId
from schemas.records import Component
from schemas.units import US_PER_MS
from skeleton_job.job import natural_key

# Symptoms begin before the onset that the verdict names: a window of 30 s, and a round.
BEFORE_US: Final = 60_000_000
# 5-tuples that are followed, of the bad and of the others; more say nothing else.
MAX_FLOWS: Final = 1_000
# More nodes are a grey mass, more edges a ball of wool: a table then says more.
MAX_NODES: Final = 60
MAX_EDGES: Final = 180
SUSPECTS: Final = 12
# Pods that are shown by themselves, those with most bad 5-tuples; the others are one node.
PODS: Final = 16
# Switches of the top tier that are shown by themselves because bad 5-tuples cross them.
FEW: Final = 4


class Place(StrEnum):
    """Which row of the picture a node stands in, from below."""

    ENDS = "ends"
    LEAF = "leaf"
    SPINE = "spine"
    CORE = "core"


# They hold no endpoint.
OF_THE_FABRIC: Final = frozenset({ComponentKind.SWITCH, ComponentKind.LINK})
TIERS: Final = (Place.LEAF, Place.SPINE, Place.CORE)


@dataclass(slots=True)
class Node:
    """A component, or several as one.

    Attributes
    ----------
    name
        Of the component; of several, what they have in common.
    members
        What it stands for: itself, RNICs, switches, or pods.
    suspect
        Whether it is accused or a candidate.
    """

    name: str
    place: Place
    suspect: bool
    members: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Edge:
    """The links between two nodes, and how many 5-tuples cross them."""

    a: str
    b: str
    links: set[str] = field(default_factory=set)
    bad: int = 0
    good: int = 0


@dataclass(frozen=True, slots=True)
class Suspect:
    """What may be the cause, how likely it is, and the 5-tuples that cross it."""

    name: str
    kind: str
    accused: bool
    score: float | None
    bad: int
    good: int


@dataclass(frozen=True, slots=True)
class Crossing:
    """A 5-tuple through a suspect."""

    flow: FlowId
    bad: bool
    path: FlowPath


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """What is around a fault.

    Attributes
    ----------
    suspects
        The accused first, then by likelihood.
    crossings
        The bad 5-tuples first.
    nodes, edges
        The picture; edges by their nodes.
    drawn
        Whether it is small enough to be one.
    """

    suspects: tuple[Suspect, ...]
    crossings: tuple[Crossing, ...]
    nodes: dict[str, Node]
    edges: tuple[Edge, ...]
    drawn: bool


def neighbourhood(view: ClusterView, history: FaultHistory, now_ms: int) -> Neighbourhood:
    """Return what is around a fault at a time (milliseconds since the epoch).

    Bad are 5-tuples with an anomaly while the fault lasts, good are those without one that were
    traced; of both only those count that cross a suspect.
    """
    last = history.last
    scores = {c.component_id: c.score for c in last.candidates[:SUSPECTS]}
    suspects = dict.fromkeys([last.component_id, *sorted(scores, key=lambda n: (-scores[n], n))])
    crossings = _crossings(view, history, frozenset(suspects), now_ms)
    crossed = {
        bad: Counter(n for c in crossings if c.bad is bad for n in set(c.path.components))
        for bad in (True, False)
    }
    drawing = _Drawing(view.topology, view.places.of(view), _owners(view, suspects), set(suspects))
    for crossing in crossings:
        drawing.add(crossing)
    for name in suspects:
        drawing.show(name)
    nodes, edges = drawing.result()
    return Neighbourhood(
        suspects=tuple(
            Suspect(
                name=name,
                kind=view.topology[name].kind.value if name in view.topology else "",
                accused=name == last.component_id,
                score=scores.get(name),
                bad=crossed[True][name],
                good=crossed[False][name],
            )
            for name in suspects
        ),
        crossings=tuple(crossings),
        nodes=nodes,
        edges=edges,
        drawn=len(nodes) <= MAX_NODES and len(edges) <= MAX_EDGES,
    )


def _crossings(
    view: ClusterView, history: FaultHistory, suspects: frozenset[str], now_ms: int
) -> list[Crossing]:
    last = history.last
    from_us = min(e.onset_at for e in history.transitions) - BEFORE_US
    to_us = now_ms * US_PER_MS if last.resolved_at is None else last.resolved_at
    bad: dict[FlowId, int] = {}
    for span in view.anomalies.values():
        end_us = span.last_at if span.cleared_at is None else span.cleared_at
        if span.onset_at <= to_us and end_us >= from_us:
            flow = span.worst.src, span.worst.dst, span.worst.flow
            bad[flow] = min(span.onset_at, bad.get(flow, span.onset_at))
    others = {
        (trace.src, trace.dst, trace.flow): to_us
        for trace in view.traces.values()
        if trace.complete and (trace.src, trace.dst, trace.flow) not in bad
    }
    followed = dict([*sorted(bad.items())[:MAX_FLOWS], *sorted(others.items())[:MAX_FLOWS]])
    return [
        Crossing(flow, flow in bad, path)
        for flow, path in paths(view, followed).items()
        if not suspects.isdisjoint(path.components)
    ]


def _owners(view: ClusterView, suspects: Iterable[str]) -> dict[str, str]:
    """Return the RNICs that stand for a suspected host, container, agent or endpoint."""
    wanted = {name for name in suspects if _kind(view, name) not in OF_THE_FABRIC}
    if not wanted:
        return {}
    rnic_of = view.places.of(view).rnic_of
    found: dict[str, str] = {}
    for name, rnic in rnic_of.items():
        end = view.endpoints.get(name)
        holders = [name, view.topology[rnic].parent]
        if end is not None:
            holders += [end.container_id, end.agent_id, end.host_id]
        suspect = next((holder for holder in holders if holder in wanted), None)
        if suspect is not None:
            found[rnic] = suspect
    return found


def _kind(view: ClusterView, name: str) -> ComponentKind | None:
    part = view.topology.get(name)
    return None if part is None else part.kind


class _Drawing:
    """Puts crossings into a picture, as few nodes as say the same."""

    def __init__(
        self,
        topology: Mapping[str, Component],
        places: Places,
        owners: Mapping[str, str],
        suspects: set[str],
    ) -> None:
        self._topology = topology
        self._pod_of = places.pod_of_switch
        self._owners = owners
        self._suspects = suspects
        # The ends of suspected links, and of the links of suspects, are shown by themselves.
        self._near: set[str] = set()
        for name in suspects:
            link = topology.get(name)
            if link is not None and link.kind is ComponentKind.LINK:
                self._near |= {end for end in (link.a, link.b) if end is not None}
        self._nodes: dict[str, Node] = {}
        self._edges: dict[tuple[str, str], Edge] = {}
        self._leaf_of: dict[str, str] = {}
        # 5-tuples that cross a switch and are bad.
        self._bad_at: Counter[str] = Counter()
        # Found once all 5-tuples are there.
        self._pods_shown: frozenset[str] | None = None
        self._bad_between: frozenset[str] | None = None
        self._links: defaultdict[str, list[bool]] = defaultdict(list)

    def add(self, crossing: Crossing) -> None:
        """Take a 5-tuple."""
        for name in dict.fromkeys(crossing.path.route):
            part = self._topology.get(name)
            if part is None:
                continue
            if part.kind is ComponentKind.SWITCH:
                self._bad_at[name] += crossing.bad
            if part.kind is ComponentKind.LINK:
                self._links[name].append(crossing.bad)
                for end, other in ((part.a, part.b), (part.b, part.a)):
                    if end is not None and other is not None and self._is_leaf(other):
                        self._leaf_of.setdefault(end, other)
                        if self._row(end) is Place.ENDS and (
                            end in self._suspects or end in self._owners
                        ):
                            self._near.add(other)

    def show(self, name: str) -> None:
        """Show a suspect, even if no 5-tuple crosses it."""
        part = self._topology.get(name)
        if part is None or part.kind is not ComponentKind.LINK:
            self._node(name)
        elif name not in self._links:
            self._links[name] = []

    def result(self) -> tuple[dict[str, Node], tuple[Edge, ...]]:
        """Return nodes and edges."""
        for name, crossings in sorted(self._links.items()):
            link = self._topology[name]
            if link.a is None or link.b is None:
                continue
            ends = sorted((self._node(link.a), self._node(link.b)))
            if ends[0] == ends[1]:
                continue
            edge = self._edges.setdefault((ends[0], ends[1]), Edge(ends[0], ends[1]))
            edge.links.add(name)
            edge.bad += sum(crossings)
            edge.good += len(crossings) - sum(crossings)
        return self._nodes, tuple(self._edges[ends] for ends in sorted(self._edges))

    def _is_leaf(self, name: str) -> bool:
        part = self._topology.get(name)
        return part is not None and part.kind is ComponentKind.SWITCH and not part.tier

    def _node(self, name: str) -> str:
        """Return the node that a component is shown as."""
        key, shown, place, member = self._place(name)
        node = self._nodes.setdefault(key, Node(shown, place, key in self._suspects))
        node.members.add(member)
        return key

    def _place(self, name: str) -> tuple[str, str, Place, str]:
        """Return key, name and row of the node of a component, and what of it the node counts."""
        if name in self._owners and name not in self._suspects:
            return self._owners[name], self._owners[name], Place.ENDS, name
        row = self._row(name)
        leaf = self._leaf_of.get(name) if row is Place.ENDS else None
        if name in self._suspects or name in self._near or (row is Place.ENDS and leaf is None):
            return name, name, row, name
        if leaf is not None:
            alone = leaf in self._near or leaf in self._suspects
            return (f"ends of {leaf}", leaf, row, name) if alone else self._place(leaf)
        pod = self._pod_of.get(name)
        if pod is not None:
            shown = pod in self._worst_pods()
            return (f"pod {pod}" if shown else "other pods"), pod, Place.LEAF, pod
        # Switches between pods: where something bad crosses nearly all, it says nothing of any.
        if self._bad_between is None:
            between = (n for n, bad in self._bad_at.items() if bad and n not in self._pod_of)
            self._bad_between = frozenset(between)
        if name in self._bad_between and len(self._bad_between) <= FEW:
            return name, name, row, name
        return f"others of {row}", row.value, row, name

    def _worst_pods(self) -> frozenset[str]:
        """Return the pods that most bad 5-tuples cross."""
        if self._pods_shown is None:
            bad: Counter[str] = Counter()
            for switch, number in self._bad_at.items():
                if switch in self._pod_of:
                    bad[self._pod_of[switch]] += number
            worst = sorted(bad, key=lambda name: (-bad[name], natural_key(name)))
            self._pods_shown = frozenset(worst[:PODS])
        return self._pods_shown

    def _row(self, name: str) -> Place:
        part = self._topology.get(name)
        if part is None or part.kind is not ComponentKind.SWITCH:
            return Place.ENDS
        return TIERS[min(part.tier or 0, len(TIERS) - 1)]
