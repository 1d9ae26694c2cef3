"""The long-term test: blocks of log medians, calibrated, and blind to trifles."""

from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from streams.columns.rounds import FlowKey
from streams.detectors.lognormal import (
    BLOCKS,
    FALSE_ALARMS_PER_BLOCK,
    GAP_WINDOWS,
    REFERENCES,
    Block,
    Trend,
    compare,
    z_threshold,
)

KEY: FlowKey = ("agent", "a", "b", 0)
EFFECT_NS = 1e6
SUMS = ("windows", "effect_ns", "total", "squares")


def add(trend: Trend, window: int, p50_ns: int, effect_ns: float, key: FlowKey = KEY) -> None:
    """Take in a window of one 5-tuple."""
    rows = np.array([trend.table.row(key)])
    trend.observe(rows, window, np.array([p50_ns]), np.array([effect_ns]))


def block(index: int, values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Block:
    """Return a block of log medians."""
    made = Block(index)
    for value in values.tolist():
        made.add(value)
    return made


def fill(trend: Trend, index: int, median_ns: float, seed: int = 0, scatter: float = 0.05) -> None:
    """Add a block of 60 windows."""
    rng = np.random.default_rng([seed, index])
    for window in range(60):
        p50 = median_ns * np.exp(scatter * rng.standard_normal())
        add(trend, index * 60 + window, round(p50), EFFECT_NS)


def test_mean_and_error_are_the_textbooks() -> None:
    """Location and standard error equal numpy's; a calm block's error stays at the floor."""
    values = np.random.default_rng(1).normal(14, 0.2, 60)
    made = block(0, values)
    assert made.mean == pytest.approx(values.mean())
    assert made.error_squared == pytest.approx(values.var(ddof=1) / 60)
    assert block(0, np.full(60, 14.0)).error_squared == pytest.approx(0.005**2 / 60)


def test_threshold_is_students() -> None:
    """The bound is the t quantile of the stated level, split over the comparisons."""
    assert z_threshold(60) == pytest.approx(
        stats.t.isf(FALSE_ALARMS_PER_BLOCK / REFERENCES, 59), rel=1e-9
    )


def test_median_estimates_mu_of_a_log_normal() -> None:
    """Windows of log-normal round trips: exp(mean of log medians) is the true median."""
    rng = np.random.default_rng(2)
    rtt = np.exp(rng.normal(np.log(16_000), 0.4, (600, 31)))
    made = block(0, np.log(np.median(rtt, axis=1)))
    assert np.exp(made.mean) == pytest.approx(16_000, rel=0.01)


@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_false_alarms_are_as_stated(correlation: float) -> None:
    """Blocks that differ by chance pass z no more often than stated, correlated probes or not.

    Correlation here is between the probes of a window; windows follow their level.
    """
    rng = np.random.default_rng(3)
    count, windows = 20_000, 60
    level = rng.standard_normal((count, 2, windows)) * (0.05 + correlation)
    mean = level.mean(axis=2)
    error = level.var(axis=2, ddof=1) / windows
    z = (mean[:, 1] - mean[:, 0]) / np.sqrt(error.sum(axis=1))
    # 0.7 expected; 6 or more have a probability below 0.1 %.
    assert (z > z_threshold(windows)).sum() <= 5


def test_slow_rise_is_found_against_each_earlier_block() -> None:
    """20 % more in an hour and a half, too little from block to block, is found at T+1.5 h."""
    trend = Trend(60)
    for index, median_ns in enumerate([10e6, 10.7e6, 10.95e6, 11.6e6]):
        fill(trend, index, median_ns)
        shift = trend.shift(KEY, index)
        assert (shift is not None) == (index == 3)
    assert shift is not None
    assert shift.median_ns == pytest.approx(11.6e6, rel=0.03)
    assert shift.reference_ns < 10.8e6


def test_new_level_becomes_normal() -> None:
    """A step is told for three blocks, then every earlier block has it."""
    trend = Trend(60)
    found = []
    for index in range(8):
        fill(trend, index, 10e6 if index < 2 else 20e6)
        found.append(trend.shift(KEY, index) is not None)
    assert found == [False, False, True, True, True, False, False, False]


def test_trifles_are_no_trend() -> None:
    """0.4 ms on 2 ms is beyond chance and below the absolute effect; less RTT is none either."""
    trend = Trend(60)
    fill(trend, 0, 2e6)
    fill(trend, 1, 2.4e6)
    assert trend.shift(KEY, 1) is None
    fill(trend, 2, 1e6)
    assert trend.shift(KEY, 2) is None


def test_sparse_blocks_are_not_compared() -> None:
    """A third of the windows is the least."""
    full, sparse = block(0, np.full(60, 14.0)), block(1, np.full(19, 15.0))
    assert compare(sparse, full, 20) is None
    sparse.add(15.0)
    assert compare(sparse, full, 20) is not None


@given(seed=st.integers(0, 2**32), steps=st.lists(st.integers(1, 15), min_size=1, max_size=40))
def test_sums_are_those_of_the_slow_twin(seed: int, steps: list[int]) -> None:
    """Whatever windows are missing; to the last bit, with Python's logarithms."""
    rng = np.random.default_rng(seed)
    trend, per_block = Trend(20), 20
    blocks: dict[tuple[int, int], Block] = {}
    latest: dict[int, int] = {}
    window = 0
    for step in steps:
        window += step
        index = window // per_block
        here = np.flatnonzero(rng.random(4) < 0.8)
        rows = np.array([trend.table.row((*KEY[:3], flow)) for flow in here.tolist()], np.int64)
        p50_ns = rng.integers(0, 10**7, len(rows))
        trend.observe(rows, window, p50_ns, p50_ns / 2)
        for flow, value in zip(here.tolist(), p50_ns.tolist(), strict=True):
            mine = blocks.get((flow, index))
            # What else stands in the same place of the ring has as many windows as it counts.
            found = [
                b for (f, i), b in blocks.items() if f == flow and i % BLOCKS == index % BLOCKS
            ]
            few = max(found, key=lambda b: b.index).windows < 8 if found else True
            if mine is None or (few and window - latest.get(flow, window) > GAP_WINDOWS):
                mine = blocks[flow, index] = Block(index, effect_ns=value / 2)
            mine.add(log(max(value, 1)))
            latest[flow] = window
    for (flow, index), wanted in blocks.items():
        if index > window // per_block - BLOCKS:
            key = (*KEY[:3], flow)
            row = trend.table.row(key)
            found_sums = [trend.table[name][row, index % BLOCKS] for name in SUMS]
            assert found_sums == [getattr(wanted, name) for name in SUMS]


def test_short_lives_are_forgotten_after_a_gap() -> None:
    """Unless an anomaly is open; and no later block depends on whether they were."""
    first_open = {"agent": 0}
    forgetful, keeping = Trend(60), Trend(60)
    lives = [(0, 60), (60, 120), (125, 140), (160, 175), (180, 200)]
    for begin, end in lives:
        for window in range(begin, end):
            for trend in (forgetful, keeping):
                add(trend, window, 1_000_000 + 500_000 * (window > 150), EFFECT_NS)
        first_open["agent"] = end + 15
        forgetful.forget(first_open.__getitem__)
        assert [forgetful.shift(KEY, n) for n in range(4)] == [
            keeping.shift(KEY, n) for n in range(4)
        ]
    # 15 and 15 windows with a gap between them are no block; 20 are.
    assert [keeping.shift(KEY, n) is not None for n in range(4)] == [False, False, False, True]
    brief = ("agent", "brief", "x", 0)
    for window in range(210, 220):
        add(forgetful, window, 1_000_000, EFFECT_NS, brief)
    for window in range(210, 240):
        add(forgetful, window, 1_000_000, EFFECT_NS)
    first_open["agent"] = 232
    forgetful.forget(first_open.__getitem__, {brief})
    assert forgetful.table.find(brief) is not None
    first_open["agent"] = 231
    forgetful.forget(first_open.__getitem__)
    assert forgetful.table.find(brief) is not None
    first_open["agent"] = 232
    forgetful.forget(first_open.__getitem__)
    assert forgetful.table.find(brief) is None
    assert forgetful.table.find(KEY) is not None


def test_memory_is_bounded() -> None:
    """Five blocks are kept of a 5-tuple, and none of one that fell silent, by its agent's clock."""
    trend = Trend(2)
    behind, going = ("behind", *KEY[1:]), (*KEY[:3], 1)
    for window in range(40):
        add(trend, window, 1_000_000, EFFECT_NS)
        add(trend, window, 1_000_000, EFFECT_NS, behind)
    assert trend.keys(14) == []
    assert trend.keys(15) == [KEY, behind]
    assert trend.keys(19) == [KEY, behind]
    add(trend, 100, 1_000_000, EFFECT_NS, going)
    # Block 23 is the last that has ended.
    first_open = {"agent": 49, "behind": 40}
    trend.forget(first_open.__getitem__)
    assert len(trend) == 3
    first_open["agent"] = 50
    trend.forget(first_open.__getitem__)
    assert trend.table.find(KEY) is None
    assert trend.keys(19) == [behind]
    first_open["behind"] = 50
    trend.forget(first_open.__getitem__)
    assert trend.keys(19) == []
    assert trend.keys(50) == [going]
