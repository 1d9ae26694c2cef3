"""Kafka's partitioner for keyed records, for writers that have no Kafka at hand."""

from typing import Final

SEED: Final = 0x9747B28C
FACTOR: Final = 0x5BD1E995
SHIFT: Final = 24
MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the 32-bit MurmurHash2 of Austin Appleby, with the seed that Kafka's clients use."""
    length = len(data)
    h = (SEED ^ length) & MASK
    whole = length - length % 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * FACTOR & MASK
        k ^= k >> SHIFT
        h = (h * FACTOR & MASK) ^ (k * FACTOR & MASK)
    if length > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * FACTOR & MASK
    h ^= h >> 13
    h = h * FACTOR & MASK
    return h ^ (h >> 15)


def partition_of(key: bytes, partitions: int) -> int:
    """Return where Java's producer, or librdkafka's `murmur2_random`, puts the key.

    >>> partition_of(b"agent-h0", 4)
    1
    """
    return (murmur2(key) & 0x7FFFFFFF) % partitions
