"""Avro's binary encoding for kernels: numbers, texts and array blocks in a padded byte array.

No function checks the array's bounds by itself. A caller pads the array, and compares positions
with the end of the message. A text is neither passed over nor compared before its length has been
compared with that end.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.columns.compiled import (
    compiled,
    high_zeros,
    inlined,
    load_word,
    low_zeros,
    store_word,
)

# Returned instead of a position or a count: these bytes are not what they should be.
BAD: Final = -1
# A number has at most this many bytes.
MAX_NUMBER_BYTES: Final = 10
# Functions that read whole words read at most so far behind what they are asked for.
WORD_BYTES: Final = 8

_CONTINUED: Final = np.uint64(0x8080808080808080)
_ONE: Final = np.uint64(1)


@inlined
def read_number(data: NDArray[np.uint8], at: int) -> tuple[int, int]:
    """Return a zigzag number and the position behind it, BAD for more than 64 bits.

    A number is seven bits of each byte, up to the first byte whose eighth bit is not set. Eight
    bytes are read at once, and combined without a branch for each. Numbers of one byte, the most
    frequent ones, have a branch of their own: the processor predicts it, and goes on before it
    knows the length.
    """
    word = load_word(data, at)
    if word & np.uint64(0x80) == np.uint64(0):
        short = np.int64(word & np.uint64(0x7F))
        return int((short >> 1) ^ -(short & 1)), at + 1
    if word & np.uint64(0x808080) == np.uint64(0x8080):
        short = np.int64(
            (word & np.uint64(0x7F))
            | ((word & np.uint64(0x7F00)) >> _ONE)
            | ((word & np.uint64(0x7F0000)) >> np.uint64(2))
        )
        return int((short >> 1) ^ -(short & 1)), at + 3
    last = ~word & _CONTINUED
    if last == np.uint64(0):
        return _read_long_number(data, at)
    ends = low_zeros(last)
    word &= (_ONE << ends) - _ONE
    word = (word & np.uint64(0x007F007F007F007F)) | ((word & np.uint64(0x7F007F007F007F00)) >> _ONE)
    word = (word & np.uint64(0x00003FFF00003FFF)) | (
        (word & np.uint64(0x3FFF00003FFF0000)) >> np.uint64(2)
    )
    word = (word & np.uint64(0x000000000FFFFFFF)) | (
        (word & np.uint64(0x0FFFFFFF00000000)) >> np.uint64(4)
    )
    value = np.int64(word >> _ONE) ^ -np.int64(word & _ONE)
    return int(value), at + int(np.int64((ends >> np.uint64(3)) + _ONE))


@compiled
def _read_long_number(data: NDArray[np.uint8], at: int) -> tuple[int, int]:
    """Return the same for nine or ten bytes."""
    raw = np.uint64(0)
    for place in range(MAX_NUMBER_BYTES):
        byte = np.uint64(data[at + place])
        if place == MAX_NUMBER_BYTES - 1 and byte > _ONE:
            return 0, BAD
        raw |= (byte & np.uint64(0x7F)) << np.uint64(7 * place)
        if byte < np.uint64(0x80):
            return int(np.int64(raw >> _ONE) ^ -np.int64(raw & _ONE)), at + place + 1
    return 0, BAD


@inlined
def write_number(out: NDArray[np.uint8], at: int, value: int) -> int:
    """Write a zigzag number; return the position behind it.

    Up to eight bytes are spread over a word at once, without a branch for each; `out` needs room
    for that word.
    """
    raw = (np.uint64(value) << _ONE) ^ np.uint64(value >> 63)
    if raw < np.uint64(0x80):
        out[at] = np.uint8(raw)
        return at + 1
    if raw < _ONE << np.uint64(56):
        word = (raw & np.uint64(0x000000000FFFFFFF)) | (
            (raw & np.uint64(0x00FFFFFFF0000000)) << np.uint64(4)
        )
        word = (word & np.uint64(0x00003FFF00003FFF)) | (
            (word & np.uint64(0x0FFFC0000FFFC000)) << np.uint64(2)
        )
        word = (word & np.uint64(0x007F007F007F007F)) | (
            (word & np.uint64(0x3F803F803F803F80)) << _ONE
        )
        last = (np.uint64(63) - high_zeros(word)) >> np.uint64(3)
        continued = _CONTINUED & ((_ONE << (np.uint64(8) * last)) - _ONE)
        store_word(out, at, word | continued)
        return at + int(np.int64(last)) + 1
    while raw >= np.uint64(0x80):
        out[at] = np.uint8(raw & np.uint64(0x7F)) | np.uint8(0x80)
        raw >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(raw)
    return at + 1


@inlined
def low_bytes(word: np.uint64, count: int) -> np.uint64:
    """Return the first bytes of a word, fewer than 8."""
    return word & ((_ONE << np.uint64(8 * count)) - _ONE)


@inlined
def is_ascii(data: NDArray[np.uint8], at: int, end: int) -> bool:
    """Return whether these bytes are ASCII. Only fastavro decides whether others are UTF-8."""
    seen = np.uint64(0)
    while end - at >= 8:
        seen |= load_word(data, at)
        at += 8
    seen |= low_bytes(load_word(data, at), end - at)
    return bool(seen & _CONTINUED == np.uint64(0))


@inlined
def same_bytes(
    one: NDArray[np.uint8], at: int, other: NDArray[np.uint8], begin: int, length: int
) -> bool:
    """Return whether two arrays hold the same bytes from these positions on."""
    place = 0
    differ = np.uint64(0)
    while length - place > 8:
        differ |= load_word(one, at + place) ^ load_word(other, begin + place)
        place += 8
    if length > place:
        last = load_word(one, at + place) ^ load_word(other, begin + place)
        differ |= last << np.uint64(8 * (8 - (length - place)))
    return bool(differ == np.uint64(0))


@inlined
def copy_bytes(data: NDArray[np.uint8], at: int, end: int, out: NDArray[np.uint8], to: int) -> int:
    """Copy bytes, and up to seven more; return the position behind the bytes asked for."""
    behind = to + end - at
    while at < end:
        store_word(out, to, load_word(data, at))
        at += 8
        to += 8
    return behind


@inlined
def read_block(data: NDArray[np.uint8], at: int, end: int) -> tuple[int, int]:
    """Return the number of items of an array's next block, 0 at the end, and where they begin.

    The position is BAD where there is no block. A count of more items than there are bytes left
    is BAD as well.
    """
    if at >= end:
        return 0, BAD
    count, at = read_number(data, at)
    if at >= 0 and count < 0:
        # A block that states its size in bytes, for readers that skip it.
        size, at = read_number(data, at)
        if size < 0:
            return 0, BAD
        count = -count
    if at < 0 or count < 0 or count > end - at:
        return 0, BAD
    return count, at
