"""Publishes the topology and the flow tables of a lab."""

import time
from collections.abc import Iterable
from typing import Any, Final

from confluent_kafka import KafkaException, Producer

from schemas import topics
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.options import producer_options
from schemas.kafka.registry import codec_for
from schemas.process.eventlog import EventLog
from schemas.records import Component, Endpoint, FlowTable, Task
from schemas.topics import Topic
from schemas.units import US_PER_MS

FLUSH_TIMEOUT_S: Final = 10.0
LINGER_MS: Final = 5
# A lab's tables are some 100 KB; while the broker is away they are repeated every
# 30 s, and old ones are worth nothing.
QUEUE_KBYTES: Final = 16_384
MESSAGE_TIMEOUT_MS: Final = 30_000


def now_us() -> int:
    """Return the wall-clock time in microseconds since the epoch."""
    return time.time_ns() // 1_000


class LabPublisher:
    """Writes the lab's records; never blocks but in `close`, and counts what fails."""

    def __init__(self, settings: KafkaSettings, log: EventLog) -> None:
        self._settings = settings
        self._log = log
        self._codec = codec_for(settings)
        self._keys: dict[str, set[str]] = {}
        self.published = 0
        self.failed = 0
        self._producer: Any = Producer(
            producer_options(
                settings,
                fixed={
                    "linger.ms": LINGER_MS,
                    "message.timeout.ms": MESSAGE_TIMEOUT_MS,
                    "queue.buffering.max.kbytes": QUEUE_KBYTES,
                    # Our own log has one event for each; the client's own lines repeat it.
                    "error_cb": self._error,
                    "log_level": 0,
                },
            )
        )

    def topology(self, components: Iterable[Component]) -> None:
        """Publish components."""
        for component in components:
            self._send(
                topics.TOPOLOGY, component.component_id, component, at_us=component.updated_at
            )

    def flows(self, table: FlowTable) -> None:
        """Publish one host's tables."""
        self._send(topics.OVERLAY_FLOWS, table.host_id, table, at_us=table.captured_at)

    def task(self, task: Task) -> None:
        """Publish a training job's submission, or its end."""
        at_us = task.submitted_at if task.ended_at is None else task.ended_at
        self._send(topics.TASK, task.task_id, task, at_us=at_us)

    def endpoint(self, endpoint: Endpoint) -> None:
        """Publish a registration in the name of its agent."""
        self._send(topics.ENDPOINT, endpoint.endpoint_id, endpoint, at_us=now_us())

    def withdraw(self) -> None:
        """Write a tombstone for each component and table: the network is no longer there."""
        for topic in (topics.OVERLAY_FLOWS, topics.TOPOLOGY):
            for key in sorted(self._keys.pop(topic.name, ())):
                self._produce(topic, key, None, now_us())

    def _send(self, topic: Topic, key: str, record: Any, *, at_us: int) -> None:
        self._keys.setdefault(topic.name, set()).add(key)
        self._produce(topic, key, self._codec.encode(topic, record), at_us)

    def _produce(self, topic: Topic, key: str, value: bytes | None, at_us: int) -> None:
        try:
            self._producer.produce(
                self._settings.topic(topic.name),
                key=key.encode(),
                value=value,
                timestamp=at_us // US_PER_MS,
                on_delivery=self._delivered,
            )
        except (BufferError, KafkaException) as error:
            self._lost(str(error))

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is None:
            self.published += 1
        else:
            self._lost(error.str())

    def _lost(self, reason: str) -> None:
        self.failed += 1
        self._log.warning("publish.failed", reason=reason, failed=self.failed)

    def _error(self, error: Any) -> None:
        self._log.warning("kafka.error", error=error.str())

    def poll(self) -> None:
        """Let the client report what became of earlier records."""
        self._producer.poll(0)

    def flush(self, timeout_s: float = FLUSH_TIMEOUT_S) -> int:
        """Wait until everything is written; return how many records are not."""
        return int(self._producer.flush(timeout_s))
