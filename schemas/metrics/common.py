"""Metrics that every process with inputs from Kafka has; and those of which one leads."""

from collections.abc import Iterator, Mapping
from typing import Final

from schemas.metrics.family import Family, Kind, Metric, by_label, one
from schemas.process.lag import LogLag

RECORDS: Final = Metric(
    name="skeletonhunter_records_total",
    kind=Kind.COUNTER,
    doc="Records read from each input topic",
    action="No growth while the topic grows: the process is stalled or has no partitions; see its "
    "log, then `skeletonhunter doctor`.",
    labels=("topic",),
)
DEAD_LETTERS: Final = Metric(
    name="skeletonhunter_dead_letters_total",
    kind=Kind.COUNTER,
    doc="Records that could not be used and went to `<topic>.dlq`",
    action="`skeletonhunter tail <topic>.dlq`: headers say why and where from. A writer of a newer "
    "schema version: upgrade this process.",
    labels=("topic",),
)
LAG: Final = Metric(
    name="skeletonhunter_lag_seconds",
    kind=Kind.GAUGE,
    doc="Age of the newest record read, of the partition furthest behind; 0 where all is read",
    action="Above a few seconds for minutes: too few workers or CPU (docs/guide/sizing.md), or a "
    "slow broker. Normal for a minute after a start.",
    labels=("topic",),
)
POLLED: Final = Metric(
    name="skeletonhunter_last_poll_timestamp_seconds",
    kind=Kind.GAUGE,
    doc="When the process last asked Kafka for records, seconds since the epoch",
    action="Older than a minute: the process hangs. It ends itself after `stall_s`; if it does "
    "not, restart it and keep its log.",
)
LEADER: Final = Metric(
    name="skeletonhunter_leader",
    kind=Kind.GAUGE,
    doc="1 in the process that works, 0 in one that stands by",
    action="The sum over a role is 1. 0 for longer than ten seconds: no process of the role runs, "
    "or Kafka lets none join its group; the log says why. 2: one that hung is about to end.",
)
LOG_METRICS: Final = (RECORDS, DEAD_LETTERS, LAG, POLLED)


def log_families(
    records: Mapping[str, int], dead_letters: Mapping[str, int], lag: LogLag, now_ns: int
) -> Iterator[Family]:
    """Yield the families of `LOG_METRICS`.

    Parameters
    ----------
    records, dead_letters
        By name of the topic in the contract.
    """
    yield by_label(RECORDS, dict(records))
    yield by_label(DEAD_LETTERS, dict(dead_letters))
    yield by_label(LAG, lag.by_topic_s(now_ns))
    yield one(POLLED, lag.polled_s)
