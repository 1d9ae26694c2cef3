"""Statistics of a closed window whose results lie in slots: the n-th of a 5-tuple in plane n.

The planes hold 5-tuples side by side, so that the results of many are sorted at once: each step
of a sorting network takes the lesser and the greater of two planes for a tile of 5-tuples, eight
or sixteen of them with one instruction of the processor. `streams.columns.closing` takes what
the slots do not hold, and gives the same.
"""

from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.columns.arrays import Bools, Int64s
from schemas.columns.compiled import compiled
from streams.columns.closing import describe_sorted, rank
from streams.columns.quantities import COLUMNS, COUNT, MEDIANS, NONE, PERCENTS, ROUND_TRIP

# 5-tuples that are sorted together: the tile, of slots times these, stays in the first cache.
TILE: Final = 32
# Behind every value.
EMPTY: Final = 2**31 - 1
# Largest value that a slot holds.
MOST: Final = EMPTY - 1

_P50: Final = 50
_MIN: Final = COLUMNS.index("min_ns")
_MEAN: Final = COLUMNS.index("mean_ns")
_STD: Final = COLUMNS.index("std_ns")
_MAX: Final = COLUMNS.index("max_ns")

Plane = NDArray[np.int32]


@cache
def network(slots: int) -> NDArray[np.int32]:
    """Return the comparisons that sort so many values, (n, 2): Batcher's odd-even merge sort.

    K. E. Batcher, "Sorting networks and their applications", 1968; Knuth's algorithm 5.2.2M.
    """
    pairs: list[tuple[int, int]] = []
    run = 1
    while run < slots:
        step = run
        while step >= 1:
            for first in range(step % run, slots - step, 2 * step):
                for place in range(first, min(first + step, slots - step)):
                    if place // (2 * run) == (place + step) // (2 * run):
                        pairs.append((place, place + step))
            step //= 2
        run *= 2
    return np.array(pairs, np.int32).reshape(-1, 2)


def slotted(counts: Plane, agent_of: Int64s, marked: Bools) -> Int64s:
    """Return the rows of some agents that use slots, ascending.

    Parameters
    ----------
    counts
        (rows,) slots that are used.
    agent_of
        (rows or fewer,) numbers of the rows' agents; further rows use none.
    marked
        (agents,) marks of the agents, by number.
    """
    rows = np.empty(len(counts), np.int64)
    return rows[: _slotted(counts, agent_of, marked, rows)].copy()


