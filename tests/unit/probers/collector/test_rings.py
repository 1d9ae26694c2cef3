"""Rings of real processes, as the collector finds them; and files that are none."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from probers.collectives.nccl_environment import NcclEnvironment
from probers.collectives.nccl_ring import RingError
from probers.collectives.processes import JobRank, ProcessReading
from probers.collector.procfs import ProcFs
from probers.collector.rings import RingFiles
from schemas.enums import ProcessState
from tests.nccl_rings import ring
from tests.nccl_stand_in import HAS_COMPILER, compile_programs, stand_in

KEY = "job1", 0
JOB = JobRank(task_id="job1", rank=0, world_size=2, endpoint_ids=(), dump_base=None)


@pytest.fixture
def process() -> ProcessReading:
    """Give this process as a rank."""
    found = ProcFs(Path("/proc")).process(os.getpid())
    assert found is not None
    return found


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Give where this process's ring would be."""
    namespace = os.stat("/proc/self/ns/pid").st_ino
    return tmp_path / f"nccl-{namespace}-{os.getpid()}"


def look(files: RingFiles, place: Path, process: ProcessReading) -> int | None:
    """Look for the ring of a process; return how many operations it has that are not done."""
    job = replace(JOB, nccl=NcclEnvironment(ring_folder=str(place.parent)))
    reading = files.look(KEY, job, process, now_us=time.time_ns() // 1_000)
    return None if reading is None else len(reading.dump.snapshot.operations)


def test_a_ring_is_read_on_from_where_it_was(place: Path, process: ProcessReading) -> None:
    """No ring is nothing to tell; another process begins anew."""
    files = RingFiles(ProcFs(Path("/proc")))
    assert look(files, place, process) is None
    place.write_bytes(ring())
    assert [look(files, place, process) for _ in range(2)] == [2, 1]
    later = replace(process, started_at=process.started_at + 1)
    assert look(files, place, later) == 2
    files.forget(KEY)
    assert look(files, place, process) == 2


def test_what_is_no_ring_of_this_process_is_refused(place: Path, process: ProcessReading) -> None:
    """No pipe is waited for, no link followed, no old file used."""
    files = RingFiles(ProcFs(Path("/proc")))
    os.mkfifo(place)
    with pytest.raises(RingError, match="not a regular file"):
        look(files, place, process)
    place.unlink()
    real = place.with_name("real")
    real.write_bytes(ring())
    place.symlink_to("real")
    with pytest.raises(RingError, match="not a regular file"):
        look(files, place, process)
    place.unlink()
    real.rename(place)
    os.utime(place, (1, 1))
    with pytest.raises(RingError, match="of an earlier process"):
        look(files, place, process)
    place.write_bytes(ring()[:5_000])
    with pytest.raises(RingError, match="ends too early"):
        look(files, place, process)
    with place.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(RingError, match="of a ring's size"):
        look(files, place, process)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_ring_of_another_user_is_refused(place: Path, process: ProcessReading) -> None:
    """All users write into the folder: one could speak for another one's rank."""
    place.write_bytes(ring())
    os.chown(place, 12_345, 12_345)
    with pytest.raises(RingError, match="of another user"):
        look(RingFiles(ProcFs(Path("/proc"))), place, process)


@pytest.mark.skipif(not HAS_COMPILER, reason="needs a C compiler")
def test_the_ring_of_a_process_is_found(tmp_path: Path) -> None:
    """By its number as it sees itself, in the folder that its environment names."""
    procfs = ProcFs(Path("/proc"))
    with stand_in(compile_programs(tmp_path / "p"), tmp_path / "rings") as job:
        job.tell("init 0 abc 2 0 default_pg", "coll 1 0 AllReduce 8 ncclInt8 1 0")
        process = procfs.process(job.process.pid)
        assert process is not None
        assert process.state is not ProcessState.GONE
        files = RingFiles(procfs)
        here = replace(JOB, nccl=NcclEnvironment(ring_folder=str(tmp_path / "rings")))
        reading = files.look(KEY, here, process, now_us=time.time_ns() // 1_000)
    assert reading is not None
    (operation,) = reading.dump.snapshot.operations
    assert operation.operation == "all_reduce"
