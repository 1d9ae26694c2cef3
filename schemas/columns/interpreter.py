"""Carries out a plan: bytes of datums into columns, by kernels.

It accepts only what is certainly right. A message that is truncated, longer than its datum, or
unusual in any way is BAD here; fastavro then says whether it is an error.

Data must be padded by PAD_BYTES: a position is compared with the message's end once per record
or item, and the numbers in between cannot move it further.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.columns.compiled import compiled, inlined, load_word
from schemas.columns.plan import MAX_INSTRUCTIONS, Op, Plan
from schemas.columns.wire import (
    BAD,
    MAX_NUMBER_BYTES,
    WORD_BYTES,
    is_ascii,
    read_block,
    read_number,
)

# Stands for null in a column. A wanted field with this very number is BAD.
NULL: Final = -(2**63)
# An instruction reads two numbers at most, the branch of a union and its value; a few more stand
# in a key and in front of a block of items.
PAD_BYTES: Final = 2 * MAX_NUMBER_BYTES * (MAX_INSTRUCTIONS + 8) + 2 * WORD_BYTES
# Returned instead of a number of items: there is no room for them.
FULL: Final = -3

# numba takes module constants in as numbers, not members of an enum.
_LONG: Final = int(Op.LONG)
_NULLABLE_LONG: Final = int(Op.NULLABLE_LONG)
_ENUM: Final = int(Op.ENUM)
_TEXT: Final = int(Op.TEXT)
_SKIP_TEXT: Final = int(Op.SKIP_TEXT)
_SKIP_FIXED: Final = int(Op.SKIP_FIXED)
_SKIP_NULL: Final = int(Op.SKIP_NULL)
_DOUBLE: Final = int(Op.DOUBLE)
_ARRAY: Final = int(Op.ARRAY)


@inlined
def pass_null(plan: Plan, step: int, out: NDArray[np.int64], row: int) -> int:
    """Note a null where `SKIP_NULL` stands; return how many instructions it passes over.

    What a message had that ended too early may still stand in the row.
    """
    column = plan.program[step + 1, 1]
    if column >= 0 and plan.program[step + 1, 0] in (_TEXT, _DOUBLE, _LONG):
        out[column, row] = NULL
    return int(plan.program[step, 1])


@inlined
def read_fields(
    data: NDArray[np.uint8],
    at: int,
    end: int,
    plan: Plan,
    first: int,
    last: int,
    out: NDArray[np.int64],
    row: int,
) -> int:
    """Carry out the instructions from `first` to `last`; return the position behind, or BAD.

    No array is among them.

    Parameters
    ----------
    data : uint8, padded; the message ends at `end`
    out : (columns, rows) int64; written at `row`

    Returns
    -------
    int
        May be greater than `end`: the caller compares them.
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
        if op == _DOUBLE:
            bits = np.int64(load_word(data, at))
            # -0.0 has the bits of NULL.
            if end - at < WORD_BYTES or bits == NULL:
                return BAD
            out[column, row] = bits
            at += WORD_BYTES
            step += 1
            continue
        value, at = read_number(data, at)
        if at < 0:
            return BAD
        if op == _NULLABLE_LONG:
            if value == program[step, 2]:
                value = NULL
            elif value == 1 - program[step, 2]:
                value, at = read_number(data, at)
                if at < 0 or value == NULL:
                    return BAD
            else:
                return BAD
            if column >= 0:
                out[column, row] = value
        elif op == _LONG:
            if column >= 0:
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
                step += pass_null(plan, step, out, row)
            elif value != 1 - program[step, 2]:
                return BAD
        else:
            # So many bytes follow. Not `at + value`: a hostile length would overflow.
            if value < 0 or value > end - at:
                return BAD
            if op == _TEXT:
                out[column, row] = at
                out[column + 1, row] = value
            elif op == _SKIP_TEXT and not is_ascii(data, at, at + value):
                return BAD
            at += value
        step += 1
    return at


@inlined
def next_array(plan: Plan, first: int, last: int) -> int:
    """Return which of these instructions is the first that passes over an array; `last`: none."""
    step = first
    while step < last and plan.program[step, 0] != _ARRAY:
        step += 1
    return step


@compiled
def read_run(
    data: NDArray[np.uint8],
    at: int,
    end: int,
    plan: Plan,
    first: int,
    last: int,
    out: NDArray[np.int64],
    row: int,
) -> int:
    """Carry out instructions without a copy of the code in each caller.

    Returns the position behind what they read, BAD also where that is behind `end`.
    """
    at = read_fields(data, at, end, plan, first, last, out, row)
    return at if at <= end else BAD


