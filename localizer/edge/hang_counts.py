"""What the hang watcher counts, and its metrics for Prometheus.

The loop writes, the thread of a scrape reads: numbers one by one.
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from localizer.collectives.hang_watch import HangWatch
from schemas.metrics.common import LEADER, LOG_METRICS, log_families
from schemas.metrics.family import Family, Histogram, Kind, Metric, Sample, metrics_of, one
from schemas.process.lag import LogLag
from schemas.records import Hang
from schemas.units import SECOND_NS, us_to_ns

# Seconds. Nothing hangs: milliseconds; an analysis of ten thousand ranks takes a second or two.
ANALYSIS_BOUNDS_S: Final = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

DECIDED: Final = Metric(
    name="skeletonhunter_hangs_decided_timestamp_seconds",
    kind=Kind.GAUGE,
    doc="Time up to which it is decided which jobs hang, seconds since the epoch",
    action="More than a minute behind the clock: the watcher lags, or the broker is away.",
)
ANALYSIS: Final = Metric(
    name="skeletonhunter_hangs_analysis_seconds",
    kind=Kind.HISTOGRAM,
    doc="Time that it took to decide what had become due",
    action="Above two seconds: more ranks than one watcher can hold (docs/guide/collectives.md).",
)
TRANSITIONS: Final = Metric(
    name="skeletonhunter_hang_transitions_total",
    kind=Kind.COUNTER,
    doc="Transitions written to `collective.hang.v1`; its example is the latest hang",
    action="Many `updated`: a job that goes on operation by operation.",
    labels=("state", "class"),
)
OPEN: Final = Metric(
    name="skeletonhunter_hangs_open",
    kind=Kind.GAUGE,
    doc="Training jobs that hang",
    action="`skeletonhunter job show TASK` says where each rank stands.",
)
JOBS: Final = Metric(
    name="skeletonhunter_jobs_watched",
    kind=Kind.GAUGE,
    doc="Training jobs of whose ranks something was heard lately",
    action="Fewer than jobs run: their ranks record nothing, or no collector reads them.",
)
RANKS: Final = Metric(
    name="skeletonhunter_ranks_watched",
    kind=Kind.GAUGE,
    doc="Ranks of these jobs",
    action="Fewer than the jobs have: see `skeletonhunter job show TASK`.",
)
REFUSED: Final = Metric(
    name="skeletonhunter_hangs_refused_total",
    kind=Kind.COUNTER,
    doc="Records that were not used because there is too much of a kind",
    action="A writer of records that are none of a job's.",
)
HELD: Final = Metric(
    name="skeletonhunter_hangs_held",
    kind=Kind.GAUGE,
    doc="Operations and what takes as much memory that are held of all jobs; 2 million at most",
    action="Near the bound: a job or writer of which far too much is told; the log names it.",
)
TRIMMED: Final = Metric(
    name="skeletonhunter_jobs_trimmed",
    kind=Kind.GAUGE,
    doc="Training jobs of which only the last operations are kept, for there is no room",
    action="Conclusions from what is absent are less sure there: see `skeletonhunter_hangs_held`.",
)
METRICS: Final = metrics_of(
    LOG_METRICS,
    (LEADER, DECIDED, ANALYSIS, TRANSITIONS, OPEN, JOBS, RANKS, REFUSED, HELD, TRIMMED),
)


class HangCounts:
    """Totals since the start of the process."""

    def __init__(self, topics: Iterable[str]) -> None:
        self.records = Counter(dict.fromkeys(topics, 0))
        self.dead_letters = Counter(dict.fromkeys(self.records, 0))
        self.lag = LogLag()
        self.leads = False
        self.decided_ns: int | None = None
        self.analyses = Histogram(ANALYSIS_BOUNDS_S)
        self.transitions: Counter[tuple[str, str]] = Counter()
        self.latest: dict[tuple[str, str], str] = {}
        self.open = self.jobs = self.ranks = self.refused = self.held = self.trimmed = 0

    def note_transition(self, hang: Hang) -> None:
        """Count a transition that was just written."""
        sort = (hang.state.lower(), hang.hang_class.lower())
        self.transitions[sort] += 1
        self.latest[sort] = hang.hang_id

    def note_status(self, watch: HangWatch) -> None:
        """Take what is known now."""
        jobs = watch.jobs.values()
        self.open = len(watch.open_hangs)
        self.jobs = sum(bool(job.ranks) for job in jobs)
        self.ranks = len(watch)
        self.refused = watch.refused + sum(job.refused for job in jobs)
        self.held = watch.held
        self.trimmed = sum(job.trimmed for job in jobs)

    def delay_s(self, hang: Hang) -> float:
        """Return how long after its event time a transition is written."""
        return (time.time_ns() - us_to_ns(hang.event_at)) / SECOND_NS

    def families(self) -> Iterator[Family]:
        """Yield the families of `METRICS`; called by the thread that answers a scrape."""
        yield from log_families(self.records, self.dead_letters, self.lag, time.time_ns())
        yield one(LEADER, float(self.leads))
        yield one(DECIDED, None if self.decided_ns is None else self.decided_ns / SECOND_NS)
        yield self.analyses.family(ANALYSIS)
        latest = dict(self.latest)
        yield Family(
            TRANSITIONS,
            [
                Sample(count, sort, {"hang_id": latest[sort]} if sort in latest else None)
                for sort, count in sorted(dict(self.transitions).items())
            ],
        )
        yield one(OPEN, self.open)
        yield one(JOBS, self.jobs)
        yield one(RANKS, self.ranks)
        yield one(REFUSED, self.refused)
        yield one(HELD, self.held)
        yield one(TRIMMED, self.trimmed)
