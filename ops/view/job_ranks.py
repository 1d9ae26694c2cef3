"""Training jobs as their ranks are now: folded from what collectors and the hang watcher tell.

All ranks of a large cluster are too much for a process that shows pages. So whoever fills a view
reads those of a page's job only, and only while it is open.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from localizer.collectives.job_state import JobState
from schemas import topics as t
from schemas.ids import STATE_SEPARATOR
from schemas.records import CollectiveBatch, Communicator, Hang
from schemas.topics import Topic

# Topics that tell how far ranks came. A collector tells all that waits, and the last operation of
# each communicator, every 30 s.
RANK_LOGS: Final[tuple[Topic, ...]] = (t.COLLECTIVE_OP,)
RANK_STATES: Final[tuple[Topic, ...]] = (t.COLLECTIVE_COMM, t.COLLECTIVE_HANG)
LOOKBACK_MS: Final = 90_000
# Finished operations of a communicator that are kept: the last says how far a rank came, and it
# may be a transfer between collectives.
LAST: Final = 4

RankRecord = CollectiveBatch | Communicator | Hang


@dataclass(slots=True)
class JobNow:
    """A job as the topics have it.

    Attributes
    ----------
    hang
        The latest one; None: there never was any.
    undecodable
        Records that could not be used.
    """

    job: JobState
    hang: Hang | None = None
    undecodable: int = 0

    @classmethod
    def of(cls, task_id: str) -> "JobNow":
        """Return a job of which nothing is known yet."""
        return cls(JobState(task_id, most_kept=LAST))

    def apply(self, record: object, arrived_ns: int) -> None:
        """Apply a record of one of the topics; those of other jobs are left alone.

        Raises
        ------
        BatchError
            If a batch cannot be used; nothing of it is then.
        """
        if getattr(record, "task_id", None) != self.job.task_id:
            return
        match record:
            case CollectiveBatch() | Communicator():
                self.job.apply(record, arrived_ns)
            case Hang() if self.hang is None or record.event_at >= self.hang.event_at:
                self.hang = record


def prefix_of(task_id: str) -> bytes:
    """Return what keys of a job's ranks and communicators begin with."""
    return f"{task_id}{STATE_SEPARATOR}".encode()


def may_be_of(topic: Topic, key: bytes | None, prefix: bytes) -> bool:
    """Return whether a record may be of the job with such a prefix, by its key alone."""
    return topic is t.COLLECTIVE_HANG or (key or b"").startswith(prefix)


class RankBook:
    """The jobs that somebody looks at.

    Attributes
    ----------
    missing
        Why there may be none; None: whoever reads them has read on.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, JobNow] = {}
        self.missing: str | None = "nobody reads them"

    def __len__(self) -> int:
        """How many jobs are held."""
        return len(self._jobs)

    def put(self, jobs: Collection[JobNow]) -> None:
        """Hold these jobs, and no others."""
        self._jobs = {one.job.task_id: one for one in jobs}

    def get(self, task_id: str) -> JobNow | None:
        """Return a job; None: nobody has read it."""
        return self._jobs.get(task_id)

    def copy(self) -> "RankBook":
        """Return an empty one: of another moment they are read anew."""
        return RankBook()
