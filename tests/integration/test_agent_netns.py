"""Traces over kernel routers, IPv4 and IPv6: two hosts, two routers, network namespaces."""

import select
import subprocess
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import pytest

from probers.clock import SystemClock
from probers.packet import UNSEALED
from probers.probing.plan import FlowTarget
from probers.probing.trace import Tracer, TraceSettings
from probers.transports.base import Completion, PacketCounts, Probe, Reason
from probers.transports.rdma.arrivals import ROCE_PORT
from probers.transports.rdma.gids import gid_of
from probers.transports.rdma.port import HOP_LIMIT
from probers.transports.rdma.tracing import Tracing
from probers.transports.sockets import open_udp
from probers.transports.udp import UdpTransport
from schemas.enums import ClockSource, ProbeStatus, TraceCause
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

# host a - router r - router s - host b: one network per link.
NODES = ("a", "r", "s", "b")

pytestmark = NEEDS_NAMESPACES


@dataclass
class World:
    """The four namespaces, by letter, and the transports of both hosts."""

    plan: Plan
    names: dict[str, str]
    near: UdpTransport
    far: UdpTransport

    def set_forwarding(self, node: str, value: str) -> None:
        """Let a router forward or drop silently."""
        sysctl(self.names[node], self.plan.forwarding, value)

    def target(self, flow: int = 0, port: int | None = None) -> FlowTarget:
        """Return host b as a target."""
        return FlowTarget(
            "a/r0", "b/r0", flow, self.far.address, port or self.far.port, TransportKind.UDP, 0
        )

    def turn(self) -> list[Completion]:
        """Wait for packets at either host; return what ended at host a."""
        select.select([self.near.fileno(), self.far.fileno()], [], [], 0.01)
        self.far.poll()
        return self.near.poll()


def wire(names: dict[str, str], plan: Plan) -> None:
    """Join the nodes in a row and set the routes."""
    for index, (left, right) in enumerate(pairwise(NODES)):
        ip("link", "add", f"{left}{right}", "netns", names[left], "type", "veth",
           "peer", "name", f"{right}{left}", "netns", names[right])  # fmt: skip
        plan.address(names[left], f"{left}{right}", index, 1)
        plan.address(names[right], f"{right}{left}", index, 2)
    for node, via in (("a", plan.at(0, 2)), ("r", plan.at(1, 2)), ("b", plan.at(2, 1))):
        ip("-n", names[node], *plan.flag, "route", "add", "default", "via", via)
    first = f"{plan.at(0, 0)}/{plan.bits}"
    ip("-n", names["s"], *plan.flag, "route", "add", first, "via", plan.at(1, 1))


@pytest.fixture(params=sorted(PLANS))
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Make the namespaces, and a transport in each host's."""
    plan = PLANS[request.param]
    tag = uuid.uuid4().hex[:6]
    names = {node: f"sh{tag}{node}" for node in NODES}
    made: World | None = None
    try:
        for name in names.values():
            ip("netns", "add", name)
        wire(names, plan)
        near = inside(names["a"], lambda: near_transport(SystemClock(), plan.at(0, 1)))
        far = inside(names["b"], lambda: UdpTransport(SystemClock(), plan.at(2, 2), 0))
        made = World(plan, names, near, far)
        for router in ("r", "s"):
            made.set_forwarding(router, "1")
        yield made
    finally:
        if made is not None:
            made.near.close()
            made.far.close()
        for name in names.values():
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def near_transport(clock: SystemClock, address: str) -> UdpTransport:
    """Open host a's transport and its flows' sockets, which belong to its namespace."""
    transport = UdpTransport(clock, address, 0)
    for flow in range(4):
        transport.source_port(flow)
    return transport


