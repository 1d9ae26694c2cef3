"""Traces of RDMA pairs by UDP datagrams that look like the flow's packets and expire on the way.

RNICs report no ICMP errors that their packets cause; an ordinary UDP socket does. So a trace
sends UDP datagrams with the addresses, source port and destination port of the flow's RoCE
packets. Their TTL ends before the target, where they would be malformed RoCE packets. The
distance of the target is known from the TTL that was left in its replies. A probe with that TTL
or a larger one is sent by RDMA as any other probe.
"""

import socket
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from probers import packet
from probers.clock import Clock
from probers.packet import Packets
from probers.transports import sockets
from probers.transports.base import Completion, PacketCounts, Probe, Reason
from probers.transports.exchange import Exchange
from probers.transports.rdma.arrivals import ROCE_PORT
from probers.transports.rdma.gids import gid_of
from probers.transports.rdma.port import HOP_LIMIT
from probers.transports.sockets import IPV6, Readiness, family_of
from schemas.enums import ProbeStatus

# Farther away than any fabric goes: a TTL that says so began at another number than ours.
MAX_DISTANCE: Final = 32
# Distances that are remembered, by peer and queue pair; the one used longest ago goes first.
MAX_DISTANCES: Final = 8_192
# Source ports in use at once: the traces of a burst, each with its own.
MAX_SOCKETS: Final = 128
# A socket stays open this long after its last datagram has timed out.
IDLE_NS: Final = 10**9
# linux/in6.h. The kernel would give each socket's packets a flow label of their own, and some
# switches look at it: Soft-RoCE's packets have none. That of mlx5's cannot be had here.
_IPV6_AUTOFLOWLABEL: Final = 70
# Datagrams from others are discarded, this many at a time.
MAX_DISCARDED: Final = 64


@dataclass(slots=True)
class _TraceSocket:
    """A socket that sends the datagrams of traces."""

    sock: socket.socket
    until_ns: int


class Tracing:
    """Sends the probes of traces from one RNIC, by UDP as far as switches go.

    Parameters
    ----------
    address : the RNIC's own, which its GID is of
    source_port : of a flow's RoCE packets
    pair : the queue pair of a flow
    reach : sends a probe to its target by RDMA
    """

    def __init__(
        self,
        clock: Clock,
        counts: PacketCounts,
        packets: Packets,
        *,
        address: str,
        traffic_class: int,
        source_port: Callable[[Probe], int],
        pair: Callable[[Probe], int],
        reach: Callable[[Probe], None],
    ) -> None:
        self._clock = clock
        self._counts = counts
        self._exchange = Exchange(clock, counts, packet.MIN_PACKET_BYTES, packets)
        self._address = address
        self._family = family_of(address)
        self._traffic_class = traffic_class
        self._source_port = source_port
        self._pair = pair
        self._reach = reach
        self._distances: OrderedDict[tuple[bytes, int], int] = OrderedDict()
        self._sockets: dict[int, _TraceSocket] = {}
        self._readiness = Readiness()
        self._pending: list[Completion] = []

    def fileno(self) -> int:
        """Return a descriptor that is readable when a node has answered."""
        return self._readiness.fileno()

    @property
    def busy(self) -> bool:
        """Whether `poll` may have something to do."""
        return bool(self._sockets or self._pending)

    def observe_reply_ttl(self, gid: bytes, pair: int, hop_limit: int) -> None:
        """Learn the distance of a peer from the TTL that was left in its reply."""
        distance = HOP_LIMIT - hop_limit + 1
        if not 1 <= distance <= MAX_DISTANCE:
            self._distances.pop((gid, pair), None)
            return
        self._distances[gid, pair] = distance
        self._distances.move_to_end((gid, pair))
        if len(self._distances) > MAX_DISTANCES:
            self._distances.popitem(last=False)

    def send(self, probe: Probe) -> None:
        """Send a probe with a TTL."""
        gid = gid_of(probe.address)
        distance = self._distances.get((gid.packed, self._pair(probe)))
        if gid.is_link_local:
            self._not_sent(probe, Reason.UNTRACED)
        elif probe.ttl is None or distance is None:
            # The distance is known from the target's first reply; nothing is sent before.
            self._not_sent(probe, Reason.PENDING)
        elif probe.ttl >= distance:
            self._reach(probe._replace(ttl=None))
        else:
            self._send_short(probe, probe.ttl, str(gid.ipv4_mapped or gid))

    def poll(self) -> list[Completion]:
        """Process the answers of nodes; return the probes that are over."""
        for sock, _ in self._readiness.ready():
            sockets.complete_reported(sockets.read_errors(sock), self._exchange)
            self._discard(sock)
        now_ns = self._clock.now().monotonic_ns
        for port in [p for p, used in self._sockets.items() if used.until_ns < now_ns]:
            self._forget(port)
        pending, self._pending = self._pending, []
        return pending + self._exchange.take_completions()

    def close(self) -> None:
        """Close all sockets."""
        for port in list(self._sockets):
            self._forget(port)
        self._readiness.close()

    def _send_short(self, probe: Probe, ttl: int, address: str) -> None:
        nonce, payload = self._exchange.prepare()
        posted = self._exchange.now()
        try:
            sock = self._socket(self._source_port(probe), posted.monotonic_ns + probe.timeout_ns)
        except OSError:
            # Somebody else has the port for now: later, perhaps.
            self._not_sent(probe, Reason.PENDING)
            return
        try:
            # What an earlier datagram met shows at the next send, too.
            sockets.complete_reported(sockets.read_errors(sock), self._exchange)
            message = sockets.ttl_message(self._family, ttl)
            sock.sendmsg([payload], message, 0, (address, ROCE_PORT))
        except OSError as error:
            self._exchange.not_sent(probe.token, sockets.send_status(error))
            return
        self._exchange.record_posted(nonce, probe, posted)

    def _not_sent(self, probe: Probe, reason: Reason) -> None:
        self._pending.append(
            Completion(token=probe.token, status=ProbeStatus.UNKNOWN, reason=reason)
        )

    def _socket(self, port: int, until_ns: int) -> socket.socket:
        used = self._sockets.get(port)
        if used is None:
            if len(self._sockets) >= MAX_SOCKETS:
                raise OSError("too many source ports at once")
            sock, _ = sockets.open_udp(self._address, port)
            family = self._family
            try:
                sock.setsockopt(family.level, family.traffic_class, self._traffic_class)
                if family is IPV6:
                    sock.setsockopt(family.level, _IPV6_AUTOFLOWLABEL, 0)
            except OSError:
                sock.close()
                raise
            self._readiness.watch(sock)
            used = self._sockets[port] = _TraceSocket(sock, 0)
        used.until_ns = max(used.until_ns, until_ns + IDLE_NS)
        return used.sock

    def _forget(self, port: int) -> None:
        used = self._sockets.pop(port)
        self._readiness.unwatch(used.sock)
        used.sock.close()

    def _discard(self, sock: socket.socket) -> None:
        """Discard datagrams, which cannot be replies; a pending error shows here once, too."""
        for _ in range(MAX_DISCARDED):
            try:
                sock.recv(1)
            except BlockingIOError:
                return
            except OSError:
                continue
            self._exchange.count_foreign()
