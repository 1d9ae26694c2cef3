"""Puts faults into a running fabric and takes them out again."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ops.lab.events import EventLoop
from ops.lab.fabric import Fabric
from ops.lab.faults import FaultError, FaultSpec
from ops.lab.flapping import Flapping
from ops.lab.impairment import Effect, LinkDirection
from ops.lab.truth import Action, Truth
from schemas.units import MS_NS


@dataclass(frozen=True, slots=True)
class ActiveFault:
    """A fault that is in force."""

    fault_id: str
    spec: FaultSpec


def effect_of(spec: FaultSpec) -> Effect:
    """Return what a link fault does to each packet while it is in force."""
    match spec.kind:
        case "link-cut" | "link-flap":
            return Effect(cut=True)
        case "link-loss":
            return Effect(loss=spec.params["percent"] / 100)
        case "link-corrupt":
            return Effect(corrupt=spec.params["percent"] / 100)
        case "link-delay":
            return Effect(delay_ns=round(spec.params["ms"] * MS_NS))
        case "link-jitter":
            return Effect(jitter_ns=round(spec.params["ms"] * MS_NS))
        case _:
            raise FaultError(f"{spec.kind} is no fault of the fabric")


class FaultBoard:
    """The faults in force.

    `write` gets a line of truth at the instant of each change; `publish` the
    hosts whose flow tables changed.
    """

    def __init__(
        self,
        fabric: Fabric,
        loop: EventLoop,
        *,
        write: Callable[[Truth], None],
        publish: Callable[[set[int]], None],
    ) -> None:
        self._fabric = fabric
        self._write = write
        self._publish = publish
        self.active: dict[str, ActiveFault] = {}
        self._flapping = Flapping(
            loop, self.active, put=self._put, take=self._take, record=self._record
        )

    def inject(self, fault_id: str, spec: FaultSpec) -> Truth:
        """Put the fault in; return the line of truth.

        Raises
        ------
        FaultError
            If it is none of the fabric's.
        """
        hosts: set[int] = set()
        fabric = self._fabric
        if spec.kind.startswith("link-"):
            self._put(fault_id, spec)
        elif spec.kind == "switch-off":
            fabric.nodes[spec.target].off = True
        elif spec.kind == "flow-hole":
            hosts = fabric.overlay.apply(
                fault_id, fabric.overlay.hole(spec.target, spec.params.get("dst"))
            )
        elif spec.kind == "flow-loop":
            hosts = fabric.overlay.apply(
                fault_id, fabric.overlay.loop(spec.target, spec.params.get("dst"))
            )
        else:
            raise FaultError(f"{spec.kind} is no fault of the fabric")
        fabric.forget_routes(hosts)
        truth = self._record("inject", fault_id, spec)
        self.active[fault_id] = ActiveFault(fault_id, spec)
        self._flapping.start(fault_id, spec)
        self._publish(hosts)
        return truth

    def heal(self, fault_id: str) -> Truth:
        """Take a fault out; return the line of truth; raises KeyError."""
        spec = self.active.pop(fault_id).spec
        hosts: set[int] = set()
        if spec.kind.startswith("link-"):
            self._take(fault_id, spec)
        elif spec.kind == "switch-off":
            self._fabric.nodes[spec.target].off = any(
                f.spec.kind == "switch-off" and f.spec.target == spec.target
                for f in self.active.values()
            )
        else:
            hosts = self._fabric.overlay.undo(fault_id)
        self._fabric.forget_routes(hosts)
        truth = self._record("heal", fault_id, spec)
        self._publish(hosts)
        return truth

    def _put(self, fault_id: str, spec: FaultSpec) -> None:
        effect = effect_of(spec)
        for direction in self._directions(spec):
            direction.set_effect(fault_id, effect)

    def _take(self, fault_id: str, spec: FaultSpec) -> None:
        for direction in self._directions(spec):
            direction.remove(fault_id)

    def _directions(self, spec: FaultSpec) -> list[LinkDirection]:
        sender = spec.params.get("sender")
        return [
            direction
            for direction in self._fabric.links.values()
            if direction.link_id == spec.target and sender in (None, direction.sender)
        ]

    def _record(self, action: Action, fault_id: str, spec: FaultSpec) -> Truth:
        truth = truth_of(action, fault_id, spec)
        self._write(truth)
        return truth


def truth_of(action: Action, fault_id: str, spec: FaultSpec) -> Truth:
    """Return the line of truth for what has just been done."""
    return Truth(
        at_ns=time.time_ns(),
        action=action,
        fault_id=fault_id,
        kind=spec.kind,
        target=spec.target,
        component_id=spec.component_ids[0],
        component_ids=spec.component_ids,
        layer=spec.layer,
        params=spec.params,
    )


def describe(active: ActiveFault) -> dict[str, Any]:
    """Return a fault in force as `lab status` shows it."""
    return {
        "fault_id": active.fault_id,
        "kind": active.spec.kind,
        "target": active.spec.target,
        "params": dict(active.spec.params),
    }
