"""What the operating system adds to a UDP socket: kernel timestamps, ICMP errors, a TTL.

Beyond plain sockets this is Linux only. On other systems the functions here return nothing, and
the transports work without it.
"""

import errno
import select
import selectors
import socket
import struct
import sys
from dataclasses import dataclass
from typing import Final, Protocol

from probers.packet import quoted_nonce
from probers.transports.base import Reason
from schemas.enums import ProbeStatus

LINUX: Final = sys.platform == "linux"
# linux/include/uapi/asm-generic/socket.h and linux/socket.h; Python names none of them.
SO_TIMESTAMPNS: Final = 35
MSG_ERRQUEUE: Final = 0x2000
_TIMESPEC: Final = struct.Struct("@ll")
# struct sock_extended_err (linux/errqueue.h): errno, origin, type, code, pad, info,
# data; the offender's sockaddr follows.
_EXTENDED_ERROR: Final = struct.Struct("=IBBBBII")
_SOCKADDR_FAMILY: Final = struct.Struct("=H")
# Room for the timestamp and for an error with its offender.
ANCILLARY_BYTES: Final = 256
# Errors taken from a socket in one go; the rest waits for the next turn of the loop.
MAX_ERRORS_AT_ONCE: Final = 128
# Enough for some hundred replies that come while the process is not scheduled.
RECEIVE_BUFFER_BYTES: Final = 512 * 1024

