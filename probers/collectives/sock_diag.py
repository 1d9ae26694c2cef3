"""The kernel's socket diagnostics: what is asked over netlink and what comes back; pure.

`struct inet_diag_req_v2`, `struct inet_diag_msg` (linux/inet_diag.h) and `struct tcp_info`
(linux/tcp.h), which newer kernels make longer: what an older one lacks is None. This is what `ss
-tin` asks for. It is written by hand: a library for all of netlink parses each attribute of each
socket, of which thirty bytes are needed here.
"""

import ipaddress
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from schemas.units import MS_NS, US_NS

NETLINK_SOCK_DIAG: Final = 4
AF_INET: Final = 2
AF_INET6: Final = 10
_SOCK_DIAG_BY_FAMILY: Final = 20
_TCP: Final = 6
_REQUEST_DUMP: Final = 0x301
_NLMSG_ERROR: Final = 2
_NLMSG_DONE: Final = 3
_INET_DIAG_INFO: Final = 2
# States of TCP in which a connection may hold bytes: ESTABLISHED, SYN_SENT, FIN_WAIT1, CLOSE_WAIT,
# LAST_ACK, CLOSING; not those that listen or only wait.
_CONNECTED: Final = 1 << 1 | 1 << 2 | 1 << 4 | 1 << 8 | 1 << 9 | 1 << 11
_HEADER: Final = struct.Struct("=IHHII")
_REQUEST: Final = struct.Struct("=BBBBI48x")
# Family, state, timer, retransmissions; ports, source, destination; expiry, queues, user, inode.
_MESSAGE: Final = struct.Struct("=BBBB HH 16s 16s I8x 4x IIII")
_PORTS: Final = struct.Struct("!HH")
_ATTRIBUTE: Final = struct.Struct("=HH")


class DiagError(ValueError):
    """An answer that is none; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketReading:
    """One TCP connection, as its kernel counts it. Bytes, nanoseconds, counts since it began."""

    inode: int
    local_address: str
    local_port: int
    peer_address: str
    peer_port: int
    unread_bytes: int
    unacked_bytes: int
    queued_bytes: int | None = None
    sent_bytes: int | None = None
    acked_bytes: int | None = None
    received_bytes: int | None = None
    retransmits: int | None = None
    rtt_ns: int | None = None
    backoff: int | None = None
    since_ack_ns: int | None = None


def request(family: int, serial: int) -> bytes:
    """Return the message that asks for all TCP connections of a family (AF_INET, AF_INET6)."""
    body = _REQUEST.pack(family, _TCP, 1 << (_INET_DIAG_INFO - 1), 0, _CONNECTED)
    length = _HEADER.size + len(body)
    return _HEADER.pack(length, _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, serial, 0) + body


@dataclass(frozen=True, slots=True)
class Answer:
    """What one datagram holds, and whether it is the last one."""

    sockets: tuple[SocketReading, ...]
    done: bool


def parse(datagram: bytes, serial: int) -> Answer:
    """Return what a datagram of the kernel says; messages of other requests are left out.

    Raises
    ------
    DiagError
        If the kernel refuses, or the datagram is damaged.
    """
    found, done, at = [], False, 0
    while at + _HEADER.size <= len(datagram):
        length, kind, _, number, _ = _HEADER.unpack_from(datagram, at)
        if length < _HEADER.size or at + length > len(datagram):
            raise DiagError("a message is longer than its datagram")
        body = datagram[at + _HEADER.size : at + length]
        at += (length + 3) & ~3
        if number != serial:
            continue
        if kind == _NLMSG_ERROR:
            code = -int.from_bytes(body[:4], "little", signed=True) if len(body) >= 4 else 0
            raise DiagError(f"the kernel refuses socket diagnostics: errno {code}")
        if kind == _NLMSG_DONE:
            done = True
        elif kind == _SOCK_DIAG_BY_FAMILY:
            found.append(_socket(body))
    return Answer(tuple(found), done)


def _socket(body: bytes) -> SocketReading:
    if len(body) < _MESSAGE.size:
        raise DiagError("a socket's message is too short")
    family, _, _, _, _, _, source, destination, _, unread, unsent, _, inode = _MESSAGE.unpack_from(
        body
    )
    source_port, destination_port = _PORTS.unpack_from(body, 4)
    info = b""
    at = _MESSAGE.size
    while at + _ATTRIBUTE.size <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, at)
        if length < _ATTRIBUTE.size or at + length > len(body):
            raise DiagError("an attribute is longer than its message")
        if kind == _INET_DIAG_INFO:
            info = body[at + _ATTRIBUTE.size : at + length]
        at += (length + 3) & ~3
    waiting = _number(info, 144, "=I")
    rtt_us, ack_ms = _number(info, 68, "=I"), _number(info, 56, "=I")
    return SocketReading(
        inode=inode,
        local_address=_address(family, source), local_port=source_port,
        peer_address=_address(family, destination), peer_port=destination_port,
        # Of a connection: what was written and is not acknowledged, sent or not.
        unread_bytes=unread, unacked_bytes=max(0, unsent - (waiting or 0)), queued_bytes=waiting,
        sent_bytes=_number(info, 200, "=Q"), acked_bytes=_number(info, 120, "=Q"),
        received_bytes=_number(info, 128, "=Q"), retransmits=_number(info, 100, "=I"),
        rtt_ns=rtt_us * US_NS if rtt_us else None,
        backoff=info[4] if len(info) > 4 else None,
        since_ack_ns=None if ack_ms is None else ack_ms * MS_NS,
    )  # fmt: skip


def _number(info: bytes, at: int, form: str) -> int | None:
    """Return a number of `tcp_info`; None if this kernel's is too short for it."""
    size = struct.calcsize(form)
    return int(struct.unpack_from(form, info, at)[0]) if len(info) >= at + size else None


@lru_cache(maxsize=4_096)
def _address(family: int, raw: bytes) -> str:
    """Return an address; of a mapped one its IPv4 address, as the other end names it."""
    if family == AF_INET:
        return str(ipaddress.IPv4Address(raw[:4]))
    address = ipaddress.IPv6Address(raw)
    return str(address.ipv4_mapped or address)


def connections(datagrams: Iterator[bytes], serial: int, limit: int) -> list[SocketReading]:
    """Return the connections of all datagrams up to the last one; at most so many.

    Raises
    ------
    DiagError
        If one is damaged, or they end too early.
    """
    found: list[SocketReading] = []
    for datagram in datagrams:
        answer = parse(datagram, serial)
        found.extend(answer.sockets[: limit - len(found)])
        if answer.done:
            return found
    raise DiagError("the kernel's answer has no end")
