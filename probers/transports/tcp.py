"""TCP connect: the time from SYN to SYN-ACK, for targets that only take TCP.

What the outcome means:

* OK: the handshake finished. The responder's kernel answers it, so nobody holds
  the probe and `hold_ns` is None; Linux's own measurement of the handshake is
  used where it gives one, else the time until the program saw the connection.
* REFUSED: a RST came back. The network carried both ways, but nobody listens:
  the agent there is gone. Its round trip is not a probe's, so it is not reported.
* UNREACHABLE, NO_ROUTE, LINK_DOWN: as for UDP. TIMEOUT: silence.

Connections are torn down with a RST at once: no TIME_WAIT, so that a flow keeps
its source port, and with it its 5-tuple.
"""

import errno
import heapq
import socket
import struct
import sys
from dataclasses import dataclass
from typing import Final

from probers.clock import Clock, Instant
from probers.transports import sockets
from probers.transports.base import Completion, PacketCounts, Probe, Reason
from probers.transports.rtt import Timestamps
from probers.transports.sockets import Readiness, family_of
from schemas.enums import ClockSource, ProbeStatus
from schemas.enums import Transport as TransportKind
from schemas.transports import CAPABILITIES

BACKLOG: Final = 1_024
MAX_ACCEPTS_AT_ONCE: Final = 256
HANDSHAKE_PACKETS: Final = 3
# Linux repeats a SYN after a second at the earliest (RFC 6298).
SYN_REPEAT_NS: Final = 10**9
_ABORT: Final = struct.pack("ii", 1, 0)
# struct tcp_info of Linux: tcpi_rtt (microseconds) at byte 68, tcpi_total_retrans
# at byte 100 (linux/tcp.h).
_TCP_INFO_BYTES: Final = 104
_RTT_OFFSET: Final = 68
_RETRANSMITS_OFFSET: Final = 100


@dataclass(slots=True)
class _Connection:
    """A handshake under way."""

    sock: socket.socket
    probe: Probe
    posted: Instant


