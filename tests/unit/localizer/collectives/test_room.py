"""One bound of all jobs together: who loses what, how it is told, what becomes less sure."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localizer.collectives.batch_operations import NO_BATCH_OPERATIONS, BatchOperations
from localizer.collectives.hang_watch import ASIDE_NS, FORGET_NS, HangWatch, event_time
from localizer.collectives.job_state import LEAST_KEPT, TWICE_NS, JobState
from localizer.collectives.rank_batch import BatchHead, RankBatch
from localizer.collectives.rank_state import SILENT_NS
from localizer.collectives.room import fair_level
from schemas.enums import Certainty, CollectiveState, FaultLifecycle, ProcessState
from schemas.ids import communicator_id
from schemas.records import CollectiveBatch, CollectiveOp, Hang
from schemas.units import SECOND_NS
from tests.collective_batches import CLUSTER, TASK, Arrival, Job, arrivals, bare_batch, seconds


@given(st.lists(st.integers(0, 1_000), min_size=1, max_size=30), st.integers(0, 5_000))
def test_a_fair_level_leaves_those_alone_who_hold_little(held: list[int], room: int) -> None:
    """All together fit, nobody below an equal share loses, and no higher level fits."""
    level = fair_level(held, room)
    if sum(held) <= room:
        assert level == room
        return
    assert sum(min(one, level) for one in held) <= room
    assert level >= room // len(held)
    assert sum(min(one, level + 1) for one in held) > room


def watched(log: list[Arrival], watch: HangWatch) -> list[Hang]:
    """Feed a watch second by second; return what it tells."""
    found: list[Hang] = []
    for until_ns, records in seconds(log):
        for arrival in records:
            watch.feed(arrival.key, arrival.record, arrival.at_ns)
        found += watch.advance(until_ns)
    return found


def flood(task: str, at_ns: int, ranks: range, folder: Path) -> list[Arrival]:
    """Return batches of a job that says to have many ranks, all with many operations."""
    first = next(
        a.record
        for a in arrivals(Job.load("healthy", folder))
        if isinstance(a.record, CollectiveBatch) and len(a.record.operations) > 3
    )
    return [
        Arrival(at_ns, f"{task}|{rank}", replace(first, task_id=task, rank=rank)) for rank in ranks
    ]


def test_a_tombstone_of_an_unknown_job_makes_none() -> None:
    """Topics hold tombstones of jobs that ended long ago."""
    watch = HangWatch(CLUSTER)
    for number in range(100):
        watch.feed(communicator_id(f"job{number}", "0"), None, SECOND_NS)
    assert watch.jobs == {}


def test_a_job_of_which_nothing_was_told_is_forgotten(tmp_path: Path) -> None:
    """Of sockets alone, too, which say nothing of an end."""
    watch, now = HangWatch(CLUSTER), FORGET_NS * 10
    (one,) = flood("job9", now, range(1), tmp_path)
    watch.feed(one.key, one.record, now)
    watch.jobs["job9"].ranks.clear()
    watch.advance(now + FORGET_NS + 2 * SECOND_NS)
    assert watch.jobs == {}


def test_a_broken_collector_costs_the_others_nothing(tmp_path: Path) -> None:
    """The job of which too much is told is set aside; the hang of another one is told as ever."""
    log = arrivals(Job.load("stalled", tmp_path / "job"))
    alone = watched(log, HangWatch(CLUSTER))
    begin_ns = log[0].at_ns
    more = flood("broken", begin_ns + SECOND_NS, range(5_000), tmp_path / "flood")
    watch = HangWatch(CLUSTER)
    watch.most_held = 20_000
    together = watched(sorted([*log, *more], key=lambda a: a.at_ns), watch)
    assert together == alone
    assert watch.refused > 0
    assert watch.held <= watch.most_held
    assert not watch.jobs[TASK].trimmed
    aside_ns = begin_ns + SECOND_NS
    assert watch.set_aside(aside_ns) == ["broken"]
    assert watch.set_aside(aside_ns + ASIDE_NS) == []
    assert watch.jobs["broken"].ranks == {}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 400)), max_size=40))
def test_the_bound_holds_whatever_comes(given_: list[tuple[int, int]]) -> None:
    """After each record; jobs of any size in any order."""
    watch, now = HangWatch(CLUSTER), 10 * FORGET_NS
    watch.most_held = 2_000
    for number, (job, ranks) in enumerate(given_):
        for rank in range(ranks):
            watch.feed("", bare_batch(f"job{job}", rank), now + number)
            assert sum(one.weight() for one in watch.jobs.values()) <= watch.most_held


def test_where_operations_were_dropped_nothing_absent_is_sure(tmp_path: Path) -> None:
    """A rank that never launched is likely only, and the evidence says why."""
    log = arrivals(Job.load("stalled", tmp_path))
    (sure, *_) = watched(log, HangWatch(CLUSTER))
    assert sure.certainty is Certainty.SURE
    # As much history as of the largest job is enough.
    for most_held, kept, certainty in (
        (550, LEAST_KEPT, Certainty.SURE),
        (470, 1, Certainty.LIKELY),
    ):
        watch = HangWatch(CLUSTER)
        watch.most_held = most_held
        (found,) = watched(log, watch)
        assert watch.jobs[TASK].most_kept == kept
        assert (found.ranks, found.certainty) == (sure.ranks, certainty)
        assert any("no room" in text for text in found.evidence) == (kept == 1)


def test_a_job_that_is_set_aside_does_not_hang_any_more(tmp_path: Path) -> None:
    """Its hang ends with the reason, once."""
    log = arrivals(Job.load("stalled", tmp_path / "job"), longer_us=20_000_000)
    watch = HangWatch(CLUSTER)
    assert [h.state for h in watched(log, watch)] == [FaultLifecycle.OPEN]
    at_ns = log[-1].at_ns
    watch.most_held = 1_000
    for one in flood(TASK, at_ns, range(1_000), tmp_path / "flood"):
        watch.feed(one.key, one.record, at_ns)
    (over,) = watch.advance(at_ns + 2 * SECOND_NS)
    assert over.state is FaultLifecycle.RESOLVED
    assert "more is told of it than there is room for" in over.summary


@pytest.mark.parametrize(
    ("newest_ns", "told_ns", "quiet_ns", "is_ns"),
    [
        (0, 0, 10**12, 0),
        (5 * 10**12, 0, 0, 5 * 10**12),
        (5 * 10**12, 7 * 10**12, SILENT_NS, 5 * 10**12),
        (5 * 10**12, 0, SILENT_NS + 3, 5 * 10**12 + 3),
        (0, 7 * 10**12, SILENT_NS + 3, 7 * 10**12 + 3),
    ],
)
def test_time_goes_on_without_records(
    newest_ns: int, told_ns: int, quiet_ns: int, is_ns: int
) -> None:
    """Ten seconds behind, from the newest record or, without any, the last hang that was told."""
    assert event_time(newest_ns, told_ns, quiet_ns) == is_ns


def test_a_hang_of_which_nothing_is_heard_ends(tmp_path: Path) -> None:
    """All collectors stop: two minutes later it is over; no other hang is made of the silence."""
    log = arrivals(Job.load("stalled", tmp_path))
    watch = HangWatch(CLUSTER)
    (hang,) = watched(log, watch)
    newest_ns = log[-1].at_ns
    told: list[tuple[int, Hang]] = []
    for quiet_s in range(200):
        at_ns = event_time(newest_ns, watch.latest_told_ns, quiet_s * SECOND_NS)
        told += [(quiet_s, one) for one in watch.advance(at_ns)]
    ((quiet_s, over),) = told
    assert (over.hang_id, over.state) == (hang.hang_id, FaultLifecycle.RESOLVED)
    assert "nothing is heard" in over.summary
    assert (FORGET_NS + SILENT_NS) // SECOND_NS <= quiet_s <= 140


def test_two_jobs_of_one_name_are_told(tmp_path: Path) -> None:
    """Both live for half a minute; a job that is started anew has an end of its old processes."""
    first = next(
        a.record
        for a in arrivals(Job.load("healthy", tmp_path))
        if isinstance(a.record, CollectiveBatch)
    )
    other = replace(first, attempt=first.attempt + 10**9, pid=7, host_id="host:h9")
    job, now = JobState("job1"), 10 * FORGET_NS
    for second in range(0, 60, 2):
        at_ns = now + second * SECOND_NS
        for one in (first, other):
            job.apply_batch(BatchHead.of(one), NO_BATCH_OPERATIONS, at_ns)
        lasts_ns = second * SECOND_NS
        assert (job.mixed(at_ns) is not None) == (lasts_ns > TWICE_NS), second
    text = job.mixed(at_ns)
    assert text is not None
    assert f"{other.host_id} and {first.host_id}" in text
    assert job.mixed(at_ns + SILENT_NS + 1) is None
    gone = replace(first, process_state=ProcessState.GONE)
    job = JobState("job1")
    for second in range(0, 60, 2):
        for one in (first if second < 2 else gone, other):
            job.apply_batch(BatchHead.of(one), NO_BATCH_OPERATIONS, now + second * SECOND_NS)
    assert job.mixed(now + 60 * SECOND_NS) is None


def test_what_operations_refer_to_counts() -> None:
    """An operation keeps all stacks of its batch in memory, and many batches one operation each."""
    watch = HangWatch(CLUSTER)
    watch.most_held = 50_000
    stacks = tuple((f"frame {number}",) for number in range(3_000))
    for number in range(40):
        one = BatchOperations.of_records(
            CollectiveOp(
                communicator="0", operation="all_reduce", sequence=place, is_p2p=False,
                record_id=place + 3_000 * number, op_id=None, sender=None, receiver=None,
                input_sizes=((1,),), output_sizes=(), input_dtypes=(), output_dtypes=(), n_bytes=4,
                launched_at=1, started_at=None, completed_at=None, missing_reason=None,
                state=CollectiveState.STARTED, retired=None, timeout_ms=None, stack=stack,
            )
            for place, stack in enumerate(stacks)
        )  # fmt: skip
        last = replace(one, begin=len(one) - 1)
        batch = replace(bare_batch("job", 0), snapshot=False)
        watch.feed("", RankBatch(BatchHead.of(batch), last), SECOND_NS + number)
        assert watch.held <= watch.most_held
    assert watch.refused > 0
    assert watch.set_aside(SECOND_NS + 40) == ["job"]
