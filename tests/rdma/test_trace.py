"""Traces of RDMA pairs: over a router, beside the RoCE packets that they follow."""

import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from probers import packet
from probers.probing.plan import FlowTarget
from probers.probing.trace import FinishedTrace, Tracer, TraceSettings
from probers.transports.base import Completion, Reason
from probers.transports.rdma.arrivals import ROCE_PORT
from probers.transports.rdma.flows import pair_of, port_of_queue_pair
from schemas.enums import TraceCause
from schemas.enums import Transport as TransportKind
from tests.integration.routers import traced
from tests.rdma.fabric import shape
from tests.rdma.pairs import FLOWS, PATIENT_NS, RdmaPair
from tests.rdma.routed import gateway, make_routed, routed_address

ETH_P_ALL = 3


class Seen(NamedTuple):
    """A datagram to RoCE's port: `ours` if it is no RoCE packet but one of a trace."""

    source_port: int
    hop_limit: int
    label: int
    ours: bool


class Ear:
    """Hears what an interface sends and receives."""

    def __init__(self, interface: str) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
        self._socket.bind((interface, ETH_P_ALL))
        self._socket.setblocking(False)

    def heard(self, *, outgoing: bool) -> list[Seen]:
        """Return the datagrams to RoCE's port that went that way since the last call."""
        seen: list[Seen] = []
        while True:
            try:
                data, address = self._socket.recvfrom(2_048)
            except BlockingIOError:
                return seen
            if (address[2] == socket.PACKET_OUTGOING) is not outgoing:
                continue
            v6 = data[0] >> 4 == 6
            payload = data[40 if v6 else 20 :]
            if data[6 if v6 else 9] != socket.IPPROTO_UDP:
                continue
            source, destination = struct.unpack_from("!HH", payload)
            if destination != ROCE_PORT:
                continue
            (word,) = struct.unpack_from("!I", data)
            ours = payload[8:].startswith(packet.MAGIC)
            label = word & 0xFFFFF if v6 else 0
            seen.append(Seen(source, data[7 if v6 else 8], label, ours))

    def close(self) -> None:
        """Hear no more."""
        self._socket.close()


@pytest.fixture(scope="module", autouse=True)
def _routed() -> None:
    make_routed()


@pytest.fixture
def ear() -> Iterator[Callable[[str], Ear]]:
    """Return what listens at an interface."""
    made: list[Ear] = []

    def listen(interface: str) -> Ear:
        made.append(Ear(interface))
        return made[-1]

    yield listen
    for each in made:
        each.close()


def apart(pairs: Callable[..., RdmaPair], family: str) -> RdmaPair:
    """Return a prober and a responder with a router between them."""
    addresses = (routed_address(3, family), routed_address(4, family))
    return pairs(prober=3, responder=4, addresses=addresses)


def target(pair: RdmaPair, flow: int) -> FlowTarget:
    """Return the responder as a target."""
    far = pair.responder
    return FlowTarget(
        "a/r0", "b/r0", flow, far.address, far.port, TransportKind.RDMA_UD, 1 + flow, far.qkey
    )


def trace(pair: RdmaPair, tracer: Tracer) -> list[FinishedTrace]:
    """Run what a tracer has begun."""

    def turn() -> list[Completion]:
        pair.serve(0.02)
        return pair.prober.poll()

    return traced(tracer, pair.prober, turn, PATIENT_NS)


def a_tracer(pair: RdmaPair, flows: int = FLOWS) -> Tracer:
    """Return a tracer that is about to trace the flows of a pair."""
    tracer = Tracer(TraceSettings(timeout_ns=PATIENT_NS))
    tracer.follow(tuple(target(pair, flow) for flow in range(flows)), time.monotonic_ns())
    return tracer


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_a_trace_names_the_router_and_nothing_of_it_reaches_the_target(
    pairs: Callable[..., RdmaPair], ear: Callable[[str], Ear], family: str
) -> None:
    """Every flow: the router, then the target by RDMA; datagrams as RoCE packets have them."""
    pair = apart(pairs, family)
    assert pair.prober.untraced is None
    pair.settle()
    near, far = ear("e3"), ear("e4")
    finished = trace(pair, a_tracer(pair))
    assert len(finished) == FLOWS
    for each in finished:
        assert each.complete, each
        assert [h.address for h in each.hops] == [gateway(3, family), pair.responder.address]
        assert all((h.rtt_ns or 0) > 0 for h in each.hops)
    sent, arrived = near.heard(outgoing=True), far.heard(outgoing=False)
    ports = {port_of_queue_pair(pair.prober._port.number(pair_of(f, FLOWS))) for f in range(FLOWS)}
    # The kernel's own packets have the ports that the rule says, and the trace's have them too.
    assert {s.source_port for s in arrived} == ports
    assert {s.source_port for s in sent if not s.ours} == ports
    assert sorted(s.source_port for s in sent if s.ours) == sorted(ports)
    assert {s.hop_limit for s in sent if s.ours} == {1}
    assert {s.label for s in sent} == {0}
    assert not any(s.ours for s in arrived)


def test_a_dead_target_is_traced_up_to_the_last_router(pairs: Callable[..., RdmaPair]) -> None:
    """The router still answers, the target does not: the trace says after which hop it ends."""
    pair = apart(pairs, "ipv4")
    pair.settle()
    tracer = a_tracer(pair, 1)
    assert trace(pair, tracer)[0].complete
    shape("p4", "netem", "loss", "100%", switch=True)
    try:
        tracer.lost(target(pair, 0), time.monotonic_ns())
        (cut,) = trace(pair, tracer)
    finally:
        shape("p4", switch=True)
    assert (cut.cause, cut.complete) == (TraceCause.LOSS, False)
    assert [h.address for h in cut.hops] == [gateway(3, "ipv4"), None]


def test_neighbours_on_one_switch_have_no_hop_between_them(
    pair: RdmaPair, ear: Callable[[str], Ear]
) -> None:
    """The target is the first hop, by RDMA; no datagram is sent that could reach it."""
    near = ear("e0")
    (only,) = trace(pair, a_tracer(pair, 1))
    assert only.complete
    assert [h.address for h in only.hops] == [pair.responder.address]
    assert not any(s.ours for s in near.heard(outgoing=True))


def test_nothing_is_sent_before_the_distance_is_known(
    pairs: Callable[..., RdmaPair], ear: Callable[[str], Ear]
) -> None:
    """The first reply tells it; a trace before that comes too early, and tells nothing."""
    pair = apart(pairs, "ipv4")
    near = ear("e3")
    pair.prober.send(pair.probe(ttl=1))
    (completion,) = pair.collect(1)
    assert completion.reason is Reason.PENDING
    assert near.heard(outgoing=True) == []
