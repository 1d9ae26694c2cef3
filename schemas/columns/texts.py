"""Texts that kernels have passed over: their hashes, which of them are equal, what they are."""

import secrets
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.columns.arrays import Int32s, Int64s
from schemas.columns.compiled import compiled, load_word
from schemas.columns.wire import same_bytes

# 2**64 divided by the golden ratio: a multiplication spreads a word's bits over the upper ones.
GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
# Another for each process, so that nobody can prepare texts that collide.
_SEED: Final = np.uint64(secrets.randbits(64))
_NONE: Final = -1


@compiled
def mixed(data: NDArray[np.uint8], at: int, length: int, seed: np.uint64) -> np.uint64:
    """Return a hash of bytes of a padded array."""
    result = (seed ^ np.uint64(length)) * GOLDEN
    place = 0
    while place < length:
        word = load_word(data, at + place)
        left = length - place
        if left < 8:
            word <<= np.uint64(8 * (8 - left))
        result = (result ^ word) * GOLDEN
        result ^= result >> np.uint64(32)
        place += 8
    return result


def distinct_texts(data: bytes, starts: Int64s, lengths: Int64s) -> tuple[Int32s, Int64s]:
    """Return numbers of texts, one for all that are equal.

    Parameters
    ----------
    data
        Padded, so that a word read at the last byte of a text is within it.
    starts, lengths : (n,) int64
        Where the texts are in it.

    Returns
    -------
    numbers : (n,) int32
        By text, from 0 in the order in which they first come.
    first : (distinct,) int64
        By number the first text that has it.
    """
    slots = np.full(1 << (2 * len(starts)).bit_length(), _NONE, np.int32)
    numbers, first = np.zeros(len(starts), np.int32), np.zeros(len(starts), np.int64)
    raw = np.frombuffer(data, np.uint8)
    count = _number(raw, starts, lengths, _SEED, slots, numbers, first)
    return numbers, first[:count]


@compiled
def _number(
    data: NDArray[np.uint8],
    starts: Int64s,
    lengths: Int64s,
    seed: np.uint64,
    slots: Int32s,
    numbers: Int32s,
    first: Int64s,
) -> int:
    """Return how many texts differ; `slots` is an open hash table of their numbers."""
    mask = len(slots) - 1
    count = 0
    for text in range(len(starts)):
        at, length = starts[text], lengths[text]
        slot = int(np.int64(mixed(data, at, length, seed) >> np.uint64(16))) & mask
        while slots[slot] >= 0:
            known = first[slots[slot]]
            if lengths[known] == length and same_bytes(data, at, data, starts[known], length):
                break
            slot = (slot + 1) & mask
        if slots[slot] < 0:
            slots[slot] = count
            first[count] = text
            count += 1
        numbers[text] = slots[slot]
    return count


def texts_of(array: bytes, most: float) -> tuple[str, ...] | None:
    """Return the texts of an Avro array of strings that a kernel has passed over.

    So they are ASCII, and no length is wrong. None: there are more than `most`. Empty ones take a
    byte each: to read all that fit into a message would take seconds.

    >>> texts_of(bytes([4, 2]) + b"a" + bytes([6]) + b"tp0" + bytes([0]), 2)
    ('a', 'tp0')
    """
    found: list[str] = []
    at = 0
    while True:
        count, at = _number_at(array, at)
        if count < 0:
            # The size of the block follows.
            _, at = _number_at(array, at)
        if count == 0:
            return tuple(found)
        if len(found) + abs(count) > most:
            return None
        for _ in range(abs(count)):
            length, at = _number_at(array, at)
            found.append(array[at : at + length].decode("ascii"))
            at += length


def _number_at(data: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag number and the position behind it."""
    raw = shift = 0
    while True:
        byte = data[at]
        raw |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at
