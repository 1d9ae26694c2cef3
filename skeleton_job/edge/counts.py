"""What the skeleton job's process counts beside its core, for its metrics.

The loop writes, the thread of a scrape reads: numbers one by one, and `status` as a whole.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from schemas.metrics.family import Histogram
from schemas.process.lag import LogLag
from skeleton_job.core import SkeletonCore

# Seconds; an inference of a large job takes two.
INFERENCE_BOUNDS_S: Final = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What was true at one time.

    Attributes
    ----------
    counts
        What the core refused or dropped, by name.
    refused
        Records and readings of which there are too many, by kind.
    with_skeleton, without_skeleton
        Running jobs.
    oldest_ns
        Event time up to which the counters of every running job have been inferred from; None:
        nothing was inferred yet.
    """

    counts: Mapping[str, int]
    refused: Mapping[str, int]
    not_delivered: int
    with_skeleton: int
    without_skeleton: int
    oldest_ns: int | None


class Counts:
    """Totals since the start of the process, and its latest status.

    Attributes
    ----------
    inferred_ns
        By job, the end of the latest counters that an inference read.
    """

    def __init__(self, topics: Iterable[str]) -> None:
        self.records = Counter(dict.fromkeys(topics, 0))
        self.dead_letters = Counter(dict.fromkeys(self.records, 0))
        self.lag = LogLag()
        self.leads = False
        self.inferences = Histogram(INFERENCE_BOUNDS_S)
        self.inferred_ns: dict[str, int] = {}
        self.skeletons_published = 0
        self.lists_published = 0
        self.registrations_copied = 0
        self.status: Status | None = None

    def note_status(self, core: SkeletonCore, not_delivered: int) -> None:
        """Take the status of the core."""
        running = core.running_tasks()
        self.inferred_ns = {t: at_ns for t, at_ns in self.inferred_ns.items() if t in running}
        having = sum(running.values())
        self.status = Status(
            counts=dict(core.counts),
            refused=core.refused,
            not_delivered=not_delivered,
            with_skeleton=having,
            without_skeleton=len(running) - having,
            oldest_ns=min(self.inferred_ns.values(), default=None),
        )
