"""The probe and its reply: a fixed header, padding, nothing that a reader must trust.

A reply is exactly as long as its probe, so that a responder cannot be used to
amplify traffic. Every probe carries a fresh 64-bit nonce from the system's random
source: who cannot see the probe cannot forge its reply. A CRC-32 over the whole
packet tells corruption from a foreign packet.
"""

import struct
import zlib
from enum import IntEnum
from typing import Final, NamedTuple

MAGIC: Final = b"SKP1"
VERSION: Final = 1
# magic, version, type, flags, nonce, t2, t3; the CRC follows
_HEADER: Final = struct.Struct("!4sBBHQQQ")
_CRC: Final = struct.Struct("!I")
HEADER_BYTES: Final = _HEADER.size + _CRC.size
# R-Pingmesh probes with 50 bytes of payload; the header would fit into less.
MIN_PACKET_BYTES: Final = 50
# A jumbo frame's payload: larger probes would be fragmented and test something else.
MAX_PACKET_BYTES: Final = 8_972
FLAG_T2_KERNEL: Final = 1
_TIME_MASK: Final = 2**64 - 1


class PacketType(IntEnum):
    """What a packet is."""

    PROBE = 1
    REPLY = 2


class PacketError(ValueError):
    """Bytes that are no packet of ours.

    `nonce` is the one they claim when the header can be read at all: a reply
    corrupted on its way still says whose it was.
    """

    def __init__(self, reason: str, nonce: int | None = None) -> None:
        self.reason = reason
        self.nonce = nonce
        super().__init__(reason)


class Packet(NamedTuple):
    """A parsed packet; a tuple, because many are made.

    `t2_ns` and `t3_ns` are the responder's receive and send time, nanoseconds of
    its own clock; 0 in a probe. Only their difference means anything.
    """

    type: PacketType
    nonce: int
    t2_ns: int
    t3_ns: int
    t2_kernel: bool
    padding: bytes

    @property
    def hold_ns(self) -> int:
        """How long the responder held the probe, nanoseconds."""
        return self.t3_ns - self.t2_ns


def check_size(size_bytes: int) -> int:
    """Return the size if a probe can have it.

    Raises
    ------
    ValueError
        If it is out of bounds.
    """
    if not MIN_PACKET_BYTES <= size_bytes <= MAX_PACKET_BYTES:
        raise ValueError(
            f"a probe of {size_bytes} bytes; {MIN_PACKET_BYTES} to {MAX_PACKET_BYTES} are possible"
        )
    return size_bytes


def _seal(header: bytes, padding: bytes) -> bytes:
    return header + _CRC.pack(zlib.crc32(padding, zlib.crc32(header))) + padding


def pack_probe(nonce: int, size_bytes: int = MIN_PACKET_BYTES) -> bytes:
    """Return a probe of exactly that size; `check_size` says which sizes there are."""
    header = _HEADER.pack(MAGIC, VERSION, PacketType.PROBE, 0, nonce, 0, 0)
    return _seal(header, bytes(size_bytes - HEADER_BYTES))


def pack_reply(probe: Packet, *, t2_ns: int, t3_ns: int, t2_kernel: bool) -> bytes:
    """Return the reply to a probe, as long as the probe was."""
    flags = FLAG_T2_KERNEL if t2_kernel else 0
    times = t2_ns & _TIME_MASK, t3_ns & _TIME_MASK
    header = _HEADER.pack(MAGIC, VERSION, PacketType.REPLY, flags, probe.nonce, *times)
    return _seal(header, probe.padding)


def unpack(data: bytes) -> Packet:
    """Parse a packet.

    Raises
    ------
    PacketError
        If it is too short or too long, has a foreign magic, an unknown version or
        type, or a CRC that does not fit.
    """
    if not MIN_PACKET_BYTES <= len(data) <= MAX_PACKET_BYTES:
        raise PacketError(
            f"{len(data)} bytes; {MIN_PACKET_BYTES} to {MAX_PACKET_BYTES} expected",
            quoted_nonce(data),
        )
    magic, version, kind, flags, nonce, t2_ns, t3_ns = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise PacketError(f"magic {magic.hex()} instead of {MAGIC.hex()}")
    (claimed,) = _CRC.unpack_from(data, _HEADER.size)
    padding = data[HEADER_BYTES:]
    actual = zlib.crc32(padding, zlib.crc32(data[: _HEADER.size]))
    if actual != claimed:
        raise PacketError(f"CRC {actual:08x} instead of {claimed:08x}", nonce)
    if version != VERSION:
        raise PacketError(f"version {version}; this agent speaks {VERSION}", nonce)
    if kind == PacketType.REPLY:
        known = PacketType.REPLY
    elif kind == PacketType.PROBE:
        known = PacketType.PROBE
    else:
        raise PacketError(f"unknown type {kind}", nonce)
    return Packet(known, nonce, t2_ns, t3_ns, bool(flags & FLAG_T2_KERNEL), padding)


def quoted_nonce(quote: bytes) -> int | None:
    """Return the nonce of a packet of which only the start is left, as in an ICMP error.

    None where the start is too short or not of a packet of ours. The CRC cannot be
    checked here; the nonce itself is the proof, since nobody else knows it.
    """
    if len(quote) < _HEADER.size:
        return None
    magic, version, kind, _, nonce, _, _ = _HEADER.unpack_from(quote)
    if magic != MAGIC or version != VERSION or kind not in (PacketType.PROBE, PacketType.REPLY):
        return None
    return int(nonce)
