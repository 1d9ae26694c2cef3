"""The walk over a block of records: where each is, and its message's bytes.

Accepts what it is sure of and nothing else, as the readers of columns do: a block with a
record that is damaged, or in any way unusual, is left to fastavro as a whole. Reads stay within
the array: its end is padded by more than a record's numbers take, and no string is passed over
before its length has been held against the end.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ops.recording.message_plan import MAX_INSTRUCTIONS, Noted, Op, Plan
from schemas.columns.compiled import compiled, inlined, load_word
from schemas.columns.wire import BAD, copy_bytes, is_ascii, low_bytes, read_number

# Stands for null; a record with this very timestamp is refused.
NULL: Final = -(2**63)
# So many instructions are carried out before the position is held against the end, and a number
# has ten bytes; a word more is loaded.
PAD_BYTES: Final = 16 * (MAX_INSTRUCTIONS + 8)
# Columns of what is said of each record.
PARTITION: Final = 0
OFFSET: Final = 1
TIMESTAMP_MS: Final = 2
KEY_AT: Final = 3
KEY_END: Final = 4
# In the messages' bytes.
VALUE_AT: Final = 5
VALUE_END: Final = 6
# Of the array of headers.
HEADERS_AT: Final = 7
HEADERS_END: Final = 8
HEADERS: Final = 9
# Of rounds; see `Noted`.
NOTED: Final = 10
STARTED_US: Final = NOTED + int(Noted.STARTED_US)
SENT_NS: Final = NOTED + int(Noted.SENT_NS)
RESULTS: Final = NOTED + int(Noted.RESULTS)
COLUMNS: Final = NOTED + len(Noted)
# Stands in `VALUE_AT` for a tombstone.
NO_VALUE: Final = -1
# A tombstone with an empty key and no headers: less is no record that is taken.
MIN_RECORD_BYTES: Final = 10

_LONG: Final = int(Op.LONG)
_STRING: Final = int(Op.STRING)
_NULLABLE: Final = int(Op.NULLABLE)
_SYMBOL: Final = int(Op.SYMBOL)
_ARRAY: Final = int(Op.ARRAY)
_NEXT: Final = int(Op.NEXT)
_FIXED: Final = int(Op.FIXED)
_SENT_NS: Final = int(Noted.SENT_NS)
_RESULTS: Final = int(Noted.RESULTS)


@inlined
def _symbol(
    data: NDArray[np.uint8], at: int, length: int, symbols: NDArray[np.uint64], first: int,
    count: int,
) -> int:  # fmt: skip
    """Return the number of the symbol that stands there, BAD for none."""
    if length > 16:
        return BAD
    low, high = load_word(data, at), load_word(data, at + 8)
    if length < 8:
        low, high = low_bytes(low, length), np.uint64(0)
    elif length < 16:
        high = low_bytes(high, length - 8)
    for number in range(count):
        row = first + number
        if (
            symbols[row, 1] == low
            and symbols[row, 2] == high
            and symbols[row, 0] == np.uint64(length)
        ):
            return number
    return BAD


@inlined
def _note(place: NDArray[np.int64], column: int, value: int) -> None:
    """Note a number of a round: the latest probe, how many there are in all blocks."""
    if column == _SENT_NS:
        place[SENT_NS] = max(place[SENT_NS], value)
    elif column == _RESULTS:
        place[RESULTS] += value
    elif column >= 0:
        place[STARTED_US] = value


@inlined
def _value(
    data: NDArray[np.uint8], at: int, end: int, plan: Plan, out: NDArray[np.uint8], to: int,
    place: NDArray[np.int64], left: NDArray[np.int64],
) -> tuple[int, int]:  # fmt: skip
    """Walk over a value; return the position behind or BAD, and the end of its message's bytes."""
    program = plan.program
    copied = at
    depth = 0
    step = 0
    while step < len(program):
        op = program[step, 0]
        if op == _FIXED:
            at += program[step, 2]
            step += 1
            continue
        if op == _NEXT:
            if at > end:
                return BAD, to
            left[depth - 1] -= 1
            # Behind the last one stands how many the array's next block has.
            step = program[step, 2]
            if left[depth - 1] == 0:
                depth -= 1
            else:
                step += 1
            continue
        value, behind = read_number(data, at)
        if behind < 0:
            return BAD, to
        if op == _LONG:
            _note(place, program[step, 1], value)
        elif op == _NULLABLE:
            if value == 0:
                step = program[step, 2] - 1
            elif value != 1:
                return BAD, to
        elif op == _ARRAY:
            # Each takes a byte at least, whatever the count claims.
            if value < 0 or value > end - behind:
                return BAD, to
            if value == 0:
                step = program[step, 2] - 1
            else:
                _note(place, program[step, 1], value)
                left[depth] = value
                depth += 1
        elif value < 0 or value > end - behind:
            return BAD, to
        else:
            if op == _SYMBOL:
                number = _symbol(
                    data, behind, value, plan.symbols, program[step, 2], program[step, 1]
                )
                if number < 0:
                    return BAD, to
                to = copy_bytes(data, copied, at, out, to)
                # Zigzag: a number below 64 is one byte.
                out[to] = np.uint8(2 * number)
                to += 1
                copied = behind + value
            elif op == _STRING and not is_ascii(data, behind, behind + value):
                return BAD, to
            behind += value
        at = behind
        step += 1
    if at > end:
        return BAD, to
    return at, copy_bytes(data, copied, at, out, to)


