"""Logs of NCCL's Inspector are followed as they grow, are renamed, and begin anew."""

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from probers.collectives.nccl_environment import NcclEnvironment
from probers.collectives.nccl_inspector import MAX_LINE_BYTES
from probers.collectives.processes import JobRank, ProcessReading
from probers.collector import logs
from probers.collector.logs import InspectorLogs, LogReading
from probers.collector.procfs import ProcFs
from tests.nccl_answers import inspector_line, lines

KEY = "job1", 1
JOB = JobRank(task_id="job1", rank=1, world_size=2, endpoint_ids=(), dump_base=None)


class Followed:
    """The log of this process, and who follows it."""

    def __init__(self, folder: Path, *, host: str | None = None, named: str | None = None) -> None:
        self.files = InspectorLogs(ProcFs(Path("/proc")))
        found = ProcFs(Path("/proc")).process(os.getpid())
        assert found is not None
        self.process: ProcessReading = found
        nccl = NcclEnvironment(inspector_folder=named or str(folder), host_name=host)
        self.job = replace(JOB, nccl=nccl)
        self.path = folder / f"{host or socket.gethostname()}-pid{os.getpid()}.log"

    def write(self, content: bytes) -> None:
        """Append to the log."""
        with self.path.open("ab") as file:
            file.write(content)

    def log(self, *numbers: int) -> None:
        """Append operations."""
        self.write(b"".join(line + b"\n" for line in lines(*map(inspector_line, numbers))))

    def read(self) -> LogReading:
        """Return what is new."""
        reading = self.files.look(KEY, self.job, self.process)
        assert reading is not None
        return reading

    def new(self) -> list[int]:
        """Return the sequences of what is new."""
        return [o.sequence for o in self.read().dump.snapshot.operations]


@pytest.fixture
def followed(tmp_path: Path) -> Followed:
    """Give a log that is not there yet."""
    return Followed(tmp_path)


def test_what_was_read_is_not_read_again(followed: Followed) -> None:
    """A last line that is being written is read once it has its end."""
    assert followed.files.look(KEY, followed.job, followed.process) is None
    followed.log(1, 2)
    assert followed.new() == [1, 2]
    assert followed.new() == []
    (line,) = lines(inspector_line(3))
    followed.write(line[:40])
    assert followed.new() == []
    followed.write(line[40:] + b"\n")
    assert followed.new() == [3]


def test_another_file_of_the_name_is_read_from_its_beginning(followed: Followed) -> None:
    """Renamed and made anew, or cut short and written anew."""
    followed.log(1, 2)
    followed.new()
    followed.path.rename(followed.path.with_suffix(".1"))
    followed.log(3)
    assert followed.new() == [3]
    followed.path.write_bytes(b"")
    followed.new()
    followed.log(4)
    reading = followed.read()
    # Numbers go on: they are other operations of the same process.
    assert [o.record_id for o in reading.dump.snapshot.operations] == [3]


def test_who_is_far_behind_leaves_out_what_is_between(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And says how much; it goes on at the beginning of a line."""
    followed.log(*range(100))
    length = followed.path.stat().st_size
    monkeypatch.setattr(logs, "MAX_BEHIND_BYTES", length - 1)
    monkeypatch.setattr(logs, "MAX_READ_BYTES", length // 20)
    reading = followed.read()
    found = [o.sequence for o in reading.dump.snapshot.operations]
    assert found == list(range(100 - len(found), 100))
    assert 0 < len(found) < 6
    assert length - reading.left_out_bytes == sum(len(line) + 1 for line in lines(
        *map(inspector_line, found)))  # fmt: skip
    assert reading.refused == 0


def test_a_look_reads_no_more_than_its_share(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest is read at the next ones."""
    followed.log(*range(20))
    monkeypatch.setattr(logs, "MAX_READ_BYTES", followed.path.stat().st_size // 3)
    looks = [followed.new() for _ in range(5)]
    assert [number for new in looks for number in new] == list(range(20))
    assert max(map(len, looks)) < 8


def test_a_line_without_end_is_left_out(followed: Followed) -> None:
    """Up to the next one."""
    followed.write(b"x" * (logs.MAX_READ_BYTES + MAX_LINE_BYTES + 10))
    left_out = [followed.read().left_out_bytes for _ in range(3)]
    followed.write(b"\n")
    followed.log(5)
    reading = followed.read()
    assert [o.sequence for o in reading.dump.snapshot.operations] == [5]
    assert sum(left_out) + reading.left_out_bytes == logs.MAX_READ_BYTES + MAX_LINE_BYTES + 11
    assert reading.refused == 0


def test_a_log_has_its_hosts_name(tmp_path: Path) -> None:
    """That of the container, or the collector's own; another host's is not taken."""
    foreign = tmp_path / f"other-pid{os.getpid()}.log"
    foreign.write_bytes(b"".join(line + b"\n" for line in lines(inspector_line(9))))
    followed = Followed(tmp_path, host="pod-1")
    assert followed.files.look(KEY, followed.job, followed.process) is None
    followed.log(1)
    assert followed.new() == [1]
    followed.files.forget(KEY)
    assert followed.new() == [1]


def test_a_folder_may_be_beside_the_working_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As NCCL's own default is."""
    folder = tmp_path / "nccl-inspector-12"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    followed = Followed(folder, named="nccl-inspector-12")
    followed.log(1)
    assert followed.new() == [1]


def test_what_is_no_file_is_left_alone(followed: Followed, tmp_path: Path) -> None:
    """No pipe is waited for, no link followed."""
    os.mkfifo(followed.path)
    assert followed.files.look(KEY, followed.job, followed.process) is None
    followed.path.unlink()
    (tmp_path / "real").write_bytes(b"{}\n")
    followed.path.symlink_to("real")
    assert followed.files.look(KEY, followed.job, followed.process) is None
