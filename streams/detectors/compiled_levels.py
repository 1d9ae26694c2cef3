"""Medians and robust deviations over the look-back by a kernel, as `streams.detectors.levels`."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.columns.arrays import Bools, Floats, Int64s
from streams.columns.compiled import compiled
from streams.detectors.levels import NORMAL_MAD, Whole

# Windows of a look-back, at most.
ROOM: Final = 64


def levels(features: Whole, rows: Int64s, valid: Bools, column: int) -> tuple[Floats, Floats]:
    """Return what `streams.detectors.levels.levels` returns."""
    medians = np.empty(len(rows))
    deviations = np.empty(len(rows))
    _levels(features, rows, valid, column, np.empty(ROOM), medians, deviations)
    return medians, deviations


@compiled
def _levels(
    features: Whole,
    rows: NDArray[np.int64],
    valid: NDArray[np.bool_],
    column: int,
    held: NDArray[np.float64],
    medians: NDArray[np.float64],
    deviations: NDArray[np.float64],
) -> None:
    """Write both; `held` is room for the windows of one row."""
    for number in range(len(rows)):
        count = 0
        for window in range(valid.shape[1]):
            if valid[number, window]:
                _insert(held, count, float(features[rows[number], window, column]))
                count += 1
        if count == 0:
            medians[number] = np.nan
            deviations[number] = 0.0
            continue
        median = _median(held, count)
        medians[number] = median
        deviations[number] = 0.0
        if count > 1:
            taken = 0
            for window in range(valid.shape[1]):
                if valid[number, window]:
                    value = float(features[rows[number], window, column])
                    _insert(held, taken, abs(value - median))
                    taken += 1
            deviations[number] = NORMAL_MAD * _median(held, count)


@compiled
def _insert(held: NDArray[np.float64], count: int, value: float) -> None:
    """Put a value in its place among the first `count`, which are in order."""
    at = count
    while at > 0 and held[at - 1] > value:
        held[at] = held[at - 1]
        at -= 1
    held[at] = value


@compiled
def _median(held: NDArray[np.float64], count: int) -> float:
    return float((held[(count - 1) // 2] + held[count // 2]) / 2.0)
