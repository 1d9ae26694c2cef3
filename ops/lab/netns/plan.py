"""What the namespaces of a lab hold: names, addresses, devices, and the commands that make them.

Pure. Each host has a namespace, its container another one; so has each switch. All
interfaces of a switch share one address, which stands on its loopback device: traces
show that address, whichever way the answer goes. A rail has a VXLAN network of its own:

    container e0 == c0 host: bridge b0, VXLAN x0 -- r0 == leaf == spine == leaf == ...

The VXLAN device gives the inner TTL to the outer header, and the inner 5-tuple chooses
the outer source port: a trace's probe ends where the flow's own packets go through.
"""

import hashlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Final

from ops.lab.shape import EndpointSpec, LabShape

# 10.64/16 RNICs, 10.65/16 leaves, 10.66/16 spines, 10.128/9 containers: nobody outside the
# namespaces has a route to them.
UNDERLAY_MTU: Final = 1_600
# What VXLAN adds: outer Ethernet, IP, UDP, VXLAN.
OVERLAY_MTU: Final = UNDERLAY_MTU - 50
VXLAN_PORT: Final = 4_789
# The range that the kernel puts the inner 5-tuple's hash into; rules take no 65,535.
FIRST_SOURCE_PORT: Final = 49_152
LAST_SOURCE_PORT: Final = 65_534
FIRST_VNI: Final = 100
# Each container has addresses of its own: all agents may listen at the same port.
AGENT_PORT: Final = 7_000
# Labs of one name may stand in several state folders.
TAG_CHARS: Final = 6
# A path MTU that was learned from a fault would outlive it by ten minutes.
FORGET: Final = "route flush cache"

_QUIET: Final = {
    "net/ipv6/conf/all/disable_ipv6": "1",
    "net/ipv6/conf/default/disable_ipv6": "1",
    "net/ipv4/conf/all/rp_filter": "0",
    "net/ipv4/conf/default/rp_filter": "0",
}
_SWITCH: Final = {
    "net/ipv4/ip_forward": "1",
    "net/ipv4/fib_multipath_hash_policy": "1",
    # Linux answers one trace a second by default; switches of a fabric are set to more.
    "net/ipv4/icmp_ratemask": "0",
}


def prefix_of(folder: Path) -> str:
    """Return how the names of a lab's namespaces begin; it is that lab's alone."""
    tag = hashlib.sha256(str(folder).encode()).hexdigest()[:TAG_CHARS]
    return f"{folder.name}.{tag}."


def mac(e: EndpointSpec) -> str:
    """Return the hardware address of an endpoint's interface in its container."""
    return f"02:00:00:00:{e.rail:02x}:{e.host + 1:02x}"


def overlay_address(e: EndpointSpec) -> str:
    """Return the address that the container has on that rail."""
    return f"10.{128 + e.rail}.0.{e.host + 1}"


def underlay_address(e: EndpointSpec) -> str:
    """Return the address of the RNIC, which is the tunnel's end."""
    return f"10.64.{e.host}.{e.rail + 1}"


def namespace_name(prefix: str, node: str) -> str:
    """Return the name of the namespace of a host, container or switch.

    >>> namespace_name("lab.", "host:h2"), namespace_name("lab.", "leaf:p0-1")
    ('lab.h2', 'lab.leaf-p0-1')
    """
    kind, colon, rest = node.partition(":")
    if kind in ("leaf", "spine"):
        return f"{prefix}{kind}-{rest}"
    return prefix + (rest if colon else node)


