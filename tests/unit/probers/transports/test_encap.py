"""The lab's encapsulation: layout, round trip, errors."""

import pytest

from probers.transports import encap
from probers.transports.encap import EncapError, EncapHeader, EncapType

HEADER = EncapHeader(
    ttl=7, entropy=0xBEEF, src_address="10.1.2.3", src_port=1, dst_address="10.4.5.6", dst_port=2
)


def test_the_layout_is_the_agreed_one() -> None:
    """20 bytes in network order; agents and fabrics of other versions must read them."""
    assert encap.pack(HEADER, b"x").hex() == ("534b45310007beef0a01020300010a040506000278")


def test_errors_keep_the_header_and_name_the_node() -> None:
    """TTL_EXCEEDED carries the original's fields, the node's address and a quote."""
    report = encap.pack_report("127.0.0.1:9", bytes(range(100)))
    datagram = encap.pack(HEADER.error(EncapType.TTL_EXCEEDED), report)
    header, payload = encap.unpack(datagram)
    assert header == HEADER.error(EncapType.TTL_EXCEEDED)
    assert header.src == ("10.1.2.3", 1)
    assert header.dst == ("10.4.5.6", 2)
    node = encap.unpack_report(payload)
    assert (node.address, node.quoted) == ("127.0.0.1:9", bytes(range(64)))


@pytest.mark.parametrize(
    "datagram",
    [b"", bytes(19), b"SKE2" + bytes(16), b"SKE1\x03" + bytes(15), b"SKE1" + bytes(65_504)],
)
def test_foreign_and_broken_datagrams_are_refused(datagram: bytes) -> None:
    """Too short, foreign magic, unknown type, longer than any datagram."""
    with pytest.raises(EncapError):
        encap.unpack(datagram)


@pytest.mark.parametrize(
    "field",
    [
        {"ttl": 256},
        {"entropy": -1},
        {"src_port": 65_536},
        {"dst_address": "nowhere"},
        {"src_address": "::1"},
    ],
)
def test_fields_that_do_not_fit_are_refused(field: dict[str, int | str]) -> None:
    """Packing checks what it packs."""
    fields: dict[str, int | str] = {
        "ttl": 1,
        "entropy": 1,
        "src_address": "10.0.0.1",
        "src_port": 1,
        "dst_address": "10.0.0.2",
        "dst_port": 1,
    }
    with pytest.raises(EncapError):
        encap.pack(EncapHeader(**(fields | field)), b"")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "payload", [b"", b"\x00", b"\x05abc", b"\x02\xff\xfe", b"\x02\n\n", b"\x01a" + bytes(65)]
)
def test_broken_reports_are_refused(payload: bytes) -> None:
    """No address, truncated, no text, not printable, too long a quote."""
    with pytest.raises(EncapError):
        encap.unpack_report(payload)


def test_large_payloads_and_addresses_are_refused() -> None:
    """Nothing is packed that no datagram can hold."""
    with pytest.raises(EncapError, match="payload"):
        encap.pack(HEADER, bytes(encap.MAX_PAYLOAD_BYTES + 1))
    with pytest.raises(EncapError, match="address"):
        encap.pack_report("x" * 256, b"")