# What a failed send says about the way to the target.
_SEND_ERRORS: Final = {
    errno.ENETDOWN: ProbeStatus.LINK_DOWN,
    errno.ENODEV: ProbeStatus.LINK_DOWN,
    errno.EADDRNOTAVAIL: ProbeStatus.LINK_DOWN,
    errno.ENOBUFS: ProbeStatus.LINK_DOWN,
    errno.ENOMEM: ProbeStatus.LINK_DOWN,
    errno.EMFILE: ProbeStatus.LINK_DOWN,
    errno.ENFILE: ProbeStatus.LINK_DOWN,
    errno.EAGAIN: ProbeStatus.LINK_DOWN,
    errno.ENETUNREACH: ProbeStatus.NO_ROUTE,
    errno.EAFNOSUPPORT: ProbeStatus.NO_ROUTE,
    errno.EHOSTUNREACH: ProbeStatus.UNREACHABLE,
    errno.EHOSTDOWN: ProbeStatus.UNREACHABLE,
    errno.ECONNREFUSED: ProbeStatus.REFUSED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Numbers of one family.

    `level` is that of its options and ancillary data; `receive_errors` and `origin` are those of
    its error queue (linux/in.h, linux/in6.h, linux/errqueue.h), `offender_at` and `offender_bytes`
    place the address in its sockaddr. The types are those of its ICMP (RFC 792, RFC 4443).
    """

    number: socket.AddressFamily
    level: int
    receive_errors: int
    hop_limit: int
    traffic_class: int
    origin: int
    offender_at: int
    offender_bytes: int
    time_exceeded: int
    unreachable: int
    port_unreachable: int


IPV4: Final = Family(
    number=socket.AF_INET,
    level=socket.IPPROTO_IP,
    receive_errors=11,
    hop_limit=socket.IP_TTL,
    traffic_class=socket.IP_TOS,
    origin=2,
    offender_at=4,
    offender_bytes=4,
    time_exceeded=11,
    unreachable=3,
    port_unreachable=3,
)
IPV6: Final = Family(
    number=socket.AF_INET6,
    level=socket.IPPROTO_IPV6,
    receive_errors=25,
    # As ancillary data of one datagram; the option of a socket has another number. Python
    # names both only where the C library does.
    hop_limit=52,
    traffic_class=67,
    origin=3,
    offender_at=8,
    offender_bytes=16,
    time_exceeded=3,
    unreachable=1,
    port_unreachable=4,
)
FAMILIES: Final = {int(family.number): family for family in (IPV4, IPV6)}


def family_of(address: str) -> Family:
    """Return the family that an address is written in.

    >>> family_of("fd00::1") is IPV6, family_of("10.0.0.1") is IPV4
    (True, True)
    """
    return IPV6 if ":" in address else IPV4


@dataclass(frozen=True, slots=True)
class SocketError:
    """An error from a socket's queue.

    `reporter` is the address of the node that sent the ICMP message; `quoted` the
    start of the datagram that failed, as far as that node quoted it.
    """

    number: int
    icmp_type: int | None
    icmp_code: int | None
    reporter: str | None
    quoted: bytes
    kernel_ns: int | None
    family: Family = IPV4

    @property
    def ttl_exceeded(self) -> bool:
        """Whether the datagram's TTL ran out at the reporter."""
        return self.icmp_type == self.family.time_exceeded

    @property
    def status(self) -> ProbeStatus:
        """What the error says about the target."""
        refused = (self.family.unreachable, self.family.port_unreachable)
        if (self.icmp_type, self.icmp_code) == refused:
            return ProbeStatus.REFUSED
        return ProbeStatus.UNREACHABLE


def send_status(error: OSError) -> ProbeStatus:
    """Return the status of a probe that was not sent; lack of resources counts as LINK_DOWN."""
    return errno_status(send_errno(error))


def send_errno(error: OSError) -> int:
    """Return why a probe was not sent."""
    if isinstance(error, socket.gaierror):
        return errno.EAFNOSUPPORT  # an address of the other family than the socket's
    return error.errno or 0


def errno_status(number: int) -> ProbeStatus:
    """Return the status of a probe that was not sent for that reason."""
    return _SEND_ERRORS.get(number, ProbeStatus.UNREACHABLE)


def open_udp(address: str, port: int) -> tuple[socket.socket, bool]:
    """Return a non-blocking UDP socket bound to the address, and whether it reports ICMP errors.

    Raises
    ------
    OSError
        If the address is not of this host, or the port is taken.
    """
    family = family_of(address)
    sock = socket.socket(family.number, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        sock.bind((address, port))
        if LINUX:
            sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            sock.setsockopt(family.level, family.receive_errors, 1)
    except OSError:
        sock.close()
        raise
    return sock, LINUX


class Reported(Protocol):
    """What completes probes that nodes report as not delivered: an `Exchange`, or the like."""

    def handle_node_report(
        self,
        nonce: int,
        *,
        status: ProbeStatus,
        reason: Reason,
        reporter: str | None,
        kernel_ns: int | None,
    ) -> None:
        """Complete a probe that a node reports as not delivered."""
        ...


class Readiness:
    """Says which of a transport's sockets have something, behind one descriptor.

    On Linux it distinguishes errors from data, which saves a call per packet.
    """

    def __init__(self) -> None:
        self._sockets: dict[int, socket.socket] = {}
        self._epoll = select.epoll() if LINUX else None
        self._selector = None if LINUX else selectors.DefaultSelector()

    def fileno(self) -> int:
        """Return the descriptor that is readable when a socket has something.

        Raises
        ------
        OSError
            If the system has neither epoll nor kqueue.
        """
        fileno = getattr(self._epoll or self._selector, "fileno", None)
        if fileno is None:
            raise OSError("this system has neither epoll nor kqueue")
        return int(fileno())

    def watch(self, sock: socket.socket, *, write: bool = False) -> None:
        """Watch a socket for data, or for being connected."""
        self._sockets[sock.fileno()] = sock
        if self._epoll is not None:
            self._epoll.register(sock, select.EPOLLOUT if write else select.EPOLLIN)
        elif self._selector is not None:
            event = selectors.EVENT_WRITE if write else selectors.EVENT_READ
            self._selector.register(sock, event)

    def unwatch(self, sock: socket.socket) -> None:
        """Watch a socket no more; before it is closed."""
        del self._sockets[sock.fileno()]
        if self._epoll is not None:
            self._epoll.unregister(sock)
        elif self._selector is not None:
            self._selector.unregister(sock)

    def ready(self) -> list[tuple[socket.socket, bool]]:
        """Return the sockets that have something now, and whether it may be an error."""
        if self._epoll is not None:
            return [
                (self._sockets[fd], bool(events & select.EPOLLERR))
                for fd, events in self._epoll.poll(0)
            ]
        if self._selector is not None:
            return [(self._sockets[key.fd], True) for key, _ in self._selector.select(0)]
        return []

    def close(self) -> None:
        """Close the descriptor; the sockets stay open."""
        self._sockets.clear()
        if self._epoll is not None:
            self._epoll.close()
        elif self._selector is not None:
            self._selector.close()


def kernel_time_ns(ancillary: list[tuple[int, int, bytes]]) -> int | None:
    """Return the kernel's receive stamp, nanoseconds since the epoch; None where there is none."""
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS and len(data) >= _TIMESPEC.size:
            seconds, nanoseconds = _TIMESPEC.unpack_from(data)
            return int(seconds) * 10**9 + int(nanoseconds)
    return None


def ttl_message(family: Family, ttl: int) -> list[tuple[int, int, bytes]]:
    """Return the ancillary data that gives one datagram a TTL (hop limit) of its own."""
    return [(family.level, family.hop_limit, struct.pack("@i", ttl))]


def read_errors(sock: socket.socket) -> list[SocketError]:
    """Take the errors that wait at a socket; none where the system queues none."""
    if not LINUX:
        return []
    family = FAMILIES[sock.family]
    errors: list[SocketError] = []
    while len(errors) < MAX_ERRORS_AT_ONCE:
        try:
            quoted, ancillary, _, _ = sock.recvmsg(2048, ANCILLARY_BYTES, MSG_ERRQUEUE)
        except OSError:
            break
        error = parse_error(family, quoted, ancillary)
        if error is not None:
            errors.append(error)
    return errors


def complete_reported(errors: list[SocketError], exchange: Reported) -> None:
    """Complete the probes that errors quote; errors that quote no probe are ignored."""
    for error in errors:
        nonce = quoted_nonce(error.quoted)
        if nonce is not None:
            exchange.handle_node_report(
                nonce,
                status=error.status,
                reason=Reason.TTL_EXCEEDED if error.ttl_exceeded else Reason.REPORTED,
                reporter=error.reporter,
                kernel_ns=error.kernel_ns,
            )


def parse_error(
    family: Family, quoted: bytes, ancillary: list[tuple[int, int, bytes]]
) -> SocketError | None:
    """Return the error of an entry of an error queue; None where it is something else."""
    for level, kind, data in ancillary:
        wanted = level == family.level and kind == family.receive_errors
        if not wanted or len(data) < _EXTENDED_ERROR.size:
            continue
        number, origin, icmp_type, icmp_code, _, _, _ = _EXTENDED_ERROR.unpack_from(data)
        icmp = origin == family.origin
        return SocketError(
            number,
            icmp_type if icmp else None,
            icmp_code if icmp else None,
            _offender(family, data[_EXTENDED_ERROR.size :]) if icmp else None,
            quoted,
            kernel_time_ns(ancillary),
            family,
        )
    return None


def _offender(family: Family, sockaddr: bytes) -> str | None:
    """Return the address of who sent an ICMP message; None where the kernel does not say."""
    packed = sockaddr[family.offender_at :][: family.offender_bytes]
    if len(packed) < family.offender_bytes:
        return None
    if _SOCKADDR_FAMILY.unpack_from(sockaddr)[0] != family.number:
        return None
    return socket.inet_ntop(family.number, packed)
