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

from schemas.columns.arrays import Int64s
from schemas.columns.compiled import compiled
from streams.columns.closing import describe_sorted, rank
from streams.columns.quantities import COLUMNS, COUNT, MEDIANS, NONE, ROUND_TRIP

# 5-tuples that are sorted together: the tile, of slots times these, stays in the first cache.
TILE: Final = 32
# Behind every value.
EMPTY: Final = 2**31 - 1
# Largest value that a slot holds.
MOST: Final = EMPTY - 1

_P50: Final = 50

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


def slot_values(counts: Plane, slots: Plane) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Return what `streams.columns.closing.window_values` returns.

    Parameters
    ----------
    counts
        (rows,) slots that are used.
    slots
        (quantities, slots, rows); -1: not measured.
    """
    present = np.flatnonzero(counts).astype(np.int64)
    ok = np.empty(len(present), np.int64)
    values = np.full((len(present), len(COLUMNS)), NONE, np.int64)
    length = slots.shape[1]
    _describe(
        counts, slots, network(length), np.empty((length, TILE), np.int32),
        np.empty(length, np.int64), ok, values,
    )  # fmt: skip
    return present, counts[present].astype(np.int64), ok, values


@compiled
def _describe(
    counts: Plane,
    slots: Plane,
    pairs: NDArray[np.int32],
    tile: NDArray[np.int32],
    room: NDArray[np.int64],
    ok: NDArray[np.int64],
    values: NDArray[np.int64],
) -> None:
    """Write answers and values of the rows that have results, in their order."""
    number = 0
    for first in range(0, len(counts), TILE):
        rows = min(TILE, len(counts) - first)
        most = 0
        for place in range(rows):
            most = max(most, counts[first + place])
        if most == 0:
            continue
        here = number
        for quantity in range(COUNT):
            _sort_tile(counts, slots[quantity], first, rows, most, pairs, tile)
            here = number
            for place in range(rows):
                count = counts[first + place]
                if count == 0:
                    continue
                none = _negative(tile, place, count)
                known = count - none
                if quantity == ROUND_TRIP:
                    ok[here] = known
                    for nth in range(known):
                        room[nth] = tile[none + nth, place]
                    if known > 0:
                        describe_sorted(room[:known], values, here)
                elif known > 0:
                    values[here, MEDIANS + quantity] = tile[none + rank(known, _P50), place]
                here += 1
        number = here


@compiled
def _sort_tile(
    counts: Plane,
    plane: Plane,
    first: int,
    rows: int,
    most: int,
    pairs: NDArray[np.int32],
    tile: NDArray[np.int32],
) -> None:
    """Fill the tile with the values of some rows, ascending, EMPTY behind them."""
    for slot in range(most):
        for place in range(rows):
            used = slot < counts[first + place]
            tile[slot, place] = plane[slot, first + place] if used else EMPTY
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


@compiled
def _negative(tile: NDArray[np.int32], place: int, count: int) -> int:
    """Return how many values are negative."""
    found = 0
    while found < count and tile[found, place] < 0:
        found += 1
    return found
