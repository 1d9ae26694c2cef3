"""Writes records as they are, and says when the broker has them."""

from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ops.log.entry import Headers
from schemas.kafka.access import ConnectionErrors, refusal
from schemas.kafka.clients import metadata
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.errors import BrokerError
from schemas.kafka.options import QUIET, producer_options

POLL_S: Final = 0.1
# Refusals are looked for once in so many records: each look lets other threads go first.
POLL_EVERY: Final = 1_024
# A flush does not wait for it; and small batches cost the broker a multiple of large ones.
LINGER_MS: Final = 100
# As long as a client waits by itself: bulk writers outlast a broker's restart.
PATIENCE_S: Final = 300.0
ANY_PARTITION: Final = -1  # librdkafka's RD_KAFKA_PARTITION_UA


class LogWriter:
    """A producer for tools: it waits instead of dropping, and no error is lost.

    Every method raises ConnectionError once the broker has refused a record, or has not taken it
    for `patience_s`; making one already, where no broker can be reached.
    """

    def __init__(self, settings: KafkaSettings, *, patience_s: float = PATIENCE_S) -> None:
        self._settings = settings
        self._connection = ConnectionErrors()
        self._error: str | None = None
        self._topic = ""
        self._written = 0
        self._producer = Producer(
            producer_options(
                settings,
                fixed={
                    "linger.ms": LINGER_MS,
                    "compression.type": "lz4",
                    "delivery.report.only.error": True,
                    "message.timeout.ms": round(patience_s * 1_000),
                    **QUIET,
                    "error_cb": self._connection,
                },
            )
        )
        try:
            # Whether there is a broker at all is known sooner than patience ends.
            metadata(self._producer, settings)
        except BrokerError as error:
            raise ConnectionError(str(error)) from error

    def write(
        self,
        topic: str,
        *,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int | None,
        partition: int | None = None,
        headers: Headers = (),
    ) -> None:
        """Hand a record over; `partition` None: the key decides."""
        self._topic = topic
        try:
            while not self._handed_over(
                topic,
                key=key,
                value=value,
                headers=list(headers),
                # 0 is confluent-kafka's word for now: for records that had no time.
                timestamp=timestamp_ms or 0,
                on_delivery=self._delivered,
                partition=ANY_PARTITION if partition is None else partition,
            ):
                self._producer.poll(POLL_S)
                self._check()
            self._written += 1
            if self._written % POLL_EVERY == 0:
                self._producer.poll(0)
                self._check()
        except KafkaException as error:
            raise self._failed(error) from error

    def flush(self) -> None:
        """Wait until the broker has everything."""
        try:
            while self._producer.flush(POLL_S):
                self._check()
        except KafkaException as error:
            raise self._failed(error) from error
        self._check()

    def _handed_over(self, topic: str, **record: Any) -> bool:
        try:
            self._producer.produce(topic, **record)
        except BufferError:
            return False
        return True

    def _failed(self, error: KafkaException) -> ConnectionError:
        cause = error.args[0]
        if cause.code() == KafkaError._FATAL:
            # That there was a fatal error; which, the client raises at the next poll.
            try:
                self._producer.poll(0)
            except KafkaException as told:
                cause = told.args[0]
        return ConnectionError(self._error or self._reason(self._topic, cause))

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None or self._error is not None:
            return
        self._error = self._reason(str(message.topic()), error)
        if error.code() == KafkaError._MSG_TIMED_OUT:
            why = self._connection.reason(self._settings)
            self._error = f"no Kafka broker answers at {self._settings.bootstrap}: {why}"

    def _reason(self, topic: str, error: KafkaError) -> str:
        # Who may write to no topic at all is refused as an idempotent producer, by the cluster.
        access = refusal(self._settings, error, "Write", f"topic {topic}")
        return str(access or f"{topic} at {self._settings.bootstrap}: {error.str()}")

    def _check(self) -> None:
        if self._error is not None:
            raise ConnectionError(self._error)
