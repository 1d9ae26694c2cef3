"""Whatever is read of a ring and whenever, what is told adds up to what happened."""

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from probers.collectives.changes import LEFT_THE_RING, OperationChanges
from probers.collectives.flight_recorder import Dump, read_dump
from schemas.enums import CollectiveState
from schemas.records import CollectiveOp
from tests.flight_recorder import WORLD, Rank

RING = 4
# What happens: an operation is launched, one of those launched ends, or the ring is read.
events = st.lists(
    st.one_of(st.just("launch"), st.just("read"), st.integers(0, 20)), min_size=1, max_size=40
)


def read(rank: Rank, changes: OperationChanges) -> Dump:
    """Return the ring, without what is settled."""
    return read_dump(rank.pickled(ring=RING), "rank0", skip=changes.is_settled)


def play(happened: Sequence[str | int]) -> tuple[Rank, OperationChanges, list[CollectiveOp]]:
    """Return a rank, what was told of it at each reading, and all of that in order."""
    rank, changes, told = Rank(0, WORLD), OperationChanges(), list[CollectiveOp]()
    for event in [*happened, "read"]:
        if event == "launch":
            rank.launch("0", state="scheduled")
        elif event == "read":
            told += changes.observe(read(rank, changes))
        elif isinstance(event, int) and event < len(rank.entries):
            entry = rank.entries[event]
            entry["state"], entry["retired"] = "completed", True
            entry["time_discovered_started_ns"] = entry["time_created_ns"] + 1_000
            entry["time_discovered_completed_ns"] = entry["time_created_ns"] + 2_000
    return rank, changes, told


@given(happened=events)
def test_the_last_that_was_told_of_an_operation_is_how_it_is(happened: list[str | int]) -> None:
    """Of those in the ring all is told; of a lost one either that, or that nobody knows."""
    rank, changes, told = play(happened)
    latest = {operation.record_id: operation for operation in told}
    now = read_dump(rank.pickled(ring=RING), "rank0").snapshot
    assert {o.record_id: latest[o.record_id] for o in now.operations} == {
        o.record_id: o for o in now.operations
    }
    for operation in latest.values():
        if operation.record_id < now.dropped_before:
            finished = operation.state is CollectiveState.COMPLETED
            assert finished or operation.missing_reason == LEFT_THE_RING
    assert changes.dropped_before + len(latest) == len(rank.entries)


@given(happened=events)
def test_nothing_is_told_twice(happened: list[str | int]) -> None:
    """A further reading of the same ring tells nothing; two tellings of one differ."""
    rank, changes, told = play(happened)
    assert changes.observe(read(rank, changes)) == ()
    for number in {operation.record_id for operation in told}:
        of_it = [operation for operation in told if operation.record_id == number]
        assert all(a != b for a, b in pairwise(of_it))


@given(happened=events)
def test_a_snapshot_holds_what_is_pending_and_the_last(happened: list[str | int]) -> None:
    """The communicator's, so that a late reader knows how far the rank came."""
    rank, changes, _ = play(happened)
    now = read_dump(rank.pickled(ring=RING), "rank0").snapshot
    numbers = {operation.record_id for operation in changes.repeated()}
    pending = {o.record_id for o in now.operations if o.state is CollectiveState.SCHEDULED}
    last = {max((o.record_id for o in now.operations), default=-1)} - {-1}
    assert numbers == pending | last
