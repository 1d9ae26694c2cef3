"""The metrics of the live page's server for Prometheus."""

import time
from collections.abc import Iterator
from typing import Final, Protocol

from ops.web.source import Trouble
from schemas.metrics.common import LAG, POLLED, RECORDS
from schemas.metrics.family import Family, Kind, Metric, by_label, metrics_of, one
from schemas.process.lag import LogLag

UNREADABLE: Final = Metric(
    name="skeletonhunter_web_records_unreadable_total",
    kind=Kind.COUNTER,
    doc="Records of each topic that the page cannot show, since they cannot be decoded or bear "
    "another's key",
    action="The topic's dead letters say who wrote them; or upgrade this server.",
    labels=("topic",),
)
TROUBLE: Final = Metric(
    name="skeletonhunter_web_trouble",
    kind=Kind.GAUGE,
    doc="1 while the page cannot show all: the broker is away, or topics are missing; else 0",
    action="The page says what, and what to do.",
)
METRICS: Final = metrics_of((RECORDS, LAG, POLLED, UNREADABLE, TROUBLE))


class Followed(Protocol):
    """What reads the topics."""

    records: dict[str, int]
    unreadable: dict[str, int]
    lag: LogLag
    trouble: Trouble | None


class Exposed:
    """Reads what was counted; called by the thread that answers a scrape."""

    def __init__(self, source: Followed) -> None:
        self._source = source

    def families(self) -> Iterator[Family]:
        """Yield the families of `METRICS`."""
        source = self._source
        yield by_label(RECORDS, dict(source.records))
        yield by_label(UNREADABLE, dict(source.unreadable))
        yield by_label(LAG, source.lag.by_topic_s(time.time_ns()))
        yield one(POLLED, source.lag.polled_s)
        yield one(TROUBLE, int(source.trouble is not None))
