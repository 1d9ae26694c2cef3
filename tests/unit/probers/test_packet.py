"""The probe packet: sizes, round trip, and every way to be wrong."""

import random
import struct
import zlib

import pytest

from probers import packet
from probers.packet import UNSEALED, ForgedError, Packet, PacketError, Packets, PacketType

KEY = b"0123456789abcdef0123456789abcdef"
OTHER = b"another key of more than sixteen bytes"


def _renew_crc(data: bytearray) -> None:
    end = packet.HEADER_BYTES
    crc = zlib.crc32(bytes(data[end:]), zlib.crc32(bytes(data[: end - 4])))
    data[end - 4 : end] = struct.pack("!I", crc)


def test_a_probe_has_exactly_the_size_asked_for() -> None:
    """Sizes from the least to the largest come out as asked, and parse."""
    for size in (packet.MIN_PACKET_BYTES, 51, 1_500, packet.MAX_PACKET_BYTES):
        data = UNSEALED.probe(2**64 - 1, size)
        assert len(data) == size
        padding = bytes(size - packet.HEADER_BYTES)
        assert UNSEALED.unpack(data) == Packet(PacketType.PROBE, 2**64 - 1, padding=padding)


def test_the_default_probe_is_no_longer_than_r_pingmeshs() -> None:
    """50 bytes of payload, as R-Pingmesh sends."""
    assert len(UNSEALED.probe(1)) == 50


@pytest.mark.parametrize("size", [0, 49, 8_973, 10**9])
def test_sizes_out_of_bounds_are_refused(size: int) -> None:
    """The configuration check names the value and both bounds."""
    with pytest.raises(ValueError, match=f"{size}.*50 to 8972"):
        packet.check_size(size)


def test_a_reply_echoes_nonce_and_length_and_carries_both_times() -> None:
    """What the prober needs for its subtraction comes back, in no more bytes."""
    probe = UNSEALED.unpack(UNSEALED.probe(77, 300))
    data = UNSEALED.reply(probe, t2_ns=1_000, t3_ns=1_250, t2_kernel=True)
    reply = UNSEALED.unpack(data)
    assert (reply.type, reply.nonce, reply.hold_ns) == (PacketType.REPLY, 77, 250)
    assert reply.t2_kernel
    assert len(data) == 300


def test_every_flipped_byte_is_noticed() -> None:
    """One byte changed anywhere, the padding included, is an error."""
    data = UNSEALED.reply(UNSEALED.unpack(UNSEALED.probe(9)), t2_ns=5, t3_ns=6, t2_kernel=False)
    for position in range(len(data)):
        bad = bytearray(data)
        bad[position] ^= 0x40
        with pytest.raises(PacketError):
            UNSEALED.unpack(bytes(bad))


def test_a_corrupted_packet_still_says_whose_it_is() -> None:
    """With the nonce intact the error carries it; with a foreign magic it does not."""
    data = bytearray(UNSEALED.probe(1234))
    data[-1] ^= 1
    with pytest.raises(PacketError, match="CRC") as caught:
        UNSEALED.unpack(bytes(data))
    assert caught.value.nonce == 1234
    data[0] ^= 1
    with pytest.raises(PacketError, match="magic") as caught:
        UNSEALED.unpack(bytes(data))
    assert caught.value.nonce is None


@pytest.mark.parametrize(("field", "value"), [(4, 1), (4, 3), (5, 0), (5, 9)])
def test_unknown_versions_and_types_are_errors_even_with_a_good_crc(field: int, value: int) -> None:
    """A later agent's packet is refused, not misread."""
    data = bytearray(UNSEALED.probe(1))
    data[field] = value
    _renew_crc(data)
    with pytest.raises(PacketError, match=str(value)):
        UNSEALED.unpack(bytes(data))


def test_the_start_of_a_packet_is_enough_for_its_nonce() -> None:
    """What an ICMP error or a lab node quotes identifies the probe; less does not."""
    data = UNSEALED.probe(4711, 1_400)
    assert packet.quoted_nonce(data[:64]) == 4711
    assert packet.quoted_nonce(data[:32]) == 4711
    assert packet.quoted_nonce(data[:31]) is None
    assert packet.quoted_nonce(b"\x00" * 64) is None


@pytest.mark.parametrize(
    ("made", "read", "why"),
    [
        (Packets(), Packets([KEY]), "not sealed"),
        (Packets([KEY]), Packets(), "this agent has none"),
        (Packets([OTHER]), Packets([KEY]), "another key"),
    ],
)
def test_only_who_has_the_key_is_understood(made: Packets, read: Packets, why: str) -> None:
    """A packet of a stranger is a forgery, whose nonce is not even told."""
    with pytest.raises(ForgedError, match=why) as caught:
        read.unpack(made.probe(5))
    assert caught.value.nonce is None


def test_keys_can_change_one_agent_after_another() -> None:
    """Who accepts both keys understands those that seal with either."""
    both = Packets([OTHER, KEY])
    assert both.unpack(Packets([KEY]).probe(1)).nonce == 1
    assert both.unpack(Packets([OTHER]).probe(2)).nonce == 2
    assert Packets([KEY, OTHER]).unpack(both.probe(3)).nonce == 3


def test_a_sealed_packet_that_was_changed_and_given_a_new_crc_is_a_forgery() -> None:
    """No field and no byte of padding can be changed by who knows the format only."""
    packets = Packets([KEY])
    data = packets.reply(packets.unpack(packets.probe(9)), t2_ns=5, t3_ns=6, t2_kernel=False)
    refused = 0
    for position in [*range(8, packet.HEADER_BYTES - 4), *range(packet.HEADER_BYTES, len(data))]:
        bad = bytearray(data)
        bad[position] ^= 0x40
        _renew_crc(bad)
        with pytest.raises(ForgedError):
            packets.unpack(bytes(bad))
        refused += 1
    assert refused == len(data) - 12


def test_a_hundred_thousand_mutated_packets_raise_nothing_but_packet_errors() -> None:
    """Bytes cut, flipped, swapped and made up never escape the parser, nor get an answer."""
    draw = random.Random(11)
    packets = Packets([KEY])
    good = packets.probe(77, 64)
    for _ in range(100_000):
        data = bytearray(good)
        for _ in range(draw.randrange(1, 6)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        data = data[: draw.randrange(len(data) + 1)] if draw.random() < 0.2 else data
        if draw.random() < 0.5 and len(data) >= packet.HEADER_BYTES:
            _renew_crc(data)
        if bytes(data) != good:
            with pytest.raises(PacketError):
                packets.unpack(bytes(data))


def test_a_follow_up_carries_the_hold() -> None:
    """What the second packet of a responder says is how long the RNIC had the probe."""
    parsed = UNSEALED.unpack(UNSEALED.follow_up(8, hold_ns=12_345))
    assert (parsed.type, parsed.nonce, parsed.hold_ns) == (PacketType.FOLLOW_UP, 8, 12_345)


@pytest.mark.parametrize("keys", [[b"short"], [KEY] * 5])
def test_keys_that_are_no_keys_are_refused(keys: list[bytes]) -> None:
    """Too short to be a secret, or more than anybody needs."""
    with pytest.raises(ValueError, match=r"bytes|at most"):
        Packets(keys)
