"""Windows: statistics against numpy, lateness, repeats."""

import numpy as np
import pytest

from schemas.units import SECOND_NS
from streams.columns.quantities import COLUMNS, COUNT, PERCENTS, STATISTICS
from streams.columns.rounds import RoundColumns, round_columns
from streams.core.windows import Windows
from tests.unit.streams.columns.numpy_statistics import medians, statistics
from tests.unit.streams.worlds import result, round_datum

T = 1_000_000 * SECOND_NS


def columns_at(times_ns: list[int], rtts: list[int | None]) -> RoundColumns:
    """Return columns of results of one flow at the given times."""
    results = [
        result("a", "b", 0, t - T, rtt, host_ns=7) for t, rtt in zip(times_ns, rtts, strict=True)
    ]
    return round_columns(round_datum(results, T))


def rows(n: int, row: int = 0) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return one row number for n results."""
    return np.full(n, row, np.int64)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 30, 40, 100, 101])
def test_statistics_are_numpys(count: int) -> None:
    """Percentiles are numpy's inverted_cdf, mean and deviation the population's, rounded."""
    rng = np.random.default_rng(count)
    value = rng.integers(1, 10**9, count)
    group = np.zeros(count, np.int64)
    out = statistics(group, value, 1)
    for percent in PERCENTS:
        twin = np.percentile(value, percent, method="inverted_cdf")
        assert out[f"p{percent}_ns"][0] == twin
    assert out["min_ns"][0] == value.min()
    assert out["max_ns"][0] == value.max()
    assert abs(out["mean_ns"][0] - value.mean()) <= 0.5
    assert abs(out["std_ns"][0] - value.std()) <= 1.0
    assert medians(group, value, 1)[0] == out["p50_ns"][0]


def test_groups_do_not_mix_and_empty_ones_have_no_values() -> None:
    """Each group has its own statistics; one without observations has -1 everywhere."""
    group = np.array([2, 0, 2, 0, 2])
    value = np.array([30, 1, 10, 3, 20])
    out = statistics(group, value, 3)
    assert out["p50_ns"].tolist() == [1, -1, 20]
    assert out["mean_ns"].tolist() == [2, -1, 20]
    assert all(out[name][1] == -1 for name in STATISTICS)


def test_values_too_large_to_be_packed_give_the_same() -> None:
    """Beyond 18 minutes the slower sort serves: statistics only grow by what was added."""
    rng = np.random.default_rng(5)
    group = rng.integers(0, 50, 1_000)
    value = rng.integers(0, 10**9, 1_000)
    small, large = statistics(group, value, 50), statistics(group, value + 2**50, 50)
    for name in STATISTICS:
        shift = 0 if name == "std_ns" else 2**50
        assert np.abs(large[name] - shift - small[name]).max() <= (name == "std_ns")
    below = medians(group, value - 10**9, 50)
    assert (below == small["p50_ns"] - 10**9).all()


def test_deviation_of_large_close_values_is_exact() -> None:
    """A minute of round trip and a deviation of nanoseconds: no cancellation."""
    value = np.array([59_999_999_998, 59_999_999_999, 60_000_000_000])
    assert statistics(np.zeros(3, np.int64), value, 1)["std_ns"][0] == 1


def test_result_at_the_border_belongs_to_the_later_window() -> None:
    """Windows include their start and exclude their end."""
    windows = Windows(10 * SECOND_NS)
    times = [T, T + 10 * SECOND_NS - 1, T + 10 * SECOND_NS]
    windows.add_round(rows(3), columns_at(times, [1, 2, 3]))
    closed = windows.close(T + 20 * SECOND_NS)
    assert [c.sent.tolist() for c in closed] == [[2], [1]]
    assert [c.index * 10 * SECOND_NS for c in closed] == [T, T + 10 * SECOND_NS]


def test_late_results_are_told_and_not_counted() -> None:
    """After a window closed its results are late; others are not."""
    windows = Windows(10 * SECOND_NS)
    assert windows.close(T + 10 * SECOND_NS) == []
    timely = windows.add_round(rows(2), columns_at([T + 1, T + 10 * SECOND_NS], [1, 1]))
    assert timely.tolist() == [False, True]
    (closed,) = windows.close(T + 20 * SECOND_NS)
    assert closed.sent.tolist() == [1]


def test_closing_never_goes_back() -> None:
    """An older watermark closes nothing and opens nothing again."""
    windows = Windows(10 * SECOND_NS)
    windows.close(T)
    first_open = windows.first_open
    assert windows.close(T - 100 * SECOND_NS) == []
    assert windows.first_open == first_open


def test_repeats_are_counted_beside() -> None:
    """Duplicates show in the window and change nothing else."""
    windows = Windows(10 * SECOND_NS)
    windows.add_round(rows(2), columns_at([T, T + 1], [5, None]))
    windows.add_repeats(np.array([0, 0, 9]), np.array([T, T + 1, T]))
    (closed,) = windows.close(T + 10 * SECOND_NS)
    assert closed.repeats.tolist() == [2]
    assert (closed.sent.tolist(), closed.ok.tolist()) == ([2], [1])
    assert closed.values[:, COLUMNS.index("host_delay_p50_ns")].tolist() == [7]


def test_floor_keeps_published_results_out() -> None:
    """After a change of the window length, results of published windows are not counted again."""
    windows = Windows(30 * SECOND_NS, floor_ns=T + 20 * SECOND_NS)
    times = [T + 19 * SECOND_NS, T + 20 * SECOND_NS]
    assert windows.add_round(rows(2), columns_at(times, [1, 1])).tolist() == [True, True]
    assert windows.closed_ns == T + 20 * SECOND_NS
    (closed,) = windows.close(T + 60 * SECOND_NS)
    assert closed.sent.tolist() == [1]


def test_closed_windows_keep_nothing_of_chunks() -> None:
    """After a restart rounds of published windows are taken; no window is made of them again."""
    window_ns = 30 * SECOND_NS
    floor = T // window_ns + 2
    windows = Windows(window_ns, floor * window_ns)
    assert windows.entry_ns == 0 < windows.closed_ns
    values = np.full((COUNT, 2), 5, np.int64)
    for index in (floor - 1, floor):
        windows.add_chunk(index, rows(2), values)
    assert windows.close((floor - 1) * window_ns) == []
    windows.fit_slots(1)
    # A result in a slot of each.
    windows.slots.counts[:, 0] = 1
    (closed,) = windows.close((floor + 1) * window_ns)
    assert (closed.index, closed.sent.tolist()) == (floor, [3])
    assert windows.entry_ns == windows.closed_ns


def test_floor_within_a_window_lets_no_chunk_in() -> None:
    """The windows were longer before: a chunk cannot tell its results apart."""
    floor_ns = T // (30 * SECOND_NS) * 30 * SECOND_NS + SECOND_NS
    windows = Windows(30 * SECOND_NS, floor_ns)
    assert windows.entry_ns == floor_ns