@compiled
def pass_plain(
    data: NDArray[np.uint8],
    at: int,
    end: int,
    plan: Plan,
    first: int,
    last: int,
    out: NDArray[np.int64],
) -> int:
    """Pass over an array whose items hold none; return the position behind it, or BAD."""
    while True:
        count, at = read_block(data, at, end)
        if at < 0 or count == 0:
            return at
        for _ in range(count):
            at = read_run(data, at, end, plan, first, last, out, 0)
            if at < 0:
                return BAD


@compiled
def pass_array(
    data: NDArray[np.uint8],
    at: int,
    end: int,
    plan: Plan,
    first: int,
    last: int,
    out: NDArray[np.int64],
) -> int:
    """Pass over an array; return the position behind it, or BAD.

    Parameters
    ----------
    first, last : the instructions of an item, which write nothing to `out`
    """
    if next_array(plan, first, last) == last:
        return pass_plain(data, at, end, plan, first, last, out)
    while True:
        count, at = read_block(data, at, end)
        if at < 0 or count == 0:
            return at
        for _ in range(count):
            step = first
            while step < last:
                inner = next_array(plan, step, last)
                at = read_run(data, at, end, plan, step, inner, out, 0)
                if at < 0:
                    return BAD
                step = inner
                if inner < last:
                    step += 1 + plan.program[inner, 2]
                    at = pass_plain(data, at, end, plan, inner + 1, step, out)
                    if at < 0:
                        return BAD


@compiled
def read_part(
    data: NDArray[np.uint8],
    at: int,
    end: int,
    plan: Plan,
    first: int,
    last: int,
    out: NDArray[np.int64],
    row: int,
) -> int:
    """Do the same for the fields of a record, with arrays among them that are passed over.

    Returns the position behind them, BAD also where that is behind `end`.
    """
    step = first
    while True:
        array = next_array(plan, step, last)
        at = read_run(data, at, end, plan, step, array, out, row)
        if at < 0:
            return BAD
        if array == last:
            return at
        begin, column = at, plan.program[array, 1]
        step = array + 1 + plan.program[array, 2]
        at = pass_array(data, at, end, plan, array + 1, step, out)
        if at < 0:
            return BAD
        if column >= 0:
            out[column, row] = begin
            out[column + 1, row] = at - begin


@compiled
def read_whole(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    plan: Plan,
    out: NDArray[np.int64],
    whole: NDArray[np.bool_],
) -> None:
    """Read datums without an array and without a key, and note which could be read.

    Parameters
    ----------
    data : uint8, padded; datum n is data[starts[n]:ends[n]]
    out : (columns, n) int64, written
    whole : (n,) bool, written
    """
    for number in range(len(starts)):
        at = read_part(data, starts[number], ends[number], plan, 0, len(plan.program), out, number)
        whole[number] = at == ends[number]


@compiled
def key_end(data: NDArray[np.uint8], at: int, end: int, plan: Plan) -> int:
    """Return the position behind the fields of a key, BAD where there is none."""
    for is_text in plan.key:
        value, at = read_number(data, at)
        if at < 0:
            return BAD
        if is_text:
            if value < 0 or value > end - at:
                return BAD
            at += value
    return at if at <= end else BAD


@compiled
def read_record(
    data: NDArray[np.uint8],
    at: int,
    end: int,
    plan: Plan,
    fields: NDArray[np.int64],
    row: int,
    items: NDArray[np.int64],
    first: int,
) -> int:
    """Read a datum with an array and no key; return its number of items, or BAD or FULL.

    Parameters
    ----------
    data : uint8, padded; the datum is data[at:end]
    fields : (columns, rows) int64, written at `row`
    items : (columns, room) int64, written from `first` on
    """
    at = read_part(data, at, end, plan, 0, plan.items_at, fields, row)
    if at < 0:
        return BAD
    place = first
    while True:
        count, at = read_block(data, at, end)
        if at < 0:
            return BAD
        if count == 0:
            break
        if count > items.shape[1] - place:
            return FULL
        for _ in range(count):
            at = read_fields(data, at, end, plan, plan.items_at, plan.items_end, items, place)
            if at < 0 or at > end:
                return BAD
            place += 1
    at = read_part(data, at, end, plan, plan.items_end, len(plan.program), fields, row)
    return place - first if at == end else BAD


@compiled
def read_lists(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    plan: Plan,
    out: NDArray[np.int64],
    items: NDArray[np.int64],
    item_ends: NDArray[np.int64],
    whole: NDArray[np.bool_],
) -> None:
    """Read datums with an array and no key, and note which could be read.

    Parameters
    ----------
    data : uint8, padded; datum n is data[starts[n]:ends[n]]
    out : (columns, n) int64, written
    items : (columns, room) int64, written
    item_ends : (n,) int64, written: where the items of each datum end, which begin where those of
        the one before end
    whole : (n,) bool, written
    """
    place = 0
    for number in range(len(starts)):
        count = read_record(data, starts[number], ends[number], plan, out, number, items, place)
        whole[number] = count >= 0
        if count > 0:
            place += count
        item_ends[number] = place
