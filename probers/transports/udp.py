"""UDP probes on a real network: one socket answers, and one socket per flow probes.

In the kernel a filter at each socket drops what nobody waits for (`packet_filter`): a flood at
one of them fills no buffer, and the others do not see it.

The source port is the flow's part of the 5-tuple, so each flow keeps its socket, and with it its
ECMP path, for the agent's life. Replies come back to the flow's socket, so a flow of the ping
list is one 5-tuple in both directions.

ICMP errors are matched by the nonce in the quoted datagram. RFC 1812 asks routers to quote as
much as fits into 576 bytes. A router that quotes only the 8 bytes of RFC 792 cannot be matched,
and stays a hop without an address. IPv6 routers quote up to 1,280 bytes (RFC 4443).
"""

import contextlib
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from probers import packet
from probers.clock import Clock
from probers.packet import UNSEALED, Packets
from probers.transports import packet_filter, sockets
from probers.transports.admission import Admission
from probers.transports.base import Completion, PacketCounts, Probe
from probers.transports.datagrams import Datagrams, Role, open_datagrams
from probers.transports.packet_filter import SECRET_BITS, Instruction, SourceHash
from probers.transports.sockets import family_of
from schemas.enums import Transport as TransportKind

if TYPE_CHECKING:
    from probers.transports.tunnel import TunnelErrors

# An unconnected socket reports an earlier datagram's ICMP error at the next send;
# the error is taken from the queue and the send tried again.
SEND_ATTEMPTS: Final = 3
# Source ports are few and each costs a socket.
MAX_FLOWS: Final = 64


