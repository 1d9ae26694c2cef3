"""The plan's interpreter: the bytes of a round into columns.

Accepts what it is sure of and nothing else: a message that is truncated, longer than its datum,
or in any way unusual is left to fastavro, which tells what is wrong with it. Reads stay within
the array: its end is padded by more than an item without strings takes, and no string is passed
over or compared before its length has been held against the message's end.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.columns.compiled import compiled, inlined
from schemas.columns.wire import BAD, is_ascii, read_block, read_number, same_bytes
from streams.columns.index import NONE, FlowArrays, NameArrays, find_flow, find_name
from streams.columns.plan import MAX_INSTRUCTIONS, Field, Op, Plan

# What stands for null in a column; a message that holds this very number is refused.
NULL: Final = -(2**63)
# An item has this many instructions at most, and a number ten bytes.
PAD_BYTES: Final = 16 * (MAX_INSTRUCTIONS + 4)

# Returned instead of a number of results, as BAD is: a name or a 5-tuple is not known yet.
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
        value, at = read_number(data, at)
        if at < 0:
            return BAD
        if op == _NULLABLE_LONG:
            if value == program[step, 2]:
                out[column, row] = NULL
            elif value == 1 - program[step, 2]:
                value, at = read_number(data, at)
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
            elif op == _SKIP_STRING and not is_ascii(data, at, at + value):
                return BAD
            at += value
        step += 1
    return at


@compiled
def key_end(data: NDArray[np.uint8], at: int, end: int) -> int:
    """Return the position behind source, destination and flow, BAD where there is none."""
    for _ in range(2):
        length, at = read_number(data, at)
        if at < 0 or length < 0 or length > end - at:
            return BAD
        at += length
    _, at = read_number(data, at)
    return at if at <= end else BAD


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
        count, at = read_block(data, at, end)
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
        count, at = read_block(data, at, end)
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
