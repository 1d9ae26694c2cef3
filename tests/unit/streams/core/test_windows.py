"""Windows: statistics against numpy, lateness, repeats."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.units import SECOND_NS
from streams.columns.quantities import COLUMNS, PERCENTS, STATISTICS
from streams.columns.rounds import RoundColumns, round_columns
from streams.config import DetectionConfig
from streams.core.clock import AgentClocks, ClockState
from streams.core.windows import ClosedWindow, Windows
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


class Opened:
    """Windows of one agent, closed up to a time."""

    def __init__(self, window_s: int, floor_ns: int = 0) -> None:
        self.config = DetectionConfig(window_ns=window_s * SECOND_NS, lateness_ns=0)
        self.agents = AgentClocks(self.config, floor_ns)
        self.windows = Windows(self.config, self.agents)

    def number(self, agent: str = "agent", started_ns: int = T) -> int:
        """Return an agent's number."""
        return self.agents.meet(agent, started_ns, ClockState(T))

    def add(self, times_ns: list[int], rtts: list[int | None], row: int = 0) -> list[bool]:
        """Add results of a row; return which came in time."""
        at = columns_at(times_ns, rtts)
        out: list[bool] = self.windows.add_round(self.number(), rows(len(rtts), row), at).tolist()
        return out

    def close(self, until_ns: int, agent: str = "agent") -> list[ClosedWindow]:
        """Close an agent's windows that end by a time."""
        numbers = np.array([self.number(agent)])
        return self.windows.close(numbers, np.array([until_ns // self.config.window_ns]), 0)


def test_result_at_the_border_belongs_to_the_later_window() -> None:
    """Windows include their start and exclude their end."""
    opened = Opened(10)
    opened.add([T, T + 10 * SECOND_NS - 1, T + 10 * SECOND_NS], [1, 2, 3])
    closed = opened.close(T + 20 * SECOND_NS)
    assert [c.sent.tolist() for c in closed] == [[2], [1]]
    assert [c.index * 10 * SECOND_NS for c in closed] == [T, T + 10 * SECOND_NS]


def test_late_results_are_told_and_not_counted() -> None:
    """After a window closed its results are late; others are not."""
    opened = Opened(10)
    assert opened.close(T + 10 * SECOND_NS) == []
    assert opened.add([T + 1, T + 10 * SECOND_NS], [1, 1]) == [False, True]
    (closed,) = opened.close(T + 20 * SECOND_NS)
    assert closed.sent.tolist() == [1]


def test_agents_close_their_own_windows_only() -> None:
    """One is done with a window whose results of the other go on to come."""
    opened = Opened(10)
    ahead, behind = opened.number("ahead"), opened.number("behind")
    for agent, row in ((ahead, 0), (behind, 1)):
        opened.windows.add_round(agent, rows(1, row), columns_at([T + 1], [1]))
    (closed,) = opened.close(T + 10 * SECOND_NS, "ahead")
    assert closed.rows.tolist() == [0]
    opened.windows.add_round(behind, rows(2, 1), columns_at([T + 2, T + 3], [1, 1]))
    assert not opened.windows.add_round(ahead, rows(1, 0), columns_at([T + 4], [1])).any()
    (closed,) = opened.close(T + 10 * SECOND_NS, "behind")
    assert (closed.rows.tolist(), closed.sent.tolist()) == ([1], [3])


def test_slots_of_one_place_may_be_of_different_windows() -> None:
    """Results that found no slot go to the window of their own agent."""
    opened = Opened(10)
    numbers = [opened.number("old", T), opened.number("new", T + 20 * SECOND_NS)]
    places = len(opened.windows.slots.spilled)
    assert places == 2
    for number in numbers:
        opened.windows.add_round(number, rows(1, number), columns_at([T + 25 * SECOND_NS], [1]))
    opened.windows.fit_slots(3)
    slots, place = opened.windows.slots, T // (10 * SECOND_NS) % 2
    slots.counts[place, numbers] += 1
    slots.spill_rows[place, :2] = numbers
    slots.spilled[place] = 2
    (old,) = opened.close(T + 10 * SECOND_NS, "old")
    assert (old.index * 10 * SECOND_NS, old.rows.tolist(), old.sent.tolist()) == (T, [1], [2])
    (new,) = opened.close(T + 30 * SECOND_NS, "new")
    assert new.index * 10 * SECOND_NS == T + 20 * SECOND_NS
    assert (new.rows.tolist(), new.sent.tolist()) == ([2], [3])


def test_repeats_are_counted_beside() -> None:
    """Duplicates show in the window and change nothing else."""
    opened = Opened(10)
    opened.add([T, T + 1], [5, None])
    opened.windows.add_repeats(opened.number(), np.array([0, 0]), np.array([T, T + 1]))
    (closed,) = opened.close(T + 10 * SECOND_NS)
    assert closed.repeats.tolist() == [2]
    assert (closed.sent.tolist(), closed.ok.tolist()) == ([2], [1])
    assert closed.values[:, COLUMNS.index("host_delay_p50_ns")].tolist() == [7]


def test_floor_keeps_published_results_out() -> None:
    """After a change of the window length, results of published windows are not counted again."""
    opened = Opened(30, floor_ns=T + 20 * SECOND_NS)
    assert opened.add([T + 19 * SECOND_NS, T + 20 * SECOND_NS], [1, 1]) == [True, True]
    assert opened.agents.closed_ns == T + 20 * SECOND_NS
    (closed,) = opened.close(T + 60 * SECOND_NS)
    assert closed.sent.tolist() == [1]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_agents_get_what_is_held_of_their_rows(data: st.DataObject) -> None:
    """However much finds no slot, and whoever probed a row before: each closes its own rows.

    Or drops them, and those of the others are not touched.
    """
    opened = Opened(10)
    names = ["a", "b", "c"]
    numbers = {name: opened.number(name) for name in names}
    for window in range(3):
        begin_ns = T + window * 10 * SECOND_NS
        held: dict[int, tuple[str, list[int], int]] = {}
        for _ in range(data.draw(st.integers(0, 12))):
            name, row = data.draw(st.sampled_from(names)), data.draw(st.integers(0, 4))
            # More than a row has slots for.
            rtts = data.draw(st.lists(st.integers(1, 10**6), min_size=1, max_size=30))
            if data.draw(st.booleans()):
                rtts *= 4
            at_ns = [begin_ns + place for place in range(len(rtts))]
            repeats = data.draw(st.integers(0, 2))
            timely = opened.windows.add_round(
                numbers[name], rows(len(rtts), row), columns_at(at_ns, list(rtts))
            )
            assert timely.all()
            if repeats:
                again_ns = np.full(repeats, begin_ns, np.int64)
                opened.windows.add_repeats(numbers[name], rows(repeats, row), again_ns)
            _, had, counted = held.get(row, ("", [], 0))
            held[row] = name, [*had, *rtts], counted + repeats
        every = np.array(sorted(held), np.int64)
        assert opened.windows.holding(every).all()
        for name in data.draw(st.permutations(names)):
            wanted = {row: own[1:] for row, own in held.items() if own[0] == name}
            if data.draw(st.booleans()):
                index = begin_ns // opened.config.window_ns
                opened.windows.drop(np.array([numbers[name]]), np.array([index + 1]), 0)
                assert not opened.windows.holding(np.array(list(wanted), np.int64)).any()
                continue
            closed = opened.close(begin_ns + 10 * SECOND_NS, name)
            assert [c.rows.tolist() for c in closed] == ([sorted(wanted)] if wanted else [])
            for one in closed:
                for place, row in enumerate(one.rows.tolist()):
                    rtts, repeats = wanted[row]
                    assert (one.sent[place], one.repeats[place]) == (len(rtts), repeats)
                    found = dict(zip(COLUMNS, one.values[place].tolist(), strict=True))
                    assert (found["min_ns"], found["max_ns"]) == (min(rtts), max(rtts))
        assert not opened.windows.holding(np.arange(5)).any()
