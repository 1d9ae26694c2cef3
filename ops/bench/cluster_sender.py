"""A producer that publishes as agents do, and counts what it publishes."""

from collections import Counter
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from schemas.connection import KafkaSettings
from schemas.topics import Topic

FLUSH_S: Final = 120.0


class Sender:
    """Publishes to any topic, keyed, partitioned and compressed as agents do."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._producer = Producer(
            {
                **settings.librdkafka(),
                "partitioner": "murmur2_random",
                "compression.type": "lz4",
                "linger.ms": 5,
                "enable.idempotence": True,
                "queue.buffering.max.messages": 500_000,
                "queue.buffering.max.kbytes": 256 * 1024,
            }
        )
        self.counts: Counter[str] = Counter()
        self.failed = 0

    def put(self, topic: Topic, key: bytes, value: bytes | None, at_ms: int) -> None:
        """Queue a message; waits while the queue is full."""
        while True:
            try:
                self._producer.produce(
                    self._settings.topic(topic.name), key=key, value=value, timestamp=at_ms,
                    on_delivery=self._delivered,
                )  # fmt: skip
                break
            except BufferError:
                self._producer.poll(0.05)
        self.counts["messages"] += 1
        self.counts["bytes"] += len(value or b"")

    def serve(self) -> None:
        """Serve acknowledgements."""
        self._producer.poll(0)

    def flush(self) -> int:
        """Wait until the broker has all; return what has not arrived."""
        return self._producer.flush(FLUSH_S) + self.failed

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        self.failed += error is not None
