"""Follows topics from the outside: what the demo, the benchmarks and end-to-end tests look at."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition, cimpl

from schemas.codec import Codec, DecodeError
from schemas.kafka.clients import METADATA_TIMEOUT_S, ask_until_answered
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.options import reader_options
from schemas.kafka.registry import codec_for
from schemas.kafka.unreadable import reported_once, step_over
from schemas.topics import Topic

BATCH: Final = 500
RETRY_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class WatchedRecord:
    """A record read from a topic; `record` is None for a tombstone."""

    topic: str
    key: str
    record: Any
    value: bytes | None
    partition: int
    offset: int
    timestamp_ms: int


class Watch:
    """Reads topics by assignment: no consumer group, nothing committed."""

    def __init__(
        self, settings: KafkaSettings, topics: Iterable[Topic], *, from_start: bool = False
    ) -> None:
        self._settings = settings
        self._codec: Codec = codec_for(settings)
        self._topics = {settings.topic(t.name): t for t in topics}
        self._consumer = Consumer(reader_options(settings, fixed={"fetch.wait.max.ms": 20}))
        self.undecodable = 0
        self._consumer.assign(
            [
                TopicPartition(name, partition, self._first(name, partition, from_start))
                for name in self._topics
                for partition in self._partitions(name)
            ]
        )

    def _first(self, name: str, partition: int, from_start: bool) -> int:
        """Return the first offset wanted: asked for now, so that "end" means this instant."""
        place = TopicPartition(name, partition)
        try:
            low, high = ask_until_answered(
                lambda: self._consumer.get_watermark_offsets(place, timeout=METADATA_TIMEOUT_S),
                patience_s=METADATA_TIMEOUT_S,
                retry_s=RETRY_S,
            )
        except KafkaException as error:
            raise ConnectionError(f"{name}: {error.args[0].str()}") from error
        return low if from_start else high

    def _partitions(self, name: str) -> list[int]:
        found = self._consumer.list_topics(name, timeout=METADATA_TIMEOUT_S).topics[name]
        if found.error is not None:
            raise ConnectionError(f"topic {name}: {found.error.str()}; run `topics apply`")
        return list(found.partitions)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(RuntimeError):
            self._consumer.close()

    def poll(self, timeout_s: float = 0.1) -> Iterator[WatchedRecord]:
        """Yield what has come within the timeout."""
        for message in reported_once(cimpl, self._consumer.consume(BATCH, timeout_s)):
            error = message.error()
            if error is not None and not step_over(cimpl, self._consumer, self._settings, message):
                if error.code() == KafkaError._PARTITION_EOF or error.retriable():
                    continue
                raise ConnectionError(f"Kafka: {error.str()}")
            value = message.value()
            topic = self._topics[message.topic() or ""]
            try:
                record = None if value is None else self._codec.decode(topic, value)
            except DecodeError:
                self.undecodable += 1
                continue
            yield WatchedRecord(
                topic.name,
                (message.key() or b"").decode(errors="replace"),
                record,
                value,
                message.partition() or 0,
                message.offset() or 0,
                message.timestamp()[1],
            )

    def until(
        self,
        done: Callable[[WatchedRecord], bool],
        timeout_s: float,
        *,
        idle: Callable[[], None] = lambda: None,
    ) -> WatchedRecord | None:
        """Return the first record for which `done` holds, or None after the timeout.

        `idle` is called between polls, for example to draw or to check children.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for seen in self.poll(0.05):
                if done(seen):
                    return seen
            idle()
        return None
