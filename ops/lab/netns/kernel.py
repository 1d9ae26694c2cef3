"""Faults of a network of namespaces: injected, healed, recorded."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final

from ops.lab.events import EventLoop
from ops.lab.faultboard import ActiveFault, effect_of, truth_of
from ops.lab.faults import FaultSpec
from ops.lab.flapping import Flapping
from ops.lab.impairment import LinkDirection
from ops.lab.netns import breaking
from ops.lab.netns.plan import Plan
from ops.lab.truth import Action, Truth

# Link faults that happen to single frames; the others are the kernel's own.
SHAPED: Final = frozenset({"link-cut", "link-loss", "link-delay", "link-jitter", "link-corrupt"})
_FORWARD: Final = "net/ipv4/ip_forward"


class KernelNetwork(ABC):
    """The faults of a plan's namespaces; a kind of lab says how commands reach them.

    `write` gets a line of truth at the instant of each change; `publish` the hosts
    whose tables changed.
    """

    def __init__(
        self,
        plan: Plan,
        loop: EventLoop,
        *,
        write: Callable[[Truth], None],
        publish: Callable[[set[int]], None],
    ) -> None:
        self.active: dict[str, ActiveFault] = {}
        self._flapping = Flapping(
            loop, self.active, put=self._apply, take=self._undo_flap, record=self._record
        )
        self._plan = plan
        self._loop = loop
        self._write = write
        self._publish = publish
        self._directions = {
            (a, b): LinkDirection(link.link_id, a, b)
            for link in plan.shape.links
            for a, b in ((link.a, link.b), (link.b, link.a))
        }

    @abstractmethod
    def _batch(self, tool: str, namespace: str, commands: Sequence[str]) -> None:
        """Run commands of one tool of iproute2 in a namespace."""

    @abstractmethod
    def _sysctls(self, namespace: str, values: dict[str, str]) -> None:
        """Write below /proc/sys as it is in a namespace."""

    @abstractmethod
    def _reshape(self, direction: LinkDirection) -> None:
        """Let frames of a direction suffer what it has been given, or nothing any more."""

    def _restore(self, node: str) -> None:
        """Set everything of one namespace as it is in health."""
        namespace = self._plan.namespace(node)
        self._batch("ip", namespace, self._plan.state(node))
        self._batch("bridge", namespace, self._plan.tables(node))

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
        fault = self.active.pop(fault_id)
        spec = fault.spec
        try:
            self._undo(fault_id, spec)
        except BaseException:
            # Not healed, or not wholly: it can be tried again.
            self.active[fault_id] = fault
            raise
        truth = self._record("heal", fault_id, spec)
        self._publish(breaking.hosts(self._plan, spec))
        return truth

    def _apply(self, fault_id: str, spec: FaultSpec) -> None:
        if spec.kind in SHAPED:
            for direction in self._suffering(spec):
                direction.set_effect(fault_id, effect_of(spec))
                self._reshape(direction)
            return
        if spec.kind == "switch-off":
            self._sysctls(self._plan.namespace(spec.target), {_FORWARD: "0"})
            return
        step = breaking.step(self._plan, spec)
        self._batch(step.tool, step.namespace, step.commands)

    def _undo(self, fault_id: str, spec: FaultSpec) -> None:
        if spec.kind in SHAPED:
            for direction in self._suffering(spec):
                direction.remove(fault_id)
                self._reshape(direction)
            return
        nodes = breaking.nodes(self._plan, spec)
        if spec.kind == "switch-off":
            self._sysctls(self._plan.namespace(spec.target), {_FORWARD: "1"})
        for step in breaking.undoing(self._plan, spec):
            self._batch(step.tool, step.namespace, step.commands)
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
