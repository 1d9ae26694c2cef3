"""Reads the rings that the plugin for NCCL keeps in memory, one of each rank's process.

By `pread`, not by a mapping: a job may cut its file short at any moment, and who has mapped it
then dies by a signal.
"""

import os
import stat
from dataclasses import dataclass
from typing import Final

from probers.collectives.nccl_ring import RingError, RingReader, RingReading
from probers.collectives.processes import JobRank, ProcessReading
from probers.collectives.sockets import RankKey
from probers.collector.procfs import ProcFs
from probers.collector.rooted import open_place
from schemas.units import US_NS

# As plugin.c has it.
FOLDER: Final = "/dev/shm/skeletonhunter"  # noqa: S108 - who may write there is checked
# A ring of the largest extents that a reader takes has 20 MiB.
MAX_BYTES: Final = 32 * 2**20
# A host counts from the second in which it was started.
SAME_START_US: Final = 2_000_000


@dataclass(slots=True)
class _Held:
    pid: int
    started_at: int
    reader: RingReader


class RingFiles:
    """Finds the rings of ranks, and remembers how far each was read."""

    def __init__(self, procfs: ProcFs) -> None:
        self._procfs = procfs
        self._held: dict[RankKey, _Held] = {}

    def forget(self, key: RankKey) -> None:
        """Forget a rank that ended."""
        self._held.pop(key, None)

    def look(
        self, key: RankKey, job: JobRank, process: ProcessReading, *, now_us: int
    ) -> RingReading | None:
        """Return what a rank's ring holds that is new; None: its process has none.

        Raises
        ------
        RingError
            If there is one that cannot be used.
        OSError
            If it cannot be opened.
        """
        held = self._held.get(key)
        if held is None or (held.pid, held.started_at) != (process.pid, process.started_at):
            reader = RingReader(job.rank, job.world_size)
            held = self._held[key] = _Held(process.pid, process.started_at, reader)
        try:
            descriptor = self._open(job, process)
        except FileNotFoundError:
            return None
        try:
            return held.reader.look(
                lambda at, length: os.pread(descriptor, length, at), now_us=now_us
            )
        finally:
            os.close(descriptor)

    def _open(self, job: JobRank, process: ProcessReading) -> int:
        folder = job.nccl.ring_folder or FOLDER
        inner, namespace = self._procfs.inner_pid(process.pid)
        path = f"{folder}/nccl-{namespace}-{inner}"
        place = open_place(self._procfs.root_of(process.pid), path)
        try:
            found = os.fstat(place)
            if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BYTES:
                raise RingError("no ring: not a regular file of a ring's size")
            if found.st_uid != self._procfs.owner(process.pid):
                raise RingError("a ring of another user")
            if found.st_mtime_ns // US_NS < process.started_at - SAME_START_US:
                raise RingError("a ring of an earlier process")
            return os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            os.close(place)
