"""Writes records with times of arrival of its own, so that an hour of a log passes in minutes.

Topics keep the given timestamps, as for a replay. Processes take these for the arrival.
"""

import time
from typing import Any, Final

from ops.bench.rig.publisher import Publisher
from ops.topics.admin import apply_topics
from ops.topics.plan import Options
from schemas.codec import Codec
from schemas.enums import AnomalyState
from schemas.kafka.connection import KafkaSettings
from schemas.topics import ANOMALY, BY_NAME
from schemas.units import MS_NS, SECOND_NS, US_NS
from streams.core.outputs import PROGRESS_KEY, progress

# The log begins so long ago: brokers refuse times that are an hour ahead.
BEGIN_AGO_S: Final = 3 * 3_600


class TimedLog:
    """Appends to topics at a time that the caller lets pass.

    Attributes
    ----------
    now_ns
        Arrival of what is appended.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        apply_topics(settings, Options(keep_all=True))
        self.now_ns = (int(time.time()) - BEGIN_AGO_S) * SECOND_NS
        self.codec = Codec()
        self._cluster = settings.cluster
        self._publisher = Publisher(settings)

    def append(self, topic: str, key: str, record: Any) -> None:
        """Append a record; None: a tombstone."""
        value = None if record is None else self.codec.encode(BY_NAME[topic], record)
        self.append_value(topic, key, value)

    def append_value(self, topic: str, key: str, value: bytes | None) -> None:
        """Append an encoded record."""
        self._publisher.publish(topic, key, value, self.now_ns // MS_NS)

    def mark(self) -> None:
        """Say in each partition of `anomaly.v1` that the worker has decided up to now."""
        for partition in range(ANOMALY.partitions):
            record = progress(self._cluster, partition, AnomalyState.ONGOING, self.now_ns // US_NS)
            value = self.codec.encode(ANOMALY, record)
            self._publisher.publish(
                ANOMALY.name, PROGRESS_KEY, value, self.now_ns // MS_NS, partition=partition
            )

    def flush(self) -> None:
        """Wait until the broker has all; raises RuntimeError if something did not arrive."""
        self._publisher.finish()
