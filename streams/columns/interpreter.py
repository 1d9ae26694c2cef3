"""The plan's interpreter: the bytes of a round into columns.

Accepts what it is sure of and nothing else: a message that is truncated, longer than its datum,
or in any way unusual is left to fastavro, which tells what is wrong with it. Reads stay within
the array: its end is padded by more than an item without strings takes, and no string is passed
over or compared before its length has been held against the message's end.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from streams.columns.compiled import compiled, inlined, load_word, low_zeros
from streams.columns.index import (
    NONE,
    FlowArrays,
    NameArrays,
    find_flow,
    find_name,
    same_bytes,
)
from streams.columns.plan import MAX_INSTRUCTIONS, Field, Op, Plan

# What stands for null in a column; a message that holds this very number is refused.
NULL: Final = -(2**63)
# An item has this many instructions at most, and a number ten bytes.
PAD_BYTES: Final = 16 * (MAX_INSTRUCTIONS + 4)

# What becomes of a message whose number of items is none of these.
BAD: Final = -1
# A name or a 5-tuple is not known yet.
UNKNOWN: Final = -2
FULL: Final = -3

# numba takes module constants in as numbers.
_NAME: Final = int(Op.NAME)
_LONG: Final = int(Op.LONG)
_NULLABLE_LONG: Final = int(Op.NULLABLE_LONG)
_ENUM: Final = int(Op.ENUM)
_SKIP_LONG: Final = int(Op.SKIP_LONG)
_SKIP_BYTES: Final = int(Op.SKIP_BYTES)
_SKIP_STRING: Final = int(Op.SKIP_STRING)
_SKIP_FIXED: Final = int(Op.SKIP_FIXED)
_SKIP_NULL: Final = int(Op.SKIP_NULL)
_AGENT: Final = int(Field.AGENT)

_CONTINUED: Final = np.uint64(0x8080808080808080)
_ONE: Final = np.uint64(1)


@inlined
def varint(data: NDArray[np.uint8], at: int) -> tuple[int, int]:
    """Return a zigzag number and the position behind it, BAD for more than 64 bits.

    Seven bits of each byte up to the first whose eighth is not set: taken together eight bytes
    at a time, without a branch for each. One byte, which most are, has a branch of its own:
    the processor foresees it, and reads on before it knows how long this number is.
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
        return _long_varint(data, at)
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
def _long_varint(data: NDArray[np.uint8], at: int) -> tuple[int, int]:
    """Return the same for nine or ten bytes."""
    raw = np.uint64(0)
    for place in range(10):
        byte = np.uint64(data[at + place])
        if place == 9 and byte > _ONE:
            return 0, BAD
        raw |= (byte & np.uint64(0x7F)) << np.uint64(7 * place)
        if byte < np.uint64(0x80):
            return int(np.int64(raw >> _ONE) ^ -np.int64(raw & _ONE)), at + place + 1
    return 0, BAD


@compiled
def _is_ascii(data: NDArray[np.uint8], at: int, end: int) -> bool:
    seen = np.uint8(0)
    for place in range(at, end):
        seen |= data[place]
    return bool(seen < np.uint8(128))


@inlined
def _carry_out(
    data: NDArray[np.uint8],
    at: int,
    end: int,
    plan: Plan,
    first: int,
    last: int,
    names: NameArrays,
    out: NDArray[np.int64],
    row: int,
) -> int:
    """Carry out instructions; return the position behind, or BAD; UNKNOWN for an unknown name.

    The position may lie beyond `end`, which the caller looks at.
    """
    program = plan.program
    symbols = plan.symbols
    step = first
    while step < last:
        op = program[step, 0]
        column = program[step, 1]
        if op == _SKIP_FIXED:
            if program[step, 2] > end - at:
                return BAD
            at += program[step, 2]
            step += 1
            continue
        value, at = varint(data, at)
        if at < 0:
            return BAD
        if op == _NULLABLE_LONG:
            if value == program[step, 2]:
                out[column, row] = NULL
            elif value == 1 - program[step, 2]:
                value, at = varint(data, at)
                if at < 0 or value == NULL:
                    return BAD
                out[column, row] = value
            else:
                return BAD
        elif op == _LONG:
            if value == NULL:
                return BAD
            out[column, row] = value
        elif op == _ENUM:
            if value < 0 or value >= symbols[program[step, 2]]:
                return BAD
            if column >= 0:
                out[column, row] = symbols[program[step, 2] + 1 + value]
        elif op == _SKIP_NULL:
            if value == program[step, 2]:
                step += 1
            elif value != 1 - program[step, 2]:
                return BAD
        elif op != _SKIP_LONG:
            # Bytes of that length follow. Not `at + value`: a hostile length would overflow.
            if value < 0 or value > end - at:
                return BAD
            if op == _NAME:
                number = find_name(names, data, at, value)
                if number < 0:
                    return UNKNOWN
                out[column, row] = number
            elif op == _SKIP_STRING and not _is_ascii(data, at, at + value):
                return BAD
            at += value
        step += 1
    return at