@inlined
def _skip_headers(data: NDArray[np.uint8], at: int, end: int) -> tuple[int, int]:
    """Pass over the array of Kafka headers; return the position behind or BAD, and how many."""
    number = 0
    while True:
        if at >= end:
            return BAD, number
        count, at = read_number(data, at)
        if at < 0 or count < 0 or count > end - at:
            return BAD, number
        if count == 0:
            return at, number
        for _ in range(count):
            length, at = read_number(data, at)
            if at < 0 or length < 0 or length > end - at or not is_ascii(data, at, at + length):
                return BAD, number
            at += length
            branch, at = read_number(data, at)
            if branch == 1:
                length, at = read_number(data, at)
                if at < 0 or length < 0 or length > end - at:
                    return BAD, number
                at += length
            elif branch != 0:
                return BAD, number
            if at < 0 or at > end:
                return BAD, number
        number += count


@inlined
def _head(data: NDArray[np.uint8], at: int, end: int, place: NDArray[np.int64]) -> int:
    """Read what stands before the value; return its position, or BAD.

    The record must have a key that is text.
    """
    partition, at = read_number(data, at)
    if at < 0:
        return BAD
    offset, at = read_number(data, at)
    if at < 0:
        return BAD
    place[PARTITION] = partition
    place[OFFSET] = offset
    branch, at = read_number(data, at)
    place[TIMESTAMP_MS] = NULL
    if branch == 1:
        timestamp_ms, at = read_number(data, at)
        if at < 0 or timestamp_ms == NULL:
            return BAD
        place[TIMESTAMP_MS] = timestamp_ms
    elif branch != 0 or at < 0:
        return BAD
    branch, at = read_number(data, at)
    if branch != 1:
        return BAD
    length, at = read_number(data, at)
    if at < 0 or length < 0 or length > end - at or not is_ascii(data, at, at + length):
        return BAD
    place[KEY_AT] = at
    at += length
    place[KEY_END] = at
    return at


@inlined
def _tail(data: NDArray[np.uint8], at: int, end: int, place: NDArray[np.int64]) -> int:
    """Read what stands behind the value; return the position of the next record, or BAD."""
    place[HEADERS_AT] = at
    at, headers = _skip_headers(data, at, end)
    if at < 0:
        return BAD
    place[HEADERS] = headers
    place[HEADERS_END] = at
    # No key as bytes, no value as bytes, no reason why.
    if end - at < 3 or data[at] != 0 or data[at + 1] != 0 or data[at + 2] != 0:
        return BAD
    return at + 3


@compiled
def read_block(
    data: NDArray[np.uint8],
    end: int,
    count: int,
    plan: Plan,
    header: NDArray[np.uint8],
    out: NDArray[np.uint8],
    places: NDArray[np.int64],
    left: NDArray[np.int64],
) -> int:
    """Walk over the records of a block; return how many bytes of messages there are, or BAD.

    Parameters
    ----------
    data : uint8, padded; the records are data[:end]
    header : uint8, padded by a word; what goes before each datum, and the word
    out : uint8, written; has room for data and a header each
    places : (count, COLUMNS), written
    left : (MAX_DEPTH,), room for the kernel
    """
    at = 0
    to = 0
    header_bytes = len(header) - 8
    for record in range(count):
        if at >= end:
            return BAD
        place = places[record]
        at = _head(data, at, end, place)
        if at < 0:
            return BAD
        branch, at = read_number(data, at)
        if at < 0 or at > end:
            return BAD
        place[STARTED_US] = place[RESULTS] = 0
        place[SENT_NS] = NULL
        place[VALUE_AT] = place[VALUE_END] = NO_VALUE
        if branch == 1:
            place[VALUE_AT] = to
            to = copy_bytes(header, 0, header_bytes, out, to)
            at, to = _value(data, at, end, plan, out, to, place, left)
            if at < 0:
                return BAD
            place[VALUE_END] = to
        elif branch != 0:
            return BAD
        at = _tail(data, at, end, place)
        if at < 0:
            return BAD
    return to if at == end else BAD
