"""Finds the ranks among the processes of a host, again and again, at little cost."""

from dataclasses import dataclass, field
from typing import Final

from probers.collectives.processes import JobRank, ProcessReading, leaders, rank_of, why_unused
from probers.collectives.sockets import RankKey
from probers.collector.procfs import ProcFs

# A process shows its parent's environment until it runs a program of its own: new ones are looked
# at in this many scans, and those that are no ranks again after so many.
LOOKS: Final = 3
FORGET_SCANS: Final = 30


@dataclass(slots=True)
class Scan:
    """What a scan found: the process of each rank; processes that may not be read.

    `unused` says why new processes that have a rank are none of a known job.
    """

    ranks: dict[RankKey, tuple[JobRank, ProcessReading]] = field(default_factory=dict)
    unreadable: int = 0
    left_out: int = 0
    unused: set[str] = field(default_factory=set)


class RankFinder:
    """Keeps which processes are ranks.

    Parameters
    ----------
    only_task
        Ranks of other training jobs are none; None: of all jobs.
    max_ranks
        Further ones are left out, and counted.
    """

    def __init__(
        self,
        procfs: ProcFs,
        *,
        task_id: str | None,
        dump_base: str | None,
        max_ranks: int,
        only_task: str | None = None,
    ) -> None:
        self._procfs = procfs
        self._task_id = task_id
        self._dump_base = dump_base
        self._max_ranks = max_ranks
        self._only_task = only_task
        # How often a process was looked at that is none, by its number.
        self._others: dict[int, int] = {}
        self._found: dict[int, tuple[JobRank, int]] = {}
        self._scans = 0

    def scan(self) -> Scan:
        """Look for ranks; reads the environment of new processes only."""
        result = Scan()
        pids = self._procfs.pids()
        self._scans += 1
        if self._scans % FORGET_SCANS == 0:
            self._others.clear()
        self._others = {pid: looks for pid, looks in self._others.items() if pid in pids}
        readings: dict[int, ProcessReading] = {}
        for pid, (_, started_at) in list(self._found.items()):
            reading = self._procfs.process(pid)
            if reading is None or reading.started_at != started_at:
                del self._found[pid]
            else:
                readings[pid] = reading
        for pid in pids - self._found.keys():
            if self._others.get(pid, 0) < LOOKS:
                self._look_at(pid, readings, result)
        chosen = leaders({pid: job for pid, (job, _) in self._found.items()}, readings)
        for key, pid in sorted(chosen.items()):
            if len(result.ranks) < self._max_ranks:
                result.ranks[key] = self._found[pid][0], readings[pid]
            else:
                result.left_out += 1
        return result

    def _look_at(self, pid: int, readings: dict[int, ProcessReading], result: Scan) -> None:
        try:
            environment = self._procfs.environment(pid)
        except PermissionError:
            result.unreadable += 1
            self._others[pid] = LOOKS
            return
        reading = None if environment is None else self._procfs.process(pid)
        if environment is None or reading is None:
            return
        job = rank_of(environment, task_id=self._task_id, dump_base=self._dump_base)
        other = job is not None and self._only_task not in {None, job.task_id}
        if job is None or other:
            self._others[pid] = self._others.get(pid, 0) + 1
            if not other and (why := why_unused(environment, task_id=self._task_id)) is not None:
                result.unused.add(why)
        else:
            readings[pid] = reading
            self._found[pid] = job, reading.started_at
