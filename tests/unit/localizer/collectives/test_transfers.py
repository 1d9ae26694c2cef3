"""Which end of a transfer is behind, where a ring has lost how many there were."""

import pickle

from localizer.collectives.diagnosis import Certainty, HangClass, diagnose
from probers.collectives.flight_recorder import read_dump
from tests.flight_recorder import Rank

# All ranks; data parallel ranks 0 and 1; rank 0's stage of a pipeline and the next, rank 2's.
GROUPS = {"0": [0, 1, 2, 3], "1": [0, 1], "9": [0, 2]}
RING = 4


def late_in_a_transfer(*, sent: bool, agreed: bool) -> list[Rank]:
    """Return ranks of which 0 waits to receive from 2, and 1 for 0.

    Rank 2 has sent, or not, and gone on, if `agreed`, to what all ranks do at an iteration's end.
    """
    ranks = [Rank(rank, GROUPS) for rank in range(4)]
    for _ in range(3):
        ranks[0].launch("9", "send 0->1", p2p=True).launch("9", "recv 0<-1", p2p=True)
        ranks[2].launch("9", "recv 1<-0", p2p=True).launch("9", "send 1->0", p2p=True)
        for rank in ranks:
            rank.launch("0")
    ranks[0].launch("9", "recv 0<-1", p2p=True, state="started")
    ranks[1].launch("1", state="started")
    if sent:
        ranks[2].launch("9", "send 1->0", p2p=True)
    for rank in ranks[2:] if agreed else ranks[3:]:
        rank.launch("0", state="started")
    return ranks


def judge(ranks: list[Rank], ring: int | None = RING) -> list[tuple[HangClass, tuple[int, ...]]]:
    """Return what the findings say, of rings that have lost their beginning, or of all."""
    dumps = [read_dump(r.time_out().pickled(ring=ring), f"d{r.rank}") for r in ranks]
    found = diagnose([dump.snapshot for dump in dumps]).findings
    return [(finding.hang_class, finding.ranks) for finding in found]


def test_a_sender_that_went_on_is_not_waited_for() -> None:
    """Or rank 0 waits for 2, which waits for 1, which waits for 0, in groups of other orders."""
    assert judge(late_in_a_transfer(sent=True, agreed=True)) == [(HangClass.NOT_FINISHED, ())]


def test_transfers_are_counted_since_an_operation_of_both() -> None:
    """Rank 2 has sent, which a ring shows as well as all of its history; rank 3 waits for it."""
    for ring in (RING, None):
        found = judge(late_in_a_transfer(sent=True, agreed=False), ring)
        assert found == [(HangClass.NOT_FINISHED, ()), (HangClass.NEVER_LAUNCHED, (2,))]


def test_a_sender_that_did_not_send_is_waited_for() -> None:
    """It has launched nothing that rank 0 has not."""
    for ring in (RING, None):
        found = judge(late_in_a_transfer(sent=False, agreed=False), ring)
        assert found == [(HangClass.NEVER_LAUNCHED, (2,))]


def test_who_only_sends_is_not_blamed_for_what_gets_stuck() -> None:
    """Its sends are buffered, it waits for nobody, and its ring has lost the first of them."""
    ranks = [Rank(rank, GROUPS) for rank in range(4)]
    for turn in range(6):
        ranks[2].launch("9", "send 1->0", p2p=True)
        ranks[0].launch("9", "recv 0<-1", p2p=True, state="completed" if turn < 5 else "started")
        for rank in ranks if turn < 5 else ():
            rank.launch("0")
    ranks[1].launch("1", state="started")
    assert judge(ranks) == [(HangClass.NOT_FINISHED, ())]


def sent_before_and_received_after(*, meets: bool) -> list[Rank]:
    """Return ranks of which 0 sends to 2 before what all ranks do, and 2 receives after it.

    Rank 2 hangs before it receives, and, if all meet once more, before that as well.
    """
    ranks = [Rank(rank, GROUPS) for rank in range(4)]
    for _ in range(4):
        for rank in ranks:
            rank.launch("0")
        ranks[0].launch("9", "send 0->1", p2p=True)
        ranks[2].launch("9", "recv 1<-0", p2p=True)
    ranks[0].launch("9", "send 0->1", p2p=True, state="started")
    for rank in ranks:
        rank.launch("0")
    for rank in (ranks[0], ranks[1], ranks[3]) if meets else ():
        rank.launch("0", state="started")
    return ranks


def test_who_has_gone_on_may_receive_later() -> None:
    """Progress of collective operations alone does not say that a transfer was launched."""
    for meets in (True, False):
        found = judge(sent_before_and_received_after(meets=meets))
        assert found == [(HangClass.NEVER_LAUNCHED, (2,))]


def test_who_is_surely_behind_is_so_whatever_is_not_known() -> None:
    """Of the transfer it is not known whether it was received; what all wait in tells."""
    ranks = sent_before_and_received_after(meets=True)
    dumps = [read_dump(r.time_out().pickled(ring=RING), f"d{r.rank}") for r in ranks]
    (finding,) = diagnose([dump.snapshot for dump in dumps]).findings
    assert finding.certainty is Certainty.SURE


def test_a_history_with_holes_is_not_counted() -> None:
    """Of two transfers since what all did, the receiver's history lacks the one that was sent."""
    ranks = [Rank(rank, GROUPS) for rank in range(4)]
    for _ in range(4):
        for rank in ranks:
            rank.launch("0")
    ranks[2].launch("9", "send 1->0", p2p=True)
    ranks[0].launch("9", "recv 0<-1", p2p=True)
    ranks[0].launch("9", "recv 0<-1", p2p=True, state="started")
    ranks[1].launch("1", state="started")
    dumps = []
    for rank in ranks:
        document = rank.time_out().document(ring=RING)
        if rank is ranks[0]:
            del document["entries"][-2]
        dumps.append(read_dump(pickle.dumps(document, protocol=2), f"d{rank.rank}").snapshot)
    found = [(finding.hang_class, finding.ranks) for finding in diagnose(dumps).findings]
    assert found == [(HangClass.NEVER_LAUNCHED, (2,))]
