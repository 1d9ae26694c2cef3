"""The clocks' bench: what differs, what comes later, what is excused."""

import pytest

from ops.bench.resilience.clock_world import (
    AGENTS,
    WRONG,
    WRONG_CLOCKS,
    ClockWorld,
    with_clock,
)
from ops.bench.resilience.clocks import BEGIN_NS, Published, excused, published
from schemas.units import SECOND_NS

CLOCKS = {clock.name: clock for clock in WRONG_CLOCKS}
# No fault needs windows here: a cut shows at once.
WORLD = ClockWorld(begin_ns=BEGIN_NS, seconds=60, healthy_s=10, step_s=2, fault_s=30)


@pytest.fixture(scope="module")
def right() -> Published:
    """Return what is published if all clocks are right."""
    return published(WORLD.rounds())


def test_the_world_has_faults_of_all_agents(right: Published) -> None:
    """Each agent's cut and losses are found, and three windows of six 5-tuples each."""
    assert {kind for kind, *_ in right.own} >= {"CONNECTIVITY", "LOSS"}
    assert len(right.others) > (AGENTS - 1) * 3 * 6
    assert (right.refused, right.late) == (0, 0)


@pytest.mark.parametrize("name", ["+50 min", "first round +50 min", "+30 d", "-1 h"])
def test_one_wrong_clock_changes_nothing_of_others(right: Published, name: str) -> None:
    """Not even when it is published."""
    found = published(with_clock(WORLD.rounds(), CLOCKS[name]))
    assert (found.differences(right), found.delay_s(right)) == (0, 0)


def test_refused_faults_are_excused() -> None:
    """A clock that is 50 minutes ahead hides all own faults, one that drifts none."""
    rounds = WORLD.rounds()
    assert len(excused(WORLD, with_clock(rounds, CLOCKS["+50 min"]))) == 3
    assert not excused(WORLD, with_clock(rounds, CLOCKS["drifting 1 %"]))
    assert not excused(WORLD, with_clock(rounds, CLOCKS["first round +50 min"]))


def test_differences_are_counted_both_ways() -> None:
    """One is missing, one is too many, one comes 3 s later."""
    ours, theirs = Published(others={b"a": 1, b"b": 5}), Published(others={b"b": 2, b"c": 3})
    assert (ours.differences(theirs), ours.delay_s(theirs)) == (2, 3)


def test_only_the_last_agent_is_misdated() -> None:
    """And by as much as its clock says."""
    rounds = WORLD.rounds()
    for before, after in zip(rounds, with_clock(rounds, CLOCKS["+40 s"]), strict=True):
        ahead = after.datum["started_at"] - before.datum["started_at"]
        assert ahead == (40 * SECOND_NS // 1_000 if before.agent == WRONG else 0)
