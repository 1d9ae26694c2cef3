"""The plugin for NCCL, called as NCCL calls it, by a stand-in: what its ring then says."""

import os
import stat
import time
from pathlib import Path

import pytest

from probers.collectives.nccl_ring import LATER_ONE_DONE, NOT_YET, RingReader, RingReading
from schemas.enums import CollectiveState
from schemas.records import CollectiveOp
from tests.nccl_stand_in import HAS_COMPILER, Programs, StandIn, compile_programs, stand_in

pytestmark = pytest.mark.skipif(not HAS_COMPILER, reason="needs a C compiler")
WORLD = 2
RING = 2_048
# Collectives, point-to-point operations, proxy operations, their steps, channels of kernels.
MASK = "94"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """Give the compiled programs."""
    return compile_programs(tmp_path_factory.mktemp("nccl"))


def look(job: StandIn, reader: RingReader | None = None) -> RingReading:
    """Read a ring; once more if an operation was being written."""
    now_us = time.time_ns() // 1_000
    return (reader or RingReader(0, WORLD)).look(job.read, now_us=now_us)


def only(reading: RingReading) -> CollectiveOp:
    """Return the one operation."""
    (operation,) = reading.dump.snapshot.operations
    return operation


@pytest.mark.parametrize("version", [4, 5, 6])
def test_a_collective_from_launch_to_end(programs: Programs, tmp_path: Path, version: int) -> None:
    """It is launched, started by its first channel, and done with its last."""
    with stand_in(programs, tmp_path, version=version) as job:
        assert job.tell("init 0 abc 2 0 default_pg") == [MASK]
        job.tell("coll 1 0 AllReduce 1000 ncclBfloat16 2 7")
        begun_us = time.time_ns() // 1_000
        launched = only(look(job))
        job.tell("kernel 2 0 1 0", "kernel 3 0 1 1", "stop 1", "stop 2")
        started = only(look(job))
        job.tell("stop 3")
        reading = look(job)
    done = only(reading)
    assert (launched.communicator, launched.operation, launched.sequence) == (
        "0xabc", "all_reduce", 0,
    )  # fmt: skip
    assert (launched.n_bytes, launched.input_sizes, launched.input_dtypes) == (
        2_000, ((1_000,),), ("Bfloat16",),
    )  # fmt: skip
    assert launched.launched_at is not None
    assert abs(launched.launched_at - begun_us) < 10**7
    assert (launched.op_id, launched.state) == (7, CollectiveState.SCHEDULED)
    assert (started.state, started.completed_at, started.missing_reason) == (
        CollectiveState.STARTED, None, NOT_YET,
    )  # fmt: skip
    assert done.state is CollectiveState.COMPLETED
    assert done.started_at is not None
    assert done.completed_at is not None
    assert launched.launched_at <= done.started_at <= done.completed_at
    snapshot = reading.dump.snapshot
    assert (snapshot.library, snapshot.version) == ("nccl", f"v{version}")
    (group,) = snapshot.communicators
    assert (group.communicator, group.description, group.ranks) == (
        "0xabc", "default_pg", (0, 1),
    )  # fmt: skip


def test_what_waits_where_on_a_channel(programs: Programs, tmp_path: Path) -> None:
    """Of four chunks one is done, one on the network, one waits for the peer, one for the GPU."""
    with stand_in(programs, tmp_path) as job:
        job.tell("init 0 abc 2 0 default_pg", "coll 1 0 AllReduce 1000 ncclFloat32 1 0")
        job.tell("proxy 2 0 1 3 1 1 500 0", "record 2 19 0")
        for handle, until in enumerate(("done", "sent", "ready", "posted"), start=10):
            job.send_step(handle, 2, 400, until=until)
        # Of two that come in one is taken by the GPU.
        job.tell("proxy 4 0 1 3 1 0 500 0")
        for handle in (20, 21):
            job.tell(f"step {handle} 0 4 0", f"record {handle} 10 0", f"record {handle} 11 300")
        job.tell("record 20 12 300", "stop 20")
        time.sleep(0.05)
        reading = look(job)
    (flow,) = reading.flows
    assert (flow.protocol, flow.local_address, flow.local_port) == ("nccl", "0xabc/0", 3)
    assert (flow.peer_address, flow.peer_port, flow.peer_rank) == ("0xabc/1", 3, 1)
    assert (flow.queued_bytes, flow.unacked_bytes, flow.unread_bytes) == (500, 400, 300)
    assert (flow.sent_bytes, flow.acked_bytes, flow.received_bytes) == (800, 400, 600)
    assert flow.stalled_ns is not None
    assert 30_000_000 < flow.stalled_ns < 10 * 10**9
    assert only(reading).state is CollectiveState.STARTED


