"""When bytes moved last between ranks: what a service of the job is told does not count."""

from dataclasses import replace

import pytest

from localizer.collectives.sockets import SocketState
from localizer.collectives.stillness import Stillness, last_move
from schemas.ids import rank_id
from schemas.records import RankSocket, SocketBatch
from schemas.units import SECOND_NS
from tests.collective_batches import CLUSTER, TASK, socket

LOOP = "127.0.0.1"


def batch(rank: int, *held: RankSocket, host: str = "host:h0") -> SocketBatch:
    """Return the sockets of a rank."""
    return SocketBatch(
        cluster=CLUSTER, rank_id=rank_id(TASK, rank), task_id=TASK, rank=rank, host_id=host,
        taken_at=1, sockets=held,
    )  # fmt: skip


def ends(local: int, peer: int, acked: int) -> RankSocket:
    """Return a connection on the loopback."""
    return replace(
        socket(0, 1, acked_bytes=acked),
        local_address=LOOP, local_port=local, peer_address=LOOP, peer_port=peer,
    )  # fmt: skip


def test_what_moves_between_two_ranks_counts_from_its_arrival() -> None:
    """Until more of it is acknowledged."""
    states = {r: SocketState(batch(r, socket(r, 1 - r)), SECOND_NS) for r in (0, 1)}
    assert last_move(states) == SECOND_NS
    states[0].apply_batch(batch(0, socket(0, 1)), 3 * SECOND_NS)
    assert last_move(states) == SECOND_NS
    states[0].apply_batch(batch(0, socket(0, 1, acked_bytes=2_000)), 5 * SECOND_NS)
    assert last_move(states) == 5 * SECOND_NS


def test_a_connection_to_nobody_of_the_job_does_not_count() -> None:
    """A rank reads its data from elsewhere."""
    assert last_move({0: SocketState(batch(0, socket(0, 7)), SECOND_NS)}) == 0


def test_the_port_of_which_a_process_is_its_own_client_does_not_count() -> None:
    """Nor on another host where a collective happens to have the same one on its loopback."""
    service = SocketState(batch(0, ends(7_100, 50_000, 1), ends(50_000, 7_100, 1),
                                ends(7_100, 50_001, 1)), SECOND_NS)  # fmt: skip
    client = SocketState(batch(1, ends(50_001, 7_100, 1)), SECOND_NS)
    assert last_move({0: service, 1: client}) == 0
    elsewhere = {
        2: SocketState(batch(2, ends(7_100, 50_001, 1), host="host:h1"), 2 * SECOND_NS),
        3: SocketState(batch(3, ends(50_001, 7_100, 1), host="host:h1"), 2 * SECOND_NS),
    }
    assert last_move({0: service, 1: client, **elsewhere}) == 2 * SECOND_NS


def test_what_is_usual_is_learnt_while_nothing_hangs() -> None:
    """Each stretch without a byte, once; not the one of a hang."""
    stillness = Stillness()
    state = SocketState(batch(0, socket(0, 1)), SECOND_NS)
    peer = SocketState(batch(1, socket(1, 0)), SECOND_NS)
    for number, (at_s, hung) in enumerate([(1, False), (3, False), (10, False), (70, True)]):
        state.apply_batch(batch(0, socket(0, 1, acked_bytes=number)), at_s * SECOND_NS)
        for _ in range(2):
            stillness.observe({0: state, 1: peer}, at_s * SECOND_NS, hung=hung)
    assert stillness.moved_ns == 70 * SECOND_NS
    assert (stillness.usual.count, stillness.usual.longest) == (2, 7_000_000)


def test_other_processes_begin_anew() -> None:
    """Neither what was usual, nor the pause until bytes move again."""
    stillness = Stillness()
    state = SocketState(batch(0, socket(0, 1)), SECOND_NS)
    peer = SocketState(batch(1, socket(1, 0)), SECOND_NS)
    for number, at_s in enumerate([1, 3, 5, 100, 102]):
        state.apply_batch(batch(0, socket(0, 1, acked_bytes=number)), at_s * SECOND_NS)
        if at_s == 100:
            stillness.begin_anew(50 * SECOND_NS)
            assert stillness.moved_ns == 0
        stillness.observe({0: state, 1: peer}, at_s * SECOND_NS, hung=False)
    assert (stillness.usual.count, stillness.usual.longest) == (1, 2_000_000)


@pytest.mark.parametrize(
    ("every_s", "look_s", "steady"), [(2, 2, True), (4, 2, True), (10, 2, False), (2, 10, True)]
)
def test_stillness_means_something_where_bytes_moved_all_the_time(
    every_s: int, look_s: int, steady: bool
) -> None:
    """In most readings of a minute and more, or in most looks at a job that is large."""
    stillness = Stillness()
    state = SocketState(batch(0, socket(0, 1)), SECOND_NS)
    peer = SocketState(batch(1, socket(1, 0)), SECOND_NS)
    for s in range(1, 400):
        if s % every_s == 0:
            state.apply_batch(batch(0, socket(0, 1, acked_bytes=s)), s * SECOND_NS)
        if s % look_s == 0:
            stillness.observe({0: state, 1: peer}, s * SECOND_NS, hung=False)
        assert not (stillness.steady and s < 58)
    assert stillness.steady is steady
