"""The bridge's metrics for Prometheus: what waits for which target, and for how long."""

import time
from collections.abc import Iterator
from typing import Final

from ops.bridge.service import Service
from schemas.metrics.common import LEADER, LOG_METRICS, log_families
from schemas.metrics.family import Buckets, Family, Kind, Metric, Sample, by_label, metrics_of, one
from schemas.units import US_PER_S

PAGES: Final = Metric(
    name="skeletonhunter_pages",
    kind=Kind.GAUGE,
    doc="Open pages; a storm of faults is one",
    action="More than the team can hold: see the storm's list, and the component that it shares.",
)
SILENCED: Final = Metric(
    name="skeletonhunter_faults_silenced",
    kind=Kind.GAUGE,
    doc="Open faults of which nobody is paged, because of a silence",
    action="Not 0 for days: `skeletonhunter silence list`; somebody forgot one.",
)
POSTS: Final = Metric(
    name="skeletonhunter_bridge_posts_total",
    kind=Kind.COUNTER,
    doc="Posts to each target: delivered, failed (tried again), refused (given up)",
    action="refused: the log's `bridge.refused` says why; the receiver understands another form.",
    labels=("target", "outcome"),
)
READ: Final = Metric(
    name="skeletonhunter_bridge_read_timestamp_seconds",
    kind=Kind.GAUGE,
    doc="Time up to which all transitions, silences and notes were read, seconds since the epoch",
    action="Older than a minute: Kafka does not answer the bridge, and no new fault is paged.",
)
PENDING: Final = Metric(
    name="skeletonhunter_bridge_pending",
    kind=Kind.GAUGE,
    doc="What each target has not taken yet",
    action="See `skeletonhunter_bridge_oldest_pending_seconds`.",
    labels=("target",),
)
OLDEST: Final = Metric(
    name="skeletonhunter_bridge_oldest_pending_seconds",
    kind=Kind.GAUGE,
    doc="For how long the oldest of it has waited; 0: nothing waits",
    action="Above a minute: pages do not arrive. The log's `bridge.failed` says why: the target, "
    "its certificate, its key, or the network between.",
    labels=("target",),
)
DELAY: Final = Metric(
    name="skeletonhunter_bridge_delivery_seconds",
    kind=Kind.HISTOGRAM,
    doc="From the time at which the broker took a record until a target took what follows",
    action="Above two seconds in the median: a slow target.",
    labels=("target",),
)
METRICS: Final = metrics_of(
    LOG_METRICS, (LEADER, PAGES, SILENCED, READ, POSTS, PENDING, OLDEST, DELAY)
)


class Exposed:
    """Reads the counts of a service; called by the thread that answers a scrape."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def families(self) -> Iterator[Family]:
        """Yield the families of `METRICS`."""
        service, now_ns = self._service, time.time_ns()
        yield from log_families(service.records, service.dead_letters, service.lag, now_ns)
        yield one(LEADER, float(service.leads))
        yield one(PAGES, service.open_pages)
        yield one(SILENCED, service.silenced)
        yield one(READ, service.read_us / US_PER_S)
        targets = service.deliveries
        yield Family(
            POSTS,
            [
                Sample(count, (target.name, outcome))
                for target in targets
                for outcome, count in sorted(target.outcomes.items())
            ],
        )
        yield by_label(PENDING, {target.name: target.pending for target in targets})
        now_us = now_ns // 1_000
        waiting = {t.name: (now_us - (t.oldest_us or now_us)) / US_PER_S for t in targets}
        yield by_label(OLDEST, {name: max(0.0, seconds) for name, seconds in waiting.items()})
        buckets = [
            Buckets(b.bounds, b.counts, b.total, (target.name,))
            for target in targets
            for b in target.delays.family(DELAY).samples
            if isinstance(b, Buckets)
        ]
        yield Family(DELAY, buckets)
