"""Faults and their transitions."""

from ops.view.faults import MAX_FAULTS, MAX_TRANSITIONS, FaultBook
from tests.unit.ops.recording_samples import START_MS
from tests.unit.ops.view_samples import fault, resolved, state_of


def test_a_state_and_its_event_are_one_transition() -> None:
    """Whichever comes first; a state alone says that transitions are missing."""
    book = FaultBook()
    book.add_state(state_of(fault(3)))
    history = book.get("f-1")
    assert history is not None
    assert (history.missing, history.open) == (2, True)
    for seq in (1, 2, 3):
        book.add(fault(seq))
    history = book.get("f-1")
    assert history is not None
    assert ([e.seq for e in history.transitions], history.missing) == ([1, 2, 3], 0)
    book.add(resolved(4, START_MS + 9_000))
    assert (book.open(), [h.last.seq for h in book.over()]) == ([], [4])


def test_a_tombstone_ends_a_fault_whenever_it_is_read() -> None:
    """Before or after the transitions, which stand in another topic; a new state brings it back."""
    first, last = FaultBook(), FaultBook()
    first.withdraw("f-1")
    first.add(fault(1))
    last.add(fault(1))
    last.withdraw("f-1")
    assert first.open() == last.open() == []
    last.add_state(state_of(fault(1)))
    assert len(last.open()) == 1


def test_a_fault_that_flaps_for_ever_stays_bounded() -> None:
    """Its first transition and the latest are kept."""
    book = FaultBook()
    for seq in range(1, MAX_TRANSITIONS + 50):
        book.add(fault(seq))
    history = book.get("f-1")
    assert history is not None
    assert len(history.transitions) == MAX_TRANSITIONS
    assert (history.transitions[0].seq, history.last.seq) == (1, MAX_TRANSITIONS + 49)
    assert history.dropped == 49


def test_open_faults_outlive_those_that_are_over() -> None:
    """When there are too many, the one that has been over for longest goes first."""
    book = FaultBook()
    book.add(resolved(1, START_MS, fault_id="old"))
    book.add(resolved(1, START_MS + 1, fault_id="later"))
    for number in range(MAX_FAULTS - 1):
        book.add(fault(1, fault_id=f"f-{number}"))
    assert book.get("old") is None
    assert book.get("later") is not None
    assert (len(book), book.dropped) == (MAX_FAULTS, 1)
