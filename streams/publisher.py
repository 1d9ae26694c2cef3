"""Writes outputs, and waits until the broker has them.

A message that the broker has not confirmed after a share of the session timeout
is given up, and a process that stood still that long sends nothing more: a
worker whose partitions went to another can write nothing any more when the
other one looks at what is there.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from schemas.connection import KafkaSettings
from schemas.deadletter import Headers
from streams.errors import SessionLostError
from streams.pulse import Pulse

LINGER_MS: Final = 5
POLL_S: Final = 0.01
# Of the session: time in which an output is confirmed or given up.
TIMEOUT_SHARE: Final = 0.65
# The producer's queue while a large batch is processed.
QUEUE_MESSAGES: Final = 200_000
QUEUE_KBYTES: Final = 128 * 1024
# Messages queued between two looks at the queue.
CHUNK_MESSAGES: Final = 1_000

# librdkafka's own lines, as events like all others.
CLIENT_LOG: Final = logging.getLogger("skeletonhunter.worker.kafka")

Confirmed = Callable[[int], None]


@dataclass(slots=True)
class Receipt:
    """The messages of one stretch: how many of them the broker has not confirmed yet."""

    open: int = 0


class _Span:
    """Messages sent to one partition in a row, of which the ends are reported.

    The client drops a message that has waited too long, and sends those behind it. Records of
    others may lie between them.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._first: int | None = None

    def holds(self, offset: int) -> bool:
        """Note an end's offset; return whether there is room for all from the first to it."""
        if self._first is None:
            self._first = offset
            return offset >= 0 or self.count == 1
        return offset - self._first >= self.count - 1


class Publisher:
    """An idempotent producer that knows which of its messages are confirmed."""

    def __init__(self, settings: KafkaSettings, *, session_timeout_s: float) -> None:
        self._timeout_s = TIMEOUT_SHARE * session_timeout_s
        self._pulse = Pulse(session_timeout_s)
        self._receipt = Receipt()
        self._failure: str | None = None
        self._producer = Producer(
            {
                **settings.librdkafka(),
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "compression.type": "lz4",
                "linger.ms": LINGER_MS,
                "message.timeout.ms": int(self._timeout_s * 1000),
                "queue.buffering.max.messages": QUEUE_MESSAGES,
                "queue.buffering.max.kbytes": QUEUE_KBYTES,
            },
            logger=CLIENT_LOG,
        )

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        partition: int,
        key: bytes | None = None,
        timestamp_ms: int = 0,
        headers: Headers | None = None,
        confirmed: Confirmed | None = None,
    ) -> None:
        """Queue a message; `confirmed` gets its offset once the broker has it.

        Raises
        ------
        SessionLostError
            If the queue stays full, or an earlier message was given up.
        """
        self._check()
        receipt = self._receipt
        delivered = self._delivered(receipt, confirmed)
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                self._producer.produce(
                    topic,
                    value=value,
                    key=key,
                    partition=partition,
                    timestamp=timestamp_ms,
                    headers=[*(headers or ())],
                    on_delivery=delivered,
                )
            except BufferError:
                if time.monotonic() > deadline:
                    raise SessionLostError("the producer's queue stays full") from None
                self._producer.poll(POLL_S)
                continue
            except KafkaException as error:
                raise SessionLostError(f"cannot produce to {topic}: {error}") from error
            receipt.open += 1
            self._producer.poll(0)
            return

    def send_all(
        self,
        topic: str,
        keys: Sequence[bytes],
        values: Sequence[bytes],
        *,
        partition: int,
        timestamp_ms: int,
        confirmed: Confirmed,
    ) -> None:
        """Queue many messages of one time, in order; otherwise as `send`.

        `confirmed` gets the offset of the last one alone: those before it have smaller ones. Only
        the first and the last are reported by the client, which takes as long over a report as
        over the message; their offsets tell whether one between them is missing.
        """
        self._check()
        receipt, last = self._receipt, len(values) - 1
        span = _Span(len(values))
        # Not `produce_batch`, which knows no timestamps.
        produce = self._producer.produce
        for number, (key, value) in enumerate(zip(keys, values, strict=True)):
            if number % CHUNK_MESSAGES == 0:
                self._make_room(CHUNK_MESSAGES)
            try:
                if 0 < number < last:
                    produce(topic, value, key, partition, timestamp=timestamp_ms)
                    continue
                delivered = self._delivered(receipt, confirmed if number == last else None, span)
                produce(topic, value, key, partition, on_delivery=delivered, timestamp=timestamp_ms)
            except (BufferError, KafkaException) as error:
                raise SessionLostError(f"cannot produce to {topic}: {error}") from error
            receipt.open += 1
        self._producer.poll(0)

    def _make_room(self, count: int) -> None:
        """Wait until that many messages fit into the queue."""
        deadline = time.monotonic() + self._timeout_s
        self._producer.poll(0)
        while len(self._producer) + count > QUEUE_MESSAGES:
            if time.monotonic() > deadline:
                raise SessionLostError("the producer's queue stays full")
            self._producer.poll(POLL_S)
            self._check()

    def _delivered(
        self, receipt: Receipt, confirmed: Confirmed | None, span: "_Span | None" = None
    ) -> Callable[[KafkaError | None, Message], None]:
        def delivered(error: KafkaError | None, message: Message) -> None:
            receipt.open -= 1
            offset, why = int(message.offset() or 0), None
            if error is not None:
                why = error.str()
            elif span is not None and not span.holds(offset):
                why = f"of {span.count} messages some are missing"
            if why is not None:
                self._failure = f"{message.topic()}[{message.partition()}]: {why}"
            elif confirmed is not None:
                confirmed(offset)

        return delivered

    def receipt(self) -> Receipt:
        """Return a receipt for what was sent since the last one."""
        receipt, self._receipt = self._receipt, Receipt()
        return receipt

    def wait(self, receipt: Receipt) -> None:
        """Wait until every message of it is confirmed.

        Raises
        ------
        SessionLostError
            If one was given up, of this receipt or of any other.
        """
        while receipt.open and self._failure is None:
            self._producer.poll(POLL_S)
        self._check()

    def abandon(self) -> None:
        """Give up what is not confirmed, at once, for good."""
        self._pulse.stop()
        self._producer.purge()
        self._producer.poll(0)

    def _check(self) -> None:
        if not self._pulse.steady():
            raise SessionLostError("the process stood still; its partitions may be another's")
        if self._failure is not None:
            raise SessionLostError(f"an output was not confirmed: {self._failure}")
