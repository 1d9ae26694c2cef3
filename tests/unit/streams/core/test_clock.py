"""Time in a partition: arrival, agents' clocks, memory of rounds."""

import random

import numpy as np
import pytest

from schemas.bounds import MAX_AHEAD_NS
from schemas.units import SECOND_NS
from streams.config import DetectionConfig
from streams.core.clock import (
    MAX_GAP_NS,
    ROUNDS_IN_CHUNK,
    AgentClocks,
    ClockState,
    SeenRounds,
    advance_clock,
    closing_delay_ns,
    forget_agent_ns,
    max_open_ns,
)

T = 1_000_000 * SECOND_NS
NOW = ClockState(T)
CONFIG = DetectionConfig()
WINDOW_NS = CONFIG.window_ns


def test_first_round_sets_the_clock() -> None:
    """Before it there is no time."""
    assert advance_clock(ClockState(), T) == NOW


def test_arrival_never_goes_back() -> None:
    """A broker's clock that is set back stands still here."""
    assert advance_clock(NOW, T - 3600 * SECOND_NS) == NOW


def test_a_pause_is_no_active_time() -> None:
    """What a gap is longer than the greatest one that counts is left out."""
    assert advance_clock(NOW, T + MAX_GAP_NS).active_ns == T + MAX_GAP_NS
    later = advance_clock(NOW, T + 3600 * SECOND_NS)
    assert later.arrival_ns == T + 3600 * SECOND_NS
    assert later.active_ns == T + MAX_GAP_NS
    assert advance_clock(later, T + 3601 * SECOND_NS).active_ns == T + MAX_GAP_NS + SECOND_NS


def clocks(**started_ns: int) -> AgentClocks:
    """Return the clocks of agents that each sent one round."""
    agents = AgentClocks(CONFIG, 0)
    for agent, start_ns in started_ns.items():
        number = agents.meet(agent, start_ns, NOW)
        agents.observe_round(number, start_ns, start_ns, NOW.active_ns)
    return agents


@pytest.mark.parametrize("off_s", [0, 40, 59, -30, -90])
def test_an_agent_begins_with_the_window_of_its_round(off_s: int) -> None:
    """What may still come of the window before, within the lateness, is not late either."""
    agents = clocks(agent=T + off_s * SECOND_NS)
    entry_ns = int(agents.table["entry_ns"][1])
    assert entry_ns <= T + off_s * SECOND_NS - CONFIG.lateness_ns < entry_ns + WINDOW_NS


def test_an_agent_that_begins_with_a_backlog_begins_with_a_whole_window() -> None:
    """It may have been here before, and be forgotten."""
    agents = clocks(agent=T - 3600 * SECOND_NS)
    entry_ns = int(agents.table["entry_ns"][1])
    assert 0 < entry_ns - (T - 3600 * SECOND_NS) <= WINDOW_NS


