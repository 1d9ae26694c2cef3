"""Who sent a datagram, and from how far, read from the 40 bytes before it."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from probers.transports.rdma.gids import sender_of

MAPPED = bytes(10) + b"\xff\xff"


def ipv4(source: bytes, ttl: int) -> bytes:
    """Return an IPv4 header with a right check sum."""
    header = struct.pack("!BBHHHBBH", 0x45, 0, 78, 1, 0, ttl, 17, 0) + source + bytes([10, 9, 0, 2])
    total = sum(struct.unpack("!10H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return header[:10] + struct.pack("!H", ~total & 0xFFFF) + header[12:]


@given(st.binary(min_size=20, max_size=20), st.binary(min_size=4, max_size=4), st.integers(0, 255))
def test_over_ipv4_the_first_half_means_nothing(junk: bytes, source: bytes, ttl: int) -> None:
    """Whatever stands there, a header that sums up is the sender's."""
    assert sender_of(junk + ipv4(source, ttl)) == (MAPPED + source, ttl)


@given(st.binary(min_size=16, max_size=16), st.integers(0, 255))
def test_over_ipv6_the_header_is_the_grh(source: bytes, hop_limit: int) -> None:
    """The source stands at its place in an IPv6 header, and so does the hop limit."""
    grh = struct.pack("!IHBB", 6 << 28, 58, 27, hop_limit) + source + bytes(16)
    assert sender_of(grh) == (source, hop_limit)


@given(st.binary(max_size=60))
def test_garbage_names_nobody_or_somebody_but_never_fails(data: bytes) -> None:
    """What cannot be read is None."""
    found = sender_of(data)
    assert found is None or len(found.gid) == 16
    if len(data) < 40:
        assert found is None
