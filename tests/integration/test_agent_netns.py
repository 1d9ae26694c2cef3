"""Traces over kernel routers: two hosts, two routers between them, network namespaces."""

import os
import select
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import pytest

from probers import netns
from probers.clock import SystemClock
from probers.targets import FlowTarget
from probers.trace import FinishedTrace, Tracer, TraceSettings
from probers.transport import Completion, Probe
from probers.udp import UdpTransport
from schemas.enums import ClockSource, ProbeStatus, TraceCause
from schemas.enums import Transport as TransportKind

T = TypeVar("T")
# host a - router r - router s - host b: one /30 per link.
NODES = ("a", "r", "s", "b")
TIMEOUT_NS = 250 * 10**6

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(
        not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("ip") is None,
        reason="needs root and iproute2 for network namespaces",
    ),
]


def ip(*arguments: str) -> None:
    """Run an ip command."""
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def inside(namespace: str, work: Callable[[], T]) -> T:
    """Do something in a network namespace; sockets opened there stay there."""
    return netns.inside(netns.namespace_path(namespace), work)


@dataclass
class World:
    """The four namespaces, by letter, and the transports of both hosts."""

    names: dict[str, str]
    near: UdpTransport
    far: UdpTransport

    def set_forwarding(self, node: str, value: str) -> None:
        """Let a router forward or drop silently."""

        def write() -> None:
            with open("/proc/sys/net/ipv4/ip_forward", "w", encoding="ascii") as file:
                file.write(value)

        inside(self.names[node], write)

    def target(self, flow: int = 0, port: int | None = None) -> FlowTarget:
        """Return host b as a target."""
        return FlowTarget(
            "a/r0", "b/r0", flow, "10.7.2.2", port or self.far.port, TransportKind.UDP, 0
        )

    def turn(self) -> list[Completion]:
        """Wait for packets at either host; return what ended at host a."""
        select.select([self.near.fileno(), self.far.fileno()], [], [], 0.01)
        self.far.poll()
        return self.near.poll()


def wire(names: dict[str, str]) -> None:
    """Join the nodes in a row and set the routes."""
    for index, (left, right) in enumerate(pairwise(NODES)):
        ip("link", "add", f"{left}{right}", "netns", names[left], "type", "veth",
           "peer", "name", f"{right}{left}", "netns", names[right])  # fmt: skip
        for node, other, host in ((left, right, 1), (right, left, 2)):
            ip("-n", names[node], "addr", "add", f"10.7.{index}.{host}/30", "dev", f"{node}{other}")
            ip("-n", names[node], "link", "set", f"{node}{other}", "up")
    for node, via in (("a", "10.7.0.2"), ("r", "10.7.1.2"), ("b", "10.7.2.1")):
        ip("-n", names[node], "route", "add", "default", "via", via)
    ip("-n", names["s"], "route", "add", "10.7.0.0/30", "via", "10.7.1.1")


@pytest.fixture
def world() -> Iterator[World]:
    """Make the namespaces, and a transport in each host's."""
    tag = uuid.uuid4().hex[:6]
    names = {node: f"sh{tag}{node}" for node in NODES}
    made: World | None = None
    try:
        for name in names.values():
            ip("netns", "add", name)
        wire(names)
        near = inside(names["a"], lambda: near_transport(SystemClock()))
        far = inside(names["b"], lambda: UdpTransport(SystemClock(), "10.7.2.2", 0))
        made = World(names, near, far)
        for router in ("r", "s"):
            made.set_forwarding(router, "1")
        yield made
    finally:
        if made is not None:
            made.near.close()
            made.far.close()
        for name in names.values():
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def near_transport(clock: SystemClock) -> UdpTransport:
    """Open host a's transport and its flows' sockets, which belong to its namespace."""
    transport = UdpTransport(clock, "10.7.0.1", 0)
    for flow in range(4):
        transport.source_port(flow)
    return transport


