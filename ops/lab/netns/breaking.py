"""Which commands break the kernel's own networking, and which namespaces they touch. Pure."""

from dataclasses import dataclass
from typing import Final

from ops.lab.faults import FaultError, FaultSpec
from ops.lab.netns.plan import (
    FIRST_SOURCE_PORT,
    LAST_SOURCE_PORT,
    VXLAN_PORT,
    Plan,
    underlay_address,
)
from ops.lab.shape import EndpointSpec

# Probes of the lab are larger, answers to traces and ARP are smaller.
SMALL_MTU: Final = 700
# Before the table of local addresses, which has rule 0, nothing can stand.
ACL_PREF: Final = 1


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
        case "route-withdraw":
            found = _ip(plan, spec.target, *(f"route del {a}/32" for a in _to(plan, spec)))
        case "route-hole":
            commands = (f"route replace blackhole {a}/32" for a in _to(plan, spec))
            found = _ip(plan, spec.target, *commands)
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
    if spec.kind == "container-kill":
        patches = tuple(plan.patch(e) for e in _of_container(plan, spec.target))
        return [Step("ip", plan.namespace(spec.target), patches)]
    return []


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
