"""Which components the 5-tuples of anomalies cross, as the localizer derives it from traces."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from localizer.network.routes import derived, traced
from localizer.network.topology import Topology, TopologyError
from schemas.ids import FlowId
from schemas.records import Component, PathTrace
from schemas.topics import TOPOLOGY

if TYPE_CHECKING:
    from ops.view.cluster import ClusterView


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


def paths(view: "ClusterView", flows: Mapping[FlowId, int]) -> dict[FlowId, FlowPath]:
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
    topology = view.wiring.of(view)
    return {key: _path(view, topology, key, chosen.get(key)) for key in flows}


def _path(
    view: "ClusterView", topology: Topology, key: FlowId, trace: PathTrace | None
) -> FlowPath:
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


class TopologyBook:
    """The topology of a view as paths are derived from it, brought up to date when it changed."""

    def __init__(self) -> None:
        self._records = 0
        self._topology = Topology()
        self._known: dict[str, Component] = {}

    def of(self, view: "ClusterView") -> Topology:
        """Return the topology of a view."""
        records = view.records[TOPOLOGY.name]
        if records != self._records:
            self._records = records
            if not self._known.keys() <= view.topology.keys():
                self._topology, self._known = Topology(), {}
            for name, component in view.topology.items():
                if self._known.get(name) is not component:
                    self._known[name] = component
                    # A link that joins nothing is on no path.
                    with suppress(TopologyError):
                        self._topology.set_component(component)
        return self._topology

    def copy(self) -> "TopologyBook":
        """Return a book that finds out anew."""
        return TopologyBook()
