"""What the kernels compute is what numpy and Python compute, to the last bit."""

from math import log

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from schemas.columns.arrays import Bools, Floats, Int64s
from streams.detectors.levels import (
    NORMAL_MAD,
    Compared,
    LookBackArrays,
    levels,
    logarithms,
    medians_at_most,
)


def numpy_levels(
    features: Int64s, rows: Int64s, valid: Bools, column: int
) -> tuple[Floats, Floats]:
    """Return what `levels` returns, computed by numpy."""
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
    """Return a robust standard deviation of each row's valid values; 0 for fewer than two."""
    count = valid.sum(axis=1)
    middle = _medians(np.where(valid, values, np.inf), count)
    away = np.abs(values - np.nan_to_num(middle)[:, None])
    spread = _medians(np.where(valid, away, np.inf), count)
    return np.where(count < 2, 0.0, NORMAL_MAD * np.nan_to_num(spread))


@settings(max_examples=150)
@given(
    seed=st.integers(0, 2**32),
    rows=st.integers(1, 40),
    windows=st.integers(1, 22),
    share=st.sampled_from([0.0, 0.3, 1.0]),
    largest=st.sampled_from([3, 10**7, 6 * 10**10]),
)
def test_levels_of_the_look_back(
    seed: int, rows: int, windows: int, share: float, largest: int
) -> None:
    """No window, one, all of them; each feature; rows in any order, and unknown ones."""
    rng = np.random.default_rng(seed)
    features = rng.integers(0, largest, (rows, windows, 7))
    asked = rng.integers(-1, rows, 30)
    valid = (rng.random((30, windows)) < share) & (asked >= 0)[:, None]
    for column in range(7):
        for wanted, found in zip(
            numpy_levels(features, asked, valid, column),
            levels(features, asked, valid, column),
            strict=True,
        ):
            assert_array_equal(found, wanted)


@settings(max_examples=150)
@given(
    seed=st.integers(0, 2**32),
    windows=st.integers(1, 22),
    least=st.integers(1, 6),
    largest=st.sampled_from([3, 10**7]),
)
def test_medians_at_most_a_bound(seed: int, windows: int, least: int, largest: int) -> None:
    """Marked windows, those outside of the span and unknown rows do not count."""
    rng = np.random.default_rng(seed)
    arrays = LookBackArrays(
        rng.integers(0, largest, (10, windows, 7), np.int32),
        rng.integers(-1, 2, (10, windows), np.int32),
        rng.integers(0, 4, (10, windows), np.uint8),
    )
    rows, most_ns = rng.integers(-1, 10, 30), rng.integers(0, largest, 30)
    compared = Compared(0, windows + 2, 2, least)
    found = []
    for number, row in enumerate(rows.tolist()):
        values = sorted(
            int(arrays.features[row, place, 2])
            for place in range(windows if row >= 0 else 0)
            if 0 <= int(arrays.cycle[row, place]) * windows + place <= windows + 2
            and int(arrays.marks[row, place]) & 2 == 0
        )
        enough = len(values) >= least
        if enough and values[(len(values) - 1) // 2] <= most_ns[number]:
            found.append(number)
    assert medians_at_most(arrays, rows, 2, most_ns, compared).tolist() == found


@given(values=st.lists(st.integers(-1, 2**40), max_size=40))
def test_logarithms(values: list[int]) -> None:
    """To the last bit those of Python."""
    numbers = np.array(values, np.int64)
    assert logarithms(numbers).tolist() == [log(max(value, 1)) for value in values]
