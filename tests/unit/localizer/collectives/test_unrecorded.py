"""What is told of a job whose ranks record no operations: of its processes and sockets alone."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from localizer.collectives.hang_watch import HangWatch
from schemas.bounds import violation
from schemas.codec import to_datum
from schemas.enums import Certainty, CollectiveSource, FaultLifecycle, HangClass, ProcessState
from schemas.ids import rank_id
from schemas.records import CollectiveBatch, Hang, RankSocket, SocketBatch
from schemas.records.batches import RankProcess, batch_of
from schemas.records.collectives import CollectiveSnapshot
from schemas.topics import COLLECTIVE_HANG
from schemas.units import MS_NS, SECOND_NS, US_NS
from tests.collective_batches import ATTEMPT, CLUSTER, TASK, Arrival, seconds, socket

OPEN, UPDATED, RESOLVED = (
    FaultLifecycle.OPEN, FaultLifecycle.UPDATED, FaultLifecycle.RESOLVED,
)  # fmt: skip
RANKS = 4
READ_S = 2
BEGIN_S = 1_700_000_000
STUCK: dict[str, Any] = {"unacked_bytes": 192, "backoff": 4, "retransmits": 3}


@dataclass
class Told:
    """What collectors tell of a job of four ranks, each two seconds.

    `moves` says whether bytes move in a second; `process` and `stuck` what a rank's process does
    and what its socket to a peer has outstanding. `idle` ranks use no CPU time.
    """

    moves: Callable[[int], bool] = lambda _s: True
    process: Callable[[int, int], ProcessState] = lambda _s, _rank: ProcessState.SLEEPING
    stuck: Callable[[int, int, int], Mapping[str, Any]] = lambda _s, _rank, _peer: {}
    share: Callable[[int, int], float] = lambda _s, _rank: 0.01
    attempt: Callable[[int], int] = lambda _s: ATTEMPT
    size: int = RANKS
    heard: Callable[[int, int], bool] = lambda _s, _rank: True
    _log: list[Arrival] = field(default_factory=list)

    def until(self, end_s: int) -> list[Arrival]:
        """Return the records of the first seconds."""
        moved, cpu_ns = 0, [0] * self.size
        for s in range(0, end_s, READ_S):
            moved += self.moves(s)
            for rank in range(self.size):
                cpu_ns[rank] += round(self.share(s, rank) * READ_S * SECOND_NS)
                at_ns = (BEGIN_S + s) * SECOND_NS + rank * 40 * MS_NS
                if self.heard(s, rank):
                    for record in (
                        self._batch(s, rank, at_ns, cpu_ns[rank]),
                        self._sockets(s, rank, at_ns, moved),
                    ):
                        self._log.append(Arrival(at_ns, rank_id(TASK, rank), record))
        return self._log

    def _batch(self, s: int, rank: int, at_ns: int, cpu_ns: int) -> CollectiveBatch:
        empty = CollectiveSnapshot(
            rank=rank, source="", library=None, version="", taken_at=None,
            taken_at_missing_reason="neither its environment nor [collect] names dumps",
            dropped_before=0, communicators=(), operations=(),
        )  # fmt: skip
        process = RankProcess(
            cluster=CLUSTER, task_id=TASK, rank=rank, world_size=self.size,
            host_id=f"host:h{rank // 2}", endpoint_ids=(f"{TASK}-w{rank // 2}/r{rank % 2}",),
            attempt=self.attempt(s), pid=1000 + rank, process_state=self.process(s, rank),
            cpu_ns=cpu_ns,
        )  # fmt: skip
        return batch_of(
            empty, process, taken_at=at_ns // US_NS, source=CollectiveSource.FLIGHT_RECORDER
        )

    def _sockets(self, s: int, rank: int, at_ns: int, moved: int) -> SocketBatch:
        gone = self.process(s, rank) is ProcessState.GONE
        held = [
            socket(
                rank, peer,
                **{"acked_bytes": 9_000 * moved, "received_bytes": 9_000 * moved,
                   **self.stuck(s, rank, peer)},
            )
            for peer in range(self.size)
            if peer != rank and not gone and self.process(s, peer) is not ProcessState.GONE
        ]  # fmt: skip
        return SocketBatch(
            cluster=CLUSTER, rank_id=rank_id(TASK, rank), task_id=TASK, rank=rank,
            host_id=f"host:h{rank // 2}", taken_at=at_ns // US_NS,
            sockets=(*held, *self._coordinator(s, rank)),
        )  # fmt: skip

    def _coordinator(self, s: int, rank: int) -> tuple[RankSocket, ...]:
        """Return the connections of JAX's coordinator, which say each reading that ranks live."""
        ends = "10.0.0.0", 7_100, f"10.0.0.{rank}", 60_000 + rank
        beats = {"acked_bytes": 100 * s, "received_bytes": 100 * s}
        client = replace(
            socket(rank, 0 if rank else 1, **beats),
            local_address=ends[2], local_port=ends[3], peer_address=ends[0], peer_port=ends[1],
        )  # fmt: skip
        if rank:
            return (client,)
        served = [
            replace(
                client, local_address=ends[0], local_port=ends[1],
                peer_address=f"10.0.0.{r}", peer_port=60_000 + r,
            )
            for r in range(self.size)
        ]  # fmt: skip
        return (client, *served)


