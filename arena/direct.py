"""The pipeline as function calls on its pure cores: no broker, no processes, no clock.

What the live pipeline does with topics in between is done here record by record: each
partition's rounds go through the stream worker's machine, its anomalies and progress marks
through the localizer's merge, and the localizer decides up to the watermark. The same
records in the same order give the same transitions as a worker and a localizer that keep
up with them.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from arena.detecting import Detection, PublishedAnomaly, published_anomalies
from localizer.config import CoreConfig
from localizer.core import Core
from localizer.facts.heartbeats import HeartbeatBatch
from localizer.merge import Merge
from localizer.network.trace_batches import TraceBatch
from schemas.enums import AnomalyKind
from schemas.records import FaultEvent
from schemas.topics import ANOMALY
from schemas.units import US_PER_MS
from streams.config import DetectionConfig
from streams.core.feed import LogMessage


class Localization:
    """The localizer of one cluster.

    Attributes
    ----------
    anomalies
        Anomaly records consumed; progress marks are not counted.
    """

    def __init__(self, core: CoreConfig) -> None:
        self.anomalies = 0
        self._core = Core(core)
        self._merge = Merge()
        self._offsets: dict[tuple[str, int], int] = {}

    def consume_record(
        self,
        topic: str,
        key: str,
        record: Any,
        *,
        timestamp_ms: int,
        partition: int = 0,
        offset: int | None = None,
    ) -> None:
        """Consume a record of an input of the localizer; None is a tombstone.

        Without an offset it stands behind those of its partition that had none either.
        """
        if offset is None:
            log = topic, partition
            offset = self._offsets.get(log, 0)
            self._offsets[log] = offset + 1
        for event in self._merge.accept_record(
            topic, key, record, partition=partition, offset=offset, timestamp_ms=timestamp_ms
        ):
            self._core.feed(event)

    def consume_heartbeats(self, batch: HeartbeatBatch) -> None:
        """Consume heartbeats as columns."""
        self._core.feed_heartbeats(batch)

    def consume_traces(self, batch: TraceBatch) -> None:
        """Consume traces as columns, after the registrations of their ends."""
        self._core.feed_traces(batch)

    def consume_anomalies(self, records: Iterable[PublishedAnomaly]) -> None:
        """Consume what the workers publish; its times are those of the records."""
        for one in records:
            self.anomalies += one.record.kind is not AnomalyKind.PROGRESS
            self.consume_record(
                ANOMALY.name, one.key, one.record, timestamp_ms=one.record.event_at // US_PER_MS,
                partition=one.partition,
            )  # fmt: skip

    def decide(self) -> list[FaultEvent]:
        """Decide what the workers' progress allows."""
        watermark_ns = self._merge.watermark_ns
        return [] if watermark_ns is None else self._core.advance(watermark_ns)


class DirectRun(Localization):
    """Worker and localizer of one cluster in one object; `detection` is the worker's part."""

    def __init__(self, cluster: str, detection: DetectionConfig, core: CoreConfig) -> None:
        super().__init__(core)
        self.cluster = cluster
        self.detection = Detection(cluster, detection)

    @property
    def refused(self) -> dict[str, int]:
        """Rounds that the worker would have put into the dead letters, by reason."""
        return self.detection.refused

    def round(self, partition: int, datum: dict[str, Any], *, timestamp_ms: int) -> None:
        """Consume a decoded round; arguments as of `Detection.round`."""
        outputs = self.detection.round(partition, datum, timestamp_ms=timestamp_ms)
        self.consume_anomalies(published_anomalies(partition, outputs))

    def messages(
        self, partition: int, messages: Sequence[LogMessage], *, timestamp_ms: int
    ) -> None:
        """Consume rounds as Kafka holds them; arguments as of `Detection.messages`."""
        outputs = self.detection.messages(partition, messages, timestamp_ms=timestamp_ms)
        self.consume_anomalies(published_anomalies(partition, outputs))

    def pass_time(self, now_ns: int) -> list[FaultEvent]:
        """Decide what can be decided when event time is `now_ns`.

        Everything that happened before must have been consumed.
        """
        self.consume_anomalies(self.detection.idle(now_ns))
        return self.decide()

    def finish(self) -> list[FaultEvent]:
        """Decide what is left when nothing more comes."""
        self.consume_anomalies(self.detection.finish())
        return self.decide()