class Plan:
    """The namespaces of a lab of that shape; `prefix` begins all their names."""

    def __init__(self, shape: LabShape, prefix: str) -> None:
        self.shape = shape
        self.prefix = prefix
        self._spines = shape.spine_ids()
        # Where a link ends: (node, other end) to the device in the node's namespace.
        self.ports: dict[tuple[str, str], str] = {}
        for e in shape.endpoints:
            leaf = shape.leaf_of(e.host, e.rail)
            self.ports[e.rnic_id, leaf] = f"r{e.rail}"
            self.ports[leaf, e.rnic_id] = f"h{e.host}r{e.rail}"
        for leaf in shape.leaf_ids():
            for number, spine in enumerate(self._spines):
                self.ports[leaf, spine] = f"s{number}"
                self.ports[spine, leaf] = leaf.partition(":")[2]

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """Everything that has a namespace: hosts, containers, switches."""
        containers = dict.fromkeys(e.container_id for e in self.shape.endpoints)
        return (*self.shape.host_ids(), *containers, *self.shape.switch_ids())

    @cached_property
    def _homes(self) -> Mapping[str, str]:
        inside = {e.rnic_id: e.host_id for e in self.shape.endpoints}
        return inside | {e.vswitch_id: e.host_id for e in self.shape.endpoints}

    def home(self, component_id: str) -> str:
        """Return the node in whose namespace a component is."""
        return self._homes.get(component_id, component_id)

    def namespace(self, component_id: str) -> str:
        """Return the name of the namespace in which a component is.

        >>> Plan(LabShape(), "lab.").namespace("rnic:h2/r1")
        'lab.h2'
        """
        return namespace_name(self.prefix, self.home(component_id))

    def addresses(self) -> dict[str, str]:
        """Return the addresses by which traces know components."""
        switches = {switch: self._switch_address(switch) for switch in self.shape.switch_ids()}
        return switches | {e.rnic_id: underlay_address(e) for e in self.shape.endpoints}

    def _switch_address(self, switch: str) -> str:
        kind, _, rest = switch.partition(":")
        if kind == "spine":
            return f"10.66.0.{int(rest) + 1}"
        pod, _, leaf = rest.removeprefix("p").partition("-")
        return f"10.65.{pod}.{int(leaf) + 1}"

    def sysctls(self, node: str) -> dict[str, str]:
        """Return what to write below /proc/sys in a node's namespace, before it has devices."""
        return _QUIET | (_SWITCH if node in self.shape.switch_ids() else {})

    def cables(self) -> list[str]:
        """Return the `ip` commands that join the namespaces by veth pairs."""
        return [*self._links(), *(self.patch(e) for e in self.shape.endpoints)]

    def _links(self) -> Iterator[str]:
        for link in self.shape.links:
            a, b = link.a, link.b
            yield (
                f"link add {self.ports[a, b]} netns {self.namespace(a)} mtu {UNDERLAY_MTU} "
                f"type veth peer name {self.ports[b, a]} netns {self.namespace(b)} "
                f"mtu {UNDERLAY_MTU}"
            )

    def patch(self, e: EndpointSpec) -> str:
        """Return the command that joins a container to its host's bridge."""
        return (
            f"link add e{e.rail} netns {self.namespace(e.container_id)} address {mac(e)} "
            f"mtu {OVERLAY_MTU} type veth peer name c{e.rail} "
            f"netns {self.namespace(e.host_id)} mtu {OVERLAY_MTU}"
        )

    def devices(self, node: str) -> list[str]:
        """Return the `ip` commands that make what is in one namespace alone; to be given once."""
        if node not in self.shape.host_ids():
            return []
        return [
            command
            for e in self._of(node)
            for command in (
                f"link add b{e.rail} type bridge",
                f"link add x{e.rail} mtu {OVERLAY_MTU} type vxlan id {FIRST_VNI + e.rail} "
                f"local {underlay_address(e)} dev r{e.rail} dstport {VXLAN_PORT} "
                f"srcport {FIRST_SOURCE_PORT} {LAST_SOURCE_PORT} nolearning ttl inherit",
                f"link set x{e.rail} master b{e.rail}",
            )
        ]

    def state(self, node: str) -> list[str]:
        """Return the `ip` commands that set addresses, links, routes; they may be repeated."""
        if node in self.shape.host_ids():
            return list(self._host(node))
        if node in self.shape.leaf_ids():
            return list(self._switch(node, self._leaf_routes(node)))
        if node in self._spines:
            return list(self._switch(node, self._spine_routes(node)))
        return list(self._container(node))

    def _of(self, node: str) -> list[EndpointSpec]:
        return [e for e in self.shape.endpoints if node in (e.host_id, e.container_id)]

    def _host(self, node: str) -> Iterator[str]:
        yield "link set lo up"
        for e in self._of(node):
            leaf = self.shape.leaf_of(e.host, e.rail)
            yield f"addr replace {underlay_address(e)}/32 dev r{e.rail}"
            yield f"link set r{e.rail} mtu {UNDERLAY_MTU} up"
            yield (
                f"route replace default via {self._switch_address(leaf)} dev r{e.rail} onlink "
                f"metric {e.rail + 1}"
            )
            yield f"link set c{e.rail} master b{e.rail}"
            for device in (f"c{e.rail}", f"x{e.rail}", f"b{e.rail}"):
                yield f"link set {device} up"
        yield FORGET

    def _container(self, node: str) -> Iterator[str]:
        yield "link set lo up"
        for e in self._of(node):
            yield f"addr replace {overlay_address(e)}/24 dev e{e.rail}"
            yield f"link set e{e.rail} up"
            for peer in self._peers(e):
                yield (
                    f"neigh replace {overlay_address(peer)} lladdr {mac(peer)} dev e{e.rail} "
                    "nud permanent"
                )
        yield FORGET

    def _peers(self, e: EndpointSpec) -> list[EndpointSpec]:
        return [p for p in self.shape.endpoints if p.rail == e.rail and p is not e]

    def _switch(self, node: str, routes: Iterator[str]) -> Iterator[str]:
        yield "link set lo up"
        yield f"addr replace {self._switch_address(node)}/32 dev lo"
        for (a, _), device in self.ports.items():
            if a == node:
                yield f"link set {device} mtu {UNDERLAY_MTU} up"
        yield from routes

    def _leaf_routes(self, leaf: str) -> Iterator[str]:
        hops = " ".join(
            f"nexthop via {self._switch_address(spine)} dev {self.ports[leaf, spine]} onlink"
            for spine in self._spines
        )
        for e in self.shape.endpoints:
            port = self.ports.get((leaf, e.rnic_id))
            way = hops if port is None else f"dev {port}"
            yield f"route replace {underlay_address(e)}/32 {way}"

    def _spine_routes(self, spine: str) -> Iterator[str]:
        for e in self.shape.endpoints:
            leaf = self.shape.leaf_of(e.host, e.rail)
            yield (
                f"route replace {underlay_address(e)}/32 via {self._switch_address(leaf)} "
                f"dev {self.ports[spine, leaf]} onlink"
            )

    def tables(self, node: str) -> list[str]:
        """Return the `bridge` commands that fill a host's tables; they may be repeated."""
        if node not in self.shape.host_ids():
            return []
        found: list[str] = []
        for e in self._of(node):
            for device in (f"c{e.rail}", f"x{e.rail}"):
                found.append(
                    f"link set dev {device} learning off flood off mcast_flood off bcast_flood off"
                )
            for dst in (e, *self._peers(e)):
                found += [f"fdb replace {entry}" for entry in self.entries(e, dst).values()]
        return found

    def entries(self, e: EndpointSpec, dst: EndpointSpec) -> dict[str, str]:
        """Return by virtual node the FDB entries that an endpoint's host has for `dst`."""
        if dst is e:
            return {e.vswitch_id: f"{mac(e)} dev c{e.rail} master static"}
        return {
            e.vswitch_id: f"{mac(dst)} dev x{e.rail} master static",
            # Without `via`, the host's first default route would carry all rails.
            e.rnic_id: f"{mac(dst)} dev x{e.rail} dst {underlay_address(dst)} via r{e.rail} "
            "self static",
        }
