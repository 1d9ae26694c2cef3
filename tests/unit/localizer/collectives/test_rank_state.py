"""What is known of a rank whose recorder was not read in time."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from localizer.collectives.batch_operations import BatchOperations
from localizer.collectives.operation_fold import MOST_PENDING
from localizer.collectives.rank_batch import BatchHead
from localizer.collectives.rank_state import RankState, snapshots_of
from schemas.enums import ProcessState
from schemas.records import CollectiveBatch, CollectiveOp
from schemas.records.batches import snapshot_of
from tests.collective_batches import Arrival, Job, arrivals

KEEP = 256


def batches(folder: Path) -> list[CollectiveBatch]:
    """Return the batches of rank 0 of a healthy job."""
    found: list[Arrival] = arrivals(Job.load("healthy", folder))
    records: list[Any] = [a.record for a in found]
    return [r for r in records if isinstance(r, CollectiveBatch) and r.rank == 0]


def apply(
    state: RankState, batch: CollectiveBatch, seen: Sequence[CollectiveOp], number: int
) -> list[tuple[int, int]]:
    """Apply a batch; return the record ids of what was measured, and how long it took."""
    found = state.apply_batch(BatchHead.of(batch), BatchOperations.of_records(seen), number, KEEP)
    return [(number, took) for number, _, _, took in found.numbers.T.tolist()]


def waits(read: list[CollectiveBatch], lost: set[int]) -> list[tuple[int, int]]:
    """Return record ids and waits (µs) that are measured if some operations are never seen."""
    state = RankState(BatchHead.of(read[0]), read[0].attempt, 1, 1)
    found = []
    for number, batch in enumerate(read, start=1):
        seen = tuple(o for o in snapshot_of(batch, {}).operations if o.record_id not in lost)
        whole = replace(batch, snapshot=False)
        found += apply(state, whole, seen, number)
    return found


def test_a_wait_is_not_measured_across_what_was_never_seen(tmp_path: Path) -> None:
    """The ring was overrun: what comes next was launched long after the operation had ended."""
    read = batches(tmp_path)
    every = dict(waits(read, set()))
    middle = sorted(every)[len(every) // 2]
    lost = set(range(middle + 1, middle + 20))
    left = dict(waits(read, lost))
    assert middle in every
    assert middle not in left
    assert left == {number: us for number, us in every.items() if number in left}
    assert max(left.values()) <= max(every.values())


def test_an_operation_of_the_start_need_not_come_again(tmp_path: Path) -> None:
    """A barrier before the first iteration: the iterations are measured all the same."""
    read = batches(tmp_path)
    every = waits(read, set())
    state = RankState(BatchHead.of(read[0]), read[0].attempt, 1, 1)
    found = []
    for number, batch in enumerate(read, start=1):
        seen = snapshot_of(batch, {}).operations
        seen = tuple(o._replace(operation="barrier") if o.record_id == 0 else o for o in seen)
        found += apply(state, replace(batch, snapshot=False), seen, number)
    assert every
    assert len(found) >= len(every) // 2


def test_a_process_that_is_stopped_or_gone_launches_nothing_after_its_last_dump(
    tmp_path: Path,
) -> None:
    """It writes none any more, and yet does nothing for as long as it is stopped."""
    read = next(b for b in batches(tmp_path) if b.recorded_at is not None)
    read = replace(read, taken_at=read.taken_at + 60_000_000)
    for state, until in (
        (ProcessState.STOPPED, read.taken_at),
        (ProcessState.GONE, read.taken_at),
        (ProcessState.SLEEPING, read.recorded_at),
    ):
        later = replace(read, process_state=state)
        rank = RankState(BatchHead.of(later), later.attempt, 1, 1)
        assert snapshots_of([rank], {})[0].taken_at == rank.known_until == until
    never = replace(read, process_state=ProcessState.STOPPED, recorded_at=None)
    assert RankState(BatchHead.of(never), never.attempt, 1, 1).known_until is None


def test_a_kind_that_comes_late_shows_that_the_first_iteration_was_not_over(
    tmp_path: Path,
) -> None:
    """Microbatches repeat, and gradients are summed after the last: what came before is no wait."""
    read = batches(tmp_path)
    every = waits(read, set())
    late = every[len(every) // 2][0]
    state = RankState(BatchHead.of(read[0]), read[0].attempt, 1, 1)
    cold = []
    for number, batch in enumerate(read, start=1):
        seen = snapshot_of(batch, {}).operations
        seen = tuple(o._replace(operation="late") if o.record_id == late else o for o in seen)
        found = apply(state, replace(batch, snapshot=False), seen, number)
        if state.operations.take_cold():
            cold.append(number)
            assert min(number for number, _ in found) > late
    assert len(cold) == 1


def test_what_was_sent_ahead_has_ended_as_many_launches_later(tmp_path: Path) -> None:
    """Without times of an end, a rank that waits for two at once ended the first by the third."""
    read = batches(tmp_path)
    one = dict(waits(read, set()))
    state = RankState(BatchHead.of(read[0]), read[0].attempt, 1, 1)
    state.operations._counts[MOST_PENDING] = 2
    two: dict[int, int] = {}
    for number, batch in enumerate(read, start=1):
        seen = snapshot_of(batch, {}).operations
        found = apply(state, replace(batch, snapshot=False), seen, number)
        two.update(found)
    assert two
    assert all(two[n] > one[n] for n in two if n in one)
