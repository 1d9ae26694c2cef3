"""The network inside the machine: built, broken and mended from the host."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ops.lab.events import EventLoop
from ops.lab.faults import FaultError, FaultSpec
from ops.lab.impairment import LinkDirection
from ops.lab.netns.kernel import KernelNetwork
from ops.lab.netns.plan import underlay_address
from ops.lab.rxe.machine import Machine
from ops.lab.rxe.plan import HOSTS, RxePlan, netdev, netem, other_address
from ops.lab.shape import EndpointSpec, LabShape
from ops.lab.truth import Truth
from ops.lab.vm.machine import MachineError
from schemas.records import FlowTable

# QEMU's user network (its documentation, "Using the user mode network stack").
GUEST_ADDRESS: Final = "10.0.2.15/24"
HOST_ADDRESS: Final = "10.0.2.2"
# The guest's clock goes by the host's; emulated timers make it drift a little.
CLOCK_NS: Final = 10 * 10**9
CLOCK_MISSES: Final = 2
GOODBYE_S: Final = 6.0
GID_CHANGE: Final = "gid-change"
POLL_S: Final = 0.2


class RxeNetwork(KernelNetwork):
    """Soft-RoCE RNICs and switches in a machine of their own.

    `ports` are those of this host's loopback that agents reach, at the same place in the guest.
    """

    def __init__(
        self,
        shape: LabShape,
        folder: Path,
        loop: EventLoop,
        *,
        ports: Sequence[int],
        write: Callable[[Truth], None],
        publish: Callable[[set[int]], None],
    ) -> None:
        self._rxe = RxePlan(shape)
        super().__init__(self._rxe, loop, write=write, publish=publish)
        self._shaped: set[tuple[str, str]] = set()
        self._agents: set[str] = set()
        self._clock_off_ns = 0
        # As `status` saw them last: ticks busy, all ticks, the host's processor time, when.
        self._spent = (0, 0, 0, loop.now_ns())
        self._machine = Machine(folder)
        try:
            self._build(ports)
            self._keep_clock()
        except BaseException:
            self._machine.close()
            raise

    def _build(self, ports: Sequence[int]) -> None:
        plan, ask = self._rxe, self._machine.ask
        self._clock_off_ns = self._machine.set_clock()
        self._clock_missed = 0
        commands = [f"netns attach {HOSTS} 1"]
        commands += [f"netns add {switch}" for switch in map(plan.namespace, plan.nodes[1:])]
        ask("batch", tool="ip", namespace=None, commands=commands)
        for node in plan.nodes:
            self._sysctls(plan.namespace(node), plan.sysctls(node))
        ask("batch", tool="ip", namespace=None, commands=plan.cables())
        for node in plan.nodes:
            self._restore(node)
        self._batch("ip", HOSTS, plan.devices(HOSTS))
        ask("verbs", commands=plan.verbs())
        uplink = [f"addr add {GUEST_ADDRESS} dev eth0", "link set eth0 up"]
        self._batch("ip", HOSTS, uplink)
        for port in ports:
            relay = ["busybox", "nc", "-ll", "-p", str(port), "-e"]
            argv = [*relay, "busybox", "nc", HOST_ADDRESS, str(port)]
            ask("run", name=f"relay-{port}", argv=argv)

    def _keep_clock(self) -> None:
        try:
            self._clock_off_ns = self._machine.set_clock()
            self._clock_missed = 0
        except MachineError:
            # A guest that answers too late is set at the next turn; one that never does is gone.
            self._clock_missed += 1
            if self._clock_missed > CLOCK_MISSES:
                raise
        self._loop.call_later(CLOCK_NS, self._keep_clock)

    def _batch(self, tool: str, namespace: str, commands: Sequence[str]) -> None:
        if commands:
            self._machine.ask("batch", tool=tool, namespace=namespace, commands=list(commands))

    def _sysctls(self, namespace: str, values: dict[str, str]) -> None:
        self._machine.ask("sysctls", namespace=namespace, values=values)

    def _reshape(self, direction: LinkDirection) -> None:
        """Give a port the queueing discipline of what its frames are to suffer."""
        key = direction.sender, direction.receiver
        port, commands = self._plan.ports[key], []
        if key in self._shaped:
            commands.append(f"qdisc del dev {port} root")
        if direction.impaired:
            commands.append(f"qdisc add dev {port} root netem {netem(direction.effect)}")
        self._batch("tc", self._plan.namespace(direction.sender), commands)
        (self._shaped.add if direction.impaired else self._shaped.discard)(key)

    def inject(self, fault_id: str, spec: FaultSpec) -> Truth:
        """Put a fault in; return the line of truth; raises FaultError if it is in already."""
        changed = {f.spec.target for f in self.active.values() if f.spec.kind == GID_CHANGE}
        if spec.kind == GID_CHANGE and spec.target in changed:
            raise FaultError(f"{spec.target} is under {GID_CHANGE} already: heal it first")
        return super().inject(fault_id, spec)

    def _apply(self, fault_id: str, spec: FaultSpec) -> None:
        if spec.kind == GID_CHANGE:
            self._readdress(spec.target, underlay_address, other_address)
        else:
            super()._apply(fault_id, spec)

    def _undo(self, fault_id: str, spec: FaultSpec) -> None:
        if spec.kind == GID_CHANGE:
            self._readdress(spec.target, other_address, underlay_address)
        super()._undo(fault_id, spec)

    def _readdress(
        self,
        rnic_id: str,
        old: Callable[[EndpointSpec], str],
        new: Callable[[EndpointSpec], str],
    ) -> None:
        e = next(e for e in self._plan.shape.endpoints if e.rnic_id == rnic_id)
        # Right whichever of the two is there: healing another fault sets all RNICs as in health,
        # and a machine that did not answer in time may have done it all the same.
        commands = [
            f"addr replace {old(e)}/32 dev {netdev(e)}",
            f"addr del {old(e)}/32 dev {netdev(e)}",
            f"addr replace {new(e)}/32 dev {netdev(e)}",
        ]
        self._batch("ip", HOSTS, commands)

    def addresses(self) -> dict[str, str]:
        """Return the addresses by which traces know components."""
        return self._plan.addresses()

    def table(self, host: int, *, cluster: str, captured_at: int) -> FlowTable | None:  # noqa: ARG002 - as all networks
        """Return nothing: there is no overlay."""
        return None

    def agents(self, command: Mapping[str, Any]) -> Any:
        """Start, signal or list agents: what the lab cannot do by itself.

        Raises
        ------
        FaultError
            If there is no such command.
        """
        name = str(command.get("name"))
        match command.get("do"):
            case "start":
                self._agents.add(name)
                return self._machine.ask("agent", name=name, argv=command["argv"])
            case "starve":
                arguments = {"victim": command["victim"], "percent": command["percent"]}
                return self._machine.ask("starve", name=name, **arguments)
            case "signal":
                return self._machine.ask("signal", name=name, number=int(command["number"]))
            case "states":
                return self._machine.ask("states")
            case other:
                raise FaultError(f"unknown command {other!r} for agents")

    def status(self) -> dict[str, Any]:
        """Return what the machine is like; its counts are the kernel's, inside."""
        ticks = self._machine.ask("processor")
        busy, total = sum(ticks) - ticks[3] - ticks[4], sum(ticks)
        now_ns, cpu_ns = self._loop.now_ns(), self._machine.cpu_ns
        then = self._spent
        self._spent = busy, total, cpu_ns, now_ns
        return {
            "relayed": None,
            "dropped": {},
            "answered": {},
            "links": [],
            "machine": {
                # Busy, but with little of the host's processor: others there keep it from running.
                "busy_share": round((busy - then[0]) / max(1, total - then[1]), 2),
                "host_share": round((cpu_ns - then[2]) / max(1, now_ns - then[3]), 2),
                "clock_off_ns": self._clock_off_ns,
                "processes": self._machine.ask("states"),
            },
        }

    def close(self) -> None:
        """Let agents say goodbye, then stop the machine."""
        try:
            if self._machine.running:
                self._end_agents()
        except MachineError:
            pass  # it is stopped anyway
        finally:
            self._machine.close()

    def _end_agents(self) -> None:
        self._machine.ask("end", names=sorted(self._agents))
        deadline = time.monotonic() + GOODBYE_S
        while time.monotonic() < deadline:
            states = self._machine.ask("states")
            if all(states.get(name) is not None for name in self._agents):
                return
            time.sleep(POLL_S)
