"""Which bytes are stuck, and between whom."""

from dataclasses import replace
from typing import Any

from localizer.collectives.sockets import SocketState, Stuck, common_ranks, stuck_flows
from schemas.records import RankSocket, SocketBatch
from schemas.units import SECOND_NS
from tests.collective_batches import socket

NOW = 1_700_000_000 * SECOND_NS


def batch(rank: int, *sockets: RankSocket, host: str = "") -> SocketBatch:
    """Return the sockets of a rank."""
    return SocketBatch(
        cluster="lab", rank_id=f"job1|{rank}", task_id="job1", rank=rank,
        host_id=host or f"h{rank}", taken_at=NOW // 1_000, sockets=sockets,
    )  # fmt: skip


def states(*batches: SocketBatch) -> dict[int, SocketState]:
    """Return the state after one batch of each rank."""
    return {b.rank: SocketState(b, NOW) for b in batches}


def test_both_ends_are_found_by_their_addresses() -> None:
    """The peer is whoever has the socket the other way round."""
    stuck: dict[str, Any] = {"unacked_bytes": 10, "stalled_ns": 2 * SECOND_NS, "backoff": 3}
    held = states(batch(0, socket(0, 2, **stuck)), batch(2, socket(2, 0)), batch(1, socket(1, 3)))
    (flow,) = stuck_flows(held, [0, 1, 2])
    assert (flow.src_rank, flow.dst_rank, flow.repeats) == (0, 2, True)
    assert stuck_flows(held, [1]) == []
    assert common_ranks([flow]) == (0, 2)


def test_sockets_of_which_some_have_no_known_peer_are_in_order() -> None:
    """One to another rank, one to a store, both stuck for the same time."""
    stuck: dict[str, Any] = {"unacked_bytes": 10, "stalled_ns": 2 * SECOND_NS}
    elsewhere = replace(socket(0, 1, **stuck), peer_address="10.9.9.9")
    held = states(batch(0, socket(0, 2, **stuck), elsewhere), batch(2, socket(2, 0)))
    assert [flow.dst_rank for flow in stuck_flows(held, [0])] == [None, 2]


def test_what_is_outstanding_for_a_moment_is_not_stuck() -> None:
    """Without the kernel's word, two batches with the same acknowledged bytes say it."""
    held = states(batch(0, socket(0, 1, unacked_bytes=10, stalled_ns=None)))
    assert stuck_flows(held, [0]) == []
    same = batch(0, socket(0, 1, unacked_bytes=10, stalled_ns=None))
    held[0].apply_batch(same, NOW + 2 * SECOND_NS)
    (flow,) = stuck_flows(held, [0])
    assert (flow.dst_rank, flow.stalled_ns) == (None, 2 * SECOND_NS)
    moved = batch(0, socket(0, 1, unacked_bytes=10, acked_bytes=2_000, stalled_ns=None))
    held[0].apply_batch(moved, NOW + 4 * SECOND_NS)
    assert stuck_flows(held, [0]) == []


def test_a_loopback_is_one_host_only() -> None:
    """Each container has the same addresses there."""
    ends: dict[str, Any] = {"protocol": "tcp", "local_port": 1, "peer_port": 2}
    there: dict[str, Any] = {"protocol": "tcp", "local_port": 2, "peer_port": 1}
    home: dict[str, Any] = {"local_address": "127.0.0.1", "peer_address": "127.0.0.1"}
    mine = RankSocket(**ends, **home, unacked_bytes=5, stalled_ns=2 * SECOND_NS)
    other = RankSocket(**there, **home)
    held = states(batch(0, mine, host="a"), batch(1, other, host="a"), batch(3, other, host="b"))
    (flow,) = stuck_flows(held, [0])
    assert flow.dst_rank == 1


def test_the_rank_that_all_have_in_common_is_named() -> None:
    """Of two sockets with one end in common that end; of nothing in common all."""
    stuck: dict[str, Any] = {"unacked_bytes": 10, "stalled_ns": 2 * SECOND_NS}
    held = states(
        batch(0, socket(0, 2, **stuck)), batch(2, socket(2, 0), socket(2, 4)),
        batch(4, socket(4, 2, **stuck)),
    )  # fmt: skip
    assert common_ranks(stuck_flows(held, [2])) == (2,)


def test_unread_bytes_count_once_they_lie_there() -> None:
    """A reader that is late by a moment is none that does not read."""
    state = SocketState(batch(3, socket(3, 1, unread_bytes=99)), NOW)
    assert state.unread_bytes() == 0
    state.apply_batch(batch(3, socket(3, 1, unread_bytes=99)), NOW + 2 * SECOND_NS)
    assert state.unread_bytes() == 99


def test_flows_of_several_ranks_of_one_host_have_the_host_in_common() -> None:
    """A host that is down has no rank in common, where each has a cable of its own."""
    flows = [Stuck(8, 7, 64, SECOND_NS, True, ""), Stuck(3, 4, 64, SECOND_NS, True, "")]
    hosts = {rank: f"h{rank // 4}" for rank in range(12)}
    assert common_ranks(flows) == (3, 4, 7, 8)
    assert common_ranks(flows, hosts) == (4, 7)
    assert common_ranks(flows, {8: "h2", 3: "h0"}) == (3, 4, 7, 8)
    assert common_ranks(flows[:1], hosts) == (7, 8)


def test_a_peer_without_room_is_found_by_what_waits_while_all_that_was_sent_is_acknowledged() -> (
    None
):
    """Of sockets that brought it bytes; what is on its way, or stands, may be the network's."""
    wait: dict[str, Any] = {"acked_bytes": 2_000, "queued_bytes": 9}
    held = states(
        batch(0, socket(0, 1), socket(0, 2), socket(0, 3)), batch(1, socket(1, 0)),
        batch(2, socket(2, 0)), batch(3, socket(3, 0)),
    )  # fmt: skip
    assert held[0].full_peers(held) == set()
    moved = batch(
        0, socket(0, 1, **wait), socket(0, 2, **wait, unacked_bytes=5),
        socket(0, 3, queued_bytes=9),
    )  # fmt: skip
    held[0].apply_batch(moved, NOW + 2 * SECOND_NS)
    assert held[0].full_peers(held) == {1}
    # Still so once more has come through; no longer when nothing does.
    held[0].apply_batch(batch(0, socket(0, 1, acked_bytes=3_000, queued_bytes=9)), NOW)
    assert held[0].full_peers(held) == {1}
    held[0].apply_batch(batch(0, socket(0, 1, acked_bytes=3_000, queued_bytes=9)), NOW)
    assert held[0].full_peers(held) == set()


def test_a_peer_that_is_told_or_on_the_same_host_is_known() -> None:
    """A loopback of another host is not it."""
    there: dict[str, Any] = {"protocol": "tcp", "local_port": 2, "peer_port": 1}
    home: dict[str, Any] = {"local_address": "127.0.0.1", "peer_address": "127.0.0.1"}
    mine = RankSocket(
        protocol="tcp", local_port=1, peer_port=2, **home, queued_bytes=5, unacked_bytes=0,
        acked_bytes=1,
    )  # fmt: skip
    other = RankSocket(**there, **home)
    told = socket(0, 9, peer_rank=4)
    held = states(
        batch(0, mine, told, host="a"), batch(1, other, host="a"), batch(3, other, host="b")
    )
    later = replace(told, queued_bytes=5, acked_bytes=2_000)
    held[0].apply_batch(batch(0, replace(mine, acked_bytes=2), later, host="a"), NOW)
    assert held[0].full_peers(held) == {1, 4}
