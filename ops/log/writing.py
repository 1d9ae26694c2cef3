"""Writes records as they are, and says when the broker has them."""

from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ops.log.entry import Headers
from schemas.kafka.access import ConnectionErrors, refusal
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.options import QUIET, producer_options

POLL_S: Final = 0.1
# Refusals are looked for once in so many records: each look takes as long as the record.
POLL_EVERY: Final = 64
# Bulk writers know their next record at once; waiting longer only delays a flush.
LINGER_MS: Final = 5
# As long as a client waits by itself: bulk writers outlast a broker's restart.
PATIENCE_S: Final = 300.0
ANY_PARTITION: Final = -1  # librdkafka's RD_KAFKA_PARTITION_UA


class LogWriter:
    """A producer for tools: it waits instead of dropping, and no error is lost.

    Every method raises ConnectionError once the broker has refused a record, or has not taken it
    for `patience_s`.
    """

    def __init__(self, settings: KafkaSettings, *, patience_s: float = PATIENCE_S) -> None:
        self._settings = settings
        self._connection = ConnectionErrors()
        self._error: str | None = None
        self._written = 0
        self._topic = ""
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
        while True:
            try:
                self._producer.produce(
                    topic,
                    key=key,
                    value=value,
                    headers=list(headers),
                    # 0 is confluent-kafka's word for now: for records that had no time.
                    timestamp=timestamp_ms or 0,
                    on_delivery=self._delivered,
                    partition=ANY_PARTITION if partition is None else partition,
                )
            except BufferError:
                self._producer.poll(POLL_S)
                self._check()
            except KafkaException as error:
                raise ConnectionError(self._why(error.args[0], topic)) from error
            else:
                self._written += 1
                if self._written % POLL_EVERY == 0:
                    self._producer.poll(0)
                    self._check()
                return

    def flush(self) -> None:
        """Wait until the broker has everything."""
        try:
            while self._producer.flush(POLL_S):
                self._check()
        except KafkaException as error:
            raise ConnectionError(self._why(error.args[0], self._topic)) from error
        self._check()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None or self._error is not None:
            return
        self._error = self._why(error, str(message.topic()))
        if error.code() == KafkaError._MSG_TIMED_OUT:
            why = self._connection.reason(self._settings)
            self._error = f"no Kafka broker answers at {self._settings.bootstrap}: {why}"

    def _why(self, error: KafkaError, topic: str) -> str:
        """Return what an error says of writing to a topic.

        Who may write to no topic at all is refused the number that a producer begins with: as an
        error of the cluster.
        """
        denied = refusal(self._settings, error, "Write", f"topic {topic}")
        return str(denied or f"Kafka at {self._settings.bootstrap}: {topic}: {error.str()}")

    def _check(self) -> None:
        if self._error is not None:
            raise ConnectionError(self._error)
