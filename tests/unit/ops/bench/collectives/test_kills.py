"""Jobs that are told by a plan, and how what was published is compared with it."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from localizer.collectives.hang_watch import HangWatch
from ops.bench.collectives.kills import HANGS_S, JOBS, KILL_EACH_S, Published, plan, score
from ops.bench.collectives.told_job import RANKS, Standstill, ToldJob, load, save
from schemas.enums import FaultLifecycle, HangClass
from schemas.records import Hang
from schemas.units import US_NS

BEGIN_US = 1_800_000_000_000_000
SECOND_US = 1_000_000
FIRST = Standstill(3, BEGIN_US + 30 * SECOND_US, BEGIN_US + 60 * SECOND_US)
SECOND = Standstill(5, BEGIN_US + 140 * SECOND_US, BEGIN_US + 170 * SECOND_US)
JOB = ToldJob("job1", BEGIN_US, (FIRST, SECOND))
OPEN, RESOLVED = FaultLifecycle.OPEN, FaultLifecycle.RESOLVED


def tell(watch: HangWatch, from_s: int, to_s: int, *, decide: bool = True) -> list[Hang]:
    """Tell a watch of the job between two times as collectors do; return what it says."""
    found: list[Hang] = []
    for second in range(from_s, to_s):
        at_us = BEGIN_US + second * SECOND_US
        for rank in range(RANKS) if second % 2 == 0 else ():
            batch = JOB.batch(rank, at_us, whole=second == from_s)
            watch.feed(batch.rank_id, batch, at_us * US_NS)
        if decide:
            found += watch.advance(at_us * US_NS)
    return found


def test_a_planned_standstill_is_a_hang_of_that_rank() -> None:
    """The others wait for it, and go on when it does."""
    found = tell(HangWatch("lab"), 0, 200)
    assert [(h.state, h.ranks) for h in found] == [
        (OPEN, (3,)), (RESOLVED, (3,)), (OPEN, (5,)), (RESOLVED, (5,)),
    ]  # fmt: skip
    assert {h.hang_class for h in found} == {HangClass.NEVER_LAUNCHED}
    assert found[0].sequence == 60


@pytest.mark.parametrize("killed_s", [20, 34, 50, 61, 70, 100, 144])
def test_a_watcher_that_reads_again_does_not_call_a_hang_usual(killed_s: int) -> None:
    """The wait of a hang is no usual wait, also for who reads it after the hang is over."""
    published = {h.hang_id: h for h in tell(HangWatch("lab"), 0, killed_s)}
    again = HangWatch("lab", published.values())
    tell(again, 0, killed_s, decide=False)
    rest = tell(again, killed_s, 200)
    opened = [h.ranks for h in [*published.values(), *rest] if h.seq == 1 and h.state is OPEN]
    resolved = [h.ranks for h in published.values() if h.state is RESOLVED]
    assert sorted({*opened, *resolved}) == [(3,), (5,)]
    assert len({h.hang_id for h in [*published.values(), *rest]}) == 2


def test_who_takes_over_opens_no_hang_a_second_time() -> None:
    """One that was told as over, and is not, comes back under its id with the next number."""
    (told,) = tell(HangWatch("lab"), 0, 50)
    at = told.event_at + 10 * SECOND_US
    over = replace(told, seq=2, state=RESOLVED, event_at=at, resolved_at=at)
    again = HangWatch("lab", [over])
    tell(again, 0, 50, decide=False)
    back, end = tell(again, 50, 120)
    assert (back.hang_id, back.seq, back.state) == (told.hang_id, 3, FaultLifecycle.UPDATED)
    assert (end.hang_id, end.seq, end.state) == (told.hang_id, 4, RESOLVED)


def test_a_plan_is_kept_whole(tmp_path: Path) -> None:
    """In a file that tellers read; some job hangs whenever something is killed."""
    jobs = plan(BEGIN_US, 20, random.Random(1))
    save(jobs, tmp_path / "plan.json")
    assert load(tmp_path / "plan.json") == jobs
    assert len(jobs) == JOBS
    for job in jobs:
        for one, after in zip(job.stands, job.stands[1:], strict=False):
            assert after.begin_us - one.end_us > 60 * SECOND_US
            assert one.rank != after.rank
    begin_us = min(s.begin_us for job in jobs for s in job.stands)
    for second in range(int(20 * KILL_EACH_S) - HANGS_S):
        at_us = begin_us + second * SECOND_US
        assert any(s.begin_us <= at_us <= s.end_us for job in jobs for s in job.stands)


def test_lost_doubled_false_and_open_are_counted() -> None:
    """Of hangs; those of faults are counted alike."""
    found = tell(HangWatch("lab"), 0, 200)
    right = score([JOB], Published(found, []))
    assert (right.planned, right.hangs_lost, right.hangs_doubled, right.false) == (2, 0, 0, 0)
    assert (right.faults_lost, right.left_open) == (2, 0)
    lost = score([JOB], Published(found[2:], []))
    assert (lost.hangs_lost, lost.false) == (1, 0)
    again = score([JOB], Published([*found, replace(found[0], hang_id="h-other")], []))
    assert (again.hangs_doubled, again.left_open) == (1, 1)
    twice = score([JOB], Published([*found, found[1]], []))
    assert twice.hangs_doubled == 1
    false = score([JOB], Published([*found, replace(found[0], ranks=(4,), hang_id="h-x")], []))
    assert false.false == 1
