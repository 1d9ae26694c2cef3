"""What is made of an entry of a socket's error queue, for both families."""

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probers.transports.sockets import IPV4, IPV6, Family, SocketError, parse_error
from schemas.enums import ProbeStatus

REPORTERS = {IPV4.number: "10.1.2.3", IPV6.number: "fd00::a:1"}


def entry(family: Family, kind: int, code: int, *, origin: int | None = None) -> bytes:
    """Return a sock_extended_err with its offender, as the kernel lays them out."""
    packed = socket.inet_pton(family.number, REPORTERS[family.number])
    head = struct.pack("=HH", family.number, 0) + bytes(family.offender_at - 4)
    source = family.origin if origin is None else origin
    return struct.pack("=IBBBBII", 113, source, kind, code, 0, 0, 0) + head + packed


def parsed(family: Family, data: bytes) -> SocketError | None:
    """Return what an entry tells."""
    return parse_error(family, b"quote", [(family.level, family.receive_errors, data)])


@pytest.mark.parametrize("family", [IPV4, IPV6], ids=["ipv4", "ipv6"])
def test_an_icmp_error_names_its_sender_and_its_meaning(family: Family) -> None:
    """Time exceeded, port unreachable and other unreachables, each by its family's numbers."""
    expired = parsed(family, entry(family, family.time_exceeded, 0))
    refused = parsed(family, entry(family, family.unreachable, family.port_unreachable))
    no_route = parsed(family, entry(family, family.unreachable, 0))
    assert expired is not None
    assert refused is not None
    assert no_route is not None
    assert (expired.reporter, expired.ttl_exceeded) == (REPORTERS[family.number], True)
    assert (refused.status, refused.ttl_exceeded) == (ProbeStatus.REFUSED, False)
    assert (no_route.status, no_route.ttl_exceeded) == (ProbeStatus.UNREACHABLE, False)


def test_a_packet_that_is_too_big_is_not_taken_for_an_answer() -> None:
    """ICMPv6's type 2, of a router whose next link has a smaller MTU: UNREACHABLE."""
    error = parsed(IPV6, entry(IPV6, 2, 0))
    assert error is not None
    assert (error.status, error.ttl_exceeded) == (ProbeStatus.UNREACHABLE, False)


@pytest.mark.parametrize("family", [IPV4, IPV6], ids=["ipv4", "ipv6"])
def test_an_error_of_the_own_host_has_no_reporter(family: Family) -> None:
    """What the kernel itself could not send says nothing about a router."""
    error = parsed(family, entry(family, family.time_exceeded, 0, origin=1))
    assert error is not None
    assert (error.reporter, error.icmp_type) == (None, None)


@given(st.sampled_from([IPV4, IPV6]), st.binary(max_size=64))
def test_any_bytes_are_an_error_or_none(family: Family, data: bytes) -> None:
    """A truncated entry is read as far as it goes."""
    error = parsed(family, data)
    assert (error is None) == (len(data) < 16)