def settled(world: World) -> None:
    """Send a probe until one comes back: neighbours are resolved, routes are in force."""
    for token in range(1, 200):
        world.near.send(
            Probe(token=-token, address=world.far.address, port=world.far.port, flow=0, entropy=0,
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
    finished = traced(tracer, world.near, world.turn)
    assert len(finished) == 4
    for each in finished:
        assert each.complete, each
        assert [h.address for h in each.hops] == world.plan.hops
        assert all((h.rtt_ns or 0) > 0 for h in each.hops)


def test_a_silent_cut_is_traced_within_two_timeouts(world: World) -> None:
    """A router that drops without a word: the hops before it, and quickly."""
    settled(world)
    # Long, so that what a busy machine adds is not taken for a second one.
    timeout_ns = 8 * TIMEOUT_NS
    tracer = Tracer(TraceSettings(timeout_ns=timeout_ns))
    tracer.follow((world.target(),), time.monotonic_ns())
    assert traced(tracer, world.near, world.turn)[0].complete
    world.set_forwarding("s", "0")
    begin = time.monotonic()
    tracer.lost(world.target(), time.monotonic_ns())
    (cut,) = traced(tracer, world.near, world.turn, timeout_ns)
    assert time.monotonic() - begin < 2 * timeout_ns / 10**9
    assert (cut.cause, cut.complete) == (TraceCause.LOSS, False)
    assert [h.address for h in cut.hops] == [world.plan.hops[0], None]


def test_a_router_without_a_route_says_so(world: World) -> None:
    """ICMP unreachable ends the probe before its timeout, and the trace names the router."""
    settled(world)
    ip("-n", world.names["s"], "link", "set", "sb", "down")
    tracer = Tracer(TraceSettings(timeout_ns=TIMEOUT_NS))
    tracer.follow((world.target(),), time.monotonic_ns())
    (cut,) = traced(tracer, world.near, world.turn)
    assert not cut.complete
    assert f"{world.plan.hops[1]} reports UNREACHABLE" in (cut.incomplete_reason or "")
    assert [h.address for h in cut.hops] == world.plan.hops[:2]


def test_the_own_link_down_is_told_apart_from_the_network(world: World) -> None:
    """With the host's only interface down a send fails at once, as no route or link down."""
    settled(world)
    ip("-n", world.names["a"], "link", "set", "ar", "down")
    world.near.send(
        Probe(token=1, address=world.far.address, port=world.far.port, flow=0, entropy=0,
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
        Probe(token=1, address=world.far.address, port=9, flow=0, entropy=0, timeout_ns=10**10)
    )
    ended: list[Completion] = []
    while not ended:
        ended = world.turn()
    assert ended[0].status is ProbeStatus.REFUSED
    assert ended[0].reporter == world.far.address
    assert ended[0].clock is ClockSource.KERNEL


SOURCE_PORT = 0xDF94


@dataclass
class RdmaTrace:
    """What traces RDMA pairs from host a, without an RNIC: what it would send by RDMA is kept."""

    world: World
    tracing: Tracing
    by_rdma: list[Probe]

    def sent(self, ttls: list[int]) -> dict[int, Completion]:
        """Send a probe with each TTL, its own token; return what ended, by TTL."""
        gid = gid_of(self.world.far.address)

        def work() -> None:
            for ttl in ttls:
                self.tracing.send(
                    Probe(token=ttl, address=str(gid), port=17, flow=0, entropy=1, qkey=5,
                          timeout_ns=TIMEOUT_NS, ttl=ttl)
                )  # fmt: skip

        inside(self.world.names["a"], work)
        over: dict[int, Completion] = {}
        while len(over) + len(self.by_rdma) < len(ttls):
            select.select([self.tracing.fileno()], [], [], 0.01)
            over |= {each.token: each for each in self.tracing.poll()}
        return over

    def far_away(self, routers: int) -> None:
        """Say that a reply has come over so many routers."""
        self.tracing.observe_reply_ttl(
            gid_of(self.world.far.address).packed, 1, HOP_LIMIT - routers
        )


@pytest.fixture
def rdma(world: World) -> Iterator[RdmaTrace]:
    """Return a tracer of RDMA pairs at host a."""
    settled(world)
    by_rdma: list[Probe] = []
    tracing = Tracing(
        SystemClock(), PacketCounts(), UNSEALED, address=world.plan.at(0, 1), traffic_class=104,
        source_port=lambda _: SOURCE_PORT, pair=lambda _: 1, reach=by_rdma.append,
    )  # fmt: skip
    yield RdmaTrace(world, tracing, by_rdma)
    tracing.close()


def test_switches_answer_for_an_rdma_pair_and_its_target_hears_nothing(rdma: RdmaTrace) -> None:
    """Up to the last router by UDP, from there on by RDMA; port 4791 of the target stays quiet."""
    world = rdma.world
    sock, _ = inside(world.names["b"], lambda: open_udp(world.far.address, ROCE_PORT))
    rdma.far_away(routers=2)
    over = rdma.sent([1, 2, 3, 4])
    assert {ttl: each.reporter for ttl, each in over.items()} == {
        1: world.plan.hops[0],
        2: world.plan.hops[1],
    }
    assert all(each.reason is Reason.TTL_EXCEEDED for each in over.values())
    assert all(each.clock is ClockSource.KERNEL for each in over.values())
    assert [(each.token, each.ttl) for each in rdma.by_rdma] == [(3, None), (4, None)]
    with sock, pytest.raises(BlockingIOError):
        sock.recv(1)


def test_a_silent_switch_is_a_timeout_of_an_rdma_trace(rdma: RdmaTrace) -> None:
    """It drops, and the hop stays without an address."""
    rdma.world.set_forwarding("s", "0")
    rdma.far_away(routers=2)
    over = rdma.sent([1, 2])
    assert over[1].reporter == rdma.world.plan.hops[0]
    assert (over[2].status, over[2].reporter) == (ProbeStatus.TIMEOUT, None)


@pytest.mark.parametrize("routers", [None, -1, 40])
def test_without_a_distance_that_can_be_nothing_is_sent(
    rdma: RdmaTrace, routers: int | None
) -> None:
    """No reply yet, or a TTL that did not begin at ours: too early, by RDMA neither."""
    if routers is not None:
        rdma.far_away(routers=2)
        rdma.far_away(routers=routers)
    over = rdma.sent([1])
    assert over[1].reason is Reason.PENDING
    assert rdma.by_rdma == []


def test_a_source_port_in_use_is_left_to_its_owner(rdma: RdmaTrace) -> None:
    """Another port would take another path: the trace waits."""
    address = rdma.world.plan.at(0, 1)
    rdma.far_away(routers=2)
    sock, _ = inside(rdma.world.names["a"], lambda: open_udp(address, SOURCE_PORT))
    with sock:
        assert rdma.sent([1])[1].reason is Reason.PENDING
    assert rdma.sent([1])[1].reporter == rdma.world.plan.hops[0]
