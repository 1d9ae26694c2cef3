"""The lab's encapsulation: a small header before every datagram, as VXLAN has one. Pure.

An RNIC behind a gateway (the lab's virtual switch) exchanges all its datagrams with that one
address; the header says where they really go. Nodes of the fabric rewrite nothing but the TTL,
and answer with an error when they cannot forward. All fields of a datagram are checked; what is
wrong raises an `EncapError`.
"""

import socket
import struct
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

MAGIC: Final = b"SKE1"
# magic, type, ttl, entropy, src addr, src port, dst addr, dst port
_HEADER: Final = struct.Struct("!4sBBH4sH4sH")
HEADER_BYTES: Final = _HEADER.size
# Largest UDP payload over IPv4 (65,535 less 20 for IP and 8 for UDP).
MAX_DATAGRAM_BYTES: Final = 65_507
MAX_PAYLOAD_BYTES: Final = MAX_DATAGRAM_BYTES - HEADER_BYTES
# What a node quotes of the datagram it could not forward: enough for a probe's
# own header, as ICMP quotes the start of a datagram.
QUOTE_BYTES: Final = 64
# The address of a node is prefixed by its length in one byte.
MAX_ADDRESS_BYTES: Final = 255
DEFAULT_TTL: Final = 64


class EncapError(ValueError):
    """Bytes that are no datagram of the lab, or a field that fits none."""


class EncapType(IntEnum):
    """What a datagram is."""

    DATA = 0
    TTL_EXCEEDED = 1
    UNREACHABLE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class EncapHeader:
    """The 20 bytes before the payload.

    `entropy` is the flow's number: it plays VXLAN's outer UDP source port, and
    the fabric's ECMP hashes over it beside the addresses. In TTL_EXCEEDED and
    UNREACHABLE all other fields are those of the datagram that failed.
    """

    type: EncapType = EncapType.DATA
    ttl: int = DEFAULT_TTL
    entropy: int
    src_address: str
    src_port: int
    dst_address: str
    dst_port: int

    @property
    def src(self) -> tuple[str, int]:
        """Address and port of the sender's endpoint, as sockets take them."""
        return self.src_address, self.src_port

    @property
    def dst(self) -> tuple[str, int]:
        """Address and port of the target endpoint, as sockets take them."""
        return self.dst_address, self.dst_port

    def error(self, kind: EncapType) -> "EncapHeader":
        """Return the header of the error that answers this datagram."""
        return replace(self, type=kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """Payload of TTL_EXCEEDED and UNREACHABLE: who answers, and to what."""

    address: str
    quoted: bytes


_TYPES: Final = {int(kind): kind for kind in EncapType}


def _ipv4(what: str, text: str) -> bytes:
    try:
        return socket.inet_pton(socket.AF_INET, text)
    except (OSError, ValueError) as error:
        raise EncapError(f"{what} {text!r} is no IPv4 address") from error


def pack(header: EncapHeader, payload: bytes) -> bytes:
    """Return header and payload as one datagram.

    Raises
    ------
    EncapError
        If the payload is too large or a field does not fit.
    """
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise EncapError(f"payload of {len(payload)} bytes; at most {MAX_PAYLOAD_BYTES}")
    try:
        packed = _HEADER.pack(
            MAGIC,
            header.type,
            header.ttl,
            header.entropy,
            _ipv4("source", header.src_address),
            header.src_port,
            _ipv4("destination", header.dst_address),
            header.dst_port,
        )
    except struct.error as error:
        raise EncapError(f"field out of range in {header}: {error}") from error
    return packed + payload


def unpack(datagram: bytes) -> tuple[EncapHeader, bytes]:
    """Split a datagram into header and payload.

    Raises
    ------
    EncapError
        If it is truncated or oversized, has a foreign magic or an unknown type.
    """
    if not HEADER_BYTES <= len(datagram) <= MAX_DATAGRAM_BYTES:
        raise EncapError(f"{len(datagram)} bytes; {HEADER_BYTES} to {MAX_DATAGRAM_BYTES} expected")
    magic, kind, ttl, entropy, src, src_port, dst, dst_port = _HEADER.unpack_from(datagram)
    if magic != MAGIC:
        raise EncapError(f"magic {magic.hex()} instead of {MAGIC.hex()}")
    known = _TYPES.get(kind)
    if known is None:
        raise EncapError(f"unknown type {kind}")
    header = EncapHeader(
        type=known,
        ttl=ttl,
        entropy=entropy,
        src_address=socket.inet_ntoa(src),
        src_port=src_port,
        dst_address=socket.inet_ntoa(dst),
        dst_port=dst_port,
    )
    return header, datagram[HEADER_BYTES:]


def pack_report(address: str, original_payload: bytes) -> bytes:
    """Return the payload of an error: the node's address, the start of what failed.

    Raises
    ------
    EncapError
        If the address has more than 255 bytes as UTF-8, or none.
    """
    name = address.encode()
    if not 1 <= len(name) <= MAX_ADDRESS_BYTES:
        raise EncapError(f"address of {len(name)} bytes; 1 to {MAX_ADDRESS_BYTES}")
    return bytes((len(name),)) + name + original_payload[:QUOTE_BYTES]


def unpack_report(payload: bytes) -> NodeReport:
    """Read the payload of an error.

    Raises
    ------
    EncapError
        If it is truncated, longer than a quote, or its address is not printable UTF-8.
    """
    length = payload[0] if payload else 0
    if length == 0 or len(payload) < 1 + length:
        raise EncapError(f"report of {len(payload)} bytes claims an address of {length}")
    quoted = payload[1 + length :]
    if len(quoted) > QUOTE_BYTES:
        raise EncapError(f"report quotes {len(quoted)} bytes; at most {QUOTE_BYTES}")
    try:
        address = payload[1 : 1 + length].decode()
    except UnicodeDecodeError as error:
        raise EncapError(f"address of a report is no UTF-8: {error}") from error
    if not address.isprintable():
        raise EncapError(f"address {address!r} of a report is not printable")
    return NodeReport(address=address, quoted=quoted)
