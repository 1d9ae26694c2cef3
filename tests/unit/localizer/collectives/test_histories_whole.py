"""Whether the watcher knows all that a rank launched, and what follows where it does not."""

from collections.abc import Collection
from dataclasses import replace

import pytest

from localizer.collectives.batch_operations import NO_BATCH_OPERATIONS, BatchOperations
from localizer.collectives.diagnosis import Certainty, HangClass, diagnose
from localizer.collectives.rank_batch import BatchHead
from localizer.collectives.rank_state import RankState, snapshots_of
from probers.collectives.flight_recorder import read_dump
from schemas.enums import CollectiveSource, CollectiveState, ProcessState
from schemas.records import CollectiveOp, CollectiveSnapshot, CommunicatorProgress
from schemas.records.batches import RankProcess, batch_of
from tests.flight_recorder import BEGIN_NS, Rank

# All ranks, and a stage of a pipeline and the next.
GROUPS = {"0": [0, 1], "9": [0, 1]}
KEEP = 10_000
# Half a minute after the last launch.
READ_AT = BEGIN_NS // 1_000 + 30_000_000


def process_of(rank: int, world_size: int) -> RankProcess:
    """Return the process of a rank."""
    return RankProcess(
        cluster="c", task_id="j", rank=rank, world_size=world_size, host_id="h", endpoint_ids=(),
        attempt=1, pid=1, process_state=ProcessState.SLEEPING, cpu_ns=None,
    )  # fmt: skip


def snapshots(
    ranks: list[Rank], lost: dict[int, Collection[int]], keep: int = KEEP
) -> list[CollectiveSnapshot]:
    """Return ranks as the watcher's analysis reads them that never saw some record ids."""
    states: list[RankState] = []
    views: dict[str, CommunicatorProgress] = {}
    for rank in ranks:
        held = read_dump(rank.pickled(), f"d{rank.rank}", taken_at=READ_AT).snapshot
        process = process_of(rank.rank, len(ranks))
        seen = [o for o in held.operations if o.record_id not in lost.get(rank.rank, ())]
        nothing = replace(held, dropped_before=0, operations=())
        batch = batch_of(
            nothing, process, taken_at=READ_AT,
            source=CollectiveSource.FLIGHT_RECORDER, operations=(), whole=False,
        )  # fmt: skip
        state = RankState(BatchHead.of(batch), 1, 1, 1)
        for begin in range(0, len(seen), 20):
            part: list[CollectiveOp] = seen[begin : begin + 20]
            state.apply_batch(BatchHead.of(batch), BatchOperations.of_records(part), 1, keep)
        states.append(state)
        views |= {view.communicator: view for view in held.communicators}
    return snapshots_of(states, views)


def pipeline(*, sent: bool) -> list[Rank]:
    """Return ranks of which 0 waits to receive, and 1 has sent or not."""
    ranks = [Rank(rank, GROUPS) for rank in range(2)]
    for rank in ranks:
        rank.launch("0", "barrier")
    for _ in range(40):
        ranks[0].launch("9", "send 0->1", p2p=True).launch("9", "recv 0<-1", p2p=True)
        ranks[1].launch("9", "recv 1<-0", p2p=True).launch("9", "send 1->0", p2p=True)
    for rank in ranks:
        rank.launch("0")
    ranks[0].launch("9", "recv 0<-1", p2p=True, state="started")
    if sent:
        ranks[1].launch("9", "send 1->0", p2p=True)
    return ranks


def coalesced() -> list[Rank]:
    """Return ranks that launch transfers in pairs, whose launches are records of their own."""
    ranks = [Rank(rank, GROUPS) for rank in range(2)]
    for _ in range(10):
        for rank, other in zip(ranks, (1, 0), strict=True):
            rank.launch("0")
            rank.launch("9", f"send {rank.rank}->{other}", p2p=True)
            rank.launch("9", f"recv {rank.rank}<-{other}", p2p=True, same_launch=True)
            rank.launch("9", "coalesced", p2p=True, same_launch=True)
    return ranks