class TcpTransport:
    """Probes by TCP connect from one address, and accepts the probes of others.

    Raises
    ------
    OSError
        If the address is not of this host, or the port is taken.
    """

    kind = TransportKind.TCP
    qkey = None
    untraced = CAPABILITIES[TransportKind.TCP].untraced

    def __init__(self, clock: Clock, address: str, port: int) -> None:
        self.counts = PacketCounts()
        self._clock = clock
        self._completions: list[Completion] = []
        self._connections: dict[int, _Connection] = {}
        self._deadlines: list[tuple[int, int]] = []
        self._source_ports: dict[int, int] = {}
        self._readiness = Readiness()
        self._tokens: dict[socket.socket, int] = {}
        self._family = family_of(address).number
        self._listener = socket.socket(self._family, socket.SOCK_STREAM)
        try:
            self._listener.setblocking(False)
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.bind((address, port))
            self._listener.listen(BACKLOG)
        except OSError:
            self._listener.close()
            self._readiness.close()
            raise
        self.address, self.port = self._listener.getsockname()[:2]
        self._readiness.watch(self._listener)

    def fileno(self) -> int:
        """Return a descriptor that is readable when one of the sockets has something."""
        return self._readiness.fileno()

    def packets_per_probe(self, timeout_ns: int) -> int:
        """Return 3 (SYN, ACK, RST), or more where the kernel repeats the SYN, once a second."""
        return max(HANDSHAKE_PACKETS, 1 + timeout_ns // SYN_REPEAT_NS)

    def send(self, probe: Probe) -> bool:
        """Begin to connect; return whether that has begun."""
        try:
            connection = self._connect(probe, self._source_ports.get(probe.flow, 0))
        except OSError as error:
            status = sockets.send_status(error)
            self._completions.append(
                Completion(token=probe.token, status=status, reason=Reason.NOT_SENT)
            )
            return False
        sock, posted = connection.sock, connection.posted
        self._connections[probe.token] = connection
        heapq.heappush(self._deadlines, (posted.monotonic_ns + probe.timeout_ns, probe.token))
        self._tokens[sock] = probe.token
        self._readiness.watch(sock, write=True)
        return True

    def poll(self) -> list[Completion]:
        """Accept and hang up; return the probes that have connected or timed out."""
        for sock, _ in self._readiness.ready():
            if sock is self._listener:
                self._accept()
            else:
                self._connected(self._tokens[sock])
        now_ns = self._clock.now().monotonic_ns
        while self._deadlines and self._deadlines[0][0] <= now_ns:
            _, token = heapq.heappop(self._deadlines)
            if token in self._connections:
                self._hang_up(token)
                self._completions.append(Completion(token=token, status=ProbeStatus.TIMEOUT))
        completions, self._completions = self._completions, []
        return completions

    def is_current(self) -> bool:
        """Return True: a socket that is bound stays bound."""
        return True

    def close(self) -> None:
        """Close all sockets."""
        for token in list(self._connections):
            self._hang_up(token)
        self._readiness.close()
        self._listener.close()

    def _connect(self, probe: Probe, source_port: int) -> _Connection:
        sock = socket.socket(self._family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((self.address, source_port))
            posted = self._clock.now()
            code = sock.connect_ex((probe.address, probe.port))
            if code not in (0, errno.EINPROGRESS):
                raise OSError(code, "connect")
        except OSError as error:
            sock.close()
            if source_port and error.errno in (errno.EADDRNOTAVAIL, errno.EADDRINUSE):
                # Its last connection to this target is still being torn down, or
                # the port is in use: another 5-tuple is better than none.
                return self._connect(probe, 0)
            raise
        self._source_ports.setdefault(probe.flow, int(sock.getsockname()[1]))
        return _Connection(sock, probe, posted)

    def _accept(self) -> None:
        for _ in range(MAX_ACCEPTS_AT_ONCE):
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return  # no connection waits, or it was closed already
            # Not aborted from this side: the prober would see its connection reset,
            # and it aborts anyway.
            sock.close()
            self.counts.answered += 1

    def _connected(self, token: int) -> None:
        connection = self._connections[token]
        handled = self._clock.now()
        code = connection.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        kernel_rtt_ns = _handshake_rtt_ns(connection.sock)
        self._hang_up(token)
        posted_ns = connection.posted.monotonic_ns
        elapsed_ns = handled.monotonic_ns - posted_ns
        # Reset, not refused: the handshake had been finished before.
        met = code in (0, errno.ECONNRESET)
        status = ProbeStatus.OK if met else sockets.send_status(OSError(code, "connect"))
        rtt_ns, clock = elapsed_ns, ClockSource.SOFTWARE
        if met and kernel_rtt_ns is not None and kernel_rtt_ns <= elapsed_ns:
            rtt_ns, clock = kernel_rtt_ns, ClockSource.KERNEL
        if rtt_ns > connection.probe.timeout_ns:
            self.counts.late += 1
            status, reason = ProbeStatus.TIMEOUT, Reason.ARRIVED_LATE
        else:
            reason = Reason.NONE if status is ProbeStatus.OK else Reason.REPORTED
        times = Timestamps(
            posted_ns=posted_ns,
            sent_ns=posted_ns,
            received_ns=posted_ns + rtt_ns,
            handled_ns=handled.monotonic_ns,
        )
        self._completions.append(
            Completion(
                token=token,
                status=status,
                reason=reason,
                clock=clock,
                times=times,
                reporter=connection.probe.address,
            )
        )

    def _hang_up(self, token: int) -> None:
        connection = self._connections.pop(token)
        self._readiness.unwatch(connection.sock)
        del self._tokens[connection.sock]
        connection.sock.close()


def _handshake_rtt_ns(sock: socket.socket) -> int | None:
    """Return Linux's own measurement of the handshake; None where there is none to trust."""
    if sys.platform != "linux":
        return None
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    except OSError:
        return None
    if len(info) < _TCP_INFO_BYTES:
        return None
    (rtt_us,) = struct.unpack_from("=I", info, _RTT_OFFSET)
    (retransmits,) = struct.unpack_from("=I", info, _RETRANSMITS_OFFSET)
    # After a retransmitted SYN it is not known which one was answered.
    return None if retransmits or not rtt_us else int(rtt_us) * 1_000
