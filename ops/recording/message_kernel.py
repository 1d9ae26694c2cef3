"""The walk over a block of records: where each is, and its message's bytes.

Accepts what is certainly right and nothing else, as `schemas.columns.interpreter` does: a block
with a record that is damaged, or unusual in any way, is left to fastavro as a whole.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ops.recording.message_plan import Column, Plan, WalkOp
from schemas.columns.compiled import compiled, inlined, load_word
from schemas.columns.interpreter import NULL
from schemas.columns.plan import Op
from schemas.columns.wire import BAD, WORD_BYTES, copy_bytes, is_ascii, low_bytes, read_number

# Stands in `VALUE_AT` for a tombstone.
NO_VALUE: Final = -1
# A tombstone with an empty key and no headers: no accepted record is shorter.
MIN_RECORD_BYTES: Final = 10

_NULLABLE_LONG: Final = int(Op.NULLABLE_LONG)
_TEXT: Final = int(Op.TEXT)
_SKIP_BYTES: Final = int(Op.SKIP_BYTES)
_SKIP_FIXED: Final = int(Op.SKIP_FIXED)
_SKIP_NULL: Final = int(Op.SKIP_NULL)
_SYMBOL: Final = int(WalkOp.SYMBOL)
_ARRAY: Final = int(WalkOp.ARRAY)
_NEXT: Final = int(WalkOp.NEXT)
_BRANCH: Final = int(WalkOp.BRANCH)
_MARK: Final = int(WalkOp.MARK)
_BEGIN: Final = int(WalkOp.BEGIN)
_VALUE_AT: Final = int(Column.VALUE_AT)
_VALUE_END: Final = int(Column.VALUE_END)
_HEADERS: Final = int(Column.HEADERS)
_RESULTS: Final = int(Column.RESULTS)


@inlined
def _symbol(
    data: NDArray[np.uint8], at: int, length: int, symbols: NDArray[np.uint64], first: int,
    count: int,
) -> int:  # fmt: skip
    """Return the number of the symbol at a position, BAD for none."""
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
    data : uint8, padded by the interpreter's PAD_BYTES; the records are data[:end]
    header : uint8, padded by a word; what goes before each datum, and the word
    out : uint8, written; has room for data and a header each
    places : (count, len(Column)) int64, written
    left : (MAX_DEPTH,) int64; room for the number of items left in each array
    """
    program = plan.program
    at = to = copied = depth = 0
    for record in range(count):
        if at >= end:
            return BAD
        place = places[record]
        place[:] = NULL
        place[_VALUE_AT] = place[_VALUE_END] = NO_VALUE
        place[_HEADERS] = place[_RESULTS] = 0
        step = 0
        while step < len(program):
            op, column, argument = program[step, 0], program[step, 1], program[step, 2]
            step += 1
            if op == _SKIP_FIXED:
                if argument > end - at:
                    return BAD
                at += argument
                continue
            if op >= _NEXT:
                if at > end:
                    return BAD
                if op == _NEXT:
                    left[depth - 1] -= 1
                    step = argument + 1
                    if left[depth - 1] == 0:
                        # The number of items of the array's next block follows.
                        depth -= 1
                        step = argument
                elif op == _MARK:
                    place[column] = at
                elif op == _BEGIN:
                    place[_VALUE_AT] = to
                    to = copy_bytes(header, 0, len(header) - WORD_BYTES, out, to)
                    copied = at
                else:
                    to = copy_bytes(data, copied, at, out, to)
                    place[_VALUE_END] = to
                continue
            value, behind = read_number(data, at)
            if behind < 0:
                return BAD
            if op == _NULLABLE_LONG:
                if value == argument:
                    value = NULL
                elif value == 1 - argument:
                    value, behind = read_number(data, behind)
                    if behind < 0 or (value == NULL and column >= 0):
                        return BAD
                else:
                    return BAD
            if op <= _NULLABLE_LONG:
                if column >= 0:
                    # Of a field of items, the largest.
                    place[column] = max(place[column], value)
            elif op == _SKIP_NULL:
                if value == argument:
                    step += column
                elif value != 1 - argument:
                    return BAD
            elif op == _BRANCH:
                if value != argument:
                    return BAD
            elif value < 0 or value > end - behind:
                # So many bytes or items follow; an item has one byte at least.
                return BAD
            elif op == _ARRAY:
                if value == 0:
                    step = argument
                else:
                    if column >= 0:
                        place[column] += value
                    left[depth] = value
                    depth += 1
            elif op == _SYMBOL:
                number = _symbol(data, behind, value, plan.symbols, argument, column)
                if number < 0:
                    return BAD
                to = copy_bytes(data, copied, at, out, to)
                # Zigzag: a number below 64 is one byte.
                out[to] = np.uint8(2 * number)
                to += 1
                copied = behind = behind + value
            else:
                if op == _TEXT:
                    place[column] = behind
                    place[column + 1] = value
                if op != _SKIP_BYTES and not is_ascii(data, behind, behind + value):
                    return BAD
                behind += value
            at = behind
        if at > end:
            return BAD
    return to if at == end else BAD
