"""Writes records with times of arrival of its own, so that an hour of a log passes in minutes.

Topics keep the given timestamps, as for a replay. Processes take these for the arrival. `Pace`
lets them keep up: what a process holds of minutes that it is behind says nothing about the hour.
"""

import time
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition

from ops.bench.rig.publisher import Publisher
from ops.bench.rig.waiting import wait_until
from ops.topics.admin import apply_topics
from ops.topics.plan import Options
from schemas.codec import Codec
from schemas.enums import AnomalyState
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.leadership import role_group
from schemas.kafka.options import consumer_options
from schemas.topics import ANOMALY, BY_NAME
from schemas.units import MS_NS, SECOND_NS, US_NS
from streams.core.outputs import PROGRESS_KEY, progress

# The log begins so long ago: brokers refuse times that are an hour ahead.
BEGIN_AGO_S: Final = 3 * 3_600
PACE_TIMEOUT_S: Final = 300.0


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


class Pace:
    """Waits while the localizer, and the worker before it, are far behind a log."""

    def __init__(self, settings: KafkaSettings) -> None:
        group = role_group(settings, "localizer")
        self._consumer = Consumer(consumer_options(settings, group))
        name = settings.topic(ANOMALY.name)
        self._places = [TopicPartition(name, number) for number in range(ANOMALY.partitions)]

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def wait_until_decided(self, at_ns: int, check: Callable[[], None]) -> None:
        """Wait until the localizer has decided up to a time; raises TimeoutError."""

        def is_decided() -> bool:
            committed = self._consumer.committed(self._places, timeout=PACE_TIMEOUT_S)
            return all(int(place.metadata or 0) >= at_ns for place in committed)

        wait_until(is_decided, PACE_TIMEOUT_S, "the localizer is behind", check=check)
