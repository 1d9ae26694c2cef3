"""The lab as the records that the localizer reads."""

from collections.abc import Iterator, Mapping

from arena.world.topology import component
from ops.lab.shape import LabShape
from schemas.enums import ComponentKind
from schemas.records import Component, Task, TaskEndpoint


class Topology:
    """Builds the components of a lab; `addresses` are those of nodes and endpoints."""

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
        return list(self._components(updated_at))

    def _components(self, updated_at: int) -> Iterator[Component]:
        shape = self._shape

        def part(component_id: str, kind: ComponentKind, parent: str | None = None) -> Component:
            address = self._addresses.get(component_id)
            return component(
                self._cluster, component_id, kind, updated_at, parent=parent, address=address
            )

        for host, vswitch, agent in zip(
            shape.host_ids(), shape.vswitch_ids(), shape.agent_ids(), strict=True
        ):
            yield part(host, ComponentKind.HOST)
            if self._overlay:
                yield part(vswitch, ComponentKind.VSWITCH, host)
            yield part(agent, ComponentKind.AGENT, host)
        for e in shape.endpoints:
            yield part(e.rnic_id, ComponentKind.RNIC, e.host_id)
            yield part(e.endpoint_id, ComponentKind.ENDPOINT, e.rnic_id)
        for tier, switches in enumerate((shape.leaf_ids(), shape.spine_ids())):
            for switch in switches:
                yield component(
                    self._cluster, switch, ComponentKind.SWITCH, updated_at,
                    tier=tier, address=self._addresses.get(switch),
                )  # fmt: skip
        for link in shape.links:
            yield component(
                self._cluster, link.link_id, ComponentKind.LINK, updated_at,
                cable=link, address=self._addresses.get(link.link_id),
            )  # fmt: skip


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