@pytest.mark.parametrize(
    "lost",
    [
        pytest.param(range(30), id="began-in-the-middle"),
        pytest.param([*range(1, 30)], id="start-barrier-known"),
        pytest.param([40], id="one-in-the-middle"),
    ],
)
def test_a_history_that_lacks_some_is_not_counted(lost: Collection[int]) -> None:
    """Of rank 1, which has not sent, more are known than of rank 0, and yet it is behind."""
    held = snapshots(pipeline(sent=False), {0: lost})
    assert [s.dropped_before > 0 for s in held] == [True, False]
    (finding,) = diagnose(held, overdue=True).findings
    assert (finding.hang_class, finding.ranks) == (HangClass.NEVER_LAUNCHED, (1,))
    assert finding.certainty is Certainty.LIKELY


def test_a_dump_with_a_hole_is_not_counted() -> None:
    """As the watcher's history, of the same program."""
    ranks = pipeline(sent=False)
    del ranks[0].entries[40]
    held = [read_dump(r.pickled(), f"d{r.rank}", taken_at=READ_AT).snapshot for r in ranks]
    assert [snapshot.dropped_before for snapshot in held] == [1, 0]
    (finding,) = diagnose(held, overdue=True).findings
    assert (finding.hang_class, finding.ranks) == (HangClass.NEVER_LAUNCHED, (1,))
    assert finding.certainty is Certainty.LIKELY


def test_a_rank_of_which_all_was_forgotten_is_not_whole() -> None:
    """What it launched before may be what the others wait for."""
    (held,) = snapshots(pipeline(sent=False)[1:], {})
    first = CollectiveSource.FLIGHT_RECORDER
    process = process_of(1, 2)
    nothing = replace(held, dropped_before=0, operations=())
    part, whole = (
        batch_of(nothing, process, taken_at=READ_AT, source=first, operations=(), whole=known)
        for known in (False, True)
    )
    state = RankState(BatchHead.of(part), 1, 1, 1)
    waits = held.operations[5]._replace(state=CollectiveState.STARTED)
    state.apply_batch(BatchHead.of(part), BatchOperations.of_records([waits]), 1, KEEP)
    state.apply_batch(BatchHead.of(whole), NO_BATCH_OPERATIONS, 1, KEEP)
    assert not len(state.operations)
    (found,) = snapshots_of([state], {})
    assert found.dropped_before >= 1


def test_a_history_from_its_first_record_is_counted() -> None:
    """Nothing is missing: what follows from counts is sure."""
    (finding,) = diagnose(snapshots(pipeline(sent=False), {}), overdue=True).findings
    assert (finding.hang_class, finding.certainty) == (HangClass.NEVER_LAUNCHED, Certainty.SURE)
    (finding,) = diagnose(snapshots(pipeline(sent=True), {}), overdue=True).findings
    assert finding.hang_class is HangClass.NOT_FINISHED


def test_what_the_watcher_forgot_is_missing_also_where_the_first_is_kept() -> None:
    """The barrier of the start is the last of its kind, and kept."""
    ranks = pipeline(sent=False)
    for rank in ranks:
        rank.entries[0] |= {"process_group": ("5", "start"), "pg_id": 5}
    held = snapshots(ranks, {}, keep=4)
    assert all(snapshot.operations[0].record_id == 0 for snapshot in held)
    assert all(len(s.operations) < len(r.entries) for s, r in zip(held, ranks, strict=True))
    assert all(snapshot.dropped_before >= 1 for snapshot in held)


def test_the_record_of_a_coalesced_launch_is_not_missing() -> None:
    """Readers leave it out; a transfer that is missing leaves a sequence number out, too."""
    ranks = coalesced()
    held = snapshots(ranks, {})
    assert [s.dropped_before for s in held] == [0, 0]
    assert [len(s.operations) for s in held] == [30, 30]
    # A collective operation, and both transfers of one launch.
    for lost in ([12], [13, 14]):
        assert [s.dropped_before > 0 for s in snapshots(ranks, {1: lost})] == [False, True]
