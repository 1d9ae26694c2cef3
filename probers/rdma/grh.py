"""Who sent a datagram: the first 40 bytes of what an unreliable datagram's receiver gets. Pure.

The Global Route Header is there in full over IPv6 and InfiniBand (IBTA volume 1, section 8.3);
over IPv4 the IPv4 header stands in its last 20 bytes (IBTA annex A17, RoCE v2).
"""

import struct
from typing import Final, NamedTuple

GRH_BYTES: Final = 40
_IPV4_AT: Final = 20
_WORDS: Final = struct.Struct("!10H")
_MAPPED: Final = bytes(10) + b"\xff\xff"


class Sender(NamedTuple):
    """Who sent a datagram: GID, 16 bytes, and the hop limit (TTL) that was left on arrival."""

    gid: bytes
    hop_limit: int


def sender_of(grh: bytes) -> Sender | None:
    """Return the sender; None where the bytes are no such header.

    The first 20 bytes mean nothing over IPv4, so that header is looked for first, and its
    check sum tells whether it is one.
    """
    if len(grh) < GRH_BYTES:
        return None
    ipv4 = grh[_IPV4_AT:GRH_BYTES]
    if ipv4[0] == 0x45 and _sums_up(ipv4):
        return Sender(_MAPPED + ipv4[12:16], ipv4[8])
    if grh[0] >> 4 == 6:
        return Sender(grh[8:24], grh[7])
    return None


def _sums_up(header: bytes) -> bool:
    """Return whether the Internet check sum of a header is right (RFC 1071)."""
    total: int = sum(_WORDS.unpack(header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total == 0xFFFF
