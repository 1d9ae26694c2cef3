"""The skeleton job's metrics for Prometheus, read from its counters at each scrape."""

import time
from collections.abc import Iterator
from typing import Final, Protocol

from schemas.metrics.common import LEADER, LOG_METRICS, log_families
from schemas.metrics.family import Family, Kind, Metric, by_label, metrics_of, one
from schemas.units import SECOND_NS
from skeleton_job.edge.counts import Counts

INFERENCES: Final = Metric(
    name="skeletonhunter_inferences_total",
    kind=Kind.COUNTER,
    doc="Inferences of a job's skeleton: done, failed, skipped (slower than `interval_s`), "
    "outdated (the job changed meanwhile)",
    action="skipped grows: raise `workers` or `interval_s`. failed: the log says of which job.",
    labels=("outcome",),
)
DURATION: Final = Metric(
    name="skeletonhunter_inference_seconds",
    kind=Kind.HISTOGRAM,
    doc="From the begin of an inference until its result was taken",
    action="Near `interval_s`: raise `workers`.",
)
TASKS: Final = Metric(
    name="skeletonhunter_tasks",
    kind=Kind.GAUGE,
    doc="Running training jobs, by whether `skeleton.v1` holds a skeleton of them (no: basic list)",
    action="no for longer than ten iterations of the job: `skeleton.v1` of the task says why.",
    labels=("skeleton",),
)
OLDEST: Final = Metric(
    name="skeletonhunter_skeleton_oldest_timestamp_seconds",
    kind=Kind.GAUGE,
    doc="Event time up to which the counters of the job that is furthest behind were inferred "
    "from, seconds since the epoch: the age of the oldest skeleton is the distance to now",
    action="Older than some `interval_s`: its agents publish no counters, or inferences are slow.",
)
SKELETONS: Final = Metric(
    name="skeletonhunter_skeletons_published_total",
    kind=Kind.COUNTER,
    doc="Skeletons published to `skeleton.v1`",
    action="Grows while no job starts: an inference that wavers; see `confidence` of the task.",
)
LISTS: Final = Metric(
    name="skeletonhunter_pinglists_published_total",
    kind=Kind.COUNTER,
    doc="Ping lists published to `pinglist.v1`, tombstones among them",
    action="Grows steadily by all agents: each rotation does (`explore_rotate_s`); more often: "
    "endpoints come and go.",
)
COPIES: Final = Metric(
    name="skeletonhunter_registrations_copied_total",
    kind=Kind.COUNTER,
    doc="Registrations written to `target.v1` for the agents that need them, tombstones among them",
    action="Grows as registrations do, times the agents that probe each; much more: endpoints that "
    "register again and again.",
)
NOT_DELIVERED: Final = Metric(
    name="skeletonhunter_records_not_delivered_total",
    kind=Kind.COUNTER,
    doc="Records that the broker did not take; lists and skeletons are published again",
    action="Broker away, or a denied write: the log's `skeleton.not_delivered` says which.",
)
REFUSED: Final = Metric(
    name="skeletonhunter_records_refused_total",
    kind=Kind.COUNTER,
    doc="Records and readings that were not used because there is too much of a kind, are of "
    "another cluster, or have no use",
    action="Raise the bound that the log's `records.beyond_bounds` names, or find who writes so "
    "much.",
    labels=("kind",),
)
METRICS: Final = metrics_of(
    LOG_METRICS,
    (LEADER, INFERENCES, DURATION, TASKS, OLDEST, SKELETONS, LISTS, COPIES, NOT_DELIVERED,
     REFUSED),
)  # fmt: skip

# Name among the core's counts, and the label.
_OUTCOMES: Final = {
    "inferences": "done",
    "inferences_failed": "failed",
    "inferences_skipped": "skipped",
    "inferences_outdated": "outdated",
}
_UNUSED: Final = ("foreign_cluster", "samples_unusable")


class Counted(Protocol):
    """What has counts: the service."""

    @property
    def counts(self) -> Counts:
        """Its counts."""
        ...


class Exposed:
    """Reads the counts of a service; called by the thread that answers a scrape."""

    def __init__(self, service: Counted) -> None:
        self._counts = service.counts

    def families(self) -> Iterator[Family]:
        """Yield the families of `METRICS`."""
        counts, status = self._counts, self._counts.status
        yield from log_families(counts.records, counts.dead_letters, counts.lag, time.time_ns())
        yield one(LEADER, float(counts.leads))
        yield counts.inferences.family(DURATION)
        yield one(SKELETONS, counts.skeletons_published)
        yield one(LISTS, counts.lists_published)
        yield one(COPIES, counts.registrations_copied)
        if status is None:
            yield from (Family(m, []) for m in (INFERENCES, TASKS, OLDEST, NOT_DELIVERED, REFUSED))
            return
        outcomes = {label: status.counts.get(name, 0) for name, label in _OUTCOMES.items()}
        yield by_label(INFERENCES, outcomes)
        yield by_label(TASKS, {"yes": status.with_skeleton, "no": status.without_skeleton})
        oldest_ns = status.oldest_ns
        yield one(OLDEST, None if oldest_ns is None else oldest_ns / SECOND_NS)
        yield one(NOT_DELIVERED, status.not_delivered)
        unused = {name: status.counts.get(name, 0) for name in _UNUSED}
        yield by_label(REFUSED, {**status.refused, **unused})