def test_a_channel_on_which_all_is_done_waits_for_nothing(
    programs: Programs, tmp_path: Path
) -> None:
    """Nothing is outstanding then, and nothing stands still."""
    with stand_in(programs, tmp_path) as job:
        job.tell("init 0 abc 4 0 tp", "coll 1 0 AllReduce 1000 ncclFloat32 1 0", "stop 1")
        job.tell("proxy 2 0 1 3 1 1 500 0")
        job.send_step(10, 2, 400, until="done")
        job.tell("stop 2")
        reading = look(job)
    (flow,) = reading.flows
    assert (flow.queued_bytes, flow.unacked_bytes, flow.stalled_ns) == (0, 0, 0)
    # The communicator has four ranks, the job two: whose the peer is, is not known.
    assert flow.peer_rank is None
    # Without kernels' channels what the network is done with is done.
    assert only(reading).state is CollectiveState.COMPLETED


def test_all_channels_are_told_at_each_look(programs: Programs, tmp_path: Path) -> None:
    """New ones as well; that nothing is on a channel is told, too."""
    with stand_in(programs, tmp_path) as job:
        reader = RingReader(0, WORLD)
        job.tell("init 0 abc 2 0 a", "flood 1 1 1")
        for _ in range(2):
            assert sorted(f.local_port for f in look(job, reader).flows) == [0, 1, 2, 3]
        job.tell("coll 1 0 AllReduce 8 ncclInt8 1 0", "proxy 2 0 1 9 1 1 500 0")
        job.send_step(3, 2, 400, until="sent")
        unacked = {f.local_port: f.unacked_bytes for f in look(job, reader).flows}
    assert unacked == {0: 0, 1: 0, 2: 0, 3: 0, 9: 400}


def test_one_that_never_ends_does_not_have_the_rest_read_again(
    programs: Programs, tmp_path: Path
) -> None:
    """What is done is told once, whatever waits before it."""
    with stand_in(programs, tmp_path) as job:
        reader = RingReader(0, WORLD)
        job.tell("init 0 abc 2 0 a", "p2p 1 0 Send 8 ncclInt8 1 1", "flood 1 20 0")
        assert len(look(job, reader).dump.snapshot.operations) == 21
        assert [o.operation for o in look(job, reader).dump.snapshot.operations] == ["send"]
        job.tell("kernel 2 0 1 0", "stop 2")
        assert [o.state for o in look(job, reader).dump.snapshot.operations] == [
            CollectiveState.COMPLETED
        ]
        assert look(job, reader).dump.snapshot.operations == ()


def test_point_to_point_operations_have_ends_and_a_count_of_their_own(
    programs: Programs, tmp_path: Path
) -> None:
    """Ends are those of the communicator."""
    with stand_in(programs, tmp_path) as job:
        job.tell("init 0 abc 4 2 pp", "coll 1 0 Broadcast 8 ncclInt8 1 0")
        job.tell("p2p 2 0 Send 8 ncclFloat16 3 1", "p2p 3 0 Recv 8 ncclFloat16 1 1")
        _, send, receive = look(job).dump.snapshot.operations
    assert (send.operation, send.sequence, send.sender, send.receiver) == ("send", 0, 2, 3)
    assert (receive.operation, receive.sequence, receive.sender, receive.receiver) == (
        "recv", 1, 1, 2,
    )  # fmt: skip
    assert (send.input_sizes, receive.output_sizes, receive.n_bytes) == (((8,),), ((8,),), 16)


def test_one_that_nobody_reported_is_done_with_a_later_one(
    programs: Programs, tmp_path: Path
) -> None:
    """NCCL runs a communicator's collectives in order; those of another one say nothing."""
    with stand_in(programs, tmp_path) as job:
        job.tell("init 0 abc 2 0 a", "init 1 def 2 0 b")
        job.tell("coll 1 0 AllReduce 8 ncclInt8 1 0", "coll 2 1 AllReduce 8 ncclInt8 1 0")
        job.tell("coll 3 0 AllReduce 8 ncclInt8 1 0", "kernel 4 0 3 0", "stop 4")
        first, other, second = look(job).dump.snapshot.operations
    assert (first.state, first.completed_at, first.missing_reason) == (
        CollectiveState.COMPLETED, None, LATER_ONE_DONE,
    )  # fmt: skip
    assert (other.state, second.missing_reason) == (CollectiveState.SCHEDULED, None)


def test_a_ring_that_is_overrun_says_what_it_lost(programs: Programs, tmp_path: Path) -> None:
    """An operation that it lost and whose end is told later harms none that has its place."""
    with stand_in(programs, tmp_path) as job:
        job.tell("init 0 abc 2 0 a", "coll 1 0 AllReduce 8 ncclInt8 1 0", "kernel 2 0 1 0")
        reader = RingReader(0, WORLD)
        assert only(look(job, reader)).record_id == 0
        job.tell(f"flood 1 {RING} 0", "stop 2", "stop 1")
        reading = look(job, reader)
        again = look(job, reader)
        job.tell("flood 1 5 0")
        last = look(job, reader)
    snapshot = reading.dump.snapshot
    assert (snapshot.dropped_before, len(snapshot.operations)) == (1, RING)
    assert {o.state for o in snapshot.operations} == {CollectiveState.COMPLETED}
    assert reading.lost == 2
    assert again.dump.snapshot.operations == ()
    assert [o.record_id for o in last.dump.snapshot.operations] == list(range(2049, 2054))


