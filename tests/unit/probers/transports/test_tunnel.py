"""What a router quotes of a tunnelled probe, taken apart."""

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probers import packet
from probers.transports.tunnel import parse_report, quoted_payload

NONCE = 0x1122_3344_5566_7788
PROBE = packet.UNSEALED.probe(NONCE)
TIME_EXCEEDED = bytes([11, 0]) + bytes(6)


def ipv4(protocol: int, payload: bytes, *, options: bytes = b"") -> bytes:
    """Return an IPv4 packet; addresses and checksum do not matter here."""
    words = (20 + len(options)) // 4
    header = struct.pack("!BBHHHBBH8s", 0x40 | words, 0, 0, 0, 0, 1, protocol, 0, bytes(8))
    return header + options + payload


def ipv6(protocol: int, payload: bytes) -> bytes:
    """Return an IPv6 packet; addresses do not matter here."""
    return struct.pack("!IHBB32s", 6 << 28, len(payload), protocol, 1, bytes(32)) + payload


def vxlan(
    payload: bytes, *, ethertype: int = 0x0800, options: bytes = b"", inner: bytes = b""
) -> bytes:
    """Return what a VXLAN tunnel's host puts on the wire, without Ethernet."""
    inner = inner or ipv4(socket.IPPROTO_UDP, bytes(8) + payload, options=options)
    frame = bytes(12) + struct.pack("!H", ethertype) + inner
    return ipv4(socket.IPPROTO_UDP, bytes(8) + bytes(8) + frame)


@pytest.mark.parametrize("options", [b"", bytes(8)])
def test_the_nonce_of_a_tunnelled_probe_is_found(options: bytes) -> None:
    """Outer headers, VXLAN and inner frame are skipped, whatever the header's length."""
    datagram = ipv4(socket.IPPROTO_ICMP, TIME_EXCEEDED + vxlan(PROBE, options=options))
    error = parse_report(datagram, "10.65.0.1", 7)
    assert error is not None
    assert packet.quoted_nonce(error.quoted) == NONCE
    assert (error.reporter, error.ttl_exceeded, error.kernel_ns) == ("10.65.0.1", True, 7)


def test_the_nonce_of_a_tunnelled_ipv6_probe_is_found() -> None:
    """The containers' network may be IPv6 while the tunnel's is IPv4."""
    inner = ipv6(socket.IPPROTO_UDP, bytes(8) + PROBE)
    quote = vxlan(b"", ethertype=0x86DD, inner=inner)
    error = parse_report(ipv4(socket.IPPROTO_ICMP, TIME_EXCEEDED + quote), "10.65.0.1", 7)
    assert error is not None
    assert packet.quoted_nonce(error.quoted) == NONCE


@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        ipv4(socket.IPPROTO_UDP, TIME_EXCEEDED + vxlan(PROBE)),
        ipv4(socket.IPPROTO_ICMP, bytes([8, 0]) + bytes(6) + vxlan(PROBE)),
        ipv4(socket.IPPROTO_ICMP, TIME_EXCEEDED + vxlan(PROBE, ethertype=0x86DD)),
        ipv4(
            socket.IPPROTO_ICMP,
            TIME_EXCEEDED + vxlan(b"", ethertype=0x86DD, inner=ipv6(6, bytes(8) + PROBE)),
        ),
        ipv4(socket.IPPROTO_ICMP, TIME_EXCEEDED + ipv4(socket.IPPROTO_UDP, bytes(8) + PROBE)),
    ],
    ids=[
        "nothing",
        "no ICMP",
        "echo request",
        "no IPv6 inside",
        "IPv6 inside, no UDP",
        "no tunnel",
    ],
)
def test_what_is_no_error_of_a_tunnelled_probe_is_ignored(datagram: bytes) -> None:
    """Other ICMP of the host, and errors about its other traffic, bring no nonce."""
    error = parse_report(datagram, "10.65.0.1", None)
    assert error is None or packet.quoted_nonce(error.quoted) is None


@given(cut=st.integers(0, 200))
def test_a_quote_may_end_anywhere(cut: int) -> None:
    """Routers quote as much as they like; too little is no nonce, never an error."""
    payload = quoted_payload(vxlan(PROBE)[:cut])
    nonce = None if payload is None else packet.quoted_nonce(payload)
    assert nonce in (None, NONCE)


@given(data=st.binary(max_size=200))
def test_any_bytes_are_taken(data: bytes) -> None:
    """What comes from the network never raises."""
    error = parse_report(data, "10.65.0.1", None)
    assert error is None or len(error.quoted) < len(data)
