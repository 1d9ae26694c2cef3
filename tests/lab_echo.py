"""Endpoints that probe and echo through a lab's fabric, in place of real agents."""

import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ops.lab.events import EventLoop
from ops.lab.fabric import LOOPBACK, SOCKET_BUFFER_BYTES
from ops.lab.shape import LabShape
from probers.transports.encap import (
    DEFAULT_TTL,
    EncapError,
    EncapHeader,
    EncapType,
    pack,
    unpack,
    unpack_report,
)

# Question or answer, a number, and a known filling in which corruption shows.
_PAYLOAD: Final = struct.Struct("!cI")
QUESTION: Final = b"Q"
ANSWER: Final = b"A"
FILLING: Final = bytes(range(59))
FIRST_ENTROPY: Final = 49_152


@dataclass(frozen=True, slots=True)
class Arrival:
    """What came back to a probe: its answer, or the address of a node that reports an error."""

    number: int
    kind: EncapType
    rtt_ns: int
    node: str | None = None


class EchoMesh:
    """All endpoints of a lab in one process, joined to the fabric's virtual switches."""

    def __init__(
        self,
        shape: LabShape,
        ports: Mapping[str, int],
        gateways: Mapping[str, str],
        loop: EventLoop | None = None,
    ) -> None:
        self.loop = loop or EventLoop()
        self.arrivals: list[Arrival] = []
        self.questions = 0
        self.malformed = 0
        self._sent_ns: dict[int, int] = {}
        self._sockets: dict[str, socket.socket] = {}
        self._gateways: dict[str, tuple[str, int]] = {}
        self._ports = dict(ports)
        for e in shape.endpoints:
            host, _, port = gateways[e.vswitch_id].partition(":")
            self._gateways[e.endpoint_id] = (host, int(port))
            opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            opened.setblocking(False)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER_BYTES)
            opened.bind((LOOPBACK, ports[e.endpoint_id]))
            self._sockets[e.endpoint_id] = opened
            self.loop.add_reader(opened, lambda name=e.endpoint_id: self._read(name))  # type: ignore[misc]

    def close(self) -> None:
        """Close the endpoints; the loop stays the caller's if it was given."""
        for opened in self._sockets.values():
            self.loop.remove_reader(opened)
            opened.close()
        self._sockets.clear()

    def probe(self, src: str, dst: str, *, flow: int = 0, ttl: int = DEFAULT_TTL) -> int:
        """Send one probe, return its number."""
        number = len(self._sent_ns)
        header = EncapHeader(
            ttl=ttl,
            entropy=FIRST_ENTROPY + flow,
            src_address=LOOPBACK,
            src_port=self._ports[src],
            dst_address=LOOPBACK,
            dst_port=self._ports[dst],
        )
        self._sent_ns[number] = time.monotonic_ns()
        self._send(src, pack(header, _PAYLOAD.pack(QUESTION, number) + FILLING))
        return number

    def _send(self, endpoint_id: str, datagram: bytes) -> None:
        self._sockets[endpoint_id].sendto(datagram, self._gateways[endpoint_id])

    def _read(self, endpoint_id: str) -> None:
        now_ns = time.monotonic_ns()
        try:
            header, payload = unpack(self._sockets[endpoint_id].recv(65_536))
            if header.type is not EncapType.DATA:
                report = unpack_report(payload)
                number = _PAYLOAD.unpack_from(report.quoted)[1]
                self._arrived(number, header.type, now_ns, report.address)
                return
            letter, number = _PAYLOAD.unpack_from(payload)
        except (EncapError, struct.error):
            self.malformed += 1
            return
        if payload[_PAYLOAD.size :] != FILLING or number not in self._sent_ns:
            self.malformed += 1
        elif letter == ANSWER:
            self._arrived(number, EncapType.DATA, now_ns, None)
        elif letter == QUESTION:
            self.questions += 1
            back = EncapHeader(
                entropy=header.entropy,
                src_address=header.dst_address,
                src_port=header.dst_port,
                dst_address=header.src_address,
                dst_port=header.src_port,
            )
            self._send(endpoint_id, pack(back, _PAYLOAD.pack(ANSWER, number) + FILLING))
        else:
            self.malformed += 1

    def _arrived(self, number: int, kind: EncapType, now_ns: int, node: str | None) -> None:
        self.arrivals.append(Arrival(number, kind, now_ns - self._sent_ns[number], node))

    def run_until(self, arrived: int, timeout_s: float) -> list[Arrival]:
        """Wait until that many arrivals are there, or the time is over; return all so far."""
        deadline_ns = time.monotonic_ns() + round(timeout_s * 1e9)
        while len(self.arrivals) < arrived:
            left_ns = deadline_ns - time.monotonic_ns()
            if left_ns <= 0:
                break
            self.loop.run_once(left_ns)
        return self.arrivals
