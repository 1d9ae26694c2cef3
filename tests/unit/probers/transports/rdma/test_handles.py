"""Address handles: nobody waits for the dead, and everybody is told in the end."""

from hypothesis import given
from hypothesis import strategies as st

from probers.transports.rdma.handles import (
    MAX_PEERS,
    MAX_RETRY_NS,
    MAX_WAITING,
    RENEW_NS,
    RETRY_NS,
    Handles,
)
from schemas.enums import ProbeStatus
from schemas.units import SECOND_NS

LIVE, DEAD = b"L" * 16, b"D" * 16


class Asked:
    """Notes what is asked for; `room` is how many questions fit."""

    def __init__(self, room: int = 10_000) -> None:
        self.gids: list[bytes] = []
        self.room = room

    def want(self, gid: bytes) -> bool:
        """Ask for the way to a GID."""
        if len(self.gids) >= self.room:
            return False
        self.gids.append(gid)
        return True


class Told:
    """Keeps what callers are told."""

    def __init__(self) -> None:
        self.all: list[tuple[object | None, ProbeStatus]] = []

    def __call__(self, handle: object | None, status: ProbeStatus) -> None:
        """Take in what is told."""
        self.all.append((handle, status))


def make(gid: bytes, label: int) -> str:
    """Return a handle that says whose it is."""
    return f"{gid[:1].decode()}{label}"


def test_the_first_waits_and_the_next_go_at_once() -> None:
    """One question for a peer; a handle of its own for each flow label."""
    asked, told = Asked(), Told()
    handles = Handles(asked, make)
    handles.with_handle(LIVE, 1, 0, told)
    handles.with_handle(LIVE, 2, 0, told)
    assert (asked.gids, told.all) == ([LIVE], [])
    handles.resolved(LIVE, ProbeStatus.OK, SECOND_NS)
    handles.with_handle(LIVE, 1, SECOND_NS, told)
    assert told.all == [("L1", ProbeStatus.OK), ("L2", ProbeStatus.OK), ("L1", ProbeStatus.OK)]
    assert asked.gids == [LIVE]


def test_the_dead_are_looked_for_less_and_less_often() -> None:
    """In between everybody hears at once why not; after each failure the wait doubles."""
    asked, told = Asked(), Told()
    handles = Handles(asked, make)
    now_ns = 0
    waits_ns: list[int] = []
    for _ in range(6):
        before = len(asked.gids)
        began_ns = now_ns
        while len(asked.gids) == before:
            handles.with_handle(DEAD, 0, now_ns, told)
            now_ns += SECOND_NS // 10
        waits_ns.append(now_ns - SECOND_NS // 10 - began_ns)
        handles.resolved(DEAD, ProbeStatus.UNREACHABLE, now_ns)
    assert waits_ns == [0, *(min(RETRY_NS << n, MAX_RETRY_NS) for n in range(5))]
    assert {status for _, status in told.all} == {ProbeStatus.UNREACHABLE}


def test_a_peer_whose_probes_are_lost_is_looked_for_anew() -> None:
    """It may have moved to another MAC address; probes go on by the old handle meanwhile."""
    asked, told = Asked(), Told()
    handles = Handles(asked, make)
    handles.with_handle(LIVE, 1, 0, told)
    handles.resolved(LIVE, ProbeStatus.OK, 0)
    handles.suspect(LIVE, RENEW_NS - 1)
    assert asked.gids == [LIVE]
    handles.suspect(LIVE, RENEW_NS)
    assert asked.gids == [LIVE, LIVE]
    handles.with_handle(LIVE, 1, RENEW_NS, told)
    assert told.all[-1] == ("L1", ProbeStatus.OK)


def test_an_own_gid_that_is_gone_is_told_to_all_that_wait() -> None:
    """Nobody is forgotten."""
    told = Told()
    handles = Handles(Asked(), make)
    handles.with_handle(LIVE, 1, 0, told)
    handles.forget()
    assert told.all == [(None, ProbeStatus.NO_GID)]
    assert len(handles) == 0


@given(
    st.lists(
        st.tuples(st.sampled_from("urdf"), st.integers(0, 7), st.integers(0, 20)), max_size=200
    ),
    st.integers(0, 4),
)
def test_whoever_asks_is_told_exactly_once(steps: list[tuple[str, int, int]], room: int) -> None:
    """Uses, answers, doubts and losses of the own GID in any order, with a short queue."""
    asked = Asked(room)
    tellings: list[Told] = []
    handles = Handles(asked, make)
    now_ns = 0
    for step, peer, ahead in steps:
        now_ns += ahead * SECOND_NS // 4
        gid = bytes([65 + peer]) * 16
        if step == "u":
            tellings.append(Told())
            handles.with_handle(gid, peer, now_ns, tellings[-1])
        elif step == "r":
            status = ProbeStatus.OK if peer % 2 else ProbeStatus.UNREACHABLE
            handles.resolved(gid, status, now_ns)
            asked.gids = [g for g in asked.gids if g != gid]
        elif step == "d":
            handles.suspect(gid, now_ns)
        else:
            handles.forget()
    handles.forget()
    assert all(len(told.all) == 1 for told in tellings)


def test_peers_and_what_waits_are_bounded() -> None:
    """A flood of made-up senders costs so much and no more, and each is told."""
    told = Told()
    handles = Handles(Asked(), make)
    for number in range(MAX_PEERS + 100):
        handles.with_handle(number.to_bytes(16, "big"), 0, 0, told)
    assert len(handles) == MAX_PEERS
    assert len(told.all) == 100
    for _ in range(MAX_WAITING + 5):
        handles.with_handle(LIVE, 0, 0, told)
    # One more peer was pushed out for this one; five did not fit into its queue.
    assert len(told.all) == 106
