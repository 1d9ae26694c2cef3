"""Reads what a restart needs: rounds of the look-back, and what was published of them."""

import time
from collections.abc import Callable, Iterator
from typing import Any, Final, Self

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
    cimpl,
)

from schemas.kafka.clients import ask_until_answered, refusal_of
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.options import reader_options
from schemas.kafka.unreadable import reported_once, step_over
from streams.edge.errors import SessionLostError
from streams.edge.publisher import CLIENT_LOG

# Nothing arrives for this long: the broker is away.
SILENCE_S: Final = 15.0
TIMEOUT_S: Final = 10.0
RETRY_S: Final = 0.1
# The client waits this long for a full batch; the tail of a range rarely is one.
POLL_S: Final = 0.02
BATCH: Final = 2000
FETCH_WAIT_MS: Final = 10
# Once its queue is full the client asks for no more during this time, a second by default: what
# it holds is taken in less, and whoever takes it stands still for the rest.
QUEUE_BACKOFF: Final = {"fetch.queue.backoff.ms": 10}


class LogReader:
    """Reads ranges of partitions, outside of any consumer group.

    `beat` is called again and again while it reads: a long look-back is no stall.
    """

    def __init__(self, settings: KafkaSettings, beat: Callable[[], None] = lambda: None) -> None:
        self.beat = beat
        self._settings = settings
        options = reader_options(
            settings,
            defaults=QUEUE_BACKOFF,
            # A broker answers one request of a connection after the other: what is asked for
            # next would wait for a fetch at the end of a partition.
            fixed={"fetch.wait.max.ms": FETCH_WAIT_MS},
        )
        self._consumer = Consumer(options, logger=CLIENT_LOG)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """Return first offset and end of a partition."""
        low, high = self._asked(
            lambda: self._consumer.get_watermark_offsets(
                TopicPartition(topic, partition), timeout=TIMEOUT_S
            ),
            f"{topic}[{partition}]",
        )
        return int(low), int(high)

    def offset_for_time(self, topic: str, partition: int, time_ms: int) -> int:
        """Return the offset of the first record of that time or later, the end if none is."""
        (found,) = self._asked(
            lambda: self._consumer.offsets_for_times(
                [TopicPartition(topic, partition, max(time_ms, 0))], timeout=TIMEOUT_S
            ),
            f"{topic}[{partition}]",
        )
        return int(found.offset) if found.offset >= 0 else self.bounds(topic, partition)[1]

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[Message]:
        """Yield the messages of a partition from `start` up to, not including, `end`.

        Raises
        ------
        SessionLostError
            If the broker does not give them.
        AccessError
            If Kafka refuses them.
        """
        for messages in self.read_many(topic, partition, start, end):
            yield from messages

    def read_many(
        self, topic: str, partition: int, start: int, end: int
    ) -> Iterator[list[Message]]:
        """Yield the same, as many at a time as have come; never none."""
        if start >= end:
            return
        where = TopicPartition(topic, partition, start)
        self._consumer.assign([where])
        heard = time.monotonic()
        try:
            while True:
                self.beat()
                messages = list(reported_once(cimpl, self._consumer.consume(BATCH, POLL_S)))
                if messages:
                    heard = time.monotonic()
                elif time.monotonic() - heard > SILENCE_S:
                    raise SessionLostError(f"{topic}[{partition}]: no answer from the broker")
                good, over = self._until(messages, end, f"{topic}[{partition}]")
                if good:
                    yield good
                if over:
                    return
        finally:
            self._consumer.unassign()

    @staticmethod
    def _asked(call: Callable[[], Any], where: str) -> Any:
        """Return what the broker answers, asking again while a partition has no leader."""
        try:
            return ask_until_answered(call, patience_s=TIMEOUT_S, retry_s=RETRY_S)
        except KafkaException as error:
            raise SessionLostError(f"{where}: {error}") from error

    def _until(self, messages: list[Message], end: int, where: str) -> tuple[list[Message], bool]:
        """Return the messages before `end`, and whether these are the last."""
        for place, message in enumerate(messages):
            error = message.error()
            if error is None or step_over(cimpl, self._consumer, self._settings, message):
                continue
            # The end can come before `end`: records vanish by retention.
            if error.code() == KafkaError._PARTITION_EOF:
                return self._until(messages[:place], end, where)[0], True
            raise refusal_of(self._settings, message) or SessionLostError(f"{where}: {error.str()}")
        if not messages or (messages[-1].offset() or 0) < end - 1:
            return messages, False
        return [m for m in messages if (m.offset() or 0) < end], True