def trace(world: World, tracer: Tracer) -> list[FinishedTrace]:
    """Run a tracer until what it has begun is over."""
    tokens = 0
    under_way = 0
    finished: list[FinishedTrace] = []
    while True:
        for order in tracer.due(time.monotonic_ns()):
            tokens += 1
            under_way += 1
            tracer.sent(tokens, order)
            world.near.send(
                Probe(
                    token=tokens,
                    address=order.target.address,
                    port=order.target.port,
                    flow=order.target.flow,
                    entropy=0,
                    timeout_ns=TIMEOUT_NS,
                    ttl=order.ttl,
                )
            )
        for completion in world.turn():
            under_way -= 1
            tracer.completed(completion, time.monotonic_ns())
        finished.extend(tracer.finished())
        if not under_way:
            return finished


def settled(world: World) -> None:
    """Send a probe until one comes back: neighbours are resolved, routes are in force."""
    for token in range(1, 200):
        world.near.send(
            Probe(token=-token, address="10.7.2.2", port=world.far.port, flow=0, entropy=0,
                  timeout_ns=TIMEOUT_NS)
        )  # fmt: skip
        ended: list[Completion] = []
        while not ended:
            ended = world.turn()
        if ended[0].status is ProbeStatus.OK:
            return
    raise AssertionError("the two hosts cannot reach each other")


def test_the_routers_of_a_path_are_found_on_every_flow(world: World) -> None:
    """Each router answers with its address on the way in, the target last; all stamped."""
    settled(world)
    tracer = Tracer(TraceSettings(timeout_ns=TIMEOUT_NS))
    tracer.follow(tuple(world.target(flow) for flow in range(4)), time.monotonic_ns())
    finished = trace(world, tracer)
    assert len(finished) == 4
    for each in finished:
        assert each.complete, each
        assert [h.address for h in each.hops] == ["10.7.0.2", "10.7.1.2", "10.7.2.2"]
        assert all((h.rtt_ns or 0) > 0 for h in each.hops)


def test_a_silent_cut_is_traced_within_half_a_second(world: World) -> None:
    """A router that drops without a word: the hops before it, and quickly."""
    settled(world)
    tracer = Tracer(TraceSettings(timeout_ns=TIMEOUT_NS))
    tracer.follow((world.target(),), time.monotonic_ns())
    assert trace(world, tracer)[0].complete
    world.set_forwarding("s", "0")
    begin = time.monotonic()
    tracer.lost(world.target(), time.monotonic_ns())
    (cut,) = trace(world, tracer)
    assert time.monotonic() - begin < 0.5
    assert (cut.cause, cut.complete) == (TraceCause.LOSS, False)
    assert [h.address for h in cut.hops] == ["10.7.0.2", None]


def test_a_router_without_a_route_says_so(world: World) -> None:
    """ICMP unreachable ends the probe before its timeout, and the trace names the router."""
    settled(world)
    ip("-n", world.names["s"], "link", "set", "sb", "down")
    tracer = Tracer(TraceSettings(timeout_ns=TIMEOUT_NS))
    tracer.follow((world.target(),), time.monotonic_ns())
    (cut,) = trace(world, tracer)
    assert not cut.complete
    assert "10.7.1.2 reports UNREACHABLE" in (cut.incomplete_reason or "")
    assert [h.address for h in cut.hops] == ["10.7.0.2", "10.7.1.2"]


def test_the_own_link_down_is_told_apart_from_the_network(world: World) -> None:
    """With the host's only interface down a send fails at once, as no route or link down."""
    settled(world)
    ip("-n", world.names["a"], "link", "set", "ar", "down")
    world.near.send(
        Probe(token=1, address="10.7.2.2", port=world.far.port, flow=0, entropy=0,
              timeout_ns=10**10)
    )  # fmt: skip
    (completion,) = world.near.poll()
    assert completion.status in (ProbeStatus.NO_ROUTE, ProbeStatus.LINK_DOWN)


def test_a_target_without_an_agent_refuses_and_the_kernel_stamps_the_refusal(
    world: World,
) -> None:
    """Port unreachable from three hops away: REFUSED, stamped by the kernel."""
    settled(world)
    world.near.send(
        Probe(token=1, address="10.7.2.2", port=9, flow=0, entropy=0, timeout_ns=10**10)
    )
    ended: list[Completion] = []
    while not ended:
        ended = world.turn()
    assert ended[0].status is ProbeStatus.REFUSED
    assert ended[0].reporter == "10.7.2.2"
    assert ended[0].clock is ClockSource.KERNEL
