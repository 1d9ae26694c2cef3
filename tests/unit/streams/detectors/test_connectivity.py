"""Runs of losses in the order of the log."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.units import SECOND_NS
from streams.detectors.connectivity import RUN_NS, Result, Run, Runs

ROW = 3
# By this the agent's clock is behind, where nothing else is said.
BEHIND_S = 1_000


def feed(
    runs: Runs,
    results: Sequence[tuple[float, bool]],
    healthy_at: float | None = 0.0,
    sent_s: Sequence[float] | None = None,
) -> list[int]:
    """Add (second of arrival, lost) results; return the run lengths, negative for answers."""
    lengths = []
    sent_s = sent_s or [second - BEHIND_S for second, _ in results]
    for (second, lost), sent in zip(results, sent_s, strict=True):
        before = None if healthy_at is None else int(healthy_at * SECOND_NS)
        result = Result(int(second * SECOND_NS), int(sent * SECOND_NS), lost)
        run = runs.observe(ROW, result, before)
        lengths.append(run.count if run.lost else -run.count)
    return lengths


def test_losses_add_up_and_an_answer_ends_them() -> None:
    """Runs count what is alike; one answer in between starts anew."""
    runs = Runs(3)
    assert feed(runs, [(1, True), (2, True), (3, False), (4, True), (5, True), (6, True)]) == [
        1, 2, -1, 1, 2, 3,
    ]  # fmt: skip
    latest = runs.latest(ROW)
    assert latest is not None
    sent_s = (latest.first_ns / SECOND_NS, latest.last_ns / SECOND_NS)
    assert sent_s == (4 - BEHIND_S, 6 - BEHIND_S)


def test_healthy_again_costs_nothing() -> None:
    """After as many answers as losses are needed, the 5-tuple is no longer kept."""
    runs = Runs(3)
    feed(runs, [(1, True), (2, False), (3, False)])
    assert ROW in runs
    feed(runs, [(4, False)])
    assert ROW not in runs
    assert len(runs) == 0


def test_order_of_arrival_decides_not_of_sending() -> None:
    """An answer ends the run of the losses told before it, whenever it was sent."""
    runs = Runs(3)
    results = [(1, True), (2, True), (3, False), (4, True)]
    assert feed(runs, results, sent_s=[1, 3, 2, 4]) == [1, 2, -1, 1]


def test_what_arrived_at_once_keeps_its_order() -> None:
    """The results of a round, and rounds of a backlog, have one time of arrival."""
    runs = Runs(3)
    assert feed(runs, [(5, True), (5, False), (5, True), (5, True)]) == [1, -1, 1, 2]


def test_losses_of_a_clock_that_was_set_back_are_a_run() -> None:
    """By their sending times they would be older than the answer before."""
    runs = Runs(3)
    results = [(4, True), (5, True), (6, True)]
    assert feed(runs, results, healthy_at=3.0, sent_s=[4, 1, 2]) == [1, 2, 3]
    latest = runs.latest(ROW)
    assert latest is not None
    assert (latest.first_ns, latest.last_ns) == (4 * SECOND_NS, 2 * SECOND_NS)


def test_an_answer_long_ago_is_forgotten_by_its_arrival() -> None:
    """The one before the first loss counts while it is within half a minute of the latest."""
    for healthy_at, alone in ((4.0, False), (3.0, True)):
        runs = Runs(3)
        feed(runs, [(33.5, True)], healthy_at=healthy_at, sent_s=[10**6])
        latest = runs.latest(ROW)
        assert latest is not None
        assert latest.alone == alone


@pytest.mark.parametrize("clock", [1.0, 0.0, -100.0])
def test_losses_far_apart_are_no_run(clock: float) -> None:
    """Only results that arrived within half a minute of the latest count, at any clock's speed."""
    runs = Runs(3)
    apart = RUN_NS / SECOND_NS - 10
    times = [i * apart for i in range(1, 5)]
    sent_s = [clock * time for time in times]
    lengths = feed(runs, [(time, True) for time in times], healthy_at=None, sent_s=sent_s)
    assert lengths == [1, 2, 2, 2]


def test_losses_that_arrive_together_are_a_run_however_far_apart_they_were_sent() -> None:
    """A clock that jumps by hours between rounds does not hide a cut."""
    runs = Runs(3)
    results = [(1, True), (2, True), (3, True)]
    assert feed(runs, results, healthy_at=None, sent_s=[0, 7200, -7200]) == [1, 2, 3]


def test_lone_answer_after_a_long_silence_is_health() -> None:
    """With nothing else in the last half minute one answer is all there is."""
    runs = Runs(3)
    feed(runs, [(1, True), (2, True), (3, True)])
    run = runs.observe(ROW, Result(60 * SECOND_NS, 4 * SECOND_NS, lost=False), None)
    assert run.alone
    assert ROW not in runs


def test_dropped_row_is_forgotten() -> None:
    """A retired 5-tuple leaves nothing behind."""
    runs = Runs(3)
    feed(runs, [(1, True)])
    runs.forget(ROW)
    assert runs.latest(ROW) is None


@given(st.lists(st.tuples(st.integers(0, 40), st.booleans()), min_size=1, max_size=40))
def test_a_run_is_what_looking_back_finds(results: list[tuple[int, bool]]) -> None:
    """The slow twin looks through all results of the last seconds, back to the first other one."""
    runs, kept, now_s = Runs(3), list[Result](), 0
    for place, (pause_s, lost) in enumerate(results):
        now_s += pause_s
        kept.append(Result(now_s * SECOND_NS, place, lost))
        kept = [one for one in kept if one.active_ns >= now_s * SECOND_NS - RUN_NS]
        alike = next((n for n, one in enumerate(reversed(kept)) if one.lost != lost), len(kept))
        run = Run(lost, alike, kept[-alike].sent_ns, place, alike == len(kept))
        assert runs.observe(ROW, kept[-1], None) == run
        if not lost and (alike >= 3 or run.alone):
            kept = []
        assert (ROW in runs) == bool(kept)
