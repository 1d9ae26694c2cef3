"""A hang as a record: whatever a job tells, all readers of the topic take it."""

from pathlib import Path

import pytest

from localizer.collectives import hang_record
from localizer.collectives.ages import Age
from localizer.collectives.batch_operations import NO_BATCH_OPERATIONS
from localizer.collectives.diagnosis import Certainty, Finding
from localizer.collectives.diagnosis import HangClass as Found
from localizer.collectives.hang_causes import Cause
from localizer.collectives.hang_record import Seen, followed, hang_of
from localizer.collectives.job_state import JobState, Overdue
from localizer.collectives.rank_batch import BatchHead
from schemas import enums
from schemas.bounds import bound_of, violation
from schemas.codec import to_datum
from schemas.records import CollectiveBatch, Hang
from schemas.topics import COLLECTIVE_HANG
from schemas.units import SECOND_NS
from tests.collective_batches import CLUSTER, Job, arrivals

ARRIVED_NS = SECOND_NS


@pytest.mark.parametrize(
    ("field", "most"),
    [
        ("ranks", hang_record.MAX_RANKS),
        ("waiting_ranks", hang_record.MAX_RANKS),
        ("endpoint_ids", hang_record.MAX_ENDPOINTS),
        ("stuck_flows", hang_record.MAX_FLOWS),
        ("evidence", hang_record.MAX_EVIDENCE),
        ("next_steps", hang_record.MAX_STEPS),
        ("operation", hang_record.MAX_NAME),
    ],
)
def test_what_is_written_is_cut_where_readers_refuse_it(field: str, most: int) -> None:
    """Or the largest jobs' hangs would be dead letters, and known to the watcher alone."""
    assert most == bound_of(COLLECTIVE_HANG.name, field).greatest


def cause_of_class(
    hang_class: enums.HangClass, certainty: enums.Certainty, ranks: tuple[int, ...] = ()
) -> Cause:
    """Return a cause without evidence."""
    return Cause(
        hang_class=hang_class, certainty=certainty, ranks=ranks, evidence=(), next_steps=()
    )  # fmt: skip


@pytest.mark.parametrize(
    ("hang_class", "certainty", "ranks", "said"),
    [
        ("RANK_MISSING", "SURE", (1,), "rank 1 is gone"),
        ("RANK_MISSING", "SURE", (1, 2), "ranks 1–2 are gone"),
        ("RANK_MISSING", "UNDECIDED", (1,), "rank 1 is gone, or nothing is heard of it"),
        ("NEVER_LAUNCHED", "SURE", (1,), "rank 1 has not launched it"),
        ("NEVER_LAUNCHED", "LIKELY", (1, 3), "ranks 1, 3 have not launched it"),
        ("DESYNCHRONISED", "SURE", (1, 3), "ranks 1, 3 do something else than the others"),
    ],
)
def test_a_summary_says_who_in_words(
    hang_class: str, certainty: str, ranks: tuple[int, ...], said: str
) -> None:
    """One rank or several; a rank whose collector may be gone is not called gone."""
    cause = cause_of_class(enums.HangClass[hang_class], enums.Certainty[certainty], ranks)
    assert hang_record._what(cause) == said


def test_an_operation_of_any_name_launched_at_any_time_gives_a_record(tmp_path: Path) -> None:
    """One that waits since before 1970, by its rank's clock, too."""
    first = next(
        a.record
        for a in arrivals(Job.load("healthy", tmp_path))
        if isinstance(a.record, CollectiveBatch) and a.record.operations
    )
    job = JobState("job1")
    job.apply_batch(BatchHead.of(first), NO_BATCH_OPERATIONS, ARRIVED_NS)
    rank = first.rank
    finding = Finding(
        hang_class=Found.NOT_FINISHED,
        certainty=Certainty.UNDECIDED,
        ranks=(),
        candidates=(),
        group="0",
        sequence=1,
        operation="x" * 5_000,
        waiting=(rank,),
        age=Age(rank, 0, None, None, timed_out=False),
        evidence=(),
        doubts=(),
        next_steps=(),
    )
    cause = cause_of_class(enums.HangClass.UNDECIDED, enums.Certainty.UNDECIDED)
    overdue = [Overdue(rank, waited=2_000_000, limit=1, since_ns=ARRIVED_NS)]
    seen = Seen(finding=finding, communicator="0", cause=cause, overdue=overdue, notes=())
    hang = hang_of(CLUSTER, job, seen, ARRIVED_NS)
    assert violation(COLLECTIVE_HANG.name, to_datum(hang), ARRIVED_NS) is None


@pytest.mark.parametrize(
    ("known", "found", "kept"),
    [
        (("NETWORK", "SURE", (1, 2)), ("GPU_STOPPED", "LIKELY", ()), True),
        (("NETWORK", "SURE", (1, 2)), ("UNDECIDED", "UNDECIDED", ()), True),
        # Others' GPUs have begun it: that is seen, not concluded from nothing at the sockets.
        (("NETWORK", "SURE", (1, 2)), ("GPU_STOPPED", "LIKELY", (3,)), False),
        (("NETWORK", "SURE", (1, 2)), ("PROCESS_STOPPED", "SURE", (3,)), False),
        (("NETWORK", "LIKELY", (1, 2)), ("GPU_STOPPED", "LIKELY", ()), False),
        (("DESYNCHRONISED", "SURE", (1, 2)), ("GPU_STOPPED", "LIKELY", ()), False),
    ],
)
def test_what_was_sure_is_not_replaced_by_what_is_seen_no_more(
    known: tuple[str, str, tuple[int, ...]], found: tuple[str, str, tuple[int, ...]], kept: bool
) -> None:
    """Between two gaps of a cable that flaps nothing lies at any socket, and no GPU has stopped."""

    def hang_as(said: tuple[str, str, tuple[int, ...]]) -> Hang:
        name, certainty, ranks = said
        return Hang(
            cluster=CLUSTER, hang_id="h-1", task_id="job-a", seq=1,
            state=enums.FaultLifecycle.OPEN, event_at=9, onset_at=5,
            hang_class=enums.HangClass[name], certainty=enums.Certainty[certainty], ranks=ranks,
            waiting_ranks=(1, 2), endpoint_ids=(), stuck_flows=(), communicator="3", sequence=49,
            operation="all_reduce", waited_ns=SECOND_NS, summary="job-a hangs", evidence=(),
            next_steps=(),
        )  # fmt: skip

    before, now = hang_as(known), hang_as(found)
    assert (followed(before, now, network_lately=True) is None) == kept
    # A cable that has been whole for a minute is not blamed for what still stands.
    undecided = now.hang_class is enums.HangClass.UNDECIDED
    assert (followed(before, now, network_lately=False) is None) == undecided
