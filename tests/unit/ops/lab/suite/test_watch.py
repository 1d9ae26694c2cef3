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
from schemas.enums import PingListPhase, TargetOrigin
from schemas.records import PingList, PingTarget, Skeleton

KIND = "netns"
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
    """Stands for a lab: each cut takes a tenth of a second of the clock."""

    settings: Any = None

    def __init__(self, *, calm: bool = True) -> None:
        self.calm = calm
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
        """Cut a cable; the verdict is right."""
        if not self.calm:
            raise TimeoutError("not calm")
        self.cut.append(case.target)
        return Outcome(
            case=case.name, open_delay_s=2.0, resolve_delay_s=5.0, verdicts=(), right=True,
            kind_right=True,
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
    return watch.run_watch(KIND, seconds=600.0, say=lambda _: None)


def test_a_right_skeleton_and_lone_verdicts_meet_all_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several cables are cut, each another one; an empty skeleton is none."""
    faults = Faults()
    found = watched(monkeypatch, faults, (NONE, RIGHT), (ping_list(0, 0),))
    assert (found.published, found.wrong, found.across) == ((RIGHT,), 0, 0)
    assert len(set(faults.cut)) == min(len(faults.cut), 8) > 4
    assert all(row.met for row in watch_figures([found]))


def test_a_wrong_skeleton_and_targets_across_rails_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However right the last one is, and however sure the wrong one."""
    found = watched(monkeypatch, Faults(), (NONE, RIGHT, WRONG, RIGHT), (ping_list(0, 2, 3),))
    assert (len(found.published), found.wrong, found.across) == (3, 1, 2)
    missed = [row.figure for row in watch_figures([found]) if not row.met]
    assert missed == [
        "netns lab watched: wrong skeletons",
        "netns lab watched: targets across rails",
    ]


def test_a_lab_that_does_not_become_calm_ends_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was seen until then counts, and the bar is missed."""
    found = watched(monkeypatch, Faults(calm=False), (RIGHT,), ())
    assert found.cut_short == "not calm"
    assert not all(row.met for row in watch_figures([found]))
