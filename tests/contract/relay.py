"""A network of one process: a UDP relay that misbehaves, for plain UDP and for the gateway."""

import heapq
import select
import socket
import time
from itertools import count

from probers.transports import encap
from probers.transports.encap import EncapHeader, EncapType
from probers.transports.sockets import family_of
from tests.contract.misbehaviour import Mangler

LOOPBACK = "127.0.0.1"
LOOPBACK6 = "::1"


class Relay:
    """Forwards datagrams between two endpoints when it is pumped, mangled.

    Plain UDP: the prober sends to the relay's address and takes it for the target.
    Gateway: both endpoints have the relay as their gateway, and the header says where
    to; `nodes` play the fabric, and a ttl that ends at one of them is reported.
    """

    def __init__(self, seed: int, *, wrapped: bool, loopback: str = LOOPBACK) -> None:
        self._loopback = loopback
        self.mangler = Mangler(seed)
        self.nodes: list[str] = []
        self.seen: list[bytes] = []
        self._wrapped = wrapped
        self._near = self._socket()
        self._far = self._socket()
        self._target: tuple[str, int] | None = None
        self._prober: tuple[str, int] | None = None
        self._held: list[tuple[int, int, socket.socket, tuple[str, int], bytes]] = []
        self._order = count()

    @property
    def address(self) -> tuple[str, int]:
        """Where probers and endpoints send to."""
        host, port = self._near.getsockname()[:2]
        return str(host), int(port)

    def connect(self, target: tuple[str, int]) -> None:
        """Say where plain datagrams go."""
        self._target = target

    def pump(self) -> None:
        """Forward what has come and what was held back long enough."""
        for sock in (self._near, self._far):
            while select.select([sock], [], [], 0)[0]:
                data, sender = sock.recvfrom(65_536)
                self._forward(sock, data, (str(sender[0]), int(sender[1])))
        while self._held and self._held[0][0] <= time.monotonic_ns():
            _, _, sock, to, data = heapq.heappop(self._held)
            sock.sendto(data, to)

    def close(self) -> None:
        """Close the sockets."""
        self._near.close()
        self._far.close()

    def _forward(self, sock: socket.socket, data: bytes, sender: tuple[str, int]) -> None:
        self.seen.append(data)
        if self._wrapped:
            self._forward_wrapped(data)
            return
        if sock is self._near:
            self._prober = sender
            out, to = self._far, self._target
        else:
            out, to = self._near, self._prober
        if to is not None:
            self._hold(out, to, data, 0)

    def _forward_wrapped(self, data: bytes) -> None:
        header, payload = encap.unpack(data)
        if header.ttl <= len(self.nodes):
            error = header.error(EncapType.TTL_EXCEEDED)
            report = encap.pack_report(self.nodes[header.ttl - 1], payload)
            self._hold(self._near, header.src, encap.pack(error, report), encap.HEADER_BYTES)
            return
        self._hold(self._near, header.dst, data, encap.HEADER_BYTES)

    def _hold(self, sock: socket.socket, to: tuple[str, int], data: bytes, protected: int) -> None:
        for delay_ns, mangled in self.mangler.mangle(data, protected):
            due_ns = time.monotonic_ns() + delay_ns
            heapq.heappush(self._held, (due_ns, next(self._order), sock, to, mangled))

    def _socket(self) -> socket.socket:
        return datagram_socket(self._loopback)


def datagram_socket(loopback: str) -> socket.socket:
    """Return a socket bound to that loopback address."""
    sock = socket.socket(family_of(loopback).number, socket.SOCK_DGRAM)
    sock.bind((loopback, 0))
    return sock


def header_of(datagram: bytes) -> EncapHeader:
    """Return the header of a datagram that a relay has seen."""
    return encap.unpack(datagram)[0]
