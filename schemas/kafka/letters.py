"""Dead letters of a process that may lead: kept until it is known who writes them.

They are no part of a transaction, whose marks would count as letters for who counts by offsets.
"""

from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from schemas.codec import DecodeError
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.deadletter import DeadLetter, dead_letter_of, dead_letter_topic
from schemas.kafka.options import producer_options
from schemas.process.eventlog import EventLog

FLUSH_TIMEOUT_S: Final = 10.0
# Of the moments until the group has said who leads.
MAX_HELD: Final = 10_000


class LetterBox:
    """Collects dead letters, and writes or forgets them."""

    def __init__(self, settings: KafkaSettings, process: str, log: EventLog) -> None:
        self._process = process
        self._log = log
        self._held: list[tuple[str, DeadLetter]] = []
        self._producer = Producer(producer_options(settings, fixed={"linger.ms": 0}))

    def put(self, error: DecodeError, message: Message) -> None:
        """Collect a record that could not be used, with its origin and the reason."""
        topic = dead_letter_topic(str(message.topic()))
        if len(self._held) < MAX_HELD:
            self._held.append((topic, dead_letter_of(error, message, process=self._process)))
        else:
            self._lost(topic, "too many wait")

    def write(self) -> None:
        """Write what was collected; nothing waits for it."""
        for topic, letter in self._held:
            try:
                self._producer.produce(
                    topic,
                    key=letter.key,
                    value=letter.value,
                    headers=[*letter.headers],
                    on_delivery=self._note_delivery,
                )
            except (BufferError, KafkaException) as failure:
                self._lost(topic, str(failure))
        self._held.clear()
        self._producer.poll(0)

    def discard(self) -> None:
        """Forget what was collected: the leader has written it."""
        self._held.clear()

    def close(self) -> None:
        """Wait for what is under way; what ended the process is told, not that this is lost."""
        try:
            left = self._producer.flush(FLUSH_TIMEOUT_S)
        except KafkaException as failure:
            self._log.error("dead_letter.lost", reason=str(failure))
            return
        if left:
            reason = f"not taken by the broker within {FLUSH_TIMEOUT_S:.0f} s"
            self._log.error("dead_letter.lost", reason=reason, letters=left)

    def _note_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._lost(str(message.topic()), error.str())

    def _lost(self, topic: str, reason: str) -> None:
        self._log.error("dead_letter.lost", topic=topic, reason=reason)
