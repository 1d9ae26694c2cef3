"""Checks a fault that a user asks for, and says which components may be blamed for it."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from arena.world.topology import link_id
from ops.lab.errors import LabUsageError
from ops.lab.fault_kinds import KINDS, LOOPBACK_LAB, FaultKind, Param
from ops.lab.overlay import Overlay
from ops.lab.shape import LabShape
from schemas.enums import Layer
from schemas.ids import rank_id

NEAR_MATCHES: Final = 5
NEAR_CUTOFF: Final = 0.4


class FaultError(LabUsageError):
    """A fault that cannot be put in; the message names everything that is wrong."""


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
    return {
        "link": [link.link_id for link in shape.links],
        "switch": shape.switch_ids(),
        "container": list(dict.fromkeys(e.container_id for e in shape.endpoints)),
        "RNIC": shape.rnic_ids(),
        "endpoint": [e.endpoint_id for e in shape.endpoints],
        "virtual node": shape.vswitch_ids() + shape.rnic_ids(),
        "agent": shape.agent_ids(),
        "task": [shape.task_id],
        "rank": [rank_id(shape.task_id, rank) for rank in range(len(shape.endpoints))],
    }[kind.target]


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
    component = _canonical(kind, target, shape)
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
        elif param.choices:
            values[param.name] = param.default if given is None else given
            if values[param.name] not in param.choices:
                wrong.append(f"{param.name}={given!r}: {' or '.join(param.choices)}")
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


def _canonical(kind: FaultKind, target: str, shape: LabShape) -> str:
    """Return a component's id: of a link with its ends in order, of a rank with its task."""
    if kind.target == "rank" and target.isdecimal():
        return f"{shape.task_id}|{target}"
    if kind.target != "link":
        return target
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
    if kind.name in ("route-withdraw", "route-hole") and "dst" in values:
        return (component, *_next_cables(component, values["dst"], shape))
    if kind.target == "container":
        mine = [e for e in shape.endpoints if e.container_id == component]
        # Its ports are gone from the virtual switch: the component that is left to name.
        return (mine[0].vswitch_id, *(e.endpoint_id for e in mine))
    if kind.target == "endpoint":
        # What it sends itself is answered: the network is well both ways.
        return (next(e.agent_id for e in shape.endpoints if e.endpoint_id == component),)
    if kind.name != "flow-loop":
        return (component,)
    overlay = Overlay(shape)
    dsts = [values["dst"]] if "dst" in values else overlay.destinations(component)
    members = {node: None for dst in dsts for node in overlay.loop_members(component, dst)}
    return (component, *(node for node in members if node != component))


def _next_cables(switch: str, dst: str, shape: LabShape) -> list[str]:
    """Return the cables by which a switch sends what is for one RNIC.

    What is lost of one RNIC's packets behind a switch may as well be lost on its cable.
    """
    e = next(e for e in shape.endpoints if e.endpoint_id == dst)
    leaf = shape.leaf_of(e.host, e.rail)
    if switch == leaf:
        return [link_id(switch, e.rnic_id)]
    if switch in shape.spine_ids():
        return [link_id(switch, leaf)]
    return [link_id(switch, spine) for spine in shape.spine_ids()]
