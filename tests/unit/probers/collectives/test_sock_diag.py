"""Messages of the kernel's socket diagnostics, made by hand as linux/inet_diag.h says."""

import ipaddress
import struct

import pytest

from probers.collectives.sock_diag import (
    AF_INET,
    AF_INET6,
    DiagError,
    connections,
    parse,
    request,
)

SERIAL = 7


def message(kind: int, body: bytes, serial: int = SERIAL) -> bytes:
    """Return one netlink message, padded."""
    whole = struct.pack("=IHHII", 16 + len(body), kind, 0, serial, 0) + body
    return whole + bytes(-len(whole) % 4)


def tcp_info(length: int = 232) -> bytes:
    """Return a `tcp_info` with a number in each field that is read."""
    info = bytearray(232)
    info[4] = 3
    for at, value in ((56, 1_500), (68, 250), (100, 9), (144, 1_000)):
        struct.pack_into("=I", info, at, value)
    for at, value in ((120, 10_000), (128, 20_000), (200, 30_000)):
        struct.pack_into("=Q", info, at, value)
    return bytes(info[:length])


def diag(family: int, source: str, destination: str, info: bytes = b"") -> bytes:
    """Return a socket: 17 bytes unread, 4,000 written and not acknowledged, inode 99."""
    ends = [ipaddress.ip_address(a).packed.ljust(16, b"\0") for a in (source, destination)]
    body = struct.pack("=BBBB", family, 1, 0, 0) + struct.pack("!HH", 1_234, 80)
    body += ends[0] + ends[1] + bytes(12) + struct.pack("=IIIII", 0, 17, 4_000, 0, 99)
    if info:
        body += struct.pack("=HH", 4 + len(info), 2) + info
    return body


def test_the_request_is_as_long_as_the_kernel_wants() -> None:
    """A header of 16 bytes and `inet_diag_req_v2` of 56."""
    asked = request(AF_INET, SERIAL)
    assert len(asked) == 72
    assert struct.unpack_from("=IHHII", asked) == (72, 20, 0x301, SERIAL, 0)


def test_a_socket_is_read_whole() -> None:
    """Bytes, nanoseconds; what was written is parted into sent and not sent."""
    body = diag(AF_INET, "10.0.0.1", "10.0.0.2", tcp_info())
    (found,) = parse(message(20, body), SERIAL).sockets
    assert (found.local_address, found.local_port) == ("10.0.0.1", 1_234)
    assert (found.peer_address, found.peer_port, found.inode) == ("10.0.0.2", 80, 99)
    assert (found.unread_bytes, found.unacked_bytes, found.queued_bytes) == (17, 3_000, 1_000)
    assert (found.sent_bytes, found.acked_bytes, found.received_bytes) == (30_000, 10_000, 20_000)
    assert (found.retransmits, found.rtt_ns, found.backoff) == (9, 250_000, 3)
    assert found.since_ack_ns == 1_500_000_000


def test_an_older_kernel_lacks_what_it_does_not_count() -> None:
    """The structure grew over time: 4.6 knows no `bytes_sent`."""
    body = diag(AF_INET, "10.0.0.1", "10.0.0.2", tcp_info(160))
    (found,) = parse(message(20, body), SERIAL).sockets
    assert (found.sent_bytes, found.acked_bytes) == (None, 10_000)
    (bare,) = parse(message(20, diag(AF_INET, "10.0.0.1", "10.0.0.2")), SERIAL).sockets
    assert (bare.rtt_ns, bare.queued_bytes, bare.unacked_bytes) == (None, None, 4_000)


def test_both_ends_name_an_address_alike() -> None:
    """One of a mapped IPv4 address is that address."""
    body = diag(AF_INET6, "::ffff:10.0.0.1", "fd00::2")
    (found,) = parse(message(20, body), SERIAL).sockets
    assert (found.local_address, found.peer_address) == ("10.0.0.1", "fd00::2")


def test_answers_to_others_are_left_out_and_the_limit_holds() -> None:
    """A serial number of before; more sockets than wanted."""
    one = message(20, diag(AF_INET, "10.0.0.1", "10.0.0.2"))
    other = message(20, diag(AF_INET, "10.0.0.9", "10.0.0.2"), serial=6)
    done = message(3, bytes(4))
    assert len(connections(iter([one + other + one, one + done]), SERIAL, 100)) == 3
    assert len(connections(iter([one + one, one + done]), SERIAL, 2)) == 2


@pytest.mark.parametrize(
    ("datagram", "says"),
    [
        (message(2, struct.pack("=i", -13)), "errno 13"),
        (struct.pack("=IHHII", 900, 20, 0, SERIAL, 0), "longer than its datagram"),
        (message(20, bytes(10)), "too short"),
        (
            message(20, diag(AF_INET, "10.0.0.1", "10.0.0.2") + struct.pack("=HH", 900, 2)),
            "an attribute",
        ),
    ],
)
def test_what_is_damaged_or_refused_is_said(datagram: bytes, says: str) -> None:
    """No socket is made up from it."""
    with pytest.raises(DiagError, match=says):
        parse(datagram, SERIAL)


def test_an_answer_without_end_is_none() -> None:
    """Half of the sockets would look like all of them."""
    one = message(20, diag(AF_INET, "10.0.0.1", "10.0.0.2"))
    with pytest.raises(DiagError, match="no end"):
        connections(iter([one]), SERIAL, 100)