def told(log: list[Arrival], watch: HangWatch | None = None) -> list[Hang]:
    """Return what the watcher says, each second, of what is valid in its topic."""
    watch = HangWatch(CLUSTER) if watch is None else watch
    found = []
    for until_ns, records in seconds(log):
        for arrival in records:
            watch.feed(arrival.key, arrival.record, arrival.at_ns)
        found += watch.advance(until_ns)
    for hang in found:
        assert violation(COLLECTIVE_HANG.name, to_datum(hang)) is None
    return found


def after(s: int, begin: int = 60, end: int = 10**9) -> bool:
    """Return whether a second is within those in which something is wrong."""
    return begin <= s < end


def stops(rank: int, begin: int, end: int = 10**9) -> Callable[[int, int], ProcessState]:
    """Return what processes do of which one is stopped for a while."""

    def process(s: int, other: int) -> ProcessState:
        stopped = other == rank and after(s, begin, end)
        return ProcessState.STOPPED if stopped else ProcessState.SLEEPING

    return process


def test_a_job_that_trains_is_not_told() -> None:
    """Nor one that pauses for less than a minute now and then, as an evaluation does."""
    assert told(Told().until(300)) == []
    assert told(Told(moves=lambda s: s % 100 < 60).until(600)) == []


def test_a_stopped_process_is_told_and_when_it_goes_on() -> None:
    """By the second reading that shows it four seconds after the first; resolved by one more."""
    log = Told(moves=lambda s: not after(s, 60, 80), process=stops(2, 60, 80)).until(120)
    opened, over = told(log)
    assert (opened.state, opened.hang_class) == (OPEN, HangClass.PROCESS_STOPPED)
    assert (opened.certainty, opened.ranks) == (Certainty.SURE, (2,))
    assert opened.waiting_ranks == (0, 1, 3)
    assert opened.endpoint_ids == (f"{TASK}-w1/r0",)
    assert opened.communicator is None
    assert 64 <= opened.event_at / 1e6 - BEGIN_S <= 66
    assert any("record no operations" in text for text in opened.evidence)
    assert opened.summary == f"{TASK} stands still: the process of rank 2 is stopped"
    assert (over.state, over.hang_id) == (RESOLVED, opened.hang_id)
    assert "seen to be stopped any more" in over.summary


def test_one_reading_of_a_stopped_process_is_none() -> None:
    """A debugger stops it for a moment."""
    assert told(Told(process=stops(1, 60, 62)).until(120)) == []


