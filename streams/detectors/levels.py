"""Numbers that detectors of latency compute of closed windows, by kernels.

Medians and robust deviations over look-back windows.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.columns.arrays import Bools, Floats, Int64s
from schemas.columns.compiled import compiled
from streams.columns.slots import EMPTY, network

# The standard deviation of a normal distribution in units of its median distance from the median.
NORMAL_MAD: Final = 1.4826
# Most windows of a look-back.
MAX_WINDOWS: Final = 64
# Rows of which medians are sorted together, and room for the features of each: as many values side
# by side as the processor sorts well.
TOGETHER: Final = 8
LANES: Final = 8
Features = NDArray[np.int32] | Int64s


class LookBackArrays(NamedTuple):
    """Kept windows by row and place in the ring buffer.

    Attributes
    ----------
    features : (all rows, windows, features) int32
        Features, ns.
    cycle : (all rows, windows) int32
        The window at place p of cycle c is c * windows + p.
    marks : (all rows, windows) uint8
        Bits of the detectors that leave it out.
    """

    features: NDArray[np.int32]
    cycle: NDArray[np.int32]
    marks: NDArray[np.uint8]


class Compared(NamedTuple):
    """Windows from `oldest` to `newest` without a mark, at least so many."""

    oldest: int
    newest: int
    mark: int
    least: int


def levels(features: Features, rows: Int64s, valid: Bools, column: int) -> tuple[Floats, Floats]:
    """Return median and robust standard deviation of a feature over each row's valid windows.

    The deviation is the median distance from the median, scaled to a normal distribution: a
    window in which a fault began must not widen what the next ones are judged by.

    Parameters
    ----------
    features : (all rows, windows, features) integers
        Features of the look-back windows, ns; at most `MAX_WINDOWS` windows.
    rows : (n,) int64
        Rows to look at.
    valid : (n, windows) bool
        Which of their windows count.
    column
        Place of the feature.

    Returns
    -------
    medians : (n,) float64
        nan without a valid window.
    deviations : (n,) float64
        0 with fewer than two valid windows.

    Examples
    --------
    >>> features = np.zeros((1, 3, 7), np.int64)
    >>> features[0, :, 1] = [10, 20, 40]
    >>> medians, deviations = levels(features, np.array([0]), np.array([[True, True, True]]), 1)
    >>> medians.tolist(), deviations.round(3).tolist()
    ([20.0], [14.826])
    """
    medians = np.empty(len(rows))
    deviations = np.empty(len(rows))
    _levels(features, rows, valid, column, np.empty(MAX_WINDOWS), medians, deviations)
    return medians, deviations


def risen(
    lookback: LookBackArrays,
    rows: Int64s,
    column: int,
    features_ns: Int64s,
    least_ns: Floats,
    least_ratio: float,
    compared: Compared,
) -> Int64s:
    """Return of which rows a newer value may lie above the median of the look-back by so much.

    The lower of the two middle values is at most a bound, if the median is: half of the windows
    are counted, and nothing is sorted. All that have risen are found, and a few others.

    Parameters
    ----------
    lookback
        Columns of `streams.detectors.lookback.LookBack`.
    rows : (n,) int64
        Rows to look at; negative: never.
    column
        Place of the feature.
    features_ns : (n, features) int64
        The newer features of each.
    least_ns : (n,) float64
        Least rise of each.
    least_ratio
        The same, relative to the median; the greater one counts.
    compared
        Which windows count.

    Returns
    -------
    (m,) int64
        Places among `rows`, ascending.
    """
    found = np.empty(len(rows), np.int64)
    values_ns = np.ascontiguousarray(features_ns)
    count = _risen(*lookback, rows, column, values_ns, least_ns, least_ratio, *compared, found)
    return found[:count]


def medians(lookback: LookBackArrays, rows: Int64s, compared: Compared) -> Floats:
    """Return the median of each feature over the look-back windows that count, nan with too few.

    Parameters
    ----------
    lookback
        Columns of `streams.detectors.lookback.LookBack`.
    rows : (n,) int64
        Rows to look at; negative: nan.
    compared
        Which windows count.

    Returns
    -------
    (n, features) float64
        Nanoseconds.
    """
    windows, features = lookback.features.shape[1:]
    out = np.empty((len(rows), features))
    tile = np.empty((windows, TOGETHER * LANES), np.int32)
    _medians(*lookback, rows, *compared, network(windows), tile, out)
    return out


@compiled
def _levels(
    features: Features,
    rows: NDArray[np.int64],
    valid: NDArray[np.bool_],
    column: int,
    ordered: NDArray[np.float64],
    medians: NDArray[np.float64],
    deviations: NDArray[np.float64],
) -> None:
    """Write both; `ordered` has room for the windows of one row."""
    for number in range(len(rows)):
        count = 0
        for window in range(valid.shape[1]):
            if valid[number, window]:
                _insert(ordered, count, float(features[rows[number], window, column]))
                count += 1
        if count == 0:
            medians[number] = np.nan
            deviations[number] = 0.0
            continue
        median = _median(ordered, count)
        medians[number] = median
        deviations[number] = 0.0
        if count > 1:
            inserted = 0
            for window in range(valid.shape[1]):
                if valid[number, window]:
                    value = float(features[rows[number], window, column])
                    _insert(ordered, inserted, abs(value - median))
                    inserted += 1
            deviations[number] = NORMAL_MAD * _median(ordered, count)


@compiled
def _risen(
    features: NDArray[np.int32],
    cycle: NDArray[np.int32],
    marks: NDArray[np.uint8],
    rows: NDArray[np.int64],
    column: int,
    values_ns: NDArray[np.int64],
    least_ns: NDArray[np.float64],
    least_ratio: float,
    oldest: int,
    newest: int,
    mark: int,
    least: int,
    found: NDArray[np.int64],
) -> int:
    """Write the places; return how many."""
    written = 0
    length = cycle.shape[1]
    for number in range(len(rows)):
        row = rows[number]
        if row < 0:
            continue
        value = float(values_ns[number, column])
        # What the median is at most. One more ns is above all rounding.
        most_ns = int(np.floor(min(value - least_ns[number], value / (1.0 + least_ratio)))) + 1
        count = below = 0
        for place in range(length):
            window = np.int64(cycle[row, place]) * length + place
            if oldest <= window <= newest and not marks[row, place] & mark:
                count += 1
                below += features[row, place, column] <= most_ns
        if count >= least and 2 * below >= count:
            found[written] = number
            written += 1
    return written


@compiled
def _medians(
    features: NDArray[np.int32],
    cycle: NDArray[np.int32],
    marks: NDArray[np.uint8],
    rows: NDArray[np.int64],
    oldest: int,
    newest: int,
    mark: int,
    least: int,
    pairs: NDArray[np.int32],
    tile: NDArray[np.int32],
    medians: NDArray[np.float64],
) -> None:
    """Write the medians; the tile has room for the features of some rows, side by side."""
    length, width, columns = features.shape[1], tile.shape[1], features.shape[2]
    for first in range(0, len(rows), TOGETHER):
        some = min(TOGETHER, len(rows) - first)
        for place in range(length):
            for lane in range(width):
                tile[place, lane] = EMPTY
        for nth in range(some):
            row = rows[first + nth]
            count = 0
            for place in range(length if row >= 0 else 0):
                window = np.int64(cycle[row, place]) * length + place
                if oldest <= window <= newest and not marks[row, place] & mark:
                    for feature in range(columns):
                        tile[count, nth * LANES + feature] = features[row, place, feature]
                    count += 1
            # Until they are sorted, how many there are.
            medians[first + nth, 0] = count
        for step in range(len(pairs)):
            one, other = pairs[step, 0], pairs[step, 1]
            for lane in range(width):
                lesser = min(tile[one, lane], tile[other, lane])
                tile[other, lane] = max(tile[one, lane], tile[other, lane])
                tile[one, lane] = lesser
        for nth in range(some):
            count = int(medians[first + nth, 0])
            for feature in range(columns):
                median = np.nan
                if count >= least and count > 0:
                    low = tile[(count - 1) // 2, nth * LANES + feature]
                    high = tile[count // 2, nth * LANES + feature]
                    median = (float(low) + float(high)) / 2.0
                medians[first + nth, feature] = median


@compiled
def _insert(ordered: NDArray[np.float64], count: int, value: float) -> None:
    """Insert a value among the first `count`, which are in ascending order."""
    at = count
    while at > 0 and ordered[at - 1] > value:
        ordered[at] = ordered[at - 1]
        at -= 1
    ordered[at] = value


@compiled
def _median(ordered: NDArray[np.float64], count: int) -> float:
    return float((ordered[(count - 1) // 2] + ordered[count // 2]) / 2.0)
