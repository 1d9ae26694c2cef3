"""Exact statistics of a closed window by a kernel, every 5-tuple at once.

Percentiles are nearest-rank (Hyndman and Fan's type 1, numpy's `inverted_cdf`): the smallest
observed value with at least that share of the sample at or below it. They are observed values
and integers, so that the same results give the same window, in whatever order they came. The mean
is rounded half up, the population's standard deviation to the nearest integer.

The results are put together by row, by counting, and each row's few values are sorted where
they lie.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.columns.arrays import Int64s
from schemas.columns.compiled import compiled, inlined
from streams.columns.quantities import COLUMNS, COUNT, MEDIANS, NONE, PERCENTS, ROUND_TRIP

# Up to so many values each one's rank is counted against all others: without a branch, so that
# the processor takes eight at a time. At 30 values twice as fast as by digits, as fast at some 80.
FEW: Final = 80
# More are sorted by digits of so many bits, the least first: no branch depends on a value.
DIGIT_BITS: Final = 8
DIGITS: Final = 1 << DIGIT_BITS
VALUE_BITS: Final = 63
# Results of a chunk that is not put together with others first.
LARGE: Final = 4_096
# Rows whose slots are read together.
TILE: Final = 64
NO_COUNTS: Final = np.zeros(0, np.int32)
NO_SLOTS: Final = np.zeros((COUNT, 0, 0), np.int32)

_P25, _P50, _P75, _P90, _P99 = PERCENTS
_MIN: Final = COLUMNS.index("min_ns")
_MEAN: Final = COLUMNS.index("mean_ns")
_STD: Final = COLUMNS.index("std_ns")
_MAX: Final = COLUMNS.index("max_ns")


# Rows (5-tuples) of some results, (n,); their values, (quantities, n), -1 where not measured.
Chunk = tuple[Int64s, Int64s]
# Rows, results sent, answered, and statistics by row, as `window_values` returns them.
Values = tuple[Int64s, Int64s, Int64s, Int64s]


def window_values(rows: Int64s, values: Int64s) -> Values:
    """Return what a window says of each row that has results in it.

    Parameters
    ----------
    rows : (n,)
        Of each result.
    values : (quantities, n)
        In nanoseconds; negative: not measured, a round trip: of a lost probe.

    Returns
    -------
    tuple
        Rows, ascending; results sent; answered; statistics by row, shape (rows, len(COLUMNS)),
        -1 where no probe answered or nothing was measured.
    """
    return chunk_values([(rows, values)], NO_COUNTS, NO_SLOTS)


def chunk_values(
    chunks: Sequence[Chunk], counts: NDArray[np.int32], slots: NDArray[np.int32]
) -> Values:
    """Return the same of the rows that chunks have results of, and slots perhaps some more.

    From where they lie: all of a window in one array is hundreds of megabytes, and to get these
    takes longer than to sort them.

    Parameters
    ----------
    chunks
        Some; their arrays as of `window_values`.
    counts, slots
        As of `streams.columns.slots.slot_values`.
    """
    parts = [(_plain(rows), _plain(values)) for rows, values in chunks if len(rows) >= LARGE]
    small = [chunk for chunk in chunks if len(chunk[0]) < LARGE]
    if small:
        # Rounds that came alone: to go through each by itself would take longer.
        together = [rows for rows, _ in small], [values for _, values in small]
        whole = np.concatenate(together[0]), np.concatenate(together[1], axis=1)
        parts.append((_plain(whole[0]), _plain(whole[1])))
    capacity = max(int(rows.max(initial=-1)) for rows, _ in parts) + 1
    sent = np.zeros(capacity, np.int64)
    for rows, _ in parts:
        _count(rows, sent)
    present = np.flatnonzero(sent)
    held = np.zeros(len(present), np.int32)
    slotted = present < len(counts)
    held[slotted] = counts[present[slotted]]
    sent = sent[present] + held
    place = np.zeros(capacity, np.int64)
    place[present] = np.arange(len(present))
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(sent)))
    grouped = np.empty(starts[-1], np.int64)
    ok = np.empty(len(present), np.int64)
    room = np.empty(max(FEW, int(sent.max(initial=0))), np.int64)
    digits = np.empty(DIGITS, np.int64)
    statistics = np.full((len(present), len(COLUMNS)), NONE, np.int64)
    used = np.empty(len(present), np.int64)
    for quantity in range(COUNT):
        used[:] = 0
        for rows, values in parts:
            _group(rows, values[quantity], place, starts, grouped, used)
        _group_slots(present, held, slots[quantity], starts, grouped, used)
        if quantity == ROUND_TRIP:
            ok[:] = used
            _describe(starts, grouped, used, statistics, room, digits)
        else:
            _middle(starts, grouped, used, statistics, MEDIANS + quantity, room, digits)
    return present, sent, ok, statistics


def _plain(column: Int64s) -> Int64s:
    """Return what the kernels are compiled for; nearly always it is that."""
    return np.require(column, np.int64, ("C", "W"))


@compiled
def _count(rows: NDArray[np.int64], sent: NDArray[np.int64]) -> None:
    """Count the results of each row."""
    for number in range(len(rows)):
        sent[rows[number]] += 1


@compiled
def _group(
    rows: NDArray[np.int64],
    value: NDArray[np.int64],
    place: NDArray[np.int64],
    starts: NDArray[np.int64],
    grouped: NDArray[np.int64],
    used: NDArray[np.int64],
) -> None:
    """Put the values that are not negative together by row, behind those that are there."""
    for number in range(len(rows)):
        if value[number] >= 0:
            group = place[rows[number]]
            grouped[starts[group] + used[group]] = value[number]
            used[group] += 1


@compiled
def _group_slots(
    rows: NDArray[np.int64],
    held: NDArray[np.int32],
    plane: NDArray[np.int32],
    starts: NDArray[np.int64],
    grouped: NDArray[np.int64],
    used: NDArray[np.int64],
) -> None:
    """Put what is in slots to them; a tile of rows at a time, which stays in the cache."""
    for first in range(0, len(rows), TILE):
        last = min(first + TILE, len(rows))
        most = 0
        for group in range(first, last):
            most = max(most, held[group])
        for slot in range(most):
            for group in range(first, last):
                if slot < held[group]:
                    value = plane[slot, rows[group]]
                    if value >= 0:
                        grouped[starts[group] + used[group]] = value
                        used[group] += 1


@inlined
def _place(values: NDArray[np.int64], number: int) -> int:
    """Return at which place a value stands in order; of equal ones the first comes first."""
    value = values[number]
    place = 0
    for other in range(number):
        place += values[other] <= value
    for other in range(number + 1, len(values)):
        place += values[other] < value
    return place


@compiled
def _sort(values: NDArray[np.int64], room: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
    """Sort what is not negative, ascending; `room` holds as many, `counts` DIGITS."""
    if len(values) <= FEW:
        for number in range(len(values)):
            room[_place(values, number)] = values[number]
        for number in range(len(values)):
            values[number] = room[number]
        return
    least, greatest = values[0], values[0]
    for number in range(len(values)):
        least, greatest = min(least, values[number]), max(greatest, values[number])
    sorted_bits = 0
    # Two digits at a time: there and back.
    while sorted_bits < VALUE_BITS and (greatest - least) >> sorted_bits > 0:
        _by_digit(values, room, counts, least, sorted_bits)
        _by_digit(room[: len(values)], values, counts, least, sorted_bits + DIGIT_BITS)
        sorted_bits += 2 * DIGIT_BITS


@inlined
def _by_digit(
    values: NDArray[np.int64],
    to: NDArray[np.int64],
    counts: NDArray[np.int64],
    least: int,
    shift: int,
) -> None:
    """Put values in the order of one digit of what they are more than the least."""
    counts[:] = 0
    for number in range(len(values)):
        counts[((values[number] - least) >> shift) & (DIGITS - 1)] += 1
    before = 0
    for digit in range(DIGITS):
        here = counts[digit]
        counts[digit] = before
        before += here
    for number in range(len(values)):
        digit = ((values[number] - least) >> shift) & (DIGITS - 1)
        to[counts[digit]] = values[number]
        counts[digit] += 1


@compiled
def rank(count: int, percent: int) -> int:
    """Return the 0-based nearest rank."""
    return (percent * count + 99) // 100 - 1


@compiled
def _middle(
    starts: NDArray[np.int64],
    grouped: NDArray[np.int64],
    used: NDArray[np.int64],
    values: NDArray[np.int64],
    column: int,
    room: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> None:
    """Write the median of each group that has one."""
    for group in range(len(used)):
        count = used[group]
        if count == 0:
            continue
        mine = grouped[starts[group] : starts[group] + count]
        middle = rank(count, 50)
        if count > FEW:
            _sort(mine, room, counts)
            values[group, column] = mine[middle]
            continue
        for number in range(count):
            if _place(mine, number) == middle:
                values[group, column] = mine[number]
                break


@compiled
def _describe(
    starts: NDArray[np.int64],
    grouped: NDArray[np.int64],
    used: NDArray[np.int64],
    values: NDArray[np.int64],
    room: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> None:
    """Write percentiles, least, greatest, mean and deviation of each group that has values."""
    for group in range(len(used)):
        count = used[group]
        if count == 0:
            continue
        mine = grouped[starts[group] : starts[group] + count]
        _sort(mine, room, counts)
        describe_sorted(mine, values, group)


@compiled
def describe_sorted(mine: NDArray[np.int64], values: NDArray[np.int64], group: int) -> None:
    """Write what these values, ascending, say of a group."""
    count = len(mine)
    values[group, 0] = mine[rank(count, _P25)]
    values[group, 1] = mine[rank(count, _P50)]
    values[group, 2] = mine[rank(count, _P75)]
    values[group, 3] = mine[rank(count, _P90)]
    values[group, 4] = mine[rank(count, _P99)]
    values[group, _MIN] = mine[0]
    values[group, _MAX] = mine[count - 1]
    total = 0
    for number in range(count):
        total += mine[number]
    mean = (2 * total + count) // (2 * count)
    values[group, _MEAN] = mean
    squares = 0.0
    for number in range(count):
        centred = float(mine[number] - mean)
        squares += centred * centred
    shift = float(total - mean * count) / float(count)
    variance = squares / float(count) - shift * shift
    values[group, _STD] = int(np.rint(np.sqrt(max(variance, 0.0))))
