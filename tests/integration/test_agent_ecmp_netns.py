"""Flows over two equal paths of kernel routers: a trace shows the path of its own flow."""

import select
import subprocess
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from probers.clock import SystemClock
from probers.probing.plan import FlowTarget
from probers.probing.trace import Tracer, TraceSettings
from probers.transports.base import Completion, Probe
from probers.transports.udp import UdpTransport
from schemas.enums import ProbeStatus
from schemas.enums import Transport as TransportKind
from tests.integration.routers import (
    NEEDS_NAMESPACES,
    PLANS,
    TIMEOUT_NS,
    Plan,
    inside,
    ip,
    sysctl,
    traced,
)

# host a - router r - router m or n - host b, and from b always back by m.
NODES = ("a", "r", "m", "n", "b")
LINKS = (("a", "r"), ("r", "m"), ("r", "n"), ("m", "b"), ("n", "b"))
# All on one of two paths by chance: once in 2 ** 15.
FLOWS = 16
PROBES = 20

pytestmark = NEEDS_NAMESPACES


@dataclass
class Fork:
    """The namespaces by letter, and the transports of both hosts."""

    plan: Plan
    names: dict[str, str]
    near: UdpTransport
    far: UdpTransport

    def turn(self) -> list[Completion]:
        """Wait for packets at either host; return what ended at host a."""
        select.select([self.near.fileno(), self.far.fileno()], [], [], 0.01)
        self.far.poll()
        return self.near.poll()

    def probed(self, flow: int, count: int) -> list[ProbeStatus]:
        """Send probes of a flow, one after another; return what became of them."""
        statuses = []
        for token in range(count):
            self.near.send(
                Probe(token=token, address=self.far.address, port=self.far.port, flow=flow,
                      entropy=0, timeout_ns=4 * TIMEOUT_NS)
            )  # fmt: skip
            over: list[Completion] = []
            while not over:
                over = self.turn()
            statuses.append(over[0].status)
        return statuses

    def received(self, node: str) -> int:
        """Return how many packets a middle router has had from r."""
        # A sysfs of the namespace would have to be mounted; procfs follows the thread.
        table = inside(
            self.names[node], lambda: Path("/proc/thread-self/net/dev").read_text(encoding="ascii")
        )
        (line,) = (each for each in table.splitlines() if each.strip().startswith(f"{node}r:"))
        return int(line.split(":")[1].split()[1])


def wire(names: dict[str, str], plan: Plan) -> str:
    """Join the nodes, set the routes; return host b's address, which both paths lead to."""
    for link, (left, right) in enumerate(LINKS):
        ip("link", "add", f"{left}{right}", "netns", names[left], "type", "veth",
           "peer", "name", f"{right}{left}", "netns", names[right])  # fmt: skip
        plan.address(names[left], f"{left}{right}", link, 1)
        plan.address(names[right], f"{right}{left}", link, 2)
    target = plan.at(9, 1)
    whole = f"{target}/{plan.host_bits}"
    ip("-n", names["b"], "addr", "add", whole, "dev", "lo")
    ip("-n", names["b"], "link", "set", "lo", "up")

    def route(node: str, *arguments: str) -> None:
        ip("-n", names[node], *plan.flag, "route", "add", *arguments)

    first = f"{plan.at(0, 0)}/{plan.bits}"
    route("a", "default", "via", plan.at(0, 2))
    route("r", whole, "nexthop", "via", plan.at(1, 2), "nexthop", "via", plan.at(2, 2))
    for node, link, down in (("m", 1, 3), ("n", 2, 4)):
        route(node, whole, "via", plan.at(down, 2))
        route(node, first, "via", plan.at(link, 1))
    route("b", "default", "via", plan.at(3, 1))
    for node in ("r", "m", "n"):
        sysctl(names[node], plan.forwarding, "1")
        # Linux answers one host some six times at once, then once a second.
        sysctl(names[node], plan.icmp_limit, "0")
    sysctl(names["r"], plan.hash_policy, "1")
    return target


@pytest.fixture(params=sorted(PLANS))
def fork(request: pytest.FixtureRequest) -> Iterator[Fork]:
    """Make the namespaces, and a transport in each host's."""
    plan = PLANS[request.param]
    tag = uuid.uuid4().hex[:6]
    names = {node: f"sh{tag}{node}" for node in NODES}
    opened: list[UdpTransport] = []

    def open_in(node: str, address: str) -> UdpTransport:
        def work() -> UdpTransport:
            transport = UdpTransport(SystemClock(), address, 0)
            opened.append(transport)
            for flow in range(FLOWS if node == "a" else 0):
                transport.source_port(flow)
            return transport

        return inside(names[node], work)

    try:
        for name in names.values():
            ip("netns", "add", name)
        target = wire(names, plan)
        yield Fork(plan, names, open_in("a", plan.at(0, 1)), open_in("b", target))
    finally:
        for transport in opened:
            transport.close()
        for name in names.values():
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def test_the_trace_of_a_flow_shows_the_path_that_its_probes_take(fork: Fork) -> None:
    """Both paths are taken; on each flow the router that the trace names had all its probes."""
    for flow in range(FLOWS):
        fork.probed(flow, 3)  # neighbours are found
    plan, far = fork.plan, fork.far
    tracer = Tracer(TraceSettings(timeout_ns=TIMEOUT_NS, discovery_burst=FLOWS))
    tracer.follow(
        tuple(
            FlowTarget("a/r0", "b/r0", flow, far.address, far.port, TransportKind.UDP, 0)
            for flow in range(FLOWS)
        ),
        time.monotonic_ns(),
    )
    finished = traced(tracer, fork.near, fork.turn)
    assert len(finished) == FLOWS
    # Entry addresses of m and n.
    middle = {plan.at(1, 2): "m", plan.at(2, 2): "n"}
    taken = set()
    for trace in finished:
        assert trace.complete, trace
        first, second, last = (hop.address for hop in trace.hops)
        assert (first, last) == (plan.at(0, 2), far.address)
        named = middle[second or ""]
        taken.add(named)
        before = {node: fork.received(node) for node in ("m", "n")}
        assert fork.probed(trace.target.flow, PROBES) == [ProbeStatus.OK] * PROBES
        more = {node: fork.received(node) - count for node, count in before.items()}
        assert more[named] >= PROBES
        # Neighbours ask each other now and then, too.
        assert more["n" if named == "m" else "m"] < PROBES // 2
    assert taken == {"m", "n"}
