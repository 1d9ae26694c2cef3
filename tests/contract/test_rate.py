"""`max_rate_hz` counts every packet: probes, confirmations and traces to targets that are silent.

Real sockets on loopback; what leaves is counted where it arrives, with the kernel's timestamps.
"""

import select
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import pytest

from probers.clock import SystemClock
from probers.config.settings import build_config
from probers.host.port import Link
from probers.probing.plan import FlowTarget
from probers.probing.rounds import Round
from probers.probing.scheduler import ProbeScheduler
from probers.transports import sockets
from probers.transports.base import Transport
from probers.transports.gateway import GatewayTransport
from probers.transports.tcp import TcpTransport
from probers.transports.udp import UdpTransport
from schemas.enums import ProbeStatus
from schemas.enums import Transport as TransportKind
from schemas.units import MS_NS, SECOND_NS
from tests.contract.relay import LOOPBACK, LOOPBACK6

RATE_HZ = 100
TARGETS = 80
RUN_S = 3.5
ETH_P_ALL = 3
OUTGOING = 4
TCP_SYN = 2


@dataclass
class SilentHost:
    """A host that answers nothing and counts what comes."""

    address: tuple[str, int]
    descriptor: socket.socket
    is_probe: Callable[[bytes, int], bool] = lambda _data, _kind: True
    arrivals_ns: list[int] = field(default_factory=list)

    def count(self) -> None:
        """Note the packets that have come."""
        while select.select([self.descriptor], [], [], 0)[0]:
            data, ancillary, _, sender = self.descriptor.recvmsg(2048, 256)
            kind = sender[2] if self.descriptor.family is socket.AF_PACKET else 0
            at_ns = sockets.kernel_time_ns(ancillary)
            assert at_ns is not None
            if self.is_probe(data, kind):
                self.arrivals_ns.append(at_ns)


@contextmanager
def silent_udp(loopback: str) -> Iterator[SilentHost]:
    """Yield a UDP socket that answers nothing."""
    sock, _ = sockets.open_udp(loopback, 0)
    with sock:
        host, port = sock.getsockname()[:2]
        wait_for_kernel_time(sock)
        yield SilentHost((host, port), sock)


def wait_for_kernel_time(sock: socket.socket) -> None:
    """Wait until the kernel notes when packets come.

    It begins to do so a while after it was asked, longer on a busy machine; before, it says when
    they are read.
    """
    for _ in range(200):
        sent_ns = time.time_ns()
        sock.sendto(b"", sock.getsockname())
        time.sleep(0.02)
        at_ns = sockets.kernel_time_ns(sock.recvmsg(64, 256)[1])
        if at_ns is not None and at_ns - sent_ns < 15 * MS_NS:
            return


