"""What the machine of an rxe lab holds: RNICs in its first namespace, a namespace for each switch.

Pure. Soft-RoCE of these kernels works in the first namespace only, so all hosts share it:

    rxe_h0r0 on h0r0 == leaf == spine == leaf == h5r0 under rxe_h5r0

Each RNIC has a routing table of its own, chosen by its address, and local delivery is decided
by where a packet came in: what one RNIC sends to another goes over all the switches between.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Final

from ops.lab.impairment import Effect
from ops.lab.netns.plan import UNDERLAY_MTU, Plan, underlay_address
from ops.lab.shape import EndpointSpec, LabShape
from schemas.units import US_NS

# The machine's first namespace, under a name by which `ip -n` reaches it.
HOSTS: Final = "hosts"
FIRST_TABLE: Final = 1_000
# One emulated CPU: more RNICs than that are slower than the probes' timeout.
MAX_RNICS: Final = 16
_HOSTS_SETTINGS: Final = {
    "net/ipv4/conf/all/rp_filter": "0",
    # Of interfaces that are still to be made.
    "net/ipv4/conf/default/rp_filter": "0",
    "net/ipv4/conf/default/accept_local": "1",
    "net/ipv4/conf/default/arp_ignore": "1",
    "net/ipv4/conf/default/arp_announce": "2",
    "net/ipv6/conf/all/accept_dad": "0",
    "net/ipv6/conf/default/accept_dad": "0",
}


def netdev(e: EndpointSpec) -> str:
    """Return the network device under an RNIC."""
    return f"h{e.host}r{e.rail}"


def device(e: EndpointSpec) -> str:
    """Return the RNIC's name among RDMA devices."""
    return f"rxe_{netdev(e)}"


def other_address(e: EndpointSpec) -> str:
    """Return the address that an RNIC gets instead of its own when its GID is changed."""
    return f"10.67.{e.host}.{e.rail + 1}"


def netem(effect: Effect) -> str:
    """Return the options of `tc qdisc … netem` for what is to happen to frames.

    >>> netem(Effect(loss=0.1, delay_ns=5_000_000))
    'loss 10% delay 5000us'
    >>> netem(Effect(jitter_ns=2_000_000))
    'delay 1000us 1000us'
    """
    options: list[str] = []
    if effect.cut or effect.loss:
        options.append(f"loss {100.0 if effect.cut else effect.loss * 100:g}%")
    if effect.corrupt:
        options.append(f"corrupt {effect.corrupt * 100:g}%")
    # netem spreads evenly around the delay; jitter is given as the most that is added.
    half_us = effect.jitter_ns // (2 * US_NS)
    delay_us = effect.delay_ns // US_NS + half_us
    if delay_us:
        options.append(f"delay {delay_us}us" + (f" {half_us}us" if half_us else ""))
    return " ".join(options)


class RxePlan(Plan):
    """The namespaces in the machine; nothing else is in it, so their names need no prefix."""

    def __init__(self, shape: LabShape) -> None:
        super().__init__(shape, "")
        for e in shape.endpoints:
            self.ports[e.rnic_id, shape.leaf_of(e.host, e.rail)] = netdev(e)
        self._inside = {
            inside: HOSTS
            for e in shape.endpoints
            for inside in (e.rnic_id, e.host_id, e.container_id)
        }

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """Everything that has a namespace: the hosts together, and each switch."""
        return (HOSTS, *self.shape.switch_ids())

    def home(self, component_id: str) -> str:
        """Return the node in whose namespace a component is.

        >>> RxePlan(LabShape()).home("rnic:h2/r1")
        'hosts'
        """
        return self._inside.get(component_id, component_id)

    def sysctls(self, node: str) -> dict[str, str]:
        """Return what to write below /proc/sys in a node's namespace, before it has devices."""
        return _HOSTS_SETTINGS if node == HOSTS else super().sysctls(node)

    def cables(self) -> list[str]:
        """Return the `ip` commands that join the namespaces by veth pairs."""
        return list(self._links())

    def devices(self, node: str) -> list[str]:
        """Return the `ip` commands that choose routing tables; to be given once."""
        return list(self._rules()) if node == HOSTS else []

    def _rules(self) -> Iterator[str]:
        for number, e in enumerate(self.shape.endpoints):
            yield f"rule add pref 5 iif {netdev(e)} lookup local"
            yield f"rule add pref 10 from {underlay_address(e)} lookup {FIRST_TABLE + number}"
        # What no RNIC has sent or got is local as usual, but only after these rules.
        yield "rule add pref 100 lookup local"
        yield "rule del pref 0"

    def verbs(self) -> list[str]:
        """Return the `rdma` commands that make the RNICs."""
        return [f"link add {device(e)} type rxe netdev {netdev(e)}" for e in self.shape.endpoints]

    def state(self, node: str) -> list[str]:
        """Return the `ip` commands that set addresses, links, routes; they may be repeated."""
        return list(self._rnics()) if node == HOSTS else super().state(node)

    def _rnics(self) -> Iterator[str]:
        for number, e in enumerate(self.shape.endpoints):
            leaf = self.shape.leaf_of(e.host, e.rail)
            yield f"addr replace {underlay_address(e)}/32 dev {netdev(e)}"
            yield f"link set {netdev(e)} mtu {UNDERLAY_MTU} up"
            yield (
                f"route replace default via {self._switch_address(leaf)} dev {netdev(e)} onlink "
                f"src {underlay_address(e)} table {FIRST_TABLE + number}"
            )

    def tables(self, _node: str) -> list[str]:
        """Return nothing: there is no overlay."""
        return []
