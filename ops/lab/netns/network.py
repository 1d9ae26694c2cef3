"""The network of namespaces: created, inspected, broken, repaired, removed."""

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ops.lab.events import EventLoop
from ops.lab.faults import FaultError, FaultSpec
from ops.lab.impairment import LinkDirection
from ops.lab.loopback import impaired_links
from ops.lab.netns import breaking
from ops.lab.netns.commands import CommandError, batch, remove_namespaces, run, write_sysctls
from ops.lab.netns.cross_traffic import CrossTraffic
from ops.lab.netns.kernel import KernelNetwork
from ops.lab.netns.plan import AGENT_PORT, Plan, overlay_address, prefix_of
from ops.lab.netns.shaper import Detour
from ops.lab.netns.tables import Tables
from ops.lab.shape import LabShape
from ops.lab.truth import Truth
from schemas.records import FlowTable

# How soon a table that somebody else has changed is published.
LOOK_NS: Final = 2 * 10**9


class NetnsNetwork(KernelNetwork):
    """All namespaces of a lab on this machine; frames suffer in detours of this process."""

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
        super().__init__(Plan(shape, prefix_of(folder)), loop, write=write, publish=publish)
        self._shape = shape
        self._folder = folder
        # Faults need repeatable draws, not secret ones.
        self._rng = random.Random(seed)  # noqa: S311
        self._tables = Tables(shape)
        self._seen: dict[int, str] = {}
        self._detours: dict[tuple[str, str], Detour] = {}
        self._cross: dict[str, list[CrossTraffic]] = {}
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

    def _batch(self, tool: str, namespace: str, commands: Sequence[str]) -> None:
        batch(tool, namespace, commands)

    def _sysctls(self, namespace: str, values: dict[str, str]) -> None:
        write_sysctls(namespace, values)

    def _reshape(self, direction: LinkDirection) -> None:
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

    def _apply(self, fault_id: str, spec: FaultSpec) -> None:
        """Put a fault in; raises FaultError if this kernel lacks a queueing discipline."""
        if spec.kind != breaking.CROSS_TRAFFIC:
            try:
                super()._apply(fault_id, spec)
            except CommandError as error:
                if spec.kind not in breaking.QUEUES:
                    raise
                # The first of two queues may be there already.
                with suppress(CommandError):
                    self._remove_queue(spec)
                raise FaultError(
                    f"{spec.kind} needs a queue that this kernel lacks: {error}"
                ) from None
        if fault_id not in self._cross:
            self._cross[fault_id] = [
                CrossTraffic(
                    self._plan.namespace(end), self._plan.ports[end, other], mbit, self._loop
                )
                for end, other, mbit in breaking.cross_traffic(self._plan, spec)
            ]

    def _undo(self, fault_id: str, spec: FaultSpec) -> None:
        for traffic in self._cross.pop(fault_id, ()):
            traffic.close()
        if spec.kind != breaking.CROSS_TRAFFIC:
            super()._undo(fault_id, spec)

    def _remove_queue(self, spec: FaultSpec) -> None:
        for step in breaking.undoing(self._plan, spec):
            self._batch(step.tool, step.namespace, step.commands)

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
        for traffic in self._cross.values():
            for one in traffic:
                one.close()
        remove_namespaces(self._folder)
