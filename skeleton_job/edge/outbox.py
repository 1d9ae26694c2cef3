"""What is to be written, and what becomes of it.

All that one turn of the loop makes is one transaction: a process that led before, and wakes up,
replaces no list of its successor by an old one.
"""

from collections.abc import Callable
from typing import NamedTuple

from schemas.kafka.connection import KafkaSettings
from schemas.kafka.letters import LetterBox
from schemas.kafka.transactions import Headers, Outgoing, RejectedError, Transactions
from schemas.process.eventlog import EventLog


def _nothing() -> None:
    """Nobody needs to know."""


class _Waiting(NamedTuple):
    record: Outgoing
    failed: Callable[[], None]


class Outbox:
    """Collects records and writes them together; a rejected one is told to whoever sent it.

    Attributes
    ----------
    letters
        Dead letters.
    not_delivered
        Records that the broker did not take.
    """

    def __init__(self, settings: KafkaSettings, process: str, log: EventLog) -> None:
        self._settings = settings
        self._process = process
        self._log = log
        self._waiting: list[_Waiting] = []
        self.not_delivered = 0
        self.letters = LetterBox(settings, process, log)
        self._transactions = Transactions(
            settings, process, log, defaults={"compression.type": "lz4"}
        )

    def start(self) -> None:
        """Fence whoever led before.

        Raises
        ------
        FatalProducerError, AccessError
            If the broker gives no transactions.
        """
        self._transactions.start()

    def send(
        self,
        topic: str,
        key: str,
        value: bytes | None,
        *,
        timestamp_ms: int,
        failed: Callable[[], None] = _nothing,
        headers: Headers = (),
        partition: int | None = None,
    ) -> None:
        """Collect a record for a topic of the contract; None is a tombstone."""
        name = self._settings.topic(topic)
        record = Outgoing(name, key.encode(), value, timestamp_ms, headers, partition)
        self._waiting.append(_Waiting(record, failed))

    def write(self) -> None:
        """Write what was collected; return when it is there.

        Raises
        ------
        AccessError
            If Kafka refuses a topic.
        FatalProducerError
            If nothing can be written any more.
        """
        batch, self._waiting = self._waiting, []
        while batch:
            try:
                self._transactions.write([waiting.record for waiting in batch])
            except RejectedError as error:
                for place, reason in error.rejected.items():
                    self._lost(batch[place].record, reason)
                    batch[place].failed()
                batch = [w for place, w in enumerate(batch) if place not in error.rejected]
            else:
                return

    def _lost(self, record: Outgoing, reason: str) -> None:
        self.not_delivered += 1
        self._log.error(f"{self._process}.not_delivered", topic=record.topic, error=reason)
