"""Which commands break the kernel's own networking, and which namespaces they touch. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ops.lab.faults import FaultError, FaultSpec
from ops.lab.netns.plan import (
    FIRST_SOURCE_PORT,
    LAST_SOURCE_PORT,
    UNDERLAY_MTU,
    VXLAN_PORT,
    Plan,
    underlay_address,
)
from ops.lab.shape import EndpointSpec

# Probes of the lab are larger, answers to traces and ARP are smaller.
SMALL_MTU: Final = 700
# Before the table of local addresses, which has rule 0, nothing can stand.
ACL_PREF: Final = 1
# A token bucket must hold what comes due between two ticks of the slowest kernel's timer
# (10 ms; tc-tbf(8)), and at least a few frames.
TICK_S: Final = 0.01
LEAST_BURST_BYTES: Final = 4 * UNDERLAY_MTU
CROSS_TRAFFIC: Final = "cross-traffic"
QUEUES: Final = frozenset({"link-rate", "link-rate-fair"})


@dataclass(frozen=True, slots=True)
class Step:
    """Commands of one tool in one namespace."""

    tool: str
    namespace: str
    commands: tuple[str, ...]


def ends(spec: FaultSpec, plan: Plan) -> tuple[str, str]:
    """Return the end of a link that a fault names as its sender, or its first one; the other."""
    link = next(x for x in plan.shape.links if x.link_id == spec.target)
    if spec.params.get("sender") == link.b:
        return link.b, link.a
    return link.a, link.b


def nodes(plan: Plan, spec: FaultSpec) -> frozenset[str]:
    """Return the nodes whose namespaces a fault changes."""
    if spec.kind in ("link-down", "link-flap", "link-mtu"):
        homes = {plan.home(end) for end in ends(spec, plan)}
        # A container learns from its host's tunnel what path MTU there is.
        return frozenset(
            homes | {e.container_id for e in plan.shape.endpoints if e.host_id in homes}
        )
    if spec.kind in QUEUES:
        return frozenset({plan.home(ends(spec, plan)[0])})
    if spec.kind == "container-kill":
        return frozenset({_of_container(plan, spec.target)[0].host_id, spec.target})
    return frozenset({plan.home(spec.target)})


def hosts(plan: Plan, spec: FaultSpec) -> set[int]:
    """Return the hosts whose tables a fault changes."""
    touched = nodes(plan, spec)
    return {host for host, host_id in enumerate(plan.shape.host_ids()) if host_id in touched}


def step(plan: Plan, spec: FaultSpec) -> Step:
    """Return what breaks it.

    Raises
    ------
    FaultError
        If the kind of fault is none of the kernel's.
    """
    match spec.kind:
        case "link-down" | "link-flap":
            near, far = ends(spec, plan)
            found = _ip(plan, near, f"link set {plan.ports[near, far]} down")
        case "link-mtu":
            near, far = ends(spec, plan)
            found = _ip(plan, far, f"link set {plan.ports[far, near]} mtu {SMALL_MTU}")
        case "link-rate" | "link-rate-fair":
            near, far = ends(spec, plan)
            commands = _queue(spec, plan.ports[near, far])
            found = Step("tc", plan.namespace(near), tuple(commands))
        case "route-withdraw":
            found = _ip(plan, spec.target, *(f"route del {a}/32" for a in _to(plan, spec)))
        case "route-hole":
            holes = (f"route replace blackhole {a}/32" for a in _to(plan, spec))
            found = _ip(plan, spec.target, *holes)
        case "acl-drop":
            found = _ip(plan, spec.target, *(f"rule add {rule}" for rule in _rules(plan, spec)))
        case "flow-hole":
            found = _fdb(plan, spec)
        case "container-kill":
            mine = _of_container(plan, spec.target)
            found = _ip(plan, mine[0].host_id, *(f"link del c{e.rail}" for e in mine))
        case _:
            raise FaultError(f"{spec.kind} is no fault of a network of namespaces")
    return found


def undoing(plan: Plan, spec: FaultSpec) -> list[Step]:
    """Return what has to go before the namespaces are set as in health."""
    if spec.kind == "acl-drop":
        return [_ip(plan, spec.target, *(f"rule del {rule}" for rule in _rules(plan, spec)))]
    if spec.kind in QUEUES:
        near, far = ends(spec, plan)
        return [Step("tc", plan.namespace(near), (f"qdisc del dev {plan.ports[near, far]} root",))]
    if spec.kind == "container-kill":
        patches = tuple(plan.patch(e) for e in _of_container(plan, spec.target))
        return [Step("ip", plan.namespace(spec.target), patches)]
    return []


def cross_traffic(plan: Plan, spec: FaultSpec) -> list[tuple[str, str, float]]:
    """Return the ports that get other traffic: end of the link, its other end, Mbit/s."""
    near, far = ends(spec, plan) if spec.kind in (*QUEUES, CROSS_TRAFFIC) else ("", "")
    if spec.kind in QUEUES and spec.params["cross"] > 0:
        return [(near, far, spec.params["mbit"] * spec.params["cross"] / 100)]
    if spec.kind != CROSS_TRAFFIC:
        return []
    both = [(near, far)] if "sender" in spec.params else [(near, far), (far, near)]
    return [(end, other, spec.params["mbit"]) for end, other in both]


def _queue(spec: FaultSpec, port: str) -> Iterator[str]:
    rate_mbit, wait_ms = spec.params["mbit"], spec.params["ms"]
    burst_bytes = max(LEAST_BURST_BYTES, round(rate_mbit * 1e6 / 8 * TICK_S))
    bucket = f"tbf rate {rate_mbit * 1e3:.0f}kbit burst {burst_bytes}"
    if spec.kind == "link-rate":
        yield f"qdisc replace dev {port} root handle 1: {bucket} latency {wait_ms}ms"
        return
    # The bucket's own queue never fills: what waits, waits in the fair queues below it.
    yield f"qdisc replace dev {port} root handle 1: {bucket} latency 1000ms"
    yield f"qdisc replace dev {port} parent 1:1 handle 10: fq_codel target {wait_ms}ms"


def _ip(plan: Plan, node: str, *commands: str) -> Step:
    return Step("ip", plan.namespace(node), commands)


def _to(plan: Plan, spec: FaultSpec) -> list[str]:
    """Return the addresses of the RNICs that are meant."""
    dst = spec.params.get("dst")
    return [underlay_address(e) for e in plan.shape.endpoints if dst in (None, e.endpoint_id)]


def _rules(plan: Plan, spec: FaultSpec) -> list[str]:
    ports = LAST_SOURCE_PORT - FIRST_SOURCE_PORT + 1
    last = FIRST_SOURCE_PORT + max(1, round(ports * spec.params["percent"] / 100)) - 1
    to = [f"to {a}/32 " for a in _to(plan, spec)] if "dst" in spec.params else [""]
    return [
        f"pref {ACL_PREF} {where}ipproto udp sport {FIRST_SOURCE_PORT}-{last} "
        f"dport {VXLAN_PORT} blackhole"
        for where in to
    ]


def _of_container(plan: Plan, container_id: str) -> list[EndpointSpec]:
    return [e for e in plan.shape.endpoints if e.container_id == container_id]


def _fdb(plan: Plan, spec: FaultSpec) -> Step:
    home = plan.home(spec.target)
    mine = {e.rail: e for e in plan.shape.endpoints if e.host_id == home}
    dst = spec.params.get("dst")
    commands = [
        f"fdb del {entry}"
        for target in plan.shape.endpoints
        if dst in (None, target.endpoint_id)
        for node, entry in plan.entries(mine[target.rail], target).items()
        if node == spec.target
    ]
    return Step("bridge", plan.namespace(spec.target), tuple(commands))