@pytest.mark.parametrize(("gone", "ranks"), [((3,), (3,)), ((1, 2, 3), ())])
def test_a_process_that_is_gone_is_told_while_the_others_stand_still(
    gone: tuple[int, ...], ranks: tuple[int, ...]
) -> None:
    """After a minute. Where most have ended, those that are left may have something to finish."""

    def process(s: int, rank: int) -> ProcessState:
        ended = rank in gone and after(s, 100)
        return ProcessState.GONE if ended else ProcessState.SLEEPING

    found = told(Told(moves=lambda s: not after(s, 100), process=process).until(240))
    assert [hang.ranks for hang in found] == ([ranks] if ranks else [])
    for hang in found:
        assert (hang.hang_class, hang.certainty) == (HangClass.RANK_MISSING, Certainty.LIKELY)
        assert 160 <= hang.event_at / 1e6 - BEGIN_S <= 164
        assert hang.summary == f"{TASK} stands still: rank 3 is gone"


@pytest.mark.parametrize(("spinning", "named"), [((2,), True), ((1, 2, 4), False)])
def test_a_rank_that_spins_for_one_that_is_gone_hides_nothing(
    spinning: tuple[int, ...], named: bool
) -> None:
    """As gloo does once a connection is closed. Where half of them work they may go on."""

    def process(s: int, rank: int) -> ProcessState:
        return ProcessState.GONE if rank == 5 and after(s, 100) else ProcessState.SLEEPING

    def share(s: int, rank: int) -> float:
        return 0.9 if rank in spinning and after(s, 100) else 0.0

    moves = Told(size=8, moves=lambda s: not after(s, 100), process=process, share=share)
    found = told(moves.until(240))
    assert [hang.ranks for hang in found] == ([(5,)] if named else [])
    if named:
        assert any("all others but rank 2 do nothing" in text for text in found[0].evidence)


def test_a_rank_that_writes_a_checkpoint_beside_one_that_left_misses_nobody() -> None:
    """It waits for a disk: it works, and does not spin."""

    def process(s: int, rank: int) -> ProcessState:
        if rank == 7 and after(s, 100):
            return ProcessState.GONE
        writes = rank == 0 and after(s, 100)
        return ProcessState.DISK if writes else ProcessState.SLEEPING

    job = Told(size=8, moves=lambda s: not after(s, 100), process=process)
    assert told(job.until(300)) == []


def test_ranks_that_close_down_after_others_miss_nobody() -> None:
    """Three of eight are gone, and the others follow half a minute later."""

    def process(s: int, rank: int) -> ProcessState:
        ended = after(s, 100 if rank < 3 else 130)
        return ProcessState.GONE if ended else ProcessState.SLEEPING

    assert told(Told(size=8, moves=lambda s: not after(s, 100), process=process).until(240)) == []


def test_a_job_whose_other_ranks_work_or_exchange_bytes_misses_nobody() -> None:
    """One of several programs of a task may end before the others."""

    def process(s: int, rank: int) -> ProcessState:
        return ProcessState.GONE if rank == 3 and after(s) else ProcessState.SLEEPING

    assert told(Told(process=process).until(120)) == []
    works = Told(moves=lambda s: not after(s), process=process, share=lambda _s, _rank: 0.9)
    assert told(works.until(120)) == []


def test_a_job_that_ends_is_over() -> None:
    """All of its processes end, one after another."""

    def process(s: int, rank: int) -> ProcessState:
        return ProcessState.GONE if s >= 60 + READ_S * rank else ProcessState.SLEEPING

    assert told(Told(moves=lambda s: not after(s), process=process).until(120)) == []


def test_bytes_that_are_sent_again_in_vain_are_the_network() -> None:
    """What all of them have in common is named, with both ends; resolved when they move."""

    def stuck(s: int, rank: int, peer: int) -> Mapping[str, Any]:
        if not after(s, 100, 120) or {rank, peer} not in ({0, 2}, {2, 3}):
            return {}
        return {**STUCK, "stalled_ns": (s - 99) * SECOND_NS}

    opened, over = told(Told(moves=lambda s: not after(s, 100, 120), stuck=stuck).until(160))
    assert (opened.hang_class, opened.certainty) == (HangClass.NETWORK, Certainty.SURE)
    assert opened.ranks == (2,)
    assert {(f.src_rank, f.dst_rank) for f in opened.stuck_flows} == {
        (0, 2),
        (2, 0),
        (2, 3),
        (3, 2),
    }
    assert {f.src_endpoint_id for f in opened.stuck_flows} == set(opened.endpoint_ids)
    assert over.state is RESOLVED


