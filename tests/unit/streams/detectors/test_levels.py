"""What the kernels compute is what numpy and Python compute, to the last bit."""

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
    medians,
    risen,
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


def look_back(rng: np.random.Generator, windows: int, largest: int) -> LookBackArrays:
    """Return ten rows of windows of three cycles, some of them marked."""
    return LookBackArrays(
        rng.integers(0, largest, (10, windows, 7), np.int32, endpoint=True),
        rng.integers(-1, 2, (10, windows), np.int32),
        rng.integers(0, 4, (10, windows), np.uint8),
    )


def counted(arrays: LookBackArrays, row: int, column: int, compared: Compared) -> list[int]:
    """Return, ascending, a feature of a row's windows that count."""
    windows = arrays.cycle.shape[1]
    return sorted(
        int(arrays.features[row, place, column])
        for place in range(windows if row >= 0 else 0)
        if compared.oldest <= int(arrays.cycle[row, place]) * windows + place <= compared.newest
        and int(arrays.marks[row, place]) & compared.mark == 0
    )


@settings(max_examples=150)
@given(
    seed=st.integers(0, 2**32),
    windows=st.integers(1, 22),
    least=st.integers(1, 6),
    largest=st.sampled_from([3, 10**7, 2**31 - 1]),
    ratio=st.sampled_from([0.0, 0.25]),
)
def test_what_may_have_risen(
    seed: int, windows: int, least: int, largest: int, ratio: float
) -> None:
    """Marked windows, those outside of the span and unknown rows do not count."""
    rng = np.random.default_rng(seed)
    arrays = look_back(rng, windows, largest)
    rows, newer = rng.integers(-1, 10, 30), rng.integers(0, largest, (30, 7), endpoint=True)
    least_ns = rng.integers(0, largest, 30) / 2
    compared = Compared(0, windows + 2, 2, least)
    found = []
    for number, row in enumerate(rows.tolist()):
        values = counted(arrays, row, 2, compared)
        value = int(newer[number, 2])
        most = int(np.floor(min(value - least_ns[number], value / (1.0 + ratio)))) + 1
        if len(values) >= least and values[(len(values) - 1) // 2] <= most:
            found.append(number)
    assert risen(arrays, rows, 2, newer, least_ns, ratio, compared).tolist() == found


@settings(max_examples=150)
@given(
    seed=st.integers(0, 2**32),
    rows=st.integers(0, 30),
    windows=st.integers(1, 22),
    least=st.integers(1, 6),
    largest=st.sampled_from([3, 10**7, 2**31 - 1]),
)
def test_medians_of_all_features(
    seed: int, rows: int, windows: int, least: int, largest: int
) -> None:
    """The middle value, or the mean of both; of windows that count, if they are enough."""
    rng = np.random.default_rng(seed)
    arrays = look_back(rng, windows, largest)
    asked = rng.integers(-1, 10, rows)
    compared = Compared(0, windows + 2, 2, least)
    found = medians(arrays, asked, compared)
    assert found.shape == (rows, 7)
    for row, of_row in zip(asked.tolist(), found.tolist(), strict=True):
        for column, median in enumerate(of_row):
            values = counted(arrays, row, column, compared)
            wanted = float(np.median(values)) if len(values) >= least else np.nan
            assert_array_equal(median, wanted)
