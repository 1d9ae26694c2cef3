"""Exact statistics of a closed window by numpy's sort: what the kernels have to compute.

Percentiles are nearest-rank (Hyndman and Fan's type 1, numpy's `inverted_cdf`):
the smallest observed value with at least that share of the sample at or below
it. They are observed values and integers, so that the same results give the
same window, in whatever order they came.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from schemas.columns.arrays import Int64s
from streams.columns.quantities import COLUMNS, MEDIANS, NONE, PERCENTS, ROUND_TRIP, STATISTICS

# A value below 18 minutes and its group fit into one whole number together.
VALUE_BITS: Final = 40
GROUP_BITS: Final = 22


def window_values(rows: Int64s, values: Int64s) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Return what a window says of each row that has results in it.

    Parameters
    ----------
    rows, values
        As of `streams.columns.closing.window_values`.
    """
    present, group = np.unique(rows, return_inverse=True)
    size, ok = len(present), values[ROUND_TRIP] >= 0
    columns = statistics(group[ok], values[ROUND_TRIP][ok], size)
    for number, value in enumerate(values):
        if number != ROUND_TRIP:
            columns[COLUMNS[MEDIANS + number]] = medians(group[value >= 0], value[value >= 0], size)
    return (
        present.astype(np.int64),
        np.bincount(group, minlength=size).astype(np.int64),
        np.bincount(group[ok], minlength=size).astype(np.int64),
        np.stack([columns[name] for name in COLUMNS], axis=-1),
    )


def statistics(group: Int64s, value: Int64s, size: int) -> dict[str, Int64s]:
    """Return percentiles, least, greatest, mean and deviation of each group.

    Parameters
    ----------
    group, value
        Group number and value of each observation.
    size
        Number of groups; one without observations gets -1 everywhere.

    Returns
    -------
    dict
        Arrays of length `size` by the names in `STATISTICS`; mean rounded half
        up, population standard deviation rounded to the nearest integer.
    """
    out = {name: np.full(size, NONE, np.int64) for name in STATISTICS}
    if not len(value):
        return out
    ordered, present, starts, counts = _grouped(group, value)
    for percent in PERCENTS:
        out[f"p{percent}_ns"][present] = ordered[starts + _rank(counts, percent)]
    out["min_ns"][present] = ordered[starts]
    out["max_ns"][present] = ordered[starts + counts - 1]
    total = np.add.reduceat(ordered, starts)
    mean = (2 * total + counts) // (2 * counts)
    out["mean_ns"][present] = mean
    # Around the rounded mean the squares stay small; the shift is taken out again.
    centred = (ordered - np.repeat(mean, counts)).astype(np.float64)
    shift = (total - mean * counts) / counts
    # Added one after the other, as the kernel does it: to the last bit the same.
    squares = np.bincount(np.repeat(np.arange(len(counts)), counts), centred * centred)
    variance = squares / counts - shift * shift
    out["std_ns"][present] = np.rint(np.sqrt(np.maximum(variance, 0.0))).astype(np.int64)
    return out


def medians(group: Int64s, value: Int64s, size: int) -> Int64s:
    """Return the nearest-rank median of each group, -1 for an empty one."""
    out = np.full(size, NONE, np.int64)
    if len(value):
        ordered, present, starts, counts = _grouped(group, value)
        out[present] = ordered[starts + _rank(counts, 50)]
    return out


def _grouped(group: Int64s, value: Int64s) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Sort by group and value; return values, groups present, their starts and counts."""
    if value.min() >= 0 and value.max() < 1 << VALUE_BITS and group.max() < 1 << GROUP_BITS:
        # One sort of whole numbers is several times faster than two of places.
        packed = np.sort(group << VALUE_BITS | value)
        by_group, ordered = packed >> VALUE_BITS, packed & ((1 << VALUE_BITS) - 1)
    else:
        order: NDArray[Any] = np.lexsort((value, group))
        by_group, ordered = group[order], value[order]
    starts = np.flatnonzero(np.r_[True, by_group[1:] != by_group[:-1]]).astype(np.int64)
    counts = np.diff(np.r_[starts, len(by_group)])
    return ordered, by_group[starts], starts, counts


def _rank(counts: Int64s, percent: int) -> Int64s:
    """Return the 0-based nearest rank, in integers."""
    return (percent * counts + 99) // 100 - 1
