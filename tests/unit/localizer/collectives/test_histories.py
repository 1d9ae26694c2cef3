"""Histories are the records that they stand for."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from localizer.collectives.groups import line_up
from localizer.collectives.histories import (
    by_sequence,
    histories_of,
    is_timed,
    transfers_of,
)
from localizer.collectives.operation_columns import OperationColumns
from schemas.enums import CollectiveState
from schemas.records import CollectiveOp, CollectiveSnapshot


@st.composite
def operations(draw: st.DrawFn) -> list[CollectiveOp]:
    """Return operations of a rank, of a few communicators, with gaps and repeated sequences."""
    found = []
    for number in range(draw(st.integers(0, 9))):
        state = draw(st.sampled_from(list(CollectiveState)))
        started = draw(st.none() | st.integers(0, 9))
        transfer = draw(st.booleans())
        found.append(
            CollectiveOp(
                communicator=draw(st.sampled_from(["0", "1", "tp"])), operation="all_reduce",
                sequence=draw(st.integers(0, 5)), is_p2p=transfer, record_id=number + 3,
                op_id=number, sender=0 if transfer else None, receiver=1 if transfer else None,
                input_sizes=((number,),), output_sizes=(), input_dtypes=("Float",),
                output_dtypes=(), n_bytes=4, launched_at=number, started_at=started,
                completed_at=None, missing_reason=None, state=state, retired=None,
                timeout_ms=None, stack=(),
            )
        )  # fmt: skip
    return found


@given(st.lists(operations(), max_size=5), st.integers(-10, 9))
def test_a_history_reads_as_the_records_do(ranks: list[list[CollectiveOp]], place: int) -> None:
    """By place, by slice, in both directions, by communicator; groups are the same."""
    histories = histories_of([OperationColumns.of_records(held) for held in ranks])
    assert len(histories) == len(ranks)
    # What `line_up` makes of records, and of histories.
    groups = [
        line_up([_snapshot(rank, held) for rank, held in enumerate(kind)], range(len(ranks)))
        for kind in (ranks, histories)
    ]
    for one, other in zip(*groups, strict=True):
        assert (one.name, one.launched, one.done) == (other.name, other.launched, other.done)
        assert {r: list(o.items()) for r, o in one.operations.items()} == {
            r: list(o.items()) for r, o in other.operations.items()
        }
    for held, history in zip(ranks, histories, strict=True):
        assert {n: list(o.items()) for n, o in by_sequence(history).items()} == {
            n: list(o.items()) for n, o in by_sequence(held).items()
        }
        assert list(transfers_of(history)) == list(transfers_of(held))
        assert is_timed(history) == is_timed(held)
        assert len(history) == len(held)
        if -len(held) <= place < len(held):
            assert history[place] == held[place]
        assert list(history[place:]) == held[place:]
        assert list(reversed(history)) == held[::-1]
        assert list(history) == held


def test_records_are_made_of_what_waits_and_of_the_last_that_ended() -> None:
    """Of a hundred that ended one."""
    first = CollectiveOp(
        communicator="0", operation="all_reduce", sequence=0, is_p2p=False, record_id=0, op_id=0,
        sender=None, receiver=None, input_sizes=(), output_sizes=(), input_dtypes=(),
        output_dtypes=(), n_bytes=0, launched_at=0, started_at=None, completed_at=None,
        missing_reason=None, state=CollectiveState.COMPLETED, retired=None, timeout_ms=None,
        stack=(),
    )  # fmt: skip
    held = [first._replace(sequence=n, record_id=n) for n in range(100)]
    held.append(first._replace(sequence=100, record_id=100, state=CollectiveState.STARTED))
    (history,) = histories_of([OperationColumns.of_records(held)])
    assert sorted(history.made) == [99, 100]


def _snapshot(rank: int, held: Sequence[CollectiveOp]) -> CollectiveSnapshot:
    return CollectiveSnapshot(
        rank=rank, source="", library="gloo", version="", taken_at=None,
        taken_at_missing_reason=None, dropped_before=0, communicators=(), operations=held,
    )  # fmt: skip
