"""The suite's own judgement, the listing of faults by kind of lab, a starved process."""

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ops.bench.labs import Injection, Turns, figures
from ops.cli.app import build
from ops.cli.lab_suite import show
from ops.lab.errors import LabUsageError
from ops.lab.kind import lab_kind
from ops.lab.suite.cases import SUITE, Case
from ops.lab.suite.faults import Outcome
from ops.lab.suite.suite import Run, SuiteResult

HARD = next(case for case in SUITE if case.hard)
SOFT = next(case for case in SUITE if not case.hard)


def outcome(case: Case, *, right: bool = True, after_s: float | None = 2.0) -> Outcome:
    """Return what came of an injection."""
    found = ((case.component_ids[0], case.layer.value, case.fault_kinds[0]),)
    return Outcome(
        case=case.name,
        calm_s=3.0,
        open_delay_s=after_s,
        resolve_delay_s=5.0,
        verdicts=found if after_s is not None else (),
        right=right,
        kind_right=right,
    )


def result(*runs: tuple[Case, Outcome]) -> SuiteResult:
    """Return the result of these injections."""
    return SuiteResult(lab="netns", runs=tuple(Run(*run) for run in runs), lacking=("loop",))


def test_one_wrong_component_in_twenty_is_allowed_two_are_not() -> None:
    """The bar on components is 95 %."""
    good = [(HARD, outcome(HARD))] * 19
    assert result(*good, (SOFT, outcome(SOFT, right=False))).met
    assert not result(*good[1:], *[(SOFT, outcome(SOFT, right=False))] * 2).met


def test_only_hard_faults_have_to_be_quick() -> None:
    """A delay takes a window to be seen; a cut that was never seen counts as its timeout."""
    assert result((HARD, outcome(HARD)), (SOFT, outcome(SOFT, after_s=50.0))).met
    assert not result((HARD, outcome(HARD, after_s=3.1))).met
    never = result((HARD, outcome(HARD, after_s=None)))
    assert never.hard_median_s == HARD.timeout_s
    assert not never.met


def test_a_suite_without_runs_misses_its_bar() -> None:
    """Nothing measured is nothing met."""
    assert not result().met


def test_a_suite_that_was_cut_short_misses_its_bar(capsys: pytest.CaptureFixture[str]) -> None:
    """A lab that does not recover from a fault is told, and what was seen until then."""
    cut = replace(result((HARD, outcome(HARD))), cut_short="the lab is not calm after 90 s")
    assert not cut.met
    show(cut)
    shown = capsys.readouterr().out
    assert "cut short: the lab is not calm" in shown
    assert HARD.name in shown


def test_where_the_time_went_is_told_by_what_was_waited_for() -> None:
    """A fault that nobody named was waited for as long as its case allows."""
    waited = result((HARD, outcome(HARD)), (SOFT, outcome(SOFT, after_s=None))).waited_s
    assert waited == {
        "calm": 6.0, "verdict": 2.0 + SOFT.timeout_s, "settle": 8.0, "resolve": 10.0,
    }  # fmt: skip


def test_the_table_says_what_is_lacking_and_what_was_missed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Faults that the kind of lab has not are rows of their own."""
    show(result((HARD, outcome(HARD, right=False, after_s=None))))
    shown = capsys.readouterr().out
    for word in ("loop", "WRONG", "never", "MISSED", "netns lab", "calm 3 s"):
        assert word in shown


@pytest.mark.parametrize(
    ("kind", "has", "lacks"),
    [("netns", "route-hole", "flow-loop"), ("loopback", "flow-loop", "link-down")],
)
def test_faults_are_listed_by_kind_of_lab(kind: str, has: str, lacks: str) -> None:
    """`lab kinds` shows what can be typed in that kind of lab, and no more."""
    listed = CliRunner().invoke(build(), ["lab", "kinds", "--kind", kind, "--json"])
    names = {row["kind"] for row in json.loads(listed.output)}
    assert has in names
    assert lacks not in names


def test_an_unknown_kind_of_lab_is_refused_with_what_there_is() -> None:
    """The message helps."""
    with pytest.raises(LabUsageError, match="did you mean netns"):
        lab_kind("netnss")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")
def test_a_starved_process_runs_a_part_of_the_time_and_goes_on_afterwards() -> None:
    """It is stopped most of the time; the starver's end lets it go on."""
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    starver = subprocess.Popen(
        [sys.executable, "-m", "ops.lab.starve", "--pid", str(busy.pid), "--stop", "10"]
    )
    try:
        deadline = time.monotonic() + 60
        while _state(busy.pid) != "T":
            assert time.monotonic() < deadline
            time.sleep(0.01)
        stopped = [False]
        # A starver that comes late itself, on a busy machine, is given another chance.
        while sum(stopped[-40:]) <= 20:
            assert time.monotonic() < deadline
            stopped.append(_state(busy.pid) == "T")
            time.sleep(0.05)
        starver.terminate()
        assert starver.wait(30) == 0
        assert _state(busy.pid) != "T"
    finally:
        for child in (starver, busy):
            child.kill()
            child.wait()


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_what_a_broken_off_bench_measured_is_gone_on_with(tmp_path: Path) -> None:
    """Whole turns stay, the one that was broken off begins anew; without --resume all does."""
    turns = Turns(tmp_path, "rxe")
    assert turns.begin(resume=True) == 0
    for turn in (0, 1):
        turns.add_injection(turn, Run(HARD, outcome(HARD)))
        turns.add_injection(turn, Run(SOFT, outcome(SOFT, right=False, after_s=None)))
        turns.end(turn, "not calm" if turn else None)
    turns.add_injection(2, Run(HARD, outcome(HARD)))
    assert turns.begin(resume=True) == 2
    kept = list(turns.runs())
    assert [(run.turn, run.right) for run in kept] == [
        (0, True), (0, False), (1, True), (1, False)
    ]  # fmt: skip
    assert kept[1].delay_s == SOFT.timeout_s
    assert turns.begin(resume=False) == 0
    assert list(turns.runs()) == []


def test_the_figures_count_what_was_not_put_in() -> None:
    """A turn that was cut short shows as faults that are missing."""
    kept = Injection(
        turn=0, case="a", target="b", hard=True, delay_s=2.0, right=True, kind_right=False,
        verdicts=[],
    )  # fmt: skip
    put_in, right, kind, delay = figures("netns", 2, [kept] * 3)
    assert (put_in.value, put_in.met, right.value, kind.value) == (3, False, 1, 0)
    assert put_in.bar == 2 * sum(case.in_lab("netns") for case in SUITE)
    assert (delay.value, delay.met) == (2.0, True)
