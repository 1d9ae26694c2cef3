"""A closed window's statistics by a kernel; `streams.statistics` is its slow twin.

The results are put together by row, by counting, and each row's few values are sorted where
they lie.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from streams.columnar.compiled import compiled, inlined
from streams.columns import Int64s
from streams.statistics import COLUMNS, NONE, PERCENTS

# Up to so many values each one's rank is counted against all others: without a branch, so that
# the processor takes eight at a time. Twice as fast as sorting at 30 values, as fast at some 150.
FEW: Final = 128
# Distances of Shell's sort (Ciura, 2001) for more.
GAPS: Final = (701, 301, 132, 57, 23, 10, 4, 1)

_P25, _P50, _P75, _P90, _P99 = PERCENTS
_MIN: Final = COLUMNS.index("min_ns")
_MEAN: Final = COLUMNS.index("mean_ns")
_STD: Final = COLUMNS.index("std_ns")
_MAX: Final = COLUMNS.index("max_ns")
_HOST: Final = COLUMNS.index("host_delay_p50_ns")
_RESPONDER: Final = COLUMNS.index("responder_delay_p50_ns")


def window_values(
    rows: Int64s, rtt_ns: Int64s, host_ns: Int64s, responder_ns: Int64s
) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Return what `streams.statistics.window_values` returns."""
    sent = np.bincount(rows)
    capacity = len(sent)
    present = np.flatnonzero(sent)
    sent = sent[present]
    place = np.zeros(capacity, np.int64)
    place[present] = np.arange(len(present))
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(sent)))
    grouped = np.empty(len(rows), np.int64)
    used = np.empty(len(present), np.int64)
    ok = np.empty(len(present), np.int64)
    room = np.empty(FEW, np.int64)
    values = np.full((len(present), len(COLUMNS)), NONE, np.int64)
    _group(rows, rtt_ns, place, starts, grouped, used)
    ok[:] = used
    _describe(starts, grouped, used, values, room)
    for column, delays_ns in ((_HOST, host_ns), (_RESPONDER, responder_ns)):
        _group(rows, delays_ns, place, starts, grouped, used)
        _middle(starts, grouped, used, values, column, room)
    return present, sent, ok, values


@compiled
def _group(
    rows: NDArray[np.int64],
    value: NDArray[np.int64],
    place: NDArray[np.int64],
    starts: NDArray[np.int64],
    grouped: NDArray[np.int64],
    used: NDArray[np.int64],
) -> None:
    """Put the values that are not negative together by row."""
    used[:] = 0
    for number in range(len(rows)):
        if value[number] >= 0:
            group = place[rows[number]]
            grouped[starts[group] + used[group]] = value[number]
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
def _sort(values: NDArray[np.int64], room: NDArray[np.int64]) -> None:
    """Sort, ascending; `room` holds FEW values."""
    if len(values) <= FEW:
        for number in range(len(values)):
            room[_place(values, number)] = values[number]
        for number in range(len(values)):
            values[number] = room[number]
        return
    for gap in GAPS:
        for number in range(gap, len(values)):
            value = values[number]
            at = number
            while at >= gap and values[at - gap] > value:
                values[at] = values[at - gap]
                at -= gap
            values[at] = value


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
) -> None:
    """Write the median of each group that has one."""
    for group in range(len(used)):
        count = used[group]
        if count == 0:
            continue
        mine = grouped[starts[group] : starts[group] + count]
        middle = rank(count, 50)
        if count > FEW:
            _sort(mine, room)
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
) -> None:
    """Write percentiles, least, greatest, mean and deviation of each group that has values."""
    for group in range(len(used)):
        count = used[group]
        if count == 0:
            continue
        mine = grouped[starts[group] : starts[group] + count]
        _sort(mine, room)
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
