"""A prober and a responder over each transport, behind one face for the contract suite."""

import select
import time
from collections.abc import Callable
from typing import Protocol

from probers.clock import SystemClock
from probers.packet import Packets
from probers.transports.base import Completion, Probe, Transport
from probers.transports.datagrams import PythonDatagrams
from probers.transports.gateway import GatewayTransport
from probers.transports.tcp import TcpTransport
from probers.transports.udp import UdpTransport
from schemas.enums import Transport as TransportKind
from schemas.units import MS_NS
from tests.contract.misbehaviour import FakeNetwork, FakeTransport, Mangler
from tests.contract.relay import LOOPBACK, LOOPBACK6, Relay

# Real sockets on a busy machine: a probe that should be answered gets so long.
# Nothing waits for its end; a machine may stall for seconds.
PATIENT_NS = 30_000 * MS_NS


class Pair(Protocol):
    """What the suite needs of a transport under test."""

    prober: Transport
    responder: Transport
    mangler: Mangler | None
    nodes: list[str] | None

    def target(self) -> tuple[str, int]:
        """Return where probes of the responder go."""
        ...

    def turn(self) -> list[Completion]:
        """Let a little time pass; return what the prober reports."""
        ...

    def close(self) -> None:
        """Close everything."""
        ...


def probe(pair: Pair, token: int, *, timeout_ns: int = PATIENT_NS, ttl: int | None = None) -> Probe:
    """Return a probe of the pair's responder."""
    address, port = pair.target()
    return Probe(
        token=token,
        address=address,
        port=port,
        flow=token % 2,
        entropy=50_000 + token % 2,
        timeout_ns=timeout_ns,
        ttl=ttl,
    )


def collect(pair: Pair, count: int, extra_turns: int = 20) -> list[Completion]:
    """Turn until so many completions have come, and a little longer, for one too many."""
    completions: list[Completion] = []
    turns = 0
    while len(completions) < count:
        completions.extend(pair.turn())
        turns += 1
        assert turns < 20_000, f"{len(completions)} of {count} completions"
    for _ in range(extra_turns):
        completions.extend(pair.turn())
    return completions


class FakePair:
    """On the fake network, whose time is ours."""

    def __init__(self, seed: int) -> None:
        self.network = FakeNetwork(seed)
        self.prober: Transport = FakeTransport(self.network)
        self.responder: Transport = FakeTransport(self.network)
        self.mangler: Mangler | None = self.network.mangler
        self.nodes: list[str] | None = self.network.nodes

    def target(self) -> tuple[str, int]:
        """Return the responder's address."""
        return self.responder.address, self.responder.port

    def turn(self) -> list[Completion]:
        """Move the clock by a millisecond."""
        self.network.clock.advance(MS_NS)
        self.responder.poll()
        return self.prober.poll()

    def close(self) -> None:
        """Nothing is open."""


class RealPair:
    """On loopback, with a relay in between where the transport is UDP."""

    def __init__(
        self, make: Callable[[Relay | None], Transport], relay: Relay | None, *, wrapped: bool
    ) -> None:
        self.relay = relay
        self.prober = make(relay)
        self.responder = make(relay)
        self.mangler: Mangler | None = relay.mangler if relay else None
        self.nodes: list[str] | None = relay.nodes if relay and wrapped else None
        self._wrapped = wrapped
        if relay is not None:
            relay.connect((self.responder.address, self.responder.port))

    def target(self) -> tuple[str, int]:
        """Return the responder's address, or the relay's in its place."""
        if self.relay is not None and not self._wrapped:
            return self.relay.address
        return self.responder.address, self.responder.port

    def turn(self) -> list[Completion]:
        """Wait up to a millisecond for the prober's descriptor; move all datagrams."""
        for _ in range(2):
            if self.relay is not None:
                self.relay.pump()
            self.responder.poll()
        if self.relay is not None:
            self.relay.pump()
        select.select([self.prober.fileno()], [], [], 0.001)
        return self.prober.poll()

    def close(self) -> None:
        """Close all sockets."""
        self.prober.close()
        self.responder.close()
        if self.relay is not None:
            self.relay.close()


def fake(seed: int) -> Pair:
    """Return the misbehaving fake."""
    return FakePair(seed)


def udp(seed: int, loopback: str = LOOPBACK) -> Pair:
    """Return plain UDP through a misbehaving relay."""
    return RealPair(
        lambda _: UdpTransport(SystemClock(), loopback, 0),
        Relay(seed, wrapped=False, loopback=loopback),
        wrapped=False,
    )


def udp6(seed: int) -> Pair:
    """Return plain UDP over IPv6 through a misbehaving relay."""
    return udp(seed, LOOPBACK6)


def python(seed: int) -> Pair:
    """Return plain UDP whose work per packet is Python's, as where no compiler was."""
    return RealPair(
        lambda _: UdpTransport(SystemClock(), LOOPBACK, 0, worker=PythonDatagrams),
        Relay(seed, wrapped=False),
        wrapped=False,
    )


def sealed(seed: int) -> Pair:
    """Return plain UDP between two that share a key."""
    packets = Packets([b"a key of the test's cluster"])
    return RealPair(
        lambda _: UdpTransport(SystemClock(), LOOPBACK, 0, packets=packets),
        Relay(seed, wrapped=False),
        wrapped=False,
    )


def gateway(seed: int) -> Pair:
    """Return encapsulated UDP through a misbehaving gateway."""

    def make(relay: Relay | None) -> Transport:
        assert relay is not None
        return GatewayTransport(SystemClock(), LOOPBACK, 0, relay.address)

    return RealPair(make, Relay(seed, wrapped=True), wrapped=True)


def tcp(seed: int) -> Pair:  # noqa: ARG001 - the kernel's TCP misbehaves by itself or not at all
    """Return TCP connect, with nothing in between."""
    return RealPair(lambda _: TcpTransport(SystemClock(), LOOPBACK, 0), None, wrapped=False)


def tcp6(seed: int) -> Pair:  # noqa: ARG001 - as for `tcp`
    """Return TCP connect over IPv6."""
    return RealPair(lambda _: TcpTransport(SystemClock(), LOOPBACK6, 0), None, wrapped=False)


# Transports whose devices are not here; tests/rdma runs them in a virtual machine.
ELSEWHERE = frozenset({TransportKind.RDMA_UD})
MAKERS: dict[str, Callable[[int], Pair]] = {
    "fake": fake,
    "udp": udp,
    "udp6": udp6,
    "python": python,
    "sealed": sealed,
    "gateway": gateway,
    "tcp": tcp,
    "tcp6": tcp6,
}


def wait_readable(transport: Transport, timeout_s: float = 30.0) -> bool:
    """Return whether the descriptor becomes readable in time."""
    end = time.monotonic() + timeout_s
    return bool(select.select([transport.fileno()], [], [], max(0.0, end - time.monotonic()))[0])