@compiled
def key_end(data: NDArray[np.uint8], at: int, end: int) -> int:
    """Return the position behind source, destination and flow, BAD where there is none."""
    for _ in range(2):
        length, at = varint(data, at)
        if at < 0 or length < 0 or length > end - at:
            return BAD
        at += length
    _, at = varint(data, at)
    return at if at <= end else BAD


@inlined
def _block(data: NDArray[np.uint8], at: int, end: int) -> tuple[int, int]:
    """Return how many items an array's next block has, 0 at its end, and where they begin; or BAD.

    Each item takes a byte at least, whatever the count claims.
    """
    if at >= end:
        return 0, BAD
    count, at = varint(data, at)
    if at >= 0 and count < 0:
        # A block that tells its size in bytes, for those who skip it.
        size, at = varint(data, at)
        if size < 0:
            return 0, BAD
        count = -count
    if at < 0 or count < 0 or count > end - at:
        return 0, BAD
    return count, at


@compiled
def read_round(
    data: NDArray[np.uint8],
    at: int,
    end: int,
    plan: Plan,
    names: NameArrays,
    flows: FlowArrays,
    fields: NDArray[np.int64],
    message: int,
    items: NDArray[np.int64],
    rows: NDArray[np.int32],
    first: int,
) -> int:
    """Read one round; return how many results it has, or BAD, UNKNOWN or FULL.

    Parameters
    ----------
    data : uint8, padded; the round without its header is data[at:end]
    fields : (len(Field), messages), written at `message`
    items : (len(Item), room), rows : (room,), written from `first` on
    """
    seed = names.seed[0]
    at = _carry_out(data, at, end, plan, 0, plan.items_at, names, fields, message)
    if at < 0:
        return at
    if at > end:
        return BAD
    agent = fields[_AGENT, message]
    before = int(NONE)
    guess = int(names.first_row[agent])
    place = first
    while True:
        count, at = _block(data, at, end)
        if at < 0:
            return BAD
        if count == 0:
            break
        if count > len(rows) - place:
            return FULL
        for _ in range(count):
            if (
                guess >= 0
                and flows.agent[guess] == agent
                and flows.length[guess] <= end - at
                and same_bytes(data, at, flows.arena, flows.at[guess], flows.length[guess])
            ):
                row = guess
                at += flows.length[guess]
            else:
                behind = key_end(data, at, end)
                if behind < 0:
                    return BAD
                row = find_flow(flows, data, at, behind - at, agent, seed)
                if row < 0:
                    return UNKNOWN
                if before >= 0:
                    flows.next_row[before] = row
                else:
                    names.first_row[agent] = row
                at = behind
            rows[place] = row
            at = _carry_out(data, at, end, plan, plan.items_at, plan.items_end, names, items, place)
            if at < 0 or at > end:
                return BAD
            before = row
            guess = int(flows.next_row[row])
            place += 1
    at = _carry_out(data, at, end, plan, plan.items_end, len(plan.program), names, fields, message)
    return place - first if at == end else BAD


@compiled
def read_rounds(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    message: int,
    plan: Plan,
    names: NameArrays,
    flows: FlowArrays,
    fields: NDArray[np.int64],
    items: NDArray[np.int64],
    rows: NDArray[np.int32],
    counts: NDArray[np.int64],
) -> tuple[int, int]:
    """Read rounds from number `message` on; return the first one not read, and what is with it.

    `counts` gets the results of each; the second number is the count of all, or BAD, UNKNOWN or
    FULL of the one that was not read.
    """
    place = 0
    while message < len(starts):
        found = read_round(
            data, starts[message], ends[message], plan, names, flows, fields, message,
            items, rows, place,
        )  # fmt: skip
        if found < 0:
            counts[message] = found
            return message, place
        counts[message] = found
        place += found
        message += 1
    return message, place


@compiled
def key_spans(
    data: NDArray[np.uint8],
    at: int,
    end: int,
    plan: Plan,
    names: NameArrays,
    scratch: NDArray[np.int64],
    spans: NDArray[np.int64],
) -> int:
    """Find where the keys of a round's results are; return their number, or BAD.

    Parameters
    ----------
    scratch : (columns, 1) int64, to write what nobody reads
    spans : (room, 2) int64, written: where each key begins and ends
    """
    at = _carry_out(data, at, end, plan, 0, plan.items_at, names, scratch, 0)
    if at < 0 or at > end:
        return BAD
    place = 0
    while True:
        count, at = _block(data, at, end)
        if at < 0 or count > len(spans) - place:
            return BAD
        if count == 0:
            return place
        for _ in range(count):
            spans[place, 0] = at
            at = key_end(data, at, end)
            if at < 0:
                return BAD
            spans[place, 1] = at
            at = _carry_out(data, at, end, plan, plan.items_at, plan.items_end, names, scratch, 0)
            if at < 0 or at > end:
                return BAD
            place += 1