def test_threads_at_once_lose_nothing(programs: Programs, tmp_path: Path) -> None:
    """Every operation is there once, in the order of its number, and all traffic is counted."""
    threads, operations, steps, n_bytes = 4, 400, 3, 1 << 19
    with stand_in(programs, tmp_path) as job:
        job.tell("init 0 abc 2 0 a", f"flood {threads} {operations} {steps}")
        reading = look(job)
    found = reading.dump.snapshot.operations
    assert [o.record_id for o in found] == list(range(threads * operations))
    assert sorted(o.sequence for o in found) == list(range(threads * operations))
    assert {o.state for o in found} == {CollectiveState.COMPLETED}
    moved = threads * operations * steps * n_bytes
    assert sum(f.sent_bytes or 0 for f in reading.flows) == 2 * moved
    assert sum(f.received_bytes or 0 for f in reading.flows) == 2 * moved
    assert {(f.unacked_bytes, f.unread_bytes, f.queued_bytes) for f in reading.flows} == {(0, 0, 0)}
    assert reading.lost == 0


def test_what_it_is_not_for_is_left_alone(programs: Programs, tmp_path: Path) -> None:
    """Other kinds of events; operations of other processes, whose addresses are not ours."""
    with stand_in(programs, tmp_path) as job:
        job.tell("init 0 abc 2 0 a")
        assert job.tell("other 5 0 256", "other 5 0 1", "other 5 0 4096") == ["none"] * 3
        # A parent of another process is none of its own, and neither is its context.
        job.tell("proxy 2 9 0 0 1 1 500 1", "step 3 0 2 0", "record 3 9 400", "stop 3", "stop 2")
        reading = look(job)
    assert (reading.flows, reading.dump.snapshot.operations) == ((), ())


def test_an_unloaded_plugin_goes_on_where_it_was(programs: Programs, tmp_path: Path) -> None:
    """NCCL closes it with its last communicator, and opens it with the next: numbers go on."""
    with stand_in(programs, tmp_path) as job:
        job.tell("init 0 abc 2 0 a", "flood 1 3 0", "finalize 0", "reload")
        job.tell("init 0 def 2 0 b", "flood 1 2 0")
        operations = look(job).dump.snapshot.operations
    assert [(o.record_id, o.communicator) for o in operations] == [
        (0, "0xabc"), (1, "0xabc"), (2, "0xabc"), (3, "0xdef"), (4, "0xdef"),
    ]  # fmt: skip


def test_more_communicators_than_it_has_places_for(programs: Programs, tmp_path: Path) -> None:
    """Those beyond are counted; the job goes on."""
    with stand_in(programs, tmp_path) as job:
        job.tell(*(f"init {number} {number:x} 2 0 a" for number in range(513)))
        job.tell("coll 1 512 AllReduce 8 ncclInt8 1 0", "coll 2 511 AllReduce 8 ncclInt8 1 0")
        reading = look(job)
    assert only(reading).communicator == "0x1ff"
    assert reading.lost == 1


def test_whose_its_file_is_and_what_of_others_it_removes(
    programs: Programs, tmp_path: Path
) -> None:
    """Nobody else reads it; a file of an ended process goes, one of another namespace stays."""
    folder = tmp_path / "rings"
    folder.mkdir()
    namespace = os.stat("/proc/self/ns/pid").st_ino
    ended, foreign = folder / f"nccl-{namespace}-4194303", folder / "nccl-1-4194303"
    running = folder / f"nccl-{namespace}-{os.getpid()}"
    for file in (ended, foreign, running):
        file.write_bytes(b"")
    with stand_in(programs, folder) as job:
        job.tell("init 0 abc 2 0 a")
        assert stat.S_IMODE(job.ring.stat().st_mode) == 0o600
        assert (ended.exists(), foreign.exists(), running.exists()) == (False, True, True)


def test_without_a_place_for_its_ring_the_job_goes_on(programs: Programs, tmp_path: Path) -> None:
    """NCCL is told that the plugin cannot start, and calls it no more."""
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    with stand_in(programs, blocked / "rings") as job:
        assert job.tell("init 0 abc 2 0 a") == ["-2"]
        assert job.tell("coll 1 0 AllReduce 8 ncclInt8 1 0", "stop 1") == ["ok", "ok"]


def test_a_link_in_the_place_of_its_ring_is_not_followed(
    programs: Programs, tmp_path: Path
) -> None:
    """Whoever may write into the folder could have any file of the job overwritten."""
    namespace = os.stat("/proc/self/ns/pid").st_ino
    victim = tmp_path / "victim"
    victim.write_bytes(b"untouched")
    with stand_in(programs, tmp_path / "rings") as job:
        (tmp_path / "rings").mkdir()
        (tmp_path / "rings" / f"nccl-{namespace}-{job.process.pid}").symlink_to(victim)
        assert job.tell("init 0 abc 2 0 a") == ["-2"]
    assert victim.read_bytes() == b"untouched"
