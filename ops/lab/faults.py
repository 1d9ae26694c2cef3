"""The kinds of fault that the lab can put in, and the check of what a user asks for."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ops.lab.errors import LabUsageError
from ops.lab.overlay import Overlay
from ops.lab.shape import LabShape, link_id
from schemas.enums import Layer

NEAR_MATCHES: Final = 5
NEAR_CUTOFF: Final = 0.4
MAX_MS: Final = 60_000.0
LOOPBACK_LAB: Final = "loopback"
NETNS_LAB: Final = "netns"
ALL_LABS: Final = (LOOPBACK_LAB, NETNS_LAB)


class FaultError(LabUsageError):
    """A fault that cannot be put in; the message names everything that is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Param:
    """A parameter of a fault: a number with unit and bounds, or (`unit` None) a component."""

    name: str
    doc: str
    unit: str | None = None
    default: float | None = None
    low: float = 0.0
    high: float = 0.0


PERCENT: Final = Param(
    name="percent", doc="share of the packets", unit="%", default=10.0, low=0.001, high=100.0
)
SENDER: Final = Param(
    name="sender", doc="end of the link whose packets suffer; both ends unless given"
)
SHUT: Final = Param(name="sender", doc="end of the link that is shut; its first unless given")
DST: Final = Param(name="dst", doc="endpoint whose traffic suffers; every destination unless given")
TO: Final = Param(name="dst", doc="endpoint whose RNIC is meant; every RNIC unless given")
ACL_PERCENT: Final = Param(
    name="percent", doc="share of the source ports", unit="%", default=50.0, low=1.0, high=100.0
)


