"""The topology as a platform publishes it once, in `topology.v1`."""

from collections.abc import Iterator

from arena.sealed.cluster import Cluster
from schemas.enums import ComponentKind, Layer
from schemas.records import Component


def components(cluster: Cluster, updated_at_us: int) -> Iterator[Component]:
    """Yield all components of a cluster, holders before what they hold."""

    def component(
        name: str, kind: ComponentKind, layer: Layer, *, parent: str | None = None,
        tier: int | None = None, ends: tuple[str, str] | None = None,
        addresses: tuple[str, ...] = (),
    ) -> Component:  # fmt: skip
        return Component(
            cluster=cluster.name, component_id=name, kind=kind, layer=layer,
            a=ends[0] if ends else None, b=ends[1] if ends else None, parent=parent, tier=tier,
            updated_at=updated_at_us, producer_version=cluster.version, addresses=addresses,
        )  # fmt: skip

    fabric, sites = cluster.fabric, cluster.sites
    for host in cluster.hosts:
        yield component(host.name, ComponentKind.HOST, Layer.HOST)
    for endpoint, site in enumerate(sites):
        rnic, host_name = cluster.rnic_name(endpoint), cluster.hosts[site.host].name
        underlay = (site.rnic_address,)
        yield component(
            rnic, ComponentKind.RNIC, Layer.UNDERLAY, parent=host_name,
            addresses=() if cluster.overlay else underlay,
        )  # fmt: skip
        if cluster.overlay:
            yield component(
                cluster.vtep_name(endpoint), ComponentKind.VTEP, Layer.OVERLAY, parent=rnic,
                addresses=underlay,
            )  # fmt: skip
    for node in range(fabric.rnics, len(fabric.nodes)):
        switch = fabric.nodes[node]
        addresses = [cluster.loopback_address(node)]
        if cluster.numbered:
            addresses += [
                cluster.interface_address(dlink)
                for dlink in range(fabric.dlinks)
                if fabric.head(dlink) == node
            ]
        yield component(
            switch.name, ComponentKind.SWITCH, Layer.UNDERLAY, tier=switch.tier,
            addresses=tuple(addresses),
        )  # fmt: skip
    for cable in fabric.cables:
        ends = (fabric.nodes[cable.a].name, fabric.nodes[cable.b].name)
        yield component(cable.name, ComponentKind.LINK, Layer.UNDERLAY, ends=ends)
    if cluster.overlay:
        for host in cluster.hosts:
            yield component(
                cluster.vswitch_name(host.host), ComponentKind.VSWITCH, Layer.OVERLAY,
                parent=host.name,
            )  # fmt: skip
    for endpoint, site in enumerate(sites):
        yield component(
            site.name, ComponentKind.ENDPOINT, Layer.OVERLAY, parent=cluster.rnic_name(endpoint),
            addresses=(site.address, f"::ffff:{site.address}"),
        )  # fmt: skip
    for agent in cluster.agents:
        yield component(
            agent.name, ComponentKind.AGENT, Layer.HOST, parent=cluster.hosts[agent.host].name
        )
