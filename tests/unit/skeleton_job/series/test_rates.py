"""Counters to rates: no byte is lost or made up where the counters allow to know."""

import numpy as np
import polars as pl
import pytest

from schemas.units import SECOND_NS
from skeleton_job.series.rates import MAX_GAP_BINS
from skeleton_job.series.unwrapping import Table, cumulated, guess_bits, increments
from tests.unit.skeleton_job.frames import rates_of, tick_of

TICK_NS = SECOND_NS // 10
TIMES = np.arange(101, dtype=np.int64) * TICK_NS


def frame(value: np.ndarray, time_ns: np.ndarray = TIMES, bits: int | None = 64) -> pl.DataFrame:
    """Return a table of one RNIC that sends and receives alike."""
    return pl.DataFrame(
        {
            "time_ns": time_ns,
            "endpoint_id": ["a"] * len(time_ns),
            "tx_bytes": value.astype(np.uint64),
            "rx_bytes": value.astype(np.uint64),
            "bits": pl.Series([bits] * len(time_ns), dtype=pl.Int64),
        }
    )


def ramp(rate: float = 1e9) -> np.ndarray:
    """Return a counter that grows evenly."""
    return np.round(TIMES * rate / SECOND_NS).astype(np.uint64)


@pytest.mark.parametrize("bits", [32, 34, 64])
def test_a_wrapped_counter_counts_on(bits: int) -> None:
    """Whatever the width, a wrap changes no rate."""
    start = np.uint64(2**bits - 3_000_000_000)
    wrapped = (ramp() + start) & np.uint64(2**bits - 1)
    assert (np.diff(wrapped.astype(np.float64)) < 0).sum() >= 1
    made = rates_of(
        frame(wrapped, bits=bits), ["a"], start_ns=0, end_ns=10 * SECOND_NS, bin_ns=TICK_NS
    )
    assert made.tx == pytest.approx(np.full((1, 100), 1e9))
    assert not made.missing.any()


def test_a_reset_loses_its_own_bin_only() -> None:
    """Where a counter falls to zero, the bytes between are not known; all others are."""
    value = ramp()
    value[50:] -= value[50]
    made = rates_of(frame(value), ["a"], start_ns=0, end_ns=10 * SECOND_NS, bin_ns=TICK_NS)
    assert made.missing[0].nonzero()[0].tolist() == [49]
    assert made.tx[0, made.missing[0]] == 0.0
    assert made.tx[0, ~made.missing[0]] == pytest.approx(1e9)


def test_more_than_a_port_can_carry_is_a_reset() -> None:
    """A wrap is believed only where its rate is possible."""
    times = np.array([0, TICK_NS], dtype=np.int64)
    fell = np.array([2**33, 10], dtype=np.uint64)
    moved, known = increments(times, fell, 34, max_rate=50e9)
    assert (moved[0], known[0]) == (0.0, False)
    _, known = increments(times, fell, 34, max_rate=100e9)
    assert known[0]


def test_a_lost_sample_is_bridged_on_cumulated_bytes() -> None:
    """One missing tick moves bytes within its gap, and none out of it."""
    value, keep = ramp(), np.ones(101, dtype=np.bool_)
    keep[30] = False
    value[31:] += np.uint64(500_000_000)  # a burst somewhere in the gap
    made = rates_of(
        frame(value[keep], TIMES[keep]), ["a"], start_ns=0, end_ns=10 * SECOND_NS, bin_ns=TICK_NS
    )
    assert not made.missing.any()
    assert made.tx[0].sum() * TICK_NS / SECOND_NS == pytest.approx(float(value[-1]))
    assert made.tx[0, 29] == made.tx[0, 30] == pytest.approx(3.5e9)


def test_a_long_gap_is_missing_not_smeared() -> None:
    """Beyond the bound, nobody knows what happened when."""
    keep = np.ones(101, dtype=np.bool_)
    keep[40 : 40 + MAX_GAP_BINS] = False
    made = rates_of(
        frame(ramp()[keep], TIMES[keep]), ["a"], start_ns=0, end_ns=10 * SECOND_NS, bin_ns=TICK_NS
    )
    assert made.missing[0].nonzero()[0].tolist() == list(range(39, 40 + MAX_GAP_BINS))


