"""UDP probes through the lab's gateway; every datagram has `encap`'s header.

One socket sends and receives everything. The header's entropy is the flow, and a node where the
TTL runs out reports itself with a datagram of the same format.
"""

from typing import Final

from probers import packet
from probers.clock import Clock
from probers.packet import UNSEALED, PacketError, Packets, PacketType
from probers.transports import encap, sockets
from probers.transports.base import Completion, PacketCounts, Probe, Reason
from probers.transports.encap import EncapError, EncapHeader, EncapType
from probers.transports.exchange import Exchange
from probers.transports.responder import Responder
from schemas.enums import ProbeStatus
from schemas.enums import Transport as TransportKind

# As for plain UDP: a flood does not keep the loop from its timers.
MAX_DATAGRAMS_AT_ONCE: Final = 256
_ROOM: Final = encap.HEADER_BYTES + packet.MAX_PACKET_BYTES + 1


class GatewayTransport:
    """Probes by UDP through one gateway.

    Raises
    ------
    OSError
        If the address is not of this host, or the port is taken.
    """

    kind = TransportKind.UDP
    qkey = None
    untraced = None

    def __init__(
        self,
        clock: Clock,
        address: str,
        port: int,
        gateway: tuple[str, int],
        *,
        probe_bytes: int = packet.MIN_PACKET_BYTES,
        packets: Packets = UNSEALED,
    ) -> None:
        self.counts = PacketCounts()
        self._exchange = Exchange(clock, self.counts, probe_bytes, packets)
        self._answers = Responder(clock, self.counts, packets)
        self._packets = packets
        self._gateway = gateway
        self._socket, _ = sockets.open_udp(address, port)
        self.address, self.port = self._socket.getsockname()

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._socket.fileno()

    def packets_per_probe(self, timeout_ns: int) -> int:  # noqa: ARG002 - a datagram is not repeated
        """Return 1."""
        return 1

    def send(self, probe: Probe) -> bool:
        """Send a probe to the gateway, addressed to its target; return whether it has left."""
        nonce, payload = self._exchange.prepare()
        header = EncapHeader(
            ttl=encap.DEFAULT_TTL if probe.ttl is None else probe.ttl,
            entropy=probe.entropy,
            src_address=self.address,
            src_port=self.port,
            dst_address=probe.address,
            dst_port=probe.port,
        )
        try:
            datagram = encap.pack(header, payload)
            posted = self._exchange.now()
            self._transmit(datagram)
        except EncapError:
            # An address that does not fit into a header has no route.
            self._exchange.not_sent(probe.token, ProbeStatus.NO_ROUTE)
        except OSError:
            # Whatever the error: the gateway is the RNIC's own end of the wire.
            self._exchange.not_sent(probe.token, ProbeStatus.LINK_DOWN)
        else:
            self._exchange.record_posted(nonce, probe, posted)
            return True
        return False

    def poll(self) -> list[Completion]:
        """Read the socket; return the probes that are over."""
        return self._exchange.take_completions(drained=self._read())

    def is_current(self) -> bool:
        """Return True: a socket that is bound stays bound."""
        return True

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _transmit(self, datagram: bytes) -> None:
        try:
            self._socket.sendto(datagram, self._gateway)
        except OSError:
            # The error of an earlier datagram (the gateway was away for a moment)
            # shows at the next send; once it is taken, the send is tried again.
            sockets.read_errors(self._socket)
            self._socket.sendto(datagram, self._gateway)

    def _read(self) -> bool:
        """Read what waits at the socket; return whether nothing is left."""
        for _ in range(MAX_DATAGRAMS_AT_ONCE):
            try:
                data, ancillary, _, sender = self._socket.recvmsg(_ROOM, sockets.ANCILLARY_BYTES)
            except BlockingIOError:
                return True
            except OSError:
                sockets.read_errors(self._socket)
                continue
            if sender != self._gateway:
                self._exchange.count_foreign()
                continue
            self._take_in(data, sockets.kernel_time_ns(ancillary))
        return False

    def _take_in(self, datagram: bytes, kernel_ns: int | None) -> None:
        try:
            header, payload = encap.unpack(datagram)
            if header.type is EncapType.DATA:
                if header.dst != (self.address, self.port):
                    self._exchange.count_foreign()
                else:
                    self._data(header, payload, kernel_ns)
            elif header.src != (self.address, self.port):
                self._exchange.count_foreign()
            else:
                self._report(header.type, payload, kernel_ns)
        except EncapError:
            self.counts.malformed += 1
        except PacketError as error:
            self._exchange.handle_corrupt(error)

    def _data(self, header: EncapHeader, payload: bytes, kernel_ns: int | None) -> None:
        parsed = self._packets.unpack(payload)
        if parsed.type is PacketType.REPLY:
            # All of a lab shares one host, so its addresses carry the port.
            sender = f"{header.src_address}:{header.src_port}"
            self._exchange.handle_reply(parsed, kernel_ns, sender)
            return
        if parsed.type is not PacketType.PROBE:
            self._exchange.count_foreign()
            return
        reply = self._answers.answer(parsed, kernel_ns)
        if reply is None:
            return
        back = EncapHeader(
            entropy=header.entropy,
            src_address=self.address,
            src_port=self.port,
            dst_address=header.src_address,
            dst_port=header.src_port,
        )
        wrapped = encap.pack(back, reply)
        self._answers.left(self._exchange.now().monotonic_ns)
        try:
            self._transmit(wrapped)
        except OSError:
            return  # the prober sees a timeout

    def _report(self, kind: EncapType, payload: bytes, kernel_ns: int | None) -> None:
        report = encap.unpack_report(payload)
        nonce = packet.quoted_nonce(report.quoted)
        if nonce is None:
            self.counts.malformed += 1
            return
        self._exchange.handle_node_report(
            nonce,
            status=ProbeStatus.UNREACHABLE,
            reason=Reason.TTL_EXCEEDED if kind is EncapType.TTL_EXCEEDED else Reason.REPORTED,
            reporter=report.address,
            kernel_ns=kernel_ns,
        )
