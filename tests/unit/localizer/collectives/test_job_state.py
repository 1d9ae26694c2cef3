"""Which processes are a rank, and which attempt of the job they are of."""

from dataclasses import replace
from pathlib import Path

import pytest

from localizer.collectives.batch_operations import NO_BATCH_OPERATIONS, BatchOperations
from localizer.collectives.job_state import JobState
from localizer.collectives.rank_batch import BatchHead
from localizer.collectives.rank_state import SAME_ATTEMPT_US, SILENT_NS
from probers.collectives.flight_recorder import read_dump
from schemas.enums import CollectiveSource, CommunicatorRole, ProcessState
from schemas.records import CollectiveBatch, Communicator
from schemas.records.batches import snapshot_of
from tests.collective_batches import Job, arrivals
from tests.flight_recorder import Rank

START_NS = 1_000 * SILENT_NS
HOUR_US = 3_600_000_000


def batch_of(rank: int, folder: Path) -> CollectiveBatch:
    """Return the first batch of a rank of a healthy job."""
    records = (a.record for a in arrivals(Job.load("healthy", folder)))
    return next(r for r in records if isinstance(r, CollectiveBatch) and r.rank == rank)


def test_a_collector_that_was_started_anew_reckons_a_little_differently(tmp_path: Path) -> None:
    """It is the same process: what is known of it and of the others stays."""
    job, first = JobState("job"), batch_of(0, tmp_path)
    job.apply_batch(BatchHead.of(first), NO_BATCH_OPERATIONS, START_NS)
    attempt, state = job.attempt, job.ranks[0]
    for change_us in (SAME_ATTEMPT_US, -SAME_ATTEMPT_US):
        again = replace(first, attempt=first.attempt + change_us)
        job.apply_batch(BatchHead.of(again), NO_BATCH_OPERATIONS, START_NS + 1)
        assert job.ranks[0] is state
        assert job.attempt == attempt


def test_another_process_is_a_new_attempt(tmp_path: Path) -> None:
    """A later one replaces what was known; an earlier one is late and changes nothing."""
    job, first = JobState("job"), batch_of(0, tmp_path)
    job.apply_batch(BatchHead.of(first), NO_BATCH_OPERATIONS, START_NS)
    for later in (replace(first, attempt=first.attempt + HOUR_US), first):
        job.apply_batch(BatchHead.of(later), NO_BATCH_OPERATIONS, START_NS + 1)
        assert job.attempt == first.attempt + HOUR_US


def test_a_process_from_a_future_holds_a_rank_up_only_while_it_is_heard(tmp_path: Path) -> None:
    """Another job of the same name, a wrong clock: once it is silent or gone, others count."""
    first = batch_of(0, tmp_path)
    future = replace(first, attempt=first.attempt + 10_000 * HOUR_US, pid=1)
    for last, after_ns in (
        (future, SILENT_NS + 1),
        (replace(future, process_state=ProcessState.GONE), 1),
    ):
        job = JobState("job")
        for rank in (0, 1):
            job.apply_batch(BatchHead.of(replace(first, rank=rank)), NO_BATCH_OPERATIONS, START_NS)
        job.apply_batch(BatchHead.of(last), NO_BATCH_OPERATIONS, START_NS)
        job.apply_batch(BatchHead.of(first), NO_BATCH_OPERATIONS, START_NS + after_ns)
        assert job.attempt == first.attempt
        assert set(job.ranks) == {0, 1}


def test_waits_of_the_job_are_those_of_its_communicators(tmp_path: Path) -> None:
    """They are counted as they come: to add them up for each communicator would be quadratic."""
    job = JobState("job")
    for arrival in arrivals(Job.load("healthy", tmp_path)):
        if isinstance(record := arrival.record, CollectiveBatch):
            job.apply(record, arrival.at_ns)
    assert job.every.count == sum(waits.count for waits in job.waits.values()) > 0
    assert job.every.longest == max(waits.longest for waits in job.waits.values())


def test_a_clock_that_was_set_makes_no_wait(tmp_path: Path) -> None:
    """What would have been given up long before was none, and later waits are held to others."""
    job = JobState("job")
    limits = []
    for step_us in (0, 24 * HOUR_US):
        for number, arrival in enumerate(arrivals(Job.load("healthy", tmp_path))):
            batch = arrival.record
            if not isinstance(batch, CollectiveBatch) or batch.rank:
                continue
            operations = snapshot_of(batch, {}).operations
            middle = operations[len(operations) // 2].record_id if operations else 0
            moved = tuple(
                o._replace(launched_at=(o.launched_at or 0) + step_us)
                if o.record_id >= middle
                else o
                for o in operations
            )
            anew = replace(batch, attempt=batch.attempt + 10 * SAME_ATTEMPT_US * bool(step_us))
            told = BatchOperations.of_records(moved)
            job.apply_batch(BatchHead.of(anew), told, START_NS + number)
        limits.append(max(waits.longest for waits in job.waits.values()))
    assert limits[0] == limits[1] > 0


def test_a_rank_that_is_told_from_another_source_counts_as_not_read(tmp_path: Path) -> None:
    """Its communicators have other names: it would look like one that launched nothing."""
    job, first = JobState("job"), batch_of(0, tmp_path)
    sources = [CollectiveSource.PROFILER] * 2 + [CollectiveSource.FLIGHT_RECORDER]
    for rank, source in enumerate(sources):
        job.apply_batch(
            BatchHead.of(replace(first, rank=rank, source=source)), NO_BATCH_OPERATIONS, START_NS
        )
    assert [snapshot.rank for snapshot in job.snapshots()] == [0, 1]
    job.apply_batch(
        BatchHead.of(replace(first, rank=2, source=sources[0])), NO_BATCH_OPERATIONS, START_NS + 1
    )
    assert [snapshot.rank for snapshot in job.snapshots()] == [0, 1, 2]


GROUPS = {"1": [0, 1], "2": [0, 1]}


@pytest.mark.parametrize(
    ("microbatches", "gradients", "cold"),
    [(8, "scheduled", True), (8, "completed", False), (200, "scheduled", False)],
)
def test_microbatches_are_no_iterations(
    tmp_path: Path, microbatches: int, gradients: str, *, cold: bool
) -> None:
    """Until what follows them has ended: a group that nobody ever uses does not count for ever."""
    job, first = JobState("job"), batch_of(0, tmp_path)
    for name, ranks in GROUPS.items():
        job.apply_communicator(
            name,
            Communicator(
                cluster="c", communicator_id=f"job|{name}", task_id="job", communicator=name,
                role=CommunicatorRole.UNKNOWN, ranks=tuple(ranks), updated_at=0,
            ),
        )  # fmt: skip
    for number in (0, 1):
        rank = Rank(number, GROUPS)
        for _ in range(microbatches):
            rank.launch("1", "all_reduce")
            rank.launch("1", "all_gather")
        rank.launch("2", "all_reduce", state=gradients)
        told = read_dump(rank.pickled(), f"rank{number}").snapshot.operations
        job.apply_batch(
            BatchHead.of(replace(first, rank=number)), BatchOperations.of_records(told), START_NS
        )
    assert job.cold is cold
