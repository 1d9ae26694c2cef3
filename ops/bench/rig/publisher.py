"""Publishes a load as agents do: keyed, partitioned and compressed like theirs."""

from collections import Counter
from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer

from schemas.kafka.connection import KafkaSettings
from schemas.kafka.options import producer_options

FLUSH_S: Final = 120.0
DEFAULTS: Final = {
    "compression.type": "lz4",
    "linger.ms": 5,
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 256 * 1024,
    # Of what arrives nothing is asked but that it does: `flush` says how much has not.
    "delivery.report.only.error": True,
}
# Messages between two looks at acknowledgements.
SERVE_EVERY: Final = 64


class Publisher:
    """A producer that waits while its queue is full, and counts.

    Attributes
    ----------
    counts : messages, and bytes of their values
    """

    def __init__(self, settings: KafkaSettings, **options: Any) -> None:
        self._settings = settings
        self._producer = Producer(producer_options(settings, fixed={**DEFAULTS, **options}))
        self._failed = 0
        self.counts: Counter[str] = Counter()

    def publish(
        self, topic: str, key: bytes | str, value: bytes | None, at_ms: int, *, partition: int = -1
    ) -> None:
        """Queue a message; `topic` is its name without the prefix, -1 the partition of the key."""
        name = self._settings.topic(topic)
        while True:
            try:
                # By place: names cost the client as much again as the message.
                self._producer.produce(name, value, key, partition, self._failed_one, None, at_ms)
                break
            except BufferError:
                self._producer.poll(0.05)
        self.counts["messages"] += 1
        self.counts["bytes"] += len(value or b"")
        if self.counts["messages"] % SERVE_EVERY == 0:
            self.serve()

    def serve(self) -> None:
        """Serve acknowledgements."""
        self._producer.poll(0)

    def flush(self) -> int:
        """Wait until the broker has all; return how many messages have not arrived."""
        return self._producer.flush(FLUSH_S) + self._failed

    def finish(self) -> None:
        """Wait until the broker has all.

        Raises
        ------
        RuntimeError
            If something did not arrive: a load with holes would flatter or damn who consumes it.
        """
        if lost := self.flush():
            raise RuntimeError(f"the load is incomplete: {lost} messages did not arrive")

    def _failed_one(self, error: KafkaError | None, _message: Message) -> None:
        self._failed += error is not None
