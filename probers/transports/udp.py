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
from probers.packet import UNSEALED, PacketError, Packets, PacketType
from probers.transports import packet_filter, sockets
from probers.transports.admission import Admission
from probers.transports.base import Completion, PacketCounts, Probe
from probers.transports.exchange import Exchange, nonces_with
from probers.transports.packet_filter import SECRET_BITS, Instruction, SourceHash
from probers.transports.responder import Responder
from probers.transports.sockets import Readiness, family_of
from schemas.enums import Transport as TransportKind

if TYPE_CHECKING:
    from probers.transports.tunnel import TunnelErrors

# Datagrams taken from one socket in one turn, so that a flood at one socket does
# not keep the loop from its timers.
MAX_DATAGRAMS_AT_ONCE: Final = 256
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
    ) -> None:
        self.counts = PacketCounts()
        self._secret = int.from_bytes(os.urandom(SECRET_BITS // 8), "big")
        nonces = nonces_with(self._secret, SECRET_BITS)
        self._exchange = Exchange(clock, self.counts, probe_bytes, packets, nonces)
        self._answers = Responder(clock, self.counts, packets)
        self._packets = packets
        self._tokens = packets.tokens
        self._admission = Admission(sealed=packets.sealed)
        # Packets that the kernel had dropped at each socket when last asked.
        self._dropped: dict[socket.socket, int] = {}
        self._dropped_at_look = 0
        self._readiness = Readiness()
        self._flows: dict[int, socket.socket] = {}
        self._opener = opener
        self._tunnel = tunnel
        try:
            self._listener, reports = opener(address, port)
        except OSError:
            self._readiness.close()
            raise
        self.address, self.port = self._listener.getsockname()[:2]
        self._family = family_of(address)
        self._source = SourceHash(self._family.number)
        self._filter(self._listener, packet_filter.passes_probes())
        self.untraced = None if reports else "this system tells no socket of ICMP errors"
        self._readiness.watch(self._listener)
        if tunnel is not None:
            self._readiness.watch(tunnel.socket)

    def fileno(self) -> int:
        """Return a descriptor that is readable when one of the sockets is."""
        return self._readiness.fileno()

    def source_port(self, flow: int) -> int:
        """Return the source port of a flow, as bound by the system."""
        return int(self._socket(flow).getsockname()[1])

    def packets_per_probe(self, timeout_ns: int) -> int:  # noqa: ARG002 - a datagram is not repeated
        """Return 1."""
        return 1

    def send(self, probe: Probe) -> None:
        """Send a probe from its flow's socket."""
        nonce, payload = self._exchange.prepare(self._tokens[0] if self._tokens else 0)
        try:
            sock = self._socket(probe.flow)
            for attempt in range(1, SEND_ATTEMPTS + 1):
                posted = self._exchange.now()
                try:
                    if probe.ttl is None:
                        sock.sendto(payload, (probe.address, probe.port))
                    else:
                        ttl = sockets.ttl_message(self._family, probe.ttl)
                        sock.sendmsg([payload], ttl, 0, (probe.address, probe.port))
                    break
                except OSError:
                    # What the queue holds explains an earlier datagram; if it holds
                    # nothing, the error is this one's own.
                    if not self._read_errors(sock) or attempt == SEND_ATTEMPTS:
                        raise
        except OSError as error:
            self._exchange.not_sent(probe, sockets.send_status(error))
            return
        self._exchange.record_posted(nonce, probe, posted)

    def poll(self) -> list[Completion]:
        """Read all sockets that have something; return the probes that are over."""
        drained = True
        for sock, failed in self._readiness.ready():
            if self._tunnel is not None and sock is self._tunnel.socket:
                sockets.complete_reported(self._tunnel.read(), self._exchange)
                continue
            emptied = self._read(sock)
            drained = emptied and drained
            if sock is self._listener:
                self._review(emptied)
            if failed:
                self._read_errors(sock)
        # A reply that waits in a socket is not lost: its kernel timestamp decides.
        return self._exchange.take_completions(drained=drained)

    def is_current(self) -> bool:
        """Return True: a socket that is bound stays bound. Adapts its filter to a flood, too."""
        for sock in (self._listener, *self._flows.values()):
            self._count_dropped(sock)
        dropped = self.counts.filtered - self._dropped_at_look
        self._dropped_at_look = self.counts.filtered
        if self._admission.look(self._exchange.now().monotonic_ns, dropped):
            self._restrict()
        return True

    def close(self) -> None:
        """Close all sockets."""
        self._readiness.close()
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
            self._readiness.watch(sock)
            self._flows[flow] = sock
        return sock

    def _read(self, sock: socket.socket) -> bool:
        """Read what waits at a socket; return whether nothing is left."""
        for _ in range(MAX_DATAGRAMS_AT_ONCE):
            try:
                data, ancillary, _, sender = sock.recvmsg(
                    packet.MAX_PACKET_BYTES + 1, sockets.ANCILLARY_BYTES
                )
            except BlockingIOError:
                return True
            except OSError:
                # An ICMP error shows here once, too; the queue has the details.
                self._read_errors(sock)
                continue
            self._take_in(sock, data, sockets.kernel_time_ns(ancillary), sender)
        return False

    def _filter(self, sock: socket.socket, program: list[Instruction]) -> None:
        """Have the kernel drop what does not pass; a system that cannot passes everything."""
        if sockets.LINUX:
            with contextlib.suppress(OSError):
                packet_filter.attach(sock, program)

    def _review(self, emptied: bool) -> None:
        """Restrict what passes at the listener if what was just read is part of a flood."""
        overflowed = not emptied and self._count_dropped(self._listener) > 0
        if self._admission.review(self._exchange.now().monotonic_ns, overflowed=overflowed):
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

    def _take_in(
        self,
        sock: socket.socket,
        data: bytes,
        kernel_ns: int | None,
        sender: tuple[str, int] | tuple[str, int, int, int],
    ) -> None:
        try:
            parsed = self._packets.unpack(data)
        except PacketError as error:
            if sock is self._listener:
                self._observe(sender, data, genuine=False)
            self._exchange.handle_corrupt(error)
            return
        if sock is self._listener:
            self._observe(sender, data, genuine=parsed.type is PacketType.PROBE)
        if parsed.type is PacketType.REPLY:
            self._exchange.handle_reply(parsed, kernel_ns, sender[0])
        elif sock is not self._listener or parsed.type is not PacketType.PROBE:
            # Only the listener's address is registered; no agent probes a flow's socket.
            self._exchange.count_foreign()
        else:
            reply = self._answers.answer(parsed, kernel_ns)
            if reply is not None:
                self._answer(reply, sender)

    def _observe(
        self, sender: tuple[str, int] | tuple[str, int, int, int], data: bytes, *, genuine: bool
    ) -> None:
        """Note who sent what to the listener."""
        self._admission.observe_probe(
            self._source.of(sender[0], sender[1]),
            self._exchange.now().monotonic_ns,
            genuine=genuine,
            token=packet.reply_key_of(data) in self._tokens,
        )

    def _answer(self, reply: bytes, to: tuple[str, int] | tuple[str, int, int, int]) -> None:
        self._answers.left(self._exchange.now().monotonic_ns)
        try:
            self._listener.sendto(reply, to)
        except OSError:
            # The prober sees a timeout. Errors about probes of others are not reported here.
            self._read_errors(self._listener)

    def _read_errors(self, sock: socket.socket) -> bool:
        """Take the ICMP errors of a socket; return whether there were any."""
        errors = sockets.read_errors(sock)
        if sock is not self._listener:
            sockets.complete_reported(errors, self._exchange)
        return bool(errors)
