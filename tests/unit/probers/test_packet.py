"""The probe packet: sizes, round trip, and every way to be wrong."""

import struct
import zlib

import pytest

from probers import packet
from probers.packet import PacketError, PacketType


def test_a_probe_has_exactly_the_size_asked_for() -> None:
    """Sizes from the least to the largest come out as asked, and parse."""
    for size in (packet.MIN_PACKET_BYTES, 51, 1_500, packet.MAX_PACKET_BYTES):
        data = packet.pack_probe(2**64 - 1, size)
        assert len(data) == size
        assert packet.unpack(data) == (PacketType.PROBE, 2**64 - 1, 0, 0, False, data[36:])


def test_the_default_probe_is_no_longer_than_r_pingmeshs() -> None:
    """50 bytes of payload, as R-Pingmesh sends."""
    assert len(packet.pack_probe(1)) == 50


@pytest.mark.parametrize("size", [0, 49, 8_973, 10**9])
def test_sizes_out_of_bounds_are_refused(size: int) -> None:
    """The configuration check names the value and both bounds."""
    with pytest.raises(ValueError, match=f"{size}.*50 to 8972"):
        packet.check_size(size)


def test_a_reply_echoes_nonce_and_length_and_carries_both_times() -> None:
    """What the prober needs for its subtraction comes back, in no more bytes."""
    probe = packet.unpack(packet.pack_probe(77, 300))
    data = packet.pack_reply(probe, t2_ns=1_000, t3_ns=1_250, t2_kernel=True)
    reply = packet.unpack(data)
    assert (reply.type, reply.nonce, reply.hold_ns) == (PacketType.REPLY, 77, 250)
    assert reply.t2_kernel
    assert len(data) == 300


def test_every_flipped_byte_is_noticed() -> None:
    """One byte changed anywhere, the padding included, is an error."""
    data = packet.pack_reply(packet.unpack(packet.pack_probe(9)), t2_ns=5, t3_ns=6, t2_kernel=False)
    for position in range(len(data)):
        bad = bytearray(data)
        bad[position] ^= 0x40
        with pytest.raises(PacketError):
            packet.unpack(bytes(bad))


def test_a_corrupted_packet_still_says_whose_it_is() -> None:
    """With the nonce intact the error carries it; with a foreign magic it does not."""
    data = bytearray(packet.pack_probe(1234))
    data[-1] ^= 1
    with pytest.raises(PacketError, match="CRC") as caught:
        packet.unpack(bytes(data))
    assert caught.value.nonce == 1234
    data[0] ^= 1
    with pytest.raises(PacketError, match="magic") as caught:
        packet.unpack(bytes(data))
    assert caught.value.nonce is None


@pytest.mark.parametrize(("field", "value"), [(4, 2), (5, 0), (5, 9)])
def test_unknown_versions_and_types_are_errors_even_with_a_good_crc(field: int, value: int) -> None:
    """A later agent's packet is refused, not misread."""
    data = bytearray(packet.pack_probe(1))
    data[field] = value
    crc = zlib.crc32(bytes(data[36:]), zlib.crc32(bytes(data[:32])))
    data[32:36] = struct.pack("!I", crc)
    with pytest.raises(PacketError, match=str(value)):
        packet.unpack(bytes(data))


def test_the_start_of_a_packet_is_enough_for_its_nonce() -> None:
    """What an ICMP error or a lab node quotes identifies the probe; less does not."""
    data = packet.pack_probe(4711, 1_400)
    assert packet.quoted_nonce(data[:64]) == 4711
    assert packet.quoted_nonce(data[:32]) == 4711
    assert packet.quoted_nonce(data[:31]) is None
    assert packet.quoted_nonce(b"\x00" * 64) is None