def slot_values(counts: Plane, slots: Plane, rows: Int64s) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Return what `streams.columns.closing.window_values` returns.

    Parameters
    ----------
    counts
        (all rows,) slots that are used.
    slots
        (quantities, slots, all rows); -1: not measured.
    rows
        (n,) rows that use some, ascending.
    """
    sent, ok = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    values = np.empty((len(rows), len(COLUMNS)), np.int64)
    length = slots.shape[1]
    _describe(
        rows, counts, slots, network(length), np.empty((length, TILE), np.int32),
        np.empty(length, np.int64), np.empty((2, TILE)), sent, ok, values,
    )  # fmt: skip
    return rows, sent, ok, values


@compiled
def _slotted(counts: Plane, agent_of: Int64s, marked: Bools, rows: Int64s) -> int:
    """Write the rows; return how many."""
    found = 0
    for row in range(min(len(counts), len(agent_of))):
        if counts[row] > 0 and marked[agent_of[row]]:
            rows[found] = row
            found += 1
    return found


@compiled
def _describe(
    rows: Int64s,
    counts: Plane,
    slots: Plane,
    pairs: NDArray[np.int32],
    tile: NDArray[np.int32],
    room: NDArray[np.int64],
    sums: NDArray[np.float64],
    sent: NDArray[np.int64],
    ok: NDArray[np.int64],
    values: NDArray[np.int64],
) -> None:
    """Write counts and values of some rows, in their order."""
    for first in range(0, len(rows), TILE):
        some = rows[first : first + TILE]
        most = 0
        for place in range(len(some)):
            most = max(most, counts[some[place]])
        for quantity in range(COUNT):
            alike = _sort_tile(some, counts, slots[quantity], most, pairs, tile)
            if alike and quantity == ROUND_TRIP:
                sent[first : first + len(some)] = most
                ok[first : first + len(some)] = most
                _describe_alike(tile, len(some), most, sums, values[first : first + len(some)])
                continue
            for place in range(len(some)):
                number, count = first + place, counts[some[place]]
                none = _negative(tile, place, count)
                known = count - none
                if quantity != ROUND_TRIP:
                    middle = tile[none + rank(known, _P50), place] if known > 0 else NONE
                    values[number, MEDIANS + quantity] = middle
                    continue
                sent[number], ok[number] = count, known
                for nth in range(known):
                    room[nth] = tile[none + nth, place]
                if known > 0:
                    describe_sorted(room[:known], values, number)
                else:
                    for column in range(MEDIANS + 1):
                        values[number, column] = NONE


@compiled
def _sort_tile(
    some: Int64s,
    counts: Plane,
    plane: Plane,
    most: int,
    pairs: NDArray[np.int32],
    tile: NDArray[np.int32],
) -> bool:
    """Fill the tile with the values of some rows, ascending, EMPTY behind them.

    Returns whether all have as many values, and none is negative.
    """
    least = most
    for place in range(len(some)):
        least = min(least, counts[some[place]])
    begin, end = some[0], some[len(some) - 1] + 1
    if least == most and end - begin == len(some):
        # Nearly always: an agent's 5-tuples lie side by side, and have as many results.
        for slot in range(most):
            source = plane[slot, begin:end]
            for place in range(len(some)):
                tile[slot, place] = source[place]
    else:
        for slot in range(most):
            for place in range(len(some)):
                row = some[place]
                tile[slot, place] = plane[slot, row] if slot < counts[row] else EMPTY
    # Not TILE: loops of a known length are unrolled before they could become vectors.
    width = tile.shape[1]
    for step in range(len(pairs)):
        one, other = pairs[step, 0], pairs[step, 1]
        # What is empty stays behind.
        if other < most:
            for place in range(width):
                lesser = min(tile[one, place], tile[other, place])
                tile[other, place] = max(tile[one, place], tile[other, place])
                tile[one, place] = lesser
    negative = False
    for place in range(len(some)):
        negative = negative or tile[0, place] < 0
    return bool(least == most and not negative)


@compiled
def _describe_alike(
    tile: NDArray[np.int32], some: int, count: int, sums: NDArray[np.float64], values: Int64s
) -> None:
    """Write what `describe_sorted` does, of so many rows that have as many values.

    All rows take each step together; the values of a row are added in the same order, so that the
    sums are the same to the last bit. `sums` has room for means and squares.
    """
    width = tile.shape[1]
    means, squares = sums[0], sums[1]
    squares[:] = 0.0
    # Exact: all of them together are below 2**53.
    for nth in range(count):
        for place in range(width):
            squares[place] += float(tile[nth, place])
    for place in range(some):
        total = int(squares[place])
        means[place] = float((2 * total + count) // (2 * count))
        values[place, _MEAN] = total
    squares[:] = 0.0
    for nth in range(count):
        for place in range(width):
            centred = float(tile[nth, place]) - means[place]
            squares[place] += centred * centred
    for place in range(some):
        for column in range(len(PERCENTS)):
            values[place, column] = tile[rank(count, PERCENTS[column]), place]
        values[place, _MIN] = tile[0, place]
        values[place, _MAX] = tile[count - 1, place]
        mean = int(means[place])
        shift = float(values[place, _MEAN] - mean * count) / float(count)
        variance = squares[place] / float(count) - shift * shift
        values[place, _MEAN] = mean
        values[place, _STD] = int(np.rint(np.sqrt(max(variance, 0.0))))


@compiled
def _negative(tile: NDArray[np.int32], place: int, count: int) -> int:
    """Return how many values are negative."""
    found = 0
    while found < count and tile[found, place] < 0:
        found += 1
    return found
