"""Which components the 5-tuples of anomalies cross, as the localizer derives it from traces."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from localizer.network.routes import derived, traced
from localizer.network.topology import Topology, TopologyError
from ops.view.cluster import ClusterView
from schemas.enums import ComponentKind
from schemas.ids import FlowId
from schemas.records import Component, PathTrace

# An endpoint's RNIC and host, and what holds those.
MAX_PARENTS: Final = 8


@dataclass(frozen=True, slots=True)
class FlowPath:
    """What a 5-tuple crosses.

    Attributes
    ----------
    components
        In the order of the path, the ends' endpoints, containers, hosts and agents after them.
    route
        Those of the path alone.
    trace
        The trace that shows it; None: the topology alone.
    """

    components: tuple[str, ...]
    route: tuple[str, ...]
    trace: PathTrace | None


def paths(view: ClusterView, flows: Mapping[FlowId, int]) -> dict[FlowId, FlowPath]:
    """Return what 5-tuples cross.

    Parameters
    ----------
    flows
        5-tuples, each with a time in microseconds since the epoch: the path before it counts, if
        there is a trace of it, else the next one.
    """
    chosen: dict[FlowId, PathTrace] = {}
    for trace in sorted(view.traces.values(), key=lambda one: one.traced_at):
        key: FlowId = trace.src, trace.dst, trace.flow
        if key in flows and trace.complete and (key not in chosen or trace.traced_at < flows[key]):
            chosen[key] = trace
    topology = _part(view, flows, chosen.values())
    return {key: _path(view, topology, key, chosen.get(key)) for key in flows}


def _path(view: ClusterView, topology: Topology, key: FlowId, trace: PathTrace | None) -> FlowPath:
    src, dst, _ = key
    if trace is None:
        route = derived(topology, src, dst).components
    else:
        addresses = tuple(hop.address for hop in trace.hops)
        route = traced(topology, src, dst, addresses, complete=trace.complete).components
    more: dict[str, None] = {}
    for end in (src, dst):
        more[end] = None
        more |= dict.fromkeys(topology.parents(end))
        registered = view.endpoints.get(end)
        if registered is not None:
            names = (registered.container_id, registered.host_id, registered.agent_id)
            more |= dict.fromkeys(names)
    own = tuple(route)
    return FlowPath((*own, *(name for name in more if name not in own)), own, trace)


def _part(view: ClusterView, flows: Iterable[FlowId], traces: Iterable[PathTrace]) -> Topology:
    """Return the part of the topology that some 5-tuples may cross: the whole takes a second."""
    addresses = {hop.address for trace in traces for hop in trace.hops}
    nodes: dict[str, Component] = {}
    wanted = [end for src, dst, _ in flows for end in (src, dst)]
    for _ in range(MAX_PARENTS):
        found = [view.topology[name] for name in wanted if name in view.topology]
        nodes |= {one.component_id: one for one in found}
        wanted = [one.parent for one in found if one.parent is not None and one.parent not in nodes]
    links: list[Component] = []
    for one in view.topology.values():
        if one.kind is ComponentKind.LINK:
            links.append(one)
        elif not addresses.isdisjoint(one.addresses) or (
            one.kind is ComponentKind.VSWITCH and one.parent in nodes
        ):
            nodes[one.component_id] = one
    part = Topology()
    for one in (*nodes.values(), *links):
        # A link of which one end is on a path may lead to a switch that never answers.
        if one.kind is not ComponentKind.LINK or one.a in nodes or one.b in nodes:
            try:
                part.set_component(one)
            except TopologyError:
                continue
    return part
