"""The network of namespaces: made, read, broken, mended, removed."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from ops.lab.events import EventLoop
from ops.lab.faultboard import ActiveFault, effect_of, truth_of
from ops.lab.faults import FaultSpec
from ops.lab.flapping import Flapping
from ops.lab.impairment import LinkDirection
from ops.lab.loopback import impaired_links
from ops.lab.netns import breaking
from ops.lab.netns.commands import (
    batch,
    remove_namespaces,
    run,
    write_sysctls,
)
from ops.lab.netns.plan import AGENT_PORT, Plan, overlay_address, prefix_of
from ops.lab.netns.shaper import Detour
from ops.lab.netns.tables import Tables
from ops.lab.shape import LabShape
from ops.lab.truth import Action, Truth
from schemas.records import FlowTable

# Link faults that happen to single frames; the others are the kernel's own.
SHAPED: Final = frozenset({"link-cut", "link-loss", "link-delay", "link-jitter", "link-corrupt"})
# How soon a table that somebody else has changed is published.
LOOK_NS: Final = 2 * 10**9


class NetnsNetwork:
    """All namespaces of a lab.

    `write` gets a line of truth at the instant of each change; `publish` the hosts
    whose tables changed.
    """

    def __init__(
        self,
        shape: LabShape,
        folder: Path,
        loop: EventLoop,
        *,
        seed: int,
        write: Callable[[Truth], None],
        publish: Callable[[set[int]], None],
    ) -> None:
        self.active: dict[str, ActiveFault] = {}
        self._flapping = Flapping(
            loop, self.active, put=self._apply, take=self._undo_flap, record=self._record
        )
        self._shape = shape
        self._folder = folder
        self._loop = loop
        # Faults need repeatable draws, not secret ones.
        self._rng = random.Random(seed)  # noqa: S311
        self._write = write
        self._publish = publish
        self._plan = Plan(shape, prefix_of(folder))
        self._tables = Tables(shape)
        self._seen: dict[int, str] = {}
        self._detours: dict[tuple[str, str], Detour] = {}
        self._directions = {
            (a, b): LinkDirection(link.link_id, a, b)
            for link in shape.links
            for a, b in ((link.a, link.b), (link.b, link.a))
        }
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        loop.call_later(LOOK_NS, self._look)

    def _build(self) -> None:
        plan = self._plan
        remove_namespaces(self._folder)
        batch("ip", None, [f"netns add {plan.namespace(node)}" for node in plan.nodes])
        for node in plan.nodes:
            write_sysctls(plan.namespace(node), plan.sysctls(node))
        batch("ip", None, plan.cables())
        for node in plan.nodes:
            batch("ip", plan.namespace(node), plan.devices(node))
            self._restore(node)

    def _restore(self, node: str) -> None:
        """Set everything of one namespace as it is in health."""
        namespace = self._plan.namespace(node)
        batch("ip", namespace, self._plan.state(node))
        batch("bridge", namespace, self._plan.tables(node))

    def addresses(self) -> dict[str, str]:
        """Return addresses of nodes and endpoints."""
        endpoints = {
            e.endpoint_id: f"{overlay_address(e)}:{AGENT_PORT}" for e in self._shape.endpoints
        }
        return self._plan.addresses() | endpoints

    def table(self, host: int, *, cluster: str, captured_at: int) -> FlowTable:
        """Read a host's tables."""
        host_id = self._shape.host_ids()[host]
        text = self._seen[host] = self._fdb(host)
        return FlowTable(
            cluster=cluster,
            host_id=host_id,
            captured_at=captured_at,
            entries=self._tables.entries(host, text),
        )

    def _fdb(self, host: int) -> str:
        host_id = self._shape.host_ids()[host]
        return run("bridge", "-n", self._plan.namespace(host_id), "-j", "fdb", "show")

    def _look(self) -> None:
        """Publish the tables that have changed, whoever did it."""
        changed = {
            host
            for host in range(self._shape.hosts)
            if host in self._seen and self._fdb(host) != self._seen[host]
        }
        if changed:
            self._publish(changed)
        self._loop.call_later(LOOK_NS, self._look)

    def inject(self, fault_id: str, spec: FaultSpec) -> Truth:
        """Put a fault in; return the line of truth."""
        self._apply(fault_id, spec)
        truth = self._record("inject", fault_id, spec)
        self.active[fault_id] = ActiveFault(fault_id, spec)
        self._flapping.start(fault_id, spec)
        self._publish(breaking.hosts(self._plan, spec))
        return truth

    def heal(self, fault_id: str) -> Truth:
        """Take a fault out; return the line of truth; raises KeyError."""
        spec = self.active.pop(fault_id).spec
        self._undo(fault_id, spec)
        truth = self._record("heal", fault_id, spec)
        self._publish(breaking.hosts(self._plan, spec))
        return truth

    def _apply(self, fault_id: str, spec: FaultSpec) -> None:
        if spec.kind in SHAPED:
            for direction in self._suffering(spec):
                direction.put(fault_id, effect_of(spec))
                self._detour(direction)
            return
        if spec.kind == "switch-off":
            write_sysctls(self._plan.namespace(spec.target), {"net/ipv4/ip_forward": "0"})
            return
        step = breaking.step(self._plan, spec)
        batch(step.tool, step.namespace, step.commands)

    def _undo(self, fault_id: str, spec: FaultSpec) -> None:
        if spec.kind in SHAPED:
            for direction in self._suffering(spec):
                direction.remove(fault_id)
                self._detour(direction)
            return
        nodes = breaking.nodes(self._plan, spec)
        if spec.kind == "switch-off":
            write_sysctls(self._plan.namespace(spec.target), {"net/ipv4/ip_forward": "1"})
        for step in breaking.undoing(self._plan, spec):
            batch(step.tool, step.namespace, step.commands)
        for node in nodes:
            self._restore(node)
        # What the restoration mended too, is to go on being broken.
        for other in self.active.values():
            if other.spec.kind not in SHAPED and nodes & breaking.nodes(self._plan, other.spec):
                self._apply(other.fault_id, other.spec)

    def _suffering(self, spec: FaultSpec) -> list[LinkDirection]:
        sender = spec.params.get("sender")
        return [
            direction
            for direction in self._directions.values()
            if direction.link_id == spec.target and sender in (None, direction.sender)
        ]

    def _detour(self, direction: LinkDirection) -> None:
        """Make a detour for a direction that is impaired, remove that of a healthy one."""
        key = direction.sender, direction.receiver
        if direction.impaired and key not in self._detours:
            self._detours[key] = Detour(
                self._plan.namespace(direction.sender),
                self._plan.ports[key],
                direction,
                self._loop,
                self._rng,
            )
        elif not direction.impaired and key in self._detours:
            self._detours.pop(key).close()

    def _undo_flap(self, fault_id: str, spec: FaultSpec) -> None:
        active = self.active.pop(fault_id)
        try:
            self._undo(fault_id, spec)
        finally:
            self.active[fault_id] = active

    def _record(self, action: Action, fault_id: str, spec: FaultSpec) -> Truth:
        truth = truth_of(action, fault_id, spec)
        self._write(truth)
        return truth

    def status(self) -> dict[str, Any]:
        """Return what the detours have counted; the kernel's own counts are `ip -s link`'s."""
        return {
            "namespaces": {node: self._plan.namespace(node) for node in self._plan.nodes},
            "relayed": None,
            "dropped": {},
            "answered": {},
            "links": impaired_links(self._directions.values()),
        }

    def close(self) -> None:
        """Remove all namespaces, and with them everything in them."""
        remove_namespaces(self._folder)