@contextmanager
def silent_tcp() -> Iterator[SilentHost]:
    """Yield a listener whose queue is full: the kernel drops each further SYN."""
    with ExitStack() as stack:
        try:
            sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
        except PermissionError:
            pytest.skip("counting SYNs needs CAP_NET_RAW")
        stack.enter_context(sniffer)
        sniffer.setsockopt(socket.SOL_SOCKET, sockets.SO_TIMESTAMPNS, 1)
        sniffer.bind(("lo", ETH_P_ALL))
        listener = stack.enter_context(socket.socket())
        listener.bind((LOOPBACK, 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        fillers = set()
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex((LOOPBACK, port))
            fillers.add(filler.getsockname()[1])

        def is_probe(data: bytes, kind: int) -> bool:
            if kind == OUTGOING or data[9] != socket.IPPROTO_TCP:
                return False
            source, to = struct.unpack_from("!HH", data, 20)
            return to == port and source not in fillers and bool(data[33] & TCP_SYN)

        yield SilentHost((LOOPBACK, port), sniffer, is_probe)


class SilentRnic:
    """An RNIC with one transport."""

    refused: ProbeStatus | None = None

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def transport(self, kind: TransportKind) -> Transport | None:
        """Return the transport, whatever is asked for."""
        assert kind is self._transport.kind
        return self._transport

    def read_link(self) -> Link:
        """Return UP."""
        return Link.UP


def probe_silent_host(transport: Transport, host: SilentHost) -> list[Round]:
    """Probe many silent targets at that host for some seconds; return the rounds."""
    clock = SystemClock()
    config = build_config(
        {},
        {},
        {
            "host_id": "h0",
            "interval_ms": 500,
            "timeout_ms": 50,
            "max_rate_hz": RATE_HZ,
            "rnic": [{"rail": 0, "address": LOOPBACK}],
        },
    )
    rounds: list[Round] = []
    probing = ProbeScheduler(
        config,
        clock,
        {"h0/r0": SilentRnic(transport)},
        publish_round=rounds.append,
        publish_trace=lambda _: None,
        delay=lambda _: None,
    )
    address, port = host.address
    flows = tuple(
        FlowTarget("h0/r0", f"w{n}/r0", n % 4, address, port, transport.kind, 50_000 + n)
        for n in range(TARGETS)
    )
    probing.follow(flows, 1, clock.now())
    end_ns = time.monotonic_ns() + int(RUN_S * 1e9)
    while (now := clock.now()).monotonic_ns < end_ns:
        due_ns = probing.due_ns(now)
        wait_ns = SECOND_NS if due_ns is None else max(0, due_ns - now.monotonic_ns)
        select.select([transport.fileno()], [], [], min(wait_ns, 20 * MS_NS) / 1e9)
        host.count()
        probing.poll([transport])
        probing.run()
    host.count()
    return rounds


def busiest_second(arrivals_ns: list[int]) -> int:
    """Return the largest number of arrivals in any second."""
    most, first = 0, 0
    for last, at_ns in enumerate(arrivals_ns):
        while arrivals_ns[first] <= at_ns - SECOND_NS:
            first += 1
        most = max(most, last - first + 1)
    return most


@pytest.mark.parametrize("loopback", [LOOPBACK, LOOPBACK6])
def test_datagrams_to_silent_hosts_keep_the_rate(loopback: str) -> None:
    """Eighty silent targets, each lost probe confirmed twice and traced: no second has more."""
    with silent_udp(loopback) as host:
        transport = UdpTransport(SystemClock(), loopback, 0)
        rounds = probe_silent_host(transport, host)
        transport.close()
    check(rounds, host, packets_per_probe=1)


def test_datagrams_through_a_gateway_keep_the_rate() -> None:
    """The same behind the lab's gateway, which forwards nothing."""
    with silent_udp(LOOPBACK) as host:
        transport = GatewayTransport(SystemClock(), LOOPBACK, 0, host.address)
        rounds = probe_silent_host(transport, host)
        transport.close()
    check(rounds, host, packets_per_probe=1)


def test_connections_to_silent_hosts_keep_the_rate() -> None:
    """The same with TCP, whose probes count as the three packets of a handshake that succeeds."""
    with silent_tcp() as host:
        transport = TcpTransport(SystemClock(), LOOPBACK, 0)
        rounds = probe_silent_host(transport, host)
        transport.close()
    check(rounds, host, packets_per_probe=3)


def check(rounds: list[Round], host: SilentHost, packets_per_probe: int) -> None:
    """Hold the packets to the rate; the rate is used, and every target is probed and confirmed."""
    rate = RATE_HZ // packets_per_probe
    assert busiest_second(host.arrivals_ns) <= rate
    assert len(host.arrivals_ns) > 0.8 * rate * (RUN_S - 1)
    attempts = Counter((done.seq, r.dst) for done in rounds for r in done.results())
    statuses = {r.status for done in rounds for r in done.results()}
    assert statuses == {ProbeStatus.TIMEOUT}
    assert 3 in attempts.values()
