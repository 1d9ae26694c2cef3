"""Whose a connection is, who is at its other end, and how long bytes have waited."""

from dataclasses import replace

from probers.collectives.sock_diag import SocketReading
from probers.collectives.sockets import MAX_SOCKETS, OwnedSocket, SocketHistory

SECOND = 10**9
ZERO, ONE = ("job", 0), ("job", 1)
READING = SocketReading(
    inode=5, local_address="10.0.0.1", local_port=1_000, peer_address="10.0.0.2", peer_port=2_000,
    unread_bytes=0, unacked_bytes=0, acked_bytes=70,
)  # fmt: skip
BACK = replace(
    READING, inode=6, local_address="10.0.0.2", local_port=2_000, peer_address="10.0.0.1",
    peer_port=1_000,
)  # fmt: skip


def stalls(*steps: tuple[int, SocketReading]) -> list[int | None]:
    """Return how long bytes have waited, at readings of one connection at these seconds."""
    history = SocketHistory()
    return [
        history.observe([OwnedSocket(ZERO, 1, reading)], at * SECOND)[ZERO][0].stalled_ns
        for at, reading in steps
    ]


def test_a_wait_is_counted_from_the_last_look_without_bytes() -> None:
    """It may have begun right after."""
    idle, waits = READING, replace(READING, unacked_bytes=9)
    assert stalls((10, idle), (12, waits), (14, waits), (16, idle), (18, waits)) == [
        0, 2 * SECOND, 4 * SECOND, 0, 2 * SECOND,
    ]  # fmt: skip


def test_an_acknowledgement_begins_it_anew() -> None:
    """And the kernel knows better when the last one came."""
    waits = replace(READING, unacked_bytes=9)
    on = replace(waits, acked_bytes=80)
    assert stalls((10, waits), (12, waits), (14, on)) == [0, 2 * SECOND, 2 * SECOND]
    known = replace(waits, since_ack_ns=SECOND // 2)
    assert stalls((10, known), (12, known)) == [0, SECOND // 2]


def test_an_idle_connection_has_not_waited_since_its_last_acknowledgement() -> None:
    """Bytes that were sent a moment ago, after an hour of silence."""
    hour = replace(READING, since_ack_ns=3_600 * SECOND)
    assert stalls((10, hour), (12, replace(hour, unacked_bytes=9))) == [0, 2 * SECOND]


def test_both_ends_name_each_other() -> None:
    """Where this collector sees both."""
    found = SocketHistory().observe([OwnedSocket(ZERO, 1, READING), OwnedSocket(ONE, 2, BACK)], 0)
    assert (found[ZERO][0].peer_rank, found[ONE][0].peer_rank) == (1, 0)
    alone = SocketHistory().observe([OwnedSocket(ZERO, 1, READING)], 0)
    assert alone[ZERO][0].peer_rank is None


def test_addresses_of_other_jobs_and_loopbacks_are_others() -> None:
    """Two containers have the same loopback addresses, two jobs may have the same addresses."""
    other = SocketHistory().observe(
        [OwnedSocket(ZERO, 1, READING), OwnedSocket(("job2", 1), 2, BACK)], 0
    )
    assert other[ZERO][0].peer_rank is None
    here, there = (
        replace(one, local_address="127.0.0.1", peer_address="127.0.0.1") for one in (READING, BACK)
    )
    apart = [OwnedSocket(ZERO, 1, here), OwnedSocket(ONE, 2, there)]
    assert SocketHistory().observe(apart, 0)[ZERO][0].peer_rank is None
    together = [replace_namespace(one) for one in apart]
    assert SocketHistory().observe(together, 0)[ZERO][0].peer_rank == 1


def replace_namespace(one: OwnedSocket) -> OwnedSocket:
    """Return the socket as one of namespace 1."""
    return replace(one, namespace=1)


def test_a_rank_has_a_limited_number() -> None:
    """What is beyond is left out: readers take no more."""
    many = [
        OwnedSocket(ZERO, 1, replace(READING, inode=i, local_port=i))
        for i in range(MAX_SOCKETS + 9)
    ]
    assert len(SocketHistory().observe(many, 0)[ZERO]) == MAX_SOCKETS
