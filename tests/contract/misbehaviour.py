"""What a bad network does to datagrams, from a seed; and the fake network that does it."""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from probers import packet
from probers.clock import Clock
from probers.packet import PacketError, PacketType
from probers.transports.base import Completion, PacketCounts, Probe, Reason
from probers.transports.exchange import Exchange
from probers.transports.responder import Responder
from schemas.enums import ProbeStatus
from schemas.enums import Transport as TransportKind
from tests.unit.probers.clocks import ManualClock


@dataclass(frozen=True, slots=True, kw_only=True)
class Misbehaviour:
    """Shares of datagrams, 0 to 1; `delay_ns` holds every datagram back so long.

    `corrupt` flips a bit anywhere, `corrupt_padding` the last one of replies only.
    """

    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    corrupt: float = 0.0
    corrupt_padding: float = 0.0
    foreign: float = 0.0
    delay_ns: int = 0


class Mangler:
    """Turns one datagram into those that arrive, and says how late each is."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.how = Misbehaviour()

    def mangle(self, data: bytes, protected: int = 0) -> list[tuple[int, bytes]]:
        """Return (delay in nanoseconds, datagram); the first `protected` bytes stay intact."""
        how, chance = self.how, self._random.random
        if chance() < how.loss:
            return []
        kind_at = protected + len(packet.MAGIC) + 1
        is_reply = data[kind_at : kind_at + 1] == bytes((PacketType.REPLY,))
        if is_reply and chance() < how.corrupt_padding:
            data = data[:-1] + bytes((data[-1] ^ 1,))
        arriving = [data]
        if chance() < how.duplicate:
            arriving.append(data)
        if chance() < how.foreign:
            arriving.append(data[:protected] + packet.UNSEALED.probe(self._random.getrandbits(64)))
        out = []
        for each in arriving:
            # Later than what is sent next: that is what reordering is.
            late_ns = 3_000_000 if chance() < how.reorder else 0
            out.append(
                (
                    how.delay_ns + late_ns,
                    self._flip(each, protected) if chance() < how.corrupt else each,
                )
            )
        return out

    def _flip(self, data: bytes, protected: int) -> bytes:
        position = self._random.randrange(protected, len(data))
        flipped = data[position] ^ (1 << self._random.randrange(8))
        return data[:position] + bytes((flipped,)) + data[position + 1 :]


class FakeNetwork:
    """Carries datagrams between fake transports, on a manual clock."""

    def __init__(self, seed: int) -> None:
        self.clock = ManualClock()
        self.mangler = Mangler(seed)
        # Addresses of the nodes between any two endpoints.
        self.nodes: list[str] = []
        self._queues: dict[tuple[str, int], deque[tuple[bytes, tuple[str, int]]]] = {}
        self._travelling: list[tuple[int, tuple[str, int], tuple[str, int], bytes]] = []
        self._next_port = 1

    def attach(self) -> tuple[str, int]:
        """Return a fresh address."""
        address = ("10.0.0.1", self._next_port)
        self._next_port += 1
        self._queues[address] = deque()
        return address

    def carry(self, data: bytes, src: tuple[str, int], dst: tuple[str, int]) -> None:
        """Send a datagram on its way."""
        for delay_ns, mangled in self.mangler.mangle(data):
            self._travelling.append((self.clock.monotonic_ns + delay_ns, src, dst, mangled))

    def deliver(self) -> None:
        """Put into the queues what has arrived by now."""
        arrived = [t for t in self._travelling if t[0] <= self.clock.monotonic_ns]
        self._travelling = [t for t in self._travelling if t[0] > self.clock.monotonic_ns]
        for _, src, dst, data in arrived:
            if dst in self._queues:
                self._queues[dst].append((data, src))

    def take(self, address: tuple[str, int]) -> list[tuple[bytes, tuple[str, int]]]:
        """Take what waits at an address."""
        waiting = list(self._queues[address])
        self._queues[address].clear()
        return waiting


class FakeTransport:
    """A transport without sockets."""

    kind = TransportKind.UDP
    qkey = None
    untraced: str | None = None

    def __init__(self, network: FakeNetwork) -> None:
        clock: Clock = network.clock
        self.counts = PacketCounts()
        self._network = network
        self._exchange = Exchange(clock, self.counts, packet.MIN_PACKET_BYTES)
        self._responder = Responder(clock, self.counts)
        self.address, self.port = network.attach()

    def fileno(self) -> int:
        """Return nothing that could be waited for."""
        return -1

    def packets_per_probe(self, timeout_ns: int) -> int:  # noqa: ARG002 - a datagram is not repeated
        """Return 1."""
        return 1

    def send(self, probe: Probe) -> bool:
        """Send a probe, or let its ttl run out; return whether it is under way."""
        nonce, payload = self._exchange.prepare()
        self._exchange.record_posted(nonce, probe, self._exchange.now())
        if probe.ttl is not None and probe.ttl <= len(self._network.nodes):
            self._exchange.handle_node_report(
                nonce,
                status=ProbeStatus.UNREACHABLE,
                reason=Reason.TTL_EXCEEDED,
                reporter=self._network.nodes[probe.ttl - 1],
                kernel_ns=None,
            )
            return False
        self._network.carry(payload, (self.address, self.port), (probe.address, probe.port))
        return True

    def poll(self) -> list[Completion]:
        """Take in what has arrived."""
        self._network.deliver()
        for data, sender in self._network.take((self.address, self.port)):
            try:
                parsed = packet.UNSEALED.unpack(data)
            except PacketError as error:
                self._exchange.handle_corrupt(error)
                continue
            if parsed.type is PacketType.REPLY:
                self._exchange.handle_reply(parsed, None, sender[0])
                continue
            reply = self._responder.answer(parsed, None)
            if reply is not None:
                self._network.carry(reply, (self.address, self.port), sender)
        return self._exchange.take_completions()

    def is_current(self) -> bool:
        """Return True."""
        return True

    def close(self) -> None:
        """Nothing is open."""


Wait = Callable[[int], None]
