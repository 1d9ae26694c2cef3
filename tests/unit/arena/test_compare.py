"""Comparing: the same records for all, our own verdicts as in a direct run, nothing by chance."""

import sys
from pathlib import Path

import pytest

from arena.baselines.catalogue import BASELINES
from arena.baselines.plugin import PluginError
from arena.compare import EVERYONE, OURS, compare, run_scenario
from arena.reporting.results import Result, to_line
from arena.scenarios.scenario import Scenario, ScenarioEvent
from arena.scoring import match, place_of
from arena.world.cluster import JobPlan
from arena.world.fabric import FabricShape
from tests.unit.arena.judging import judge

SCENARIO = Scenario(
    name="one-link", seed=5, seconds=90,
    fabric=FabricShape(hosts=8, rails=1, segment_hosts=2, spines=2),
    jobs=(JobPlan(task_id="job", first_host=0, hosts=8),), flows=4,
    faults=(ScenarioEvent(kind="silent_cut", begin_s=33, end_s=75),),
)  # fmt: skip
VOTERS = ("SkeletonHunter as printed", "007 (votes)")


@pytest.fixture(scope="module")
def results() -> list[Result]:
    """Return what everybody made of the scenario."""
    return run_scenario(SCENARIO, EVERYONE)


def test_everybody_is_there_and_was_asked_the_same(results: list[Result]) -> None:
    """One result for each, with one truth."""
    assert len({r.diagnoser for r in results}) == len(EVERYONE) == len(BASELINES) + 1
    assert {r.case.name for r in results} == {"one-link"}
    assert {r.case.faults for r in results} == {results[0].case.faults}


def test_ours_is_what_a_direct_run_says(results: list[Result]) -> None:
    """The case is equal to that of `tests.unit.arena.judging.judge`."""
    assert results[0].diagnoser == OURS
    assert results[0].case == judge(SCENARIO).case


def test_a_cut_link_is_found_by_all_that_know_paths(results: list[Result]) -> None:
    """Place and time right; who counts votes may blame a switch at its end, a threshold an RNIC."""
    for result in results:
        found = match(result.case.faults, result.case.verdicts)
        assert not found.missed, result.diagnoser
        ((fault, verdict),) = found.pairs
        if result.diagnoser in VOTERS:
            (link,) = fault.components
            assert verdict.candidates[0] in link, result.diagnoser
        elif result.diagnoser != "RTT threshold":
            assert place_of(fault, verdict) == 0, result.diagnoser


def test_processes_change_nothing(results: list[Result]) -> None:
    """Two workers, two scenarios, and the order of the diagnosers."""
    names = ("votes", "published")
    found = list(compare([SCENARIO, SCENARIO], names, workers=2))
    mine = {r.diagnoser: to_line(r) for r in results}
    assert [[mine[r.diagnoser] == to_line(r) for r in rows] for rows in found] == [[True, True]] * 2


def test_a_command_that_fails_is_told_with_the_scenario(tmp_path: Path) -> None:
    """And the others are let go of."""
    script = tmp_path / "guest.py"
    script.write_text("import sys; sys.stdin.readline(); sys.exit(4)\n")
    with pytest.raises(PluginError, match=r"scenario one-link: .*exit code 4"):
        run_scenario(SCENARIO, ["votes", f"{sys.executable} {script}"])