class UdpTransport:
    """Probes by UDP from one address.

    Parameters
    ----------
    opener : opens a socket, as `sockets.open_udp` does, perhaps in another namespace
    tunnel : what routers say of the tunnel that carries the probes
    worker : what does the work per packet, with the parameters of `PythonDatagrams`

    Raises
    ------
    OSError
        If the address is not of this host, or the port is taken.
    """

    kind = TransportKind.UDP
    qkey = None

    def __init__(
        self,
        clock: Clock,
        address: str,
        port: int,
        *,
        probe_bytes: int = packet.MIN_PACKET_BYTES,
        packets: Packets = UNSEALED,
        opener: Callable[[str, int], tuple[socket.socket, bool]] = sockets.open_udp,
        tunnel: "TunnelErrors | None" = None,
        worker: Callable[..., Datagrams] = open_datagrams,
    ) -> None:
        self._clock = clock
        self._secret = int.from_bytes(os.urandom(SECRET_BITS // 8), "big")
        self._source = SourceHash(family_of(address).number)
        self._tokens = packets.tokens
        self._admission = Admission(sealed=packets.sealed)
        # Packets that the kernel had dropped at each socket when last asked.
        self._dropped: dict[socket.socket, int] = {}
        self._dropped_at_look = 0
        self._flows: dict[int, socket.socket] = {}
        self._opener = opener
        self._tunnel = tunnel
        self.datagrams = worker(
            clock,
            packets=packets,
            probe_bytes=probe_bytes,
            secret=self._secret,
            source=self._source,
        )
        try:
            self._listener, reports = opener(address, port)
        except OSError:
            self.datagrams.close()
            raise
        self.address, self.port = self._listener.getsockname()[:2]
        self._filter(self._listener, packet_filter.passes_probes())
        self.untraced = None if reports else "this system tells no socket of ICMP errors"
        self.datagrams.watch(self._listener, Role.ANSWERS)
        if tunnel is not None:
            self.datagrams.watch(tunnel.socket, Role.FOREIGN)

    @property
    def counts(self) -> PacketCounts:
        """Packets so far."""
        return self.datagrams.counts

    def fileno(self) -> int:
        """Return a descriptor that is readable when one of the sockets is."""
        return self.datagrams.fileno()

    def source_port(self, flow: int) -> int:
        """Return the source port of a flow, as bound by the system."""
        return int(self._socket(flow).getsockname()[1])

    def packets_per_probe(self, timeout_ns: int) -> int:  # noqa: ARG002 - a datagram is not repeated
        """Return 1."""
        return 1

    def send(self, probe: Probe) -> bool:
        """Send a probe from its flow's socket; return whether it has left."""
        try:
            sock = self._socket(probe.flow)
        except OSError as error:
            self.datagrams.not_sent(probe.token, sockets.send_status(error))
            return False
        number = 0
        for _ in range(SEND_ATTEMPTS):
            number = self.datagrams.send(sock, probe)
            if not number:
                return True
            # What the queue holds explains an earlier datagram; if it holds nothing, the error is
            # this one's own.
            if not self._read_errors(sock):
                break
        self.datagrams.not_sent(probe.token, sockets.errno_status(number))
        return False

    def poll(self) -> list[Completion]:
        """Read all sockets that have something; return the probes that are over."""
        for descriptor in self.datagrams.poll():
            self._read_errors_of(descriptor)
        self._review()
        return self.datagrams.take_completions()

    def is_current(self) -> bool:
        """Return True: a socket that is bound stays bound. Adapts its filter to a flood, too."""
        for sock in (self._listener, *self._flows.values()):
            self._count_dropped(sock)
        dropped = self.counts.filtered - self._dropped_at_look
        self._dropped_at_look = self.counts.filtered
        if self._admission.look(self._clock.now().monotonic_ns, dropped):
            self._restrict()
        return True

    def close(self) -> None:
        """Close all sockets."""
        self.datagrams.close()
        self._listener.close()
        if self._tunnel is not None:
            self._tunnel.close()
        for sock in self._flows.values():
            sock.close()
        self._flows.clear()

    def _socket(self, flow: int) -> socket.socket:
        sock = self._flows.get(flow)
        if sock is None:
            sock, _ = self._opener(self.address, 0)
            self._filter(sock, packet_filter.passes_replies(self._secret))
            self.datagrams.watch(sock, Role.PROBES)
            self._flows[flow] = sock
        return sock

    def _filter(self, sock: socket.socket, program: list[Instruction]) -> None:
        """Have the kernel drop what does not pass; a system that cannot passes everything."""
        if sockets.LINUX:
            with contextlib.suppress(OSError):
                packet_filter.attach(sock, program)

    def _review(self) -> None:
        """Restrict what passes at the listener if what was just read is part of a flood."""
        observations, more = self.datagrams.take_observations()
        if not observations:
            return
        for source, now_ns, genuine, token in observations:
            self._admission.observe_probe(source, now_ns, genuine=genuine, token=token)
        overflowed = more and self._count_dropped(self._listener) > 0
        if self._admission.review(self._clock.now().monotonic_ns, overflowed=overflowed):
            self._restrict()

    def _restrict(self) -> None:
        """Pass at the listener what `Admission` says."""
        admission = self._admission
        if not admission.restricted:
            self._filter(self._listener, packet_filter.passes_probes())
            return
        tokens = self._tokens if admission.trusts_tokens else ()
        self._filter(
            self._listener,
            packet_filter.passes_known(self._source, admission.known, tokens, admission.share),
        )

    def _count_dropped(self, sock: socket.socket) -> int:
        """Count, and return, what the kernel has dropped at a socket since this was last asked."""
        now = packet_filter.dropped(sock) if sockets.LINUX else None
        if now is None:
            return 0
        dropped = now - self._dropped.get(sock, 0) & 0xFFFF_FFFF
        self._dropped[sock] = now
        self.counts.filtered += dropped
        return dropped

    def _read_errors_of(self, descriptor: int) -> None:
        if self._tunnel is not None and descriptor == self._tunnel.socket.fileno():
            sockets.complete_reported(self._tunnel.read(), self.datagrams)
            return
        for sock in (self._listener, *self._flows.values()):
            if sock.fileno() == descriptor:
                self._read_errors(sock)

    def _read_errors(self, sock: socket.socket) -> bool:
        """Take the ICMP errors of a socket; return whether there were any."""
        errors = sockets.read_errors(sock)
        if sock is not self._listener:
            sockets.complete_reported(errors, self.datagrams)
        return bool(errors)
