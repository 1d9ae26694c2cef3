"""What is new or changed in a recorder that is read again and again."""

from dataclasses import replace

from probers.collectives.changes import OperationChanges
from probers.collectives.flight_recorder import Dump, read_dump
from tests.flight_recorder import WORLD, Rank


def held(rank: Rank) -> Dump:
    """Return all that a rank recorded."""
    return read_dump(rank.pickled(), "rank0")


def test_a_number_that_no_topic_takes_is_refused() -> None:
    """It would poison the whole batch; the others are told."""
    dump = held(Rank(0, WORLD).launch("0").launch("0"))
    first, second = dump.snapshot.operations
    bad = replace(dump.snapshot, operations=(first._replace(n_bytes=2**70), second))
    changes = OperationChanges()
    told = changes.observe(replace(dump, snapshot=bad))
    assert [o.record_id for o in told] == [1]
    assert changes.refused == 1


def test_members_are_not_taken_back() -> None:
    """A reading in which a group's members are missing leaves those that were known."""
    changes = OperationChanges()
    dump = held(Rank(0, WORLD).launch("0"))
    changes.observe(dump)
    less = tuple(replace(group, ranks=None) for group in dump.snapshot.communicators)
    changes.observe(replace(dump, snapshot=replace(dump.snapshot, communicators=less)))
    assert [group.ranks for group in changes.communicators] == [(0, 1, 2, 3)]


def test_members_of_a_coalesced_launch_end_with_it() -> None:
    """The launch is read each time, though it is not told itself."""
    rank = Rank(0, WORLD).launch("0", "all_reduce", state="scheduled")
    rank.launch("0", "all_reduce", state="scheduled", same_launch=True)
    rank.launch("0", "coalesced", state="scheduled", same_launch=True)
    changes = OperationChanges()
    assert len(changes.observe(held(rank))) == 2
    rank.entries[-1] |= {"state": "completed", "retired": True}
    content = rank.pickled()
    told = changes.observe(read_dump(content, "rank0", skip=changes.is_settled))
    assert [(o.record_id, o.state.value) for o in told] == [(0, "COMPLETED"), (1, "COMPLETED")]
    assert changes.observe(read_dump(content, "rank0", skip=changes.is_settled)) == ()
