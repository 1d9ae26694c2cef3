"""What is to be said of a job that records nothing, and how that is judged."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ops.bench.collectives import unrecorded
from ops.bench.collectives.causes import CAUSES, Cause, Outcome, Said, judged, place
from ops.bench.collectives.unrecorded import STUCK, expected_of, measure
from ops.bench.rig.report import Say
from ops.lab.frameworks import JAX
from ops.lab.kind import SUITE_SHAPE
from schemas.ids import rank_id

BY_KIND = {cause.kind: cause for cause in CAUSES}


def said_of(kind: str, number: int, *said: Said) -> Outcome:
    """Return an outcome of a cause at the rank of that number."""
    here = place(BY_KIND[kind], number, 0, SUITE_SHAPE)
    return judged(BY_KIND[kind], here, said, 3.0, live=True)


def test_a_rank_that_is_stopped_is_to_be_named() -> None:
    """And nothing beside it."""
    stopped = Said("rank_stopped", (), rank_id("job1", 2))
    wanted = expected_of(BY_KIND["rank-stop"], 2)
    assert wanted.is_met(said_of("rank-stop", 2, stopped))
    assert not wanted.is_met(said_of("rank-stop", 3, stopped))
    assert not wanted.is_met(said_of("rank-stop", 2, stopped, stopped))
    assert not wanted.is_met(said_of("rank-stop", 2))


def test_what_nobody_can_tell_is_to_be_said_of_nobody() -> None:
    """A rank that launches nothing is undecided, a slow one not told, a job without rank 0 over."""
    undecided = Said(STUCK, tuple(range(8)), rank_id("job1", 0))
    wanted = expected_of(BY_KIND["rank-stall"], 1)
    assert str(wanted) == "collective_stuck, of nobody"
    assert wanted.is_met(said_of("rank-stall", 1, undecided))
    named = said_of("rank-stall", 1, Said("rank_never_launched", (), rank_id("job1", 0)))
    assert not wanted.is_met(named)
    assert unrecorded.blames(named.said, named)
    for nothing in (expected_of(BY_KIND["rank-slow"], 1), expected_of(BY_KIND["rank-exit"], 0)):
        assert str(nothing) == "nothing"
        assert nothing.is_met(said_of("rank-slow", 1))
        assert not nothing.is_met(said_of("rank-slow", 1, undecided))
    assert expected_of(BY_KIND["rank-exit"], 1).names == ("rank_missing",)


class Silent:
    """A lab in which nothing is said of anything."""

    def run(self, cause: Cause, number: int, turn: int, timeout_s: float) -> Outcome:
        """Hear nothing."""
        assert timeout_s > 60
        return judged(cause, place(cause, number, turn, SUITE_SHAPE), [], None, live=True)

    def anew(self) -> None:
        """Do nothing."""

    def healthy(self, _seconds: float) -> int:
        """Hear nothing."""
        return 0


def test_the_table_has_a_row_for_each_cause_that_such_a_job_can_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No rank of it does something else than the others; a slow one is rightly not told."""
    monkeypatch.setattr(unrecorded, "lacks_job", lambda _say, _framework: False)
    lines: list[str] = []

    @contextmanager
    def bench(_say: Say, _keep: Path | None) -> Iterator[Silent]:
        yield Silent()

    share, blamed, false = measure(bench, 1, lines.append)
    kinds = [cause.kind for cause in CAUSES if cause.kind not in JAX.refused]
    assert len(lines) == 1 + len(kinds) == 9
    assert "| rank slow | rank 2 | nothing | nothing |  | yes |" in lines
    assert share.value == 1 / len(kinds)
    assert (blamed.value, false.value) == (0, 0)
    assert {line.count(" | ") for line in lines} == {5}