def test_bytes_that_wait_for_a_moment_are_not_the_network() -> None:
    """A packet that is lost is sent again once."""

    def stuck(s: int, _rank: int, _peer: int) -> Mapping[str, Any]:
        return {**STUCK, "stalled_ns": SECOND_NS} if s == 60 else {}

    assert told(Told(stuck=stuck).until(120)) == []


def test_bytes_that_wait_while_the_job_goes_on_are_not_the_network() -> None:
    """Nor while it is not known to stand still: nothing moved before that could cease to."""

    def stuck(s: int, rank: int, peer: int) -> Mapping[str, Any]:
        if not after(s, 100, 120) or {rank, peer} != {0, 2}:
            return {}
        return {**STUCK, "acked_bytes": 7, "stalled_ns": (s - 99) * SECOND_NS}

    assert told(Told(stuck=stuck).until(160)) == []
    assert told(Told(moves=lambda s: s % 30 == 0, stuck=stuck).until(160)) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [("peer_rank", 131_071), ("stalled_ns", 2**63 - 1), ("unacked_bytes", 2**62)],
)
def test_what_a_socket_tells_is_believed_within_bounds(field: str, value: int) -> None:
    """No rank is named that the job has not, and no time that was not watched."""

    def stuck(s: int, rank: int, peer: int) -> Mapping[str, Any]:
        if not after(s, 100) or (rank, peer) != (0, 2):
            return {}
        return {**STUCK, "stalled_ns": (s - 99) * SECOND_NS, field: value}

    found = told(Told(moves=lambda s: not after(s, 100), stuck=stuck).until(140))
    if field == "peer_rank":
        assert found == []
        return
    (hang,) = found
    assert (hang.ranks, hang.hang_class) == ((0, 2), HangClass.NETWORK)
    assert 98 <= hang.onset_at / 1e6 - BEGIN_S <= 102


def test_a_rank_that_launches_nothing_is_not_told_from_those_that_wait() -> None:
    """All stand still: after a minute that is said, and nobody is named."""
    opened, over = told(Told(moves=lambda s: not after(s, 100, 200)).until(240))
    assert (opened.hang_class, opened.certainty) == (HangClass.UNDECIDED, Certainty.UNDECIDED)
    assert opened.ranks == ()
    assert opened.waiting_ranks == (0, 1, 2, 3)
    assert 160 <= opened.event_at / 1e6 - BEGIN_S <= 164
    assert opened.onset_at / 1e6 - BEGIN_S == pytest.approx(98, abs=2)
    assert "record no operations" in opened.summary
    assert over.state is RESOLVED


def test_a_pause_that_is_usual_is_none() -> None:
    """One of forty seconds now and then, which lets the job stand still for a minute and more."""

    def moves(s: int) -> bool:
        return s % 200 < 160 if s < 800 else not after(s, 900)

    opened = told(Told(moves=moves).until(1_200))[0]
    # 1 + ln(1000) / ln(n) times forty seconds, of the n = 300 or so waits of these minutes.
    assert opened.event_at / 1e6 - BEGIN_S == pytest.approx(900 + 40 * 2.2, abs=8)


def test_a_pause_that_ended_by_itself_is_told_once() -> None:
    """One of ninety seconds in each ten minutes, idle in all ranks: an evaluation."""
    opened, over = told(Told(moves=lambda s: s % 600 < 510).until(2_400))
    assert (opened.hang_class, over.state) == (HangClass.UNDECIDED, RESOLVED)
    assert over.event_at / 1e6 - BEGIN_S < 610


