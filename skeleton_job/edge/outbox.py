"""The producer: what is sent, and what becomes of it."""

from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from schemas.codec import DecodeError
from schemas.kafka.access import AccessError, refusal
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.deadletter import dead_letter_of, dead_letter_topic
from schemas.kafka.errors import FatalProducerError
from schemas.kafka.options import producer_options
from schemas.process.eventlog import EventLog

Headers = list[tuple[str, str | bytes | None]]

# Longer than a broker's restart takes; then the process ends and says so.
FLUSH_TIMEOUT_S: Final = 10.0


def _nothing() -> None:
    """Nobody needs to know."""


class Outbox:
    """Sends records; a failed one is told to whoever sent it."""

    def __init__(self, settings: KafkaSettings, process: str, log: EventLog) -> None:
        self._settings = settings
        self._process = process
        self._log = log
        self.not_delivered = 0
        self._access: AccessError | None = None
        self._producer = Producer(
            producer_options(settings, defaults={"linger.ms": 5, "compression.type": "lz4"})
        )

    def send(
        self,
        topic: str,
        key: str,
        value: bytes | None,
        *,
        timestamp_ms: int,
        failed: Callable[[], None] = _nothing,
    ) -> None:
        """Send a record to a topic of the contract; None is a tombstone.

        Raises
        ------
        FatalProducerError
            If the producer has come to its end.
        """
        self._send(
            self._settings.topic(topic),
            key.encode(),
            value,
            headers=[],
            timestamp_ms=timestamp_ms,
            failed=failed,
        )

    def dead_letter(self, error: DecodeError, message: Message) -> None:
        """Send a poison message to its dead-letter topic."""
        letter = dead_letter_of(error, message, process=self._process)
        self._send(
            dead_letter_topic(str(message.topic())),
            letter.key,
            letter.value,
            headers=[*letter.headers],
            timestamp_ms=0,
            failed=_nothing,
        )

    def poll(self) -> None:
        """Let delivery reports come in.

        Raises
        ------
        AccessError
            If Kafka refused a record.
        """
        self._producer.poll(0)
        if self._access is not None:
            raise self._access

    def flush(self) -> int:
        """Wait for what is under way; return how many records are not delivered."""
        try:
            return int(self._producer.flush(FLUSH_TIMEOUT_S))
        except KafkaException:
            # Kafka refused the producer; its delivery reports have said so.
            return len(self._producer)

    def _send(
        self,
        topic: str,
        key: str | bytes | None,
        value: str | bytes | None,
        *,
        headers: Headers,
        timestamp_ms: int,
        failed: Callable[[], None],
    ) -> None:
        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                self._access = refusal(self._settings, error, "Write", f"topic {topic}")
                self._lost(topic, error.str(), failed)

        try:
            self._producer.produce(
                topic,
                key=key,
                value=value,
                headers=headers,
                timestamp=timestamp_ms,
                on_delivery=delivered,
            )
        except KafkaException as error:
            cause = error.args[0]
            if isinstance(cause, KafkaError) and cause.fatal():
                raise FatalProducerError(f"producer: {cause.str()}") from error
            self._lost(topic, str(cause), failed)
        except BufferError as error:
            self._lost(topic, str(error), failed)

    def _lost(self, topic: str, error: str, failed: Callable[[], None]) -> None:
        self.not_delivered += 1
        self._log.error(f"{self._process}.not_delivered", topic=topic, error=error)
        failed()
