"""The lab as the records that the localizer reads."""

from collections.abc import Iterator, Mapping

from ops.lab.shape import LabShape
from schemas.enums import ComponentKind, Layer
from schemas.records import Component, Task, TaskEndpoint

LEAF_TIER = 0
SPINE_TIER = 1


class Topology:
    """Makes the components of a lab; `addresses` are those of nodes and endpoints."""

    def __init__(
        self,
        shape: LabShape,
        *,
        cluster: str,
        addresses: Mapping[str, str],
        overlay: bool = True,
    ) -> None:
        self._shape = shape
        self._cluster = cluster
        self._addresses = addresses
        self._overlay = overlay

    def components(self, updated_at: int) -> list[Component]:
        """Return everything there is, links last."""
        return [
            Component(
                cluster=self._cluster,
                component_id=component_id,
                kind=kind,
                layer=layer,
                a=a,
                b=b,
                parent=parent,
                tier=tier,
                updated_at=updated_at,
                addresses=tuple(
                    address for address in (self._addresses.get(component_id),) if address
                ),
            )
            for component_id, kind, layer, parent, tier, a, b in self._all()
        ]

    def _all(
        self,
    ) -> Iterator[tuple[str, ComponentKind, Layer, str | None, int | None, str | None, str | None]]:
        shape = self._shape
        for host, vswitch, agent in zip(
            shape.host_ids(), shape.vswitch_ids(), shape.agent_ids(), strict=True
        ):
            yield host, ComponentKind.HOST, Layer.HOST, None, None, None, None
            if self._overlay:
                yield vswitch, ComponentKind.VSWITCH, Layer.OVERLAY, host, None, None, None
            yield agent, ComponentKind.AGENT, Layer.HOST, host, None, None, None
        for e in shape.endpoints:
            yield e.rnic_id, ComponentKind.RNIC, Layer.UNDERLAY, e.host_id, None, None, None
            yield e.endpoint_id, ComponentKind.ENDPOINT, Layer.OVERLAY, e.rnic_id, None, None, None
        for leaf in shape.leaf_ids():
            yield leaf, ComponentKind.SWITCH, Layer.UNDERLAY, None, LEAF_TIER, None, None
        for spine in shape.spine_ids():
            yield spine, ComponentKind.SWITCH, Layer.UNDERLAY, None, SPINE_TIER, None, None
        for link in shape.links:
            yield link.link_id, ComponentKind.LINK, Layer.UNDERLAY, None, None, link.a, link.b


def task_of(
    shape: LabShape, *, cluster: str, submitted_at: int, ended_at: int | None = None
) -> Task:
    """Return the training job that runs on all endpoints of the lab."""
    return Task(
        cluster=cluster,
        task_id=shape.task_id,
        submitted_at=submitted_at,
        ended_at=ended_at,
        gpus_per_host=shape.rails,
        endpoints=tuple(
            TaskEndpoint(
                endpoint_id=e.endpoint_id,
                container_id=e.container_id,
                host_id=e.host_id,
                agent_id=e.agent_id,
                rail=e.rail,
            )
            for e in shape.endpoints
        ),
    )
