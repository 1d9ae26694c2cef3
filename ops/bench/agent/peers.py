"""The other hosts of a measured agent: they answer its probes, probe it, and count packets.

They are one thread of the benchmark's process, so that their cost is not counted as the agent's.
"""

import selectors
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from probers import packet
from probers.clock import SystemClock
from probers.packet import UNSEALED, PacketError, PacketType
from probers.probing.plan import next_start_ns, shuffled, spread_ns, stagger_ns
from probers.transports.base import PacketCounts
from probers.transports.responder import Responder

LOOPBACK: Final = "127.0.0.1"
INTERVAL_NS: Final = 10**9
# As an agent spreads a round by default.
SPREAD_NS: Final = 300 * 10**6
MAX_WAIT_S: Final = 0.2


@dataclass(slots=True)
class Traffic:
    """Packets and bytes of payload of one RNIC of the measured agent, since the start."""

    # Probes of the agent that came here, and what was answered.
    probes: int = 0
    replies: int = 0
    # Probes of its peers, and what the agent answered.
    asked: int = 0
    answered: int = 0
    payload_bytes: int = 0

    @property
    def packets(self) -> int:
        """All packets, both ways."""
        return self.probes + self.replies + self.asked + self.answered


def schedule(hosts: int, rnics: int) -> list[tuple[int, int, int]]:
    """Return when in a second which host probes which RNIC of the measured agent.

    (offset in nanoseconds, host, RNIC), ascending. Each host's agent has all hosts but itself
    for targets, RNIC by RNIC, and a place in the second and an order of its own, as real
    ones have.
    """
    plan = []
    for host in range(hosts):
        name = f"agent-peer{host}"
        targets = [f"h{other}/r{rail}" for other in range(hosts) for rail in range(rnics)]
        ordered = shuffled(targets, name, lambda target: target.partition("/")[0])
        offsets = spread_ns(len(ordered), SPREAD_NS)
        stagger = stagger_ns(name, INTERVAL_NS)
        # The measured agent is in the place of the host itself.
        plan += [
            ((stagger + offset) % INTERVAL_NS, host, int(target.partition("/r")[2]))
            for offset, target in zip(offsets, ordered, strict=True)
            if target.startswith(f"h{host}/")
        ]
    return sorted(plan)


class Peers(threading.Thread):
    """As many hosts as an RNIC has targets; each has one socket per RNIC of the agent."""

    def __init__(self, hosts: int, rnics: int) -> None:
        super().__init__(name="peers", daemon=True)
        clock = SystemClock()
        self._responder = Responder(clock, PacketCounts())
        self._plan = schedule(hosts, rnics)
        self._selector = selectors.DefaultSelector()
        self._sockets: dict[tuple[int, int], socket.socket] = {}
        self._traffic = [Traffic() for _ in range(rnics)]
        self._ports: tuple[int, ...] = ()
        self._ending = threading.Event()
        self._nonce = 0
        for host in range(hosts):
            for rail in range(rnics):
                opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                opened.setblocking(False)
                opened.bind((LOOPBACK, 0))
                self._selector.register(opened, selectors.EVENT_READ, rail)
                self._sockets[host, rail] = opened

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self.join()
        self._selector.close()
        for opened in self._sockets.values():
            opened.close()

    def port(self, host: int, rail: int) -> int:
        """Return where a peer answers."""
        return int(self._sockets[host, rail].getsockname()[1])

    def probe(self, ports: Sequence[int]) -> None:
        """Probe the measured agent from now on, whose RNICs answer at these ports."""
        self._ports = tuple(ports)

    def traffic(self) -> list[Traffic]:
        """Return what each RNIC has sent and got so far."""
        return [replace(each) for each in self._traffic]

    def run(self) -> None:
        """Answer and ask until the block is left."""
        turn = 0
        due_ns = next_start_ns(time.time_ns(), INTERVAL_NS, self._plan[0][0])
        while not self._ending.is_set():
            wait_s = min(MAX_WAIT_S, max(0.0, (due_ns - time.time_ns()) / 1e9))
            for key, _ in self._selector.select(wait_s):
                if isinstance(key.fileobj, socket.socket):
                    self._read(key.fileobj, self._traffic[key.data])
            while due_ns <= time.time_ns():
                _, host, rail = self._plan[turn % len(self._plan)]
                self._ask(host, rail)
                turn += 1
                offset_ns = self._plan[turn % len(self._plan)][0]
                due_ns += (offset_ns - due_ns) % INTERVAL_NS

    def _ask(self, host: int, rail: int) -> None:
        if not self._ports:
            return
        self._nonce += 1
        payload = UNSEALED.probe(self._nonce, packet.MIN_PACKET_BYTES)
        self._sockets[host, rail].sendto(payload, (LOOPBACK, self._ports[rail]))
        self._traffic[rail].asked += 1
        self._traffic[rail].payload_bytes += len(payload)

    def _read(self, opened: socket.socket, traffic: Traffic) -> None:
        while True:
            try:
                data, sender = opened.recvfrom(packet.MAX_PACKET_BYTES + 1)
            except OSError:  # nothing left, or an ICMP error of an agent that has gone
                return
            traffic.payload_bytes += len(data)
            try:
                parsed = UNSEALED.unpack(data)
            except PacketError:
                continue
            if parsed.type is not PacketType.PROBE:
                traffic.answered += 1
                continue
            traffic.probes += 1
            reply = self._responder.answer(parsed, None)
            if reply is not None:
                opened.sendto(reply, sender)
                traffic.replies += 1
                traffic.payload_bytes += len(reply)
