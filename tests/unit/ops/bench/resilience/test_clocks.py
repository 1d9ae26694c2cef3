"""The clocks' bench: what differs, what comes later, what is excused."""

import pytest

from ops.bench.resilience.clock_world import AGENTS, WRONG_CLOCKS, ClockWorld
from ops.bench.resilience.clocks import BEGIN_NS, CoreRun, Published, run_core
from schemas.units import SECOND_NS

CLOCKS = {clock.name: clock for clock in WRONG_CLOCKS}
# No fault needs windows here: a cut shows at once.
WORLD = ClockWorld(begin_ns=BEGIN_NS, seconds=60, healthy_s=10, step_s=2, fault_s=30)


@pytest.fixture(scope="module")
def right() -> CoreRun:
    """Return what is published if all clocks are right."""
    return run_core(WORLD, WORLD.rounds())


def test_the_world_has_faults_of_all_agents(right: CoreRun) -> None:
    """Each agent's cut and losses are found, and three windows of six 5-tuples each."""
    assert {kind for kind, *_ in right.published.own} >= {"CONNECTIVITY", "LOSS"}
    assert len(right.published.others) > (len(AGENTS) - 1) * 3 * 6
    assert (right.refused, right.late) == (0, 0)


@pytest.mark.parametrize("name", list(CLOCKS))
def test_one_wrong_clock_changes_nothing_of_others(right: CoreRun, name: str) -> None:
    """Not even when it is published; and its own faults are found, but for refused rounds."""
    rounds = WORLD.with_clock(WORLD.rounds(), CLOCKS[name])
    found = run_core(WORLD, rounds).published
    assert found.differences(right.published) == 0
    assert found.own_differences(right.published, WORLD.refused_paths(rounds)) == 0


def test_mutated_rounds_of_one_agent_change_nothing_of_others(right: CoreRun) -> None:
    """Whatever a field of them says."""
    found = run_core(WORLD, WORLD.with_mutations(WORLD.rounds())).published
    assert found.differences(right.published) == 0


def test_refused_faults_are_excused() -> None:
    """A clock that is 50 minutes ahead hides all own faults, one that drifts none."""
    rounds = WORLD.rounds()
    assert len(WORLD.refused_paths(WORLD.with_clock(rounds, CLOCKS["+50 min"]))) == 3
    assert not WORLD.refused_paths(WORLD.with_clock(rounds, CLOCKS["drifting 1 %"]))
    assert not WORLD.refused_paths(WORLD.with_clock(rounds, CLOCKS["first round +50 min"]))


def test_own_faults_are_compared_but_for_refused_paths() -> None:
    """One is false, one is missing, and one was refused."""
    ours = Published("w", own={("LOSS", "w", "a", 0), ("LATENCY", "w", "b", 0)})
    theirs = Published("w", own={("LOSS", "w", "c", 0), ("LATENCY", "w", "b", 0)})
    assert ours.own_differences(theirs, set()) == 2
    assert ours.own_differences(theirs, {("w", "c")}) == 1


def test_differences_are_counted_both_ways() -> None:
    """One is missing, one is too many, one comes 3 s later; a second is none."""
    ours, theirs = (
        Published("w", others={"a": 1, "b": 5, "d": 2}),
        Published("w", others={"b": 2, "c": 3, "d": 1}),
    )
    assert ours.differences(theirs) == 3


def test_only_the_last_agent_is_misdated() -> None:
    """And by as much as its clock says."""
    rounds = WORLD.rounds()
    for before, after in zip(rounds, WORLD.with_clock(rounds, CLOCKS["+40 s"]), strict=True):
        ahead = after.datum["started_at"] - before.datum["started_at"]
        assert ahead == (40 * SECOND_NS // 1_000 if before.agent == WORLD.wrong else 0)


def test_mutated_rounds_stand_behind_the_last_agents_own() -> None:
    """One behind each, until there is one for each field and value; all others are the same."""
    rounds = WORLD.rounds()
    more = WORLD.with_mutations(rounds)
    added = [one for one in more if one not in rounds]
    assert len(added) > 40
    assert {one.agent for one in added} == {WORLD.wrong}
    assert [one for one in more if one in rounds] == rounds
