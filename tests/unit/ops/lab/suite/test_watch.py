"""What a watched lab must show: on skeletons, lists and outcomes that the test hands it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from ops.bench.labs import watch_figures
from ops.lab.kind import lab_kind
from ops.lab.suite import watch
from ops.lab.suite.cases import Case
from ops.lab.suite.faults import Outcome
from ops.lab.suite.places import places
from ops.lab.suite.suite import Run
from schemas.enums import PingListPhase, TargetOrigin
from schemas.records import PingList, PingTarget, Skeleton

KIND = "netns"
NAME = "watched"
SECONDS = 600.0
NONE = Skeleton(
    cluster="lab", task_id="job1", version=1, window_start_at=0, window_end_at=1, confidence=0.0,
    reason="too short", members=(), pairs=(),
)  # fmt: skip
RIGHT = replace(NONE, version=2, confidence=0.89, dp=2, pp=2, tp=4)
WRONG = replace(RIGHT, version=3, confidence=0.91, dp=4, tp=2)


def ping_list(*rails: int) -> PingList:
    """Return a list with a target from rail 0 to each of these."""
    ids = {e.rail: e.endpoint_id for e in lab_kind(KIND).shape.endpoints}
    return PingList(
        cluster="lab", agent_id="agent-h0", version=1, updated_at=1, phase=PingListPhase.RUNTIME,
        targets=tuple(
            PingTarget(
                src=ids[0], dst=ids[rail], task_id="job1", origin=TargetOrigin.SKELETON, flows=4
            )
            for rail in rails
        ),
    )  # fmt: skip


class Faults:
    """Stands for a lab; only health takes time."""

    settings: Any = None

    def __init__(self, *, calm: bool = True, false: int = 0) -> None:
        self.calm = calm
        self.false = false
        self.now_s = 0.0
        self.cut: list[str] = []

    def monotonic(self) -> float:
        """Return the time."""
        return self.now_s

    def healthy(self, seconds: float) -> list[Any]:
        """Let time pass without a fault."""
        self.now_s += seconds
        return []

    def run(self, case: Case) -> Outcome:
        """Put a fault in; the verdict is right."""
        if not self.calm:
            raise TimeoutError("not calm")
        self.cut.append(case.target)
        return Outcome(
            case=case.name, open_delay_s=2.0, resolve_delay_s=5.0, verdicts=(), right=True,
            kind_right=True, false=self.false,
        )  # fmt: skip


def watched(
    monkeypatch: pytest.MonkeyPatch,
    faults: Faults,
    skeletons: tuple[Skeleton, ...],
    lists: tuple[PingList, ...],
) -> watch.WatchResult:
    """Return the result of a watch over what was published."""

    @contextmanager
    def bench(*_: Any, **__: Any) -> Iterator[Faults]:
        yield faults

    monkeypatch.setattr(watch, "bench", bench)
    monkeypatch.setattr(watch, "time", faults)
    monkeypatch.setattr(watch, "_published", lambda _: (skeletons, lists))
    return watch.run_watch(KIND, seconds=SECONDS, say=lambda _: None)


def test_a_right_skeleton_and_lone_verdicts_meet_all_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults are put in at several places; an empty skeleton is none."""
    faults = Faults()
    found = watched(monkeypatch, faults, (NONE, RIGHT), (ping_list(0, 0),))
    assert (found.published, found.wrong, found.across) == ((RIGHT,), 0, 0)
    assert len(set(faults.cut)) > 4
    assert all(row.met for row in watch_figures(NAME, SECONDS, [found]))


def test_a_wrong_skeleton_and_targets_across_rails_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However right the last one is, and however sure the wrong one."""
    found = watched(monkeypatch, Faults(), (NONE, RIGHT, WRONG, RIGHT), (ping_list(0, 2, 3),))
    assert (len(found.published), found.wrong, found.across) == (3, 1, 2)
    missed = [row.figure for row in watch_figures(NAME, SECONDS, [found]) if not row.met]
    assert missed == [
        "watched: wrong skeletons",
        "watched: targets across rails",
    ]


def test_a_lab_that_does_not_become_calm_ends_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was seen until then counts, and the bar is missed."""
    found = watched(monkeypatch, Faults(calm=False), (RIGHT,), ())
    assert found.cut_short == "not calm"
    assert found.not_calm == watch.MOST_TIMES_NOT_CALM
    assert not all(row.met for row in watch_figures(NAME, SECONDS, [found]))


def test_an_hour_has_thirty_faults_and_a_verdict_beside_the_right_one_is_false() -> None:
    """Verdicts in health and beside the right one are counted together."""
    result = watch.WatchResult(
        published=(RIGHT,), wrong=0, across=0, false=(),
        runs=tuple(
            Run(watch.CASES[0], Faults(false=int(n == 3)).run(watch.CASES[0])) for n in range(29)
        ),
        loads=(0.5,) * 29,
    )  # fmt: skip
    assert result.false_verdicts == 1
    missed = [row.figure for row in watch_figures(NAME, 3_600.0, [result]) if not row.met]
    assert missed == ["watched: faults put and healed", "watched: false verdicts"]


def test_each_round_of_faults_is_at_other_places() -> None:
    """A cable that one round broke has another's fault in the next; of switches there are few."""
    names = places(lab_kind(KIND).shape)
    cases = [case for case in watch.CASES if case.in_lab(KIND)]
    put = [watch._next(cases, names, n) for n in range(3 * len(cases))]
    assert [case.name for case in put[: len(cases)]] == [case.name for case in cases]
    again = zip(put, put[len(cases) :], strict=False)
    assert all(a.target != b.target for a, b in again if a.target.startswith("link:"))