@pytest.mark.parametrize("until_s", [50, 0])
def test_a_job_whose_bytes_move_seldom_says_nothing(until_s: int) -> None:
    """RDMA carries its data; TCP moved while it was set up, and does each five minutes."""
    seldom = Told(moves=lambda s: s < until_s or s % 300 < 2, share=lambda _s, _rank: 0.3)
    assert told(seldom.until(1_000)) == []


class _NoSockets(Told):
    """A job without TCP between its ranks."""

    def _sockets(self, s: int, rank: int, at_ns: int, moved: int) -> SocketBatch:
        return replace(super()._sockets(s, rank, at_ns, moved), sockets=())


@pytest.mark.parametrize("job", [Told(size=1), _NoSockets()])
def test_a_debugger_that_lets_go_leaves_nothing_open(job: Told) -> None:
    """Though no bytes are seen to move again."""
    job.process = stops(0, 100, 108)
    opened, over = told(job.until(200))
    assert (opened.hang_class, over.state) == (HangClass.PROCESS_STOPPED, RESOLVED)
    assert over.event_at / 1e6 - BEGIN_S <= 110


def test_a_stopped_process_of_which_nothing_is_heard_is_not_told() -> None:
    """Two readings two seconds apart are one; a hang ends where its rank is read no more."""
    ended = Told(process=stops(1, 100), heard=lambda s, rank: rank != 1 or s <= 103)
    assert told(ended.until(200)) == []
    ended = Told(process=stops(1, 100), heard=lambda s, rank: rank != 1 or s <= 110)
    opened, over = told(ended.until(200))
    assert (opened.ranks, over.state) == ((1,), RESOLVED)


def test_what_is_seen_no_more_ends_after_a_minute() -> None:
    """All stand still, until one of them works for long: that it hangs is not known any more."""
    opened, over = told(
        Told(
            moves=lambda s: not after(s, 100),
            share=lambda s, rank: 0.9 if rank == 1 and after(s, 200) else 0.01,
        ).until(340)
    )
    assert (opened.hang_class, over.state) == (HangClass.UNDECIDED, RESOLVED)
    assert 260 <= over.event_at / 1e6 - BEGIN_S <= 270


@pytest.mark.parametrize("down_s", [12, 70])
def test_a_job_that_was_restarted_may_load_for_long(down_s: int) -> None:
    """Nothing is known of its new processes until bytes have moved among them for a while."""
    up_s = 200 + down_s
    job = Told(
        moves=lambda s: not 200 <= s < 340, heard=lambda s, _rank: not 200 <= s < up_s,
        attempt=lambda s: ATTEMPT + (up_s * 1_000_000 if s >= up_s else 0),
    )  # fmt: skip
    assert told(job.until(500)) == []


def test_who_works_lets_the_others_wait() -> None:
    """Where one of them computes for long, nothing is said."""
    works = Told(moves=lambda s: not after(s), share=lambda _s, rank: 0.9 if rank == 1 else 0.01)
    assert told(works.until(240)) == []


def test_a_collector_that_is_silent_shows_no_stillness() -> None:
    """Nothing is known of its ranks: bytes may move."""
    silent = Told(moves=lambda s: not after(s), heard=lambda s, rank: rank < 2 or not after(s))
    assert told(silent.until(240)) == []


def test_a_restart_ends_the_hang() -> None:
    """Other processes take the place of those that stood still."""
    log = Told(
        moves=lambda s: not after(s, 60, 80), process=stops(0, 60, 80),
        attempt=lambda s: ATTEMPT + (80_000_000 if s >= 80 else 0),
    ).until(140)  # fmt: skip
    opened, over = told(log)
    assert opened.hang_class is HangClass.PROCESS_STOPPED
    assert (over.state, over.hang_id) == (RESOLVED, opened.hang_id)
    assert "started anew" in over.summary


def test_who_takes_over_tells_no_hang_twice() -> None:
    """Another process reads the same log, and knows what was told."""
    log = Told(moves=lambda s: not after(s), process=stops(1, 60)).until(100)
    (opened,) = told(log)
    assert told(log, HangWatch(CLUSTER, [opened])) == []
