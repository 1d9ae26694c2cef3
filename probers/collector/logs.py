"""Follows the logs of NCCL's Inspector, as they grow; never waits for a writer."""

import os
import socket
import stat
from dataclasses import dataclass
from typing import Final

from probers.collectives.flight_recorder import Dump
from probers.collectives.nccl_inspector import MAX_LINE_BYTES, InspectorLog
from probers.collectives.processes import JobRank, ProcessReading
from probers.collectives.sockets import RankKey
from probers.collector.procfs import ProcFs
from probers.collector.rooted import open_place
from schemas.units import US_NS

# Of one rank at one look: 2,500 operations, which take some 40 ms to read.
MAX_READ_BYTES: Final = 2**20
# Who is further behind than a minute of that leaves out what is in between: it is not told twice
# as fast as it comes.
MAX_BEHIND_BYTES: Final = 32 * 2**20


@dataclass(slots=True)
class _Followed:
    pid: int
    started_at: int
    log: InspectorLog
    inode: int = 0
    at: int = 0
    # What is read begins in the middle of a line, which is left out.
    in_line: bool = False


@dataclass(frozen=True, slots=True)
class LogReading:
    """A look at a log: further operations; lines that were refused in all, and why the last was."""

    dump: Dump
    written_at: int
    refused: int
    why: str | None
    left_out_bytes: int


class InspectorLogs:
    """Remembers how far the log of each rank was read."""

    def __init__(self, procfs: ProcFs) -> None:
        self._procfs = procfs
        self._followed: dict[RankKey, _Followed] = {}
        self._own_name = socket.gethostname()

    def forget(self, key: RankKey) -> None:
        """Forget a rank that ended."""
        self._followed.pop(key, None)

    def look(self, key: RankKey, job: JobRank, process: ProcessReading) -> LogReading | None:
        """Return what a rank's log has that is new; None: it has no log.

        Raises
        ------
        OSError
            If it cannot be read.
        """
        folder = job.nccl.inspector_folder
        if folder is None:
            return None
        held = self._followed.get(key)
        if held is None or (held.pid, held.started_at) != (process.pid, process.started_at):
            log = InspectorLog(job.rank, job.world_size)
            held = self._followed[key] = _Followed(process.pid, process.started_at, log)
        place = self._find(folder, job, process)
        if place is None:
            return None
        try:
            found = os.fstat(place)
            if not stat.S_ISREG(found.st_mode):
                return None
            descriptor = os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            os.close(place)
        try:
            lines, left_out = _further(held, descriptor, os.fstat(descriptor))
        finally:
            os.close(descriptor)
        written_at = found.st_mtime_ns // US_NS
        dump = held.log.take(lines, written_at=written_at)
        return LogReading(dump, written_at, held.log.refused, held.log.why, left_out)

    def _find(self, folder: str, job: JobRank, process: ProcessReading) -> int | None:
        """Return the place of a rank's log, which has the names of its host and process."""
        if not os.path.isabs(folder):
            # As the process's root has it: the kernel says it without the root.
            folder = os.path.join(self._procfs.folder_of(process.pid), folder)
        inner, _ = self._procfs.inner_pid(process.pid)
        root = self._procfs.root_of(process.pid)
        for host in dict.fromkeys((job.nccl.host_name, self._own_name)):
            if host is None or "/" in host:
                continue
            try:
                return open_place(root, f"{folder}/{host}-pid{inner}.log")
            except FileNotFoundError:
                continue
        return None


def _further(held: _Followed, descriptor: int, found: os.stat_result) -> tuple[list[bytes], int]:
    """Return the whole lines behind those that were read, and how many bytes were left out."""
    if found.st_ino != held.inode or found.st_size < held.at:
        # Another file, or the same begun anew.
        held.inode, held.at, held.in_line = found.st_ino, 0, False
    left_out = 0
    if found.st_size - held.at > MAX_BEHIND_BYTES:
        left_out = found.st_size - held.at - MAX_READ_BYTES
        held.at, held.in_line = held.at + left_out, True
    content = os.pread(descriptor, MAX_READ_BYTES, held.at)
    end = content.rfind(b"\n") + 1
    if not end and len(content) > MAX_LINE_BYTES:
        # No line of the Inspector's: it is left out up to its end, wherever that is.
        held.at, held.in_line = held.at + len(content), True
        return [], left_out + len(content)
    # A last line without an end is still being written.
    lines = content[:end].split(b"\n")[:-1]
    if held.in_line and lines:
        left_out += len(lines.pop(0)) + 1
        held.in_line = False
    held.at += end
    return lines, left_out
