"""The look-back that detectors of raised latency share."""

from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.columns.rounds import FlowKey
from streams.config import DetectionConfig
from streams.detectors.base import P50
from streams.detectors.levels import levels
from streams.detectors.lof import MIN_HISTORY
from streams.detectors.lookback import MOST_MARKS, LookBack
from tests.unit.streams.detectors.batches import KEYS, batch

CONFIG = DetectionConfig()


def test_baseline_and_forgetting() -> None:
    """The baseline is the median of medians; 5-tuples that fell silent are dropped.

    Each by its own agent's clock: of one that is behind old windows still matter.
    """
    lookback = LookBack(CONFIG)
    mark = lookback.new_mark()
    for index, p50 in enumerate([10, 30, 20]):
        lookback.insert(batch(index, np.full((1, 7), p50)))
    assert lookback.baseline_p50_ns(KEYS[0], 3, mark) == 20
    assert lookback.baseline_p50_ns(KEYS[1], 3, mark) is None
    assert lookback.baseline_p50_ns(KEYS[0], 40, mark) is None
    behind: FlowKey = ("behind", *KEYS[0][1:])
    lookback.insert(batch(2, np.full((1, 7), 20), keys=[behind]))
    lookback.insert(batch(40, np.full((1, 7), 20), keys=KEYS[1:]))
    first_open = {"agent": 15, "behind": 3}
    lookback.forget(first_open.__getitem__)
    assert len(lookback) == 3
    first_open["agent"] = 16
    lookback.forget(first_open.__getitem__)
    assert lookback.table.find(KEYS[0]) is None
    assert lookback.table.find(KEYS[1]) is not None
    assert lookback.baseline_p50_ns(behind, 3, mark) == 20
    first_open["behind"] = 16
    lookback.forget(first_open.__getitem__)
    assert len(lookback) == 1


def test_each_detector_leaves_out_windows_of_its_own() -> None:
    """What one has marked still counts for another, until the place is used again."""
    lookback = LookBack(CONFIG)
    one, other = lookback.new_mark(), lookback.new_mark()
    made = [batch(index, np.full((2, 7), 10 + index)) for index in range(5)]
    for each in made:
        lookback.insert(each)
    lookback.leave_out(made[4].select(np.array([0])), one)
    lookback.leave_out_one(KEYS[0], 3, one)
    assert lookback.baseline_p50_ns(KEYS[0], 5, one) == 11
    assert lookback.baseline_p50_ns(KEYS[0], 5, other) == 12
    assert lookback.baseline_p50_ns(KEYS[1], 5, one) == 12
    lookback.leave_out_before(KEYS[0], 4, other)
    assert lookback.baseline_p50_ns(KEYS[0], 5, other) == 14
    again = 4 + lookback.windows
    lookback.insert(batch(again, np.full((2, 7), 99)))
    assert lookback.baseline_p50_ns(KEYS[0], again + 1, one) == 99
    # A window that is no longer kept cannot be marked.
    lookback.leave_out(made[4], one)
    lookback.leave_out_one(KEYS[0], 4, one)
    assert lookback.baseline_p50_ns(KEYS[0], again + 1, one) == 99


def test_marks_are_few() -> None:
    """As many as a byte has bits."""
    lookback = LookBack(CONFIG)
    assert len({lookback.new_mark() for _ in range(MOST_MARKS)}) == MOST_MARKS
    with pytest.raises(ValueError, match="share a look-back"):
        lookback.new_mark()


@settings(max_examples=100)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(0, 16),
    least_ns=st.sampled_from([0.0, 1.0, 7.0]),
    least_ratio=st.sampled_from([0.0, 0.05, 0.25]),
)
def test_the_quick_test_passes_all_that_have_risen(
    seed: int, count: int, least_ns: float, least_ratio: float
) -> None:
    """Also by as much as is needed, and not a nanosecond more; and next to nothing else."""
    rng = np.random.default_rng(seed)
    lookback = LookBack(CONFIG)
    mark = lookback.new_mark()
    for index in range(count):
        made = batch(index, rng.integers(90, 110, (20, 7)))
        lookback.insert(made)
        lookback.leave_out(made.select(rng.random(20) < 0.2), mark)
    windows = batch(count, rng.integers(90, 140, (20, 7)))
    lookback.insert(windows)
    least = np.full(20, least_ns)
    found = lookback.may_have_risen(windows, P50, least, least_ratio, mark).tolist()
    compared = lookback.compared(windows, mark)
    medians, _ = levels(lookback.table["features"], windows.rows(lookback.table), compared, P50)
    value_ns = windows.features_ns[:, P50]
    effect = np.maximum(least_ns, least_ratio * medians)
    enough = compared.sum(axis=1) >= MIN_HISTORY
    risen = enough & (value_ns - medians >= effect)
    assert set(np.flatnonzero(risen).tolist()) <= set(found)
    assert found == sorted(found)
    assert enough[found].all()


@given(
    p50_ns=st.lists(st.integers(0, 100), min_size=1, max_size=40),
    left_out=st.sets(st.integers(0, 39)),
    after=st.integers(0, 3),
)
def test_a_baseline_is_the_median_of_the_last_windows(
    p50_ns: list[int], left_out: set[int], after: int
) -> None:
    """The slow twin sorts them; windows that the detector has left out do not count."""
    lookback = LookBack(CONFIG)
    mark = lookback.new_mark()
    for index, p50 in enumerate(p50_ns):
        lookback.insert(batch(index, np.full((1, 7), p50)))
        if index in left_out:
            lookback.leave_out_one(KEYS[0], index, mark)
    now = len(p50_ns) + after
    counted = [
        p50
        for index, p50 in enumerate(p50_ns)
        if index not in left_out and now - CONFIG.lookback_windows <= index < now
    ]
    expected = int(median(counted)) if counted else None
    assert lookback.baseline_p50_ns(KEYS[0], now, mark) == expected
