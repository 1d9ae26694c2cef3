"""Numbers that detectors of latency compute of closed windows, by kernels.

Medians and robust deviations over look-back windows, and natural logarithms.
"""

from math import log
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.columns.arrays import Bools, Floats, Int64s
from schemas.columns.compiled import compiled

# The standard deviation of a normal distribution in units of its median distance from the median.
NORMAL_MAD: Final = 1.4826
# Most windows of a look-back.
MAX_WINDOWS: Final = 64
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


def medians_at_most(
    lookback: LookBackArrays, rows: Int64s, column: int, most_ns: Int64s, compared: Compared
) -> Int64s:
    """Return which rows have enough look-back windows whose median may be at most a bound.

    The lower of the two middle values is at most the bound, if the median is: half of the windows
    are counted, and nothing is sorted.

    Parameters
    ----------
    lookback
        Columns of `streams.detectors.lookback.LookBack`.
    rows : (n,) int64
        Rows to look at; negative: never.
    column
        Place of the feature.
    most_ns : (n,) int64
        The bounds.
    compared
        Which windows count.

    Returns
    -------
    (m,) int64
        Places among `rows`, ascending.
    """
    found = np.empty(len(rows), np.int64)
    count = _medians_at_most(*lookback, rows, column, most_ns, *compared, found)
    return found[:count]


def medians(lookback: LookBackArrays, rows: Int64s, column: int, compared: Compared) -> Floats:
    """Return the median of a feature over the look-back windows that count, nan with too few.

    Parameters
    ----------
    lookback
        Columns of `streams.detectors.lookback.LookBack`.
    rows : (n,) int64
        Rows to look at; negative: nan.
    column
        Place of the feature.
    compared
        Which windows count.

    Returns
    -------
    (n,) float64
        Nanoseconds.
    """
    out = np.empty(len(rows))
    _medians(*lookback, rows, column, *compared, np.empty(MAX_WINDOWS), out)
    return out


def logarithms(values: Int64s) -> Floats:
    """Return the natural logarithm of each value, to the last bit the same on every machine.

    The C library computes them, and not numpy, whose last bit depends on the processor.

    Parameters
    ----------
    values : (n,) int64

    Returns
    -------
    (n,) float64
        0 for values below 1.

    Examples
    --------
    >>> logarithms(np.array([0, 1, 1000])).tolist() == [0.0, 0.0, log(1000)]
    True
    """
    out = np.empty(len(values))
    _logarithms(values, out)
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
def _medians_at_most(
    features: NDArray[np.int32],
    cycle: NDArray[np.int32],
    marks: NDArray[np.uint8],
    rows: NDArray[np.int64],
    column: int,
    most_ns: NDArray[np.int64],
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
        count = below = 0
        for place in range(length):
            window = np.int64(cycle[row, place]) * length + place
            if oldest <= window <= newest and not marks[row, place] & mark:
                count += 1
                below += features[row, place, column] <= most_ns[number]
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
    column: int,
    oldest: int,
    newest: int,
    mark: int,
    least: int,
    ordered: NDArray[np.float64],
    medians: NDArray[np.float64],
) -> None:
    """Write the medians; `ordered` has room for the windows of one row."""
    length = cycle.shape[1]
    for number in range(len(rows)):
        row = rows[number]
        medians[number] = np.nan
        if row < 0:
            continue
        count = 0
        for place in range(length):
            window = np.int64(cycle[row, place]) * length + place
            if oldest <= window <= newest and not marks[row, place] & mark:
                _insert(ordered, count, float(features[row, place, column]))
                count += 1
        if count >= least:
            medians[number] = _median(ordered, count)


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


@compiled
def _logarithms(values: NDArray[np.int64], out: NDArray[np.float64]) -> None:
    for place in range(len(values)):
        out[place] = log(max(values[place], 1))