def test_closings_of_agents_are_spread() -> None:
    """Each agent has a delay of its own, never less than the lateness, evenly."""
    delays_ns = np.array([closing_delay_ns(CONFIG, f"agent-{n}") for n in range(1_000)])
    spread_ns = CONFIG.closing_spread_ns
    assert (delays_ns.min(), delays_ns.max()) == (
        pytest.approx(CONFIG.lateness_ns, abs=spread_ns // 50),
        pytest.approx(CONFIG.lateness_ns + spread_ns, abs=spread_ns // 50),
    )
    counts, _ = np.histogram(delays_ns, bins=10)
    assert counts.min() > 60


def test_windows_close_by_their_own_agents_clock() -> None:
    """An agent that is ahead closes none of the others."""
    agents = clocks(ahead=T, right=T)
    agents.observe_round(1, T + 2 * WINDOW_NS, T, NOW.active_ns)
    numbers, after = agents.due(NOW.active_ns, overdue=True)
    assert numbers.tolist() == [1]
    assert after.tolist() == [(T + 2 * WINDOW_NS - closing_delay_ns(CONFIG, "ahead")) // WINDOW_NS]


def test_windows_of_a_silent_agent_close_when_they_were_open_for_long() -> None:
    """Up to the one that holds its last probe."""
    agents = clocks(agent=T)
    agents.observe_round(1, T, T + WINDOW_NS, NOW.active_ns)
    limit_ns = NOW.active_ns + max_open_ns(CONFIG)
    assert not len(agents.due(limit_ns - 1, overdue=True)[0])
    assert not len(agents.due(limit_ns, overdue=False)[0])
    _, after = agents.due(limit_ns, overdue=True)
    assert after.tolist() == [(T + WINDOW_NS) // WINDOW_NS + 1]


def test_who_comes_back_after_being_forgotten_opens_no_closed_window() -> None:
    """Whatever its clock says, within the bound, and however long its backlog is."""
    for ahead_ns in (0, MAX_AHEAD_NS):
        agents = clocks(agent=T + ahead_ns)
        agents.observe_round(1, T + ahead_ns, T + ahead_ns, T)
        _, after = agents.due(T + max_open_ns(CONFIG), overdue=True)
        later = ClockState(T + forget_agent_ns(CONFIG) + 1)
        assert agents.forget_silent(later.active_ns) == [1]
        assert len(agents) == 0
        for behind_ns in range(0, 2 * forget_agent_ns(CONFIG), SECOND_NS):
            again = AgentClocks(CONFIG, 0)
            started_ns = (later.arrival_ns or 0) - behind_ns
            if started_ns <= T + ahead_ns:
                # Not after the last round before: the agent's rounds come in order.
                break
            again.meet("agent", started_ns, later)
            assert again.table["first_open"][1] >= after[0]


def test_the_present_of_an_agent_goes_on_in_silence() -> None:
    """By its own clock, and without pauses."""
    agents = clocks(behind=T - 3600 * SECOND_NS)
    later = ClockState(T + 500 * SECOND_NS, 493 * SECOND_NS)
    assert agents.now_ns("behind", later) == T - 3593 * SECOND_NS
    assert agents.now_ns("nobody", later) == T + 500 * SECOND_NS


def test_duplicates_are_seen_within_the_horizon_and_memory_is_bounded() -> None:
    """A round is known for the horizon; older ones are forgotten."""
    seen = SeenRounds(10 * SECOND_NS)
    first = (0, 1, 0, T)
    assert not seen.seen_before(first, T, new=True)
    assert seen.seen_before(first, T + 10 * SECOND_NS, new=False)
    assert not seen.seen_before((0, 2, 0, T), T, new=False)
    last = 3 * ROUNDS_IN_CHUNK
    for second in range(1, last):
        at_ns = T + second * SECOND_NS
        seen.seen_before((0, 1, second, at_ns), at_ns, new=True)
    assert len(seen) <= ROUNDS_IN_CHUNK + 12
    end_ns = T + (last - 1) * SECOND_NS
    for back in (0, 5, 10):
        known = last - 1 - back
        assert seen.seen_before((0, 1, known, T + known * SECOND_NS), end_ns, new=False)
    old = (0, 1, 7, T + 7 * SECOND_NS)
    assert not seen.seen_before(old, T + last * SECOND_NS, new=False)


def test_rounds_that_come_late_or_twice_are_found_wherever_they_are() -> None:
    """As by looking at all rounds that were accepted within the horizon."""
    chance, horizon_ns = random.Random(4), 10 * SECOND_NS
    seen, naive = SeenRounds(horizon_ns), dict[tuple[int, int, int, int], int]()
    for number in range(4 * ROUNDS_IN_CHUNK):
        active_ns = T + number * SECOND_NS // 1_000
        # Some three chunks are younger than the horizon; clocks differ by seconds.
        start_ns = active_ns - chance.randrange(4 * SECOND_NS)
        row = (number % 50, 1, number, start_ns)
        if chance.random() < 0.1 and naive:
            row = chance.choice(list(naive)[-12_000:])
        was_ns = naive.get(row)
        known = was_ns is not None and was_ns >= active_ns - horizon_ns
        assert seen.seen_before(row, active_ns, new=False) == known
        if not known:
            naive[row] = active_ns


def test_numbers_of_forgotten_agents_are_given_again() -> None:
    """A stream of names that come once costs no memory for ever."""
    agents = AgentClocks(CONFIG, 0)
    step_ns = forget_agent_ns(CONFIG) // 10
    for n in range(1_000):
        at = ClockState(T + n * step_ns)
        number = agents.meet(f"agent-{n}", T, at)
        agents.observe_round(number, T, T, at.active_ns)
        agents.forget_silent(at.active_ns)
    assert len(agents) <= 12
    assert agents.table.rows_ever <= 14
    assert np.array_equal(np.sort(agents.table.rows()), np.unique(agents.table.rows()))