def test_a_counter_that_stands_still_keeps_its_total() -> None:
    """A stale reading delays bytes, but the sum over the window is that of the counter."""
    value = ramp()
    value[20:60:2] = value[19:59:2]
    made = rates_of(frame(value), ["a"], start_ns=0, end_ns=10 * SECOND_NS, bin_ns=TICK_NS)
    assert made.tx[0].sum() / 10 == pytest.approx(float(value[-1]))


def test_what_was_not_read_has_a_reason() -> None:
    """An endpoint without readings, and one with too few, say so and stay out."""
    few = frame(ramp()[:30], TIMES[:30])
    made = rates_of(few, ["a", "b"], start_ns=0, end_ns=10 * SECOND_NS, bin_ns=TICK_NS)
    assert made.reasons[0] == "only 29% of the samples are there, 50% are needed"
    assert made.reasons[1] == "no counter was read"
    assert not made.usable.any()


def test_null_and_double_readings_do_no_harm() -> None:
    """A null is a lost sample; of two readings of one instant one counts."""
    table = frame(ramp())
    null = table[50].with_columns(
        tx_bytes=pl.lit(None, dtype=pl.UInt64), time_ns=pl.col("time_ns") + 7
    )
    made = rates_of(
        pl.concat([table, null, table[3]]).sample(fraction=1.0, shuffle=True, seed=1),
        ["a"],
        start_ns=0,
        end_ns=10 * SECOND_NS,
        bin_ns=TICK_NS,
    )
    assert made.tx == pytest.approx(np.full((1, 100), 1e9))


def test_readings_beside_the_tick_count_where_they_were_read() -> None:
    """Edges are interpolated at the true times of reading, so that jitter makes no noise."""
    rng = np.random.default_rng(3)
    times = TIMES + rng.integers(0, 40_000_000, TIMES.size)
    times[0] = 0
    value = np.round(times * 1e9 / SECOND_NS).astype(np.uint64)
    made = rates_of(frame(value, times), ["a"], start_ns=0, end_ns=10 * SECOND_NS, bin_ns=TICK_NS)
    assert made.tx == pytest.approx(np.full((1, 100), 1e9))


def test_cumulated_agrees_with_a_slow_obvious_way() -> None:
    """Against a loop in exact integers: the same bytes at every edge."""
    rng = np.random.default_rng(4)
    times = np.cumsum(rng.integers(50_000_000, 150_000_000, 80)).astype(np.int64)
    steps = rng.integers(0, 10**9, 80)
    start = 2**34 - 5 * 10**9
    value = np.array([(start + int(s)) % 2**34 for s in np.cumsum(steps)], dtype=np.uint64)
    edges = np.arange(times[0], times[-1], TICK_NS)
    table = Table(times[None], np.array([times.size]), edges)
    widths = np.array([34])
    at_edges, holes = cumulated(table, value[None], widths, max_gap_ns=SECOND_NS, max_rate=100e9)
    found, missing = at_edges[0], holes[0]
    total = np.cumsum(steps) - steps[0]
    for edge, got in zip(edges.tolist(), found.tolist(), strict=True):
        k = max(i for i in range(80) if times[i] <= edge)
        share = (edge - int(times[k])) / (int(times[k + 1]) - int(times[k]))
        assert got == pytest.approx(total[k] + share * (total[k + 1] - total[k]))
    assert not missing.any()


def test_the_width_of_an_undeclared_counter_is_guessed() -> None:
    """A decrease from the upper half of a width is a wrap of that width; else 64 bits."""
    for bits in (32, 34):
        top = 2**bits
        assert guess_bits(np.array([top - 9, 5, 9], dtype=np.uint64)) == bits
    assert guess_bits(np.array([1, 5, 9], dtype=np.uint64)) == 64
    assert guess_bits(np.array([2**40, 5], dtype=np.uint64)) == 64


def test_the_tick_is_the_usual_distance() -> None:
    """Jitter and lost samples do not change the tick; a single reading has none."""
    rng = np.random.default_rng(5)
    times = np.sort(TIMES + rng.integers(0, 4_000_000, TIMES.size))[rng.random(101) > 0.2]
    assert tick_of(frame(ramp()[: times.size], times)) in range(98_000_000, 103_000_000)
    assert tick_of(frame(ramp()[:1], TIMES[:1])) is None


def test_a_grid_without_bins_is_refused() -> None:
    """The bound stands in the message."""
    with pytest.raises(ValueError, match="there is no bin of 100000000 ns"):
        rates_of(frame(ramp()), ["a"], start_ns=0, end_ns=1, bin_ns=TICK_NS)
