"""Mutated probes at a responder with a key, through real sockets."""

import os
import random
import socket
import tracemalloc
import zlib

import pytest

from probers import packet
from probers.clock import SystemClock
from probers.packet import Packets
from probers.transports.udp import UdpTransport

LOOPBACK = "127.0.0.1"
KEY = b"the key of this cluster, 32 byte"
SEALED = Packets((KEY,))
CRC_AT = packet.HEADER_BYTES - 4
SIZES = (50, 50, 50, 64, 999)


def originals(rng: random.Random) -> list[bytes]:
    """Return packets of somebody with the key: probes mostly, and what a responder sends."""
    probes = [SEALED.probe(rng.getrandbits(64), size) for size in SIZES for _ in range(8)]
    parsed = [SEALED.unpack(probe) for probe in probes[:4]]
    replies = [SEALED.reply(one, t2_ns=5, t3_ns=9, t2_kernel=True) for one in parsed]
    return [*probes, *replies, SEALED.follow_up(7, hold_ns=3)]


def with_crc(data: bytes) -> bytes:
    """Return the packet with a check sum that fits: an attacker knows the format."""
    if len(data) < packet.HEADER_BYTES:
        return data
    padding = data[packet.HEADER_BYTES :]
    crc = zlib.crc32(padding, zlib.crc32(data[:CRC_AT]))
    return data[:CRC_AT] + crc.to_bytes(4, "big") + padding


def mutated(rng: random.Random, data: bytes) -> bytes:
    """Return a packet with bytes cut, doubled, flipped or made up, mostly with a good CRC."""
    for _ in range(rng.randint(1, 4)):
        a = rng.randrange(len(data) + 1)
        b = min(len(data), a + rng.choice((1, 1, 2, 8, 40)))
        piece = rng.choice(
            (
                b"",
                data[a:b] * 2,
                bytes(b - a),
                rng.randbytes(b - a),
                rng.randbytes(rng.randint(0, 9)),
            )
        )
        data = data[:a] + piece + data[b:]
    return with_crc(data) if rng.random() < 0.8 else data


@pytest.mark.timeout(3_600)
def test_mutated_probes_get_no_reply_and_do_not_fill_memory() -> None:
    """Only what somebody with the key has made is answered, by no more bytes; nothing else is.

    For a long run set SKELETONHUNTER_FUZZ_PACKETS=1000000.
    """
    count = int(os.environ.get("SKELETONHUNTER_FUZZ_PACKETS", "10000"))
    rng = random.Random(11)
    made = originals(rng)
    good = {data for data in made if SEALED.unpack(data).type is packet.PacketType.PROBE}
    transport = UdpTransport(SystemClock(), LOOPBACK, 0, packets=SEALED)
    answered = expected = 0
    tracemalloc.start()
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.bind((LOOPBACK, 0))
            stranger.setblocking(False)
            for number in range(count):
                data = rng.choice(made)
                if rng.random() > 0.01:
                    data = mutated(rng, data)
                stranger.sendto(data, (LOOPBACK, transport.port))
                assert transport.poll() == []
                expected += data in good
                try:
                    reply = stranger.recv(65_536)
                except BlockingIOError:
                    reply = None
                assert (reply is not None) == (data in good), data.hex()
                if reply is not None:
                    answered += 1
                    assert len(reply) == len(data)
                if number == 1_000:
                    tracemalloc.reset_peak()
                    before, _ = tracemalloc.get_traced_memory()
            after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        assert transport.is_current()  # counts what the kernel has dropped
        counts = transport.counts
        transport.close()
    assert 0 < answered == expected == counts.answered
    # Intact by their check sum, and made without the key: the seal refuses those.
    assert counts.forged > count // 4
    read = counts.forged + counts.malformed + counts.foreign + counts.answered
    assert read + counts.filtered == count
    assert after - before < 64 * 1024
    # One datagram, its packet, and what it raises.
    assert peak - before < 256 * 1024