def _ms(doc: str, default: float, low: float = 0.01) -> Param:
    return Param(name="ms", doc=doc, unit="ms", default=default, low=low, high=MAX_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultKind:
    """A kind of fault: on what, with which parameters, what it does, in which kinds of lab."""

    name: str
    layer: Layer
    target: str
    doc: str
    params: tuple[Param, ...] = ()
    example: str
    labs: tuple[str, ...] = ALL_LABS


KINDS: Final[dict[str, FaultKind]] = {
    kind.name: kind
    for kind in (
        FaultKind(
            name="link-cut", layer=Layer.UNDERLAY, target="link", params=(SENDER,),
            doc="Nothing crosses the link.",
            example="link-cut link:leaf:p0-0--spine:0",
        ),
        FaultKind(
            name="link-loss", layer=Layer.UNDERLAY, target="link", params=(PERCENT, SENDER),
            doc="A share of the packets is lost, in each direction by itself.",
            example="link-loss link:leaf:p0-0--rnic:h0/r0 --percent 10",
        ),
        FaultKind(
            name="link-delay", layer=Layer.UNDERLAY, target="link",
            params=(_ms("added to each crossing, so twice to a round trip", 5.0), SENDER),
            doc="Every packet crosses later.",
            example="link-delay link:leaf:p0-0--spine:0 --ms 5",
        ),
        FaultKind(
            name="link-jitter", layer=Layer.UNDERLAY, target="link",
            params=(_ms("at most added to each crossing, evenly from 0", 5.0), SENDER),
            doc="Packets cross later by a random time, and may overtake each other.",
            example="link-jitter link:leaf:p0-0--spine:0 --ms 2",
        ),
        FaultKind(
            name="link-corrupt", layer=Layer.UNDERLAY, target="link", params=(PERCENT, SENDER),
            doc="Bytes of the payload of a share of the packets change.",
            example="link-corrupt link:leaf:p0-0--spine:0 --percent 20",
        ),
        FaultKind(
            name="link-flap", layer=Layer.UNDERLAY, target="link",
            params=(_ms("period: down for its first half, up for its second", 4000.0, 10.0),
                    SENDER),
            doc="The link is cut and joined by turns.",
            example="link-flap link:leaf:p0-0--spine:0 --ms 4000",
        ),
        FaultKind(
            name="switch-off", layer=Layer.UNDERLAY, target="switch",
            doc="A leaf or spine neither forwards nor answers.",
            example="switch-off spine:0",
        ),
        FaultKind(
            name="flow-hole", layer=Layer.OVERLAY, target="virtual node", params=(DST,),
            doc="Entries vanish from a flow table; their packets are dropped without a word.",
            example="flow-hole vsw:h1 --dst job1-w1/r0",
        ),
        FaultKind(
            name="link-down", layer=Layer.UNDERLAY, target="link", params=(SHUT,),
            labs=(NETNS_LAB,),
            doc="A port is shut: its own switch routes around it, the other end does not know.",
            example="link-down link:leaf:p0-0--spine:0",
        ),
        FaultKind(
            name="link-mtu", layer=Layer.UNDERLAY, target="link", params=(SENDER,),
            labs=(NETNS_LAB,),
            doc="The MTU of the receiving end is too small: it drops large frames without a word.",
            example="link-mtu link:leaf:p0-0--spine:0",
        ),
        FaultKind(
            name="route-withdraw", layer=Layer.UNDERLAY, target="switch", params=(TO,),
            labs=(NETNS_LAB,),
            doc="A switch loses its route to an RNIC, and says so of each packet.",
            example="route-withdraw spine:0 --dst job1-w0/r0",
        ),
        FaultKind(
            name="route-hole", layer=Layer.UNDERLAY, target="switch", params=(TO,),
            labs=(NETNS_LAB,),
            doc="A switch has a blackhole route to an RNIC: its packets are dropped silently.",
            example="route-hole spine:0 --dst job1-w0/r0",
        ),
        FaultKind(
            name="acl-drop", layer=Layer.UNDERLAY, target="switch", params=(ACL_PERCENT, TO),
            labs=(NETNS_LAB,),
            doc="An access list of a switch drops a share of the 5-tuples, always the same.",
            example="acl-drop spine:0 --percent 50",
        ),
        FaultKind(
            name="container-kill", layer=Layer.OVERLAY, target="container", labs=(NETNS_LAB,),
            doc="A container's interfaces are gone; its host and the agent stay.",
            example="container-kill job1-w1",
        ),
        FaultKind(
            name="flow-loop", layer=Layer.OVERLAY, target="virtual node", params=(DST,),
            labs=(LOOPBACK_LAB,),
            doc="A virtual switch and an RNIC of its host send traffic to each other.",
            example="flow-loop rnic:h0/r0 --dst job1-w1/r0",
        ),
        FaultKind(
            name="agent-kill", layer=Layer.HOST, target="agent",
            doc="The agent ends by SIGKILL; healing starts it again.",
            example="agent-kill agent-h0",
        ),
        FaultKind(
            name="agent-stop", layer=Layer.HOST, target="agent",
            doc="The agent is stopped by SIGSTOP; healing continues it.",
            example="agent-stop agent-h0",
        ),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSpec:
    """A checked fault.

    `component_ids` are all components that a verdict may rightly name, the
    first being the one to name; `params` hold every parameter of the kind.
    """

    kind: str
    target: str
    component_ids: tuple[str, ...]
    layer: Layer
    params: Mapping[str, Any] = field(default_factory=dict)


def targets_of(kind: FaultKind, shape: LabShape) -> list[str]:
    """Return the components that a fault of that kind can hit."""
    match kind.target:
        case "link":
            return [link.link_id for link in shape.links]
        case "switch":
            return shape.switch_ids()
        case "container":
            return list(dict.fromkeys(e.container_id for e in shape.endpoints))
        case "virtual node":
            return shape.vswitch_ids() + shape.rnic_ids()
        case _:
            return shape.agent_ids()


def near(name: str, known: list[str]) -> str:
    """Return a sentence that names what may have been meant."""
    found = (
        difflib.get_close_matches(name, known, NEAR_MATCHES, NEAR_CUTOFF) or known[:NEAR_MATCHES]
    )
    return f"did you mean {', '.join(found)}?"


def check_fault(
    kind_name: str,
    target: str,
    params: Mapping[str, Any],
    shape: LabShape,
    lab: str = LOOPBACK_LAB,
) -> FaultSpec:
    """Return the fault that is asked for of that kind of lab; defaults are filled in.

    Raises
    ------
    FaultError
        Naming everything that is wrong: unknown kind, component or parameter, value
        out of bounds. What is unknown comes with what may have been meant.
    """
    kind = KINDS.get(kind_name)
    if kind is None:
        raise FaultError(
            f"no fault kind {kind_name!r}; {near(kind_name, list(KINDS))} "
            "`lab kinds` lists them all"
        )
    if lab not in kind.labs:
        raise FaultError(f"{kind.name} is no fault of a {lab} lab, but of {', '.join(kind.labs)}")
    wrong: list[str] = []
    known = targets_of(kind, shape)
    component = _canonical(target) if kind.target == "link" else target
    if component not in known:
        wrong.append(f"{kind.name} needs a {kind.target}, not {target!r}: {near(component, known)}")
    names = [p.name for p in kind.params]
    wrong += [
        f"{kind.name} has no parameter {name!r}; it takes {', '.join(names) or 'none'}"
        for name, value in params.items()
        if name not in names and value is not None
    ]
    values: dict[str, Any] = {}
    for param in kind.params:
        given = params.get(param.name)
        if param.unit is not None:
            values[param.name] = _number(param, given, wrong)
        elif given is not None:
            values[param.name] = given
    if not wrong:
        wrong += _components_wrong(component, values, shape, lab)
    if wrong:
        raise FaultError("; ".join(wrong))
    return FaultSpec(
        kind=kind.name,
        target=component,
        component_ids=_culprits(kind, component, values, shape),
        layer=kind.layer,
        params=values,
    )


def _canonical(target: str) -> str:
    """Return a link's id, its ends in order, however the user wrote it."""
    a, sep, b = target.removeprefix("link:").partition("--")
    return link_id(a, b) if sep else target


def _number(param: Param, given: Any, wrong: list[str]) -> float | None:
    value = param.default if given is None else given
    if isinstance(value, bool) or not isinstance(value, int | float):
        wrong.append(f"{param.name}={value!r} is no number ({param.unit})")
        return None
    if not param.low <= value <= param.high:
        wrong.append(f"{param.name}={value}: {param.low:g} to {param.high:g} {param.unit}")
        return None
    return float(value)


def _components_wrong(
    component: str, values: dict[str, Any], shape: LabShape, lab: str
) -> list[str]:
    wrong: list[str] = []
    sender = values.get("sender")
    if sender is not None:
        link = next(x for x in shape.links if x.link_id == component)
        if sender not in (link.a, link.b):
            wrong.append(f"sender={sender!r} is no end of {component}: {link.a} or {link.b}")
    dst = values.get("dst")
    if dst is not None:
        known = _destinations(component, shape, lab)
        if dst not in known:
            wrong.append(f"{component} has no entry for dst={dst!r}: {near(str(dst), known)}")
    return wrong


def _destinations(component: str, shape: LabShape, lab: str) -> list[str]:
    """Return the endpoints for which a virtual node has entries, or a switch routes."""
    if component in shape.switch_ids():
        return [e.endpoint_id for e in shape.endpoints]
    known = Overlay(shape).destinations(component)
    rails = {e.rail for e in shape.endpoints if e.rnic_id == component}
    if lab == LOOPBACK_LAB or not rails:
        return known
    # Each rail has a tunnel network of its own.
    return [e.endpoint_id for e in shape.endpoints if e.endpoint_id in known and e.rail in rails]


def _culprits(
    kind: FaultKind, component: str, values: dict[str, Any], shape: LabShape
) -> tuple[str, ...]:
    if kind.name != "flow-loop":
        return (component,)
    overlay = Overlay(shape)
    dsts = [values["dst"]] if "dst" in values else overlay.destinations(component)
    members = {node: None for dst in dsts for node in overlay.loop_members(component, dst)}
    return (component, *(node for node in members if node != component))
