"""Medians and robust deviations over the look-back windows of many 5-tuples, by numpy.

`streams.detectors.compiled_levels` gives the same by a kernel.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.columns.arrays import Bools, Floats, Int64s

# The standard deviation of a normal distribution in units of its median distance.
NORMAL_MAD: Final = 1.4826
Whole = NDArray[np.int32] | Int64s


def levels(features: Whole, rows: Int64s, valid: Bools, column: int) -> tuple[Floats, Floats]:
    """Return median and robust standard deviation of a feature over each row's valid windows.

    Parameters
    ----------
    features
        Shape (all rows, windows, 7).
    rows, valid
        Which rows (n,), and which of their windows (n, windows).

    Returns
    -------
    tuple
        (n,) each; median nan without a window, deviation 0 with fewer than two.
    """
    values = features[rows][:, :, column].astype(np.float64)
    medians = _medians(np.where(valid, values, np.inf), valid.sum(axis=1))
    return medians, _deviations(values, valid)


def _medians(values: Floats, counts: Int64s) -> Floats:
    """Return the median of each row's `counts` least values; nan for none."""
    ordered = np.sort(values, axis=1)
    row = np.arange(len(values))
    low = ordered[row, np.maximum((counts - 1) // 2, 0)]
    high = ordered[row, np.minimum(counts // 2, values.shape[1] - 1)]
    return np.where(counts > 0, (low + high) / 2.0, np.nan)


def _deviations(values: Floats, valid: Bools) -> Floats:
    """Return a robust standard deviation of each row's valid values; 0 for fewer than two.

    The median distance from the median: a window in which a fault began must not widen
    what the next ones are judged by.
    """
    count = valid.sum(axis=1)
    middle = _medians(np.where(valid, values, np.inf), count)
    away = np.abs(values - np.nan_to_num(middle)[:, None])
    spread = _medians(np.where(valid, away, np.inf), count)
    return np.where(count < 2, 0.0, NORMAL_MAD * np.nan_to_num(spread))
