"""Reads transitions, silences and notes, in the order in which the broker took them.

They stand in three topics. A record is handed on when nothing earlier can come any more: when all
has been read that the broker had half a second after it took the record. So silences and faults
have one order, whoever reads them and when. While the broker is away no time passes here.
"""

import heapq
import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
    cimpl,
)

from schemas.avro import MAX_VALUE_BYTES
from schemas.bounds import arrival_of
from schemas.codec import Codec, DecodeError
from schemas.kafka.clients import partitions_of, refusal_of
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.errors import BrokerError
from schemas.kafka.options import reader_options
from schemas.kafka.unreadable import reported_once, step_over
from schemas.process.lag import LogLag, Place
from schemas.topics import FAULT_EVENT, INCIDENT_NOTE, SILENCE, Topic
from schemas.units import US_PER_MS, ns_to_us

INPUTS: Final = (FAULT_EVENT, SILENCE, INCIDENT_NOTE)
BATCH: Final = 500
POLL_S: Final = 0.05
# Between the broker's clock and ours, and between the topics of one broker. It delays each page.
SETTLE_US: Final = 500_000
# Distance of the looks at where the partitions end.
LOOK_S: Final = 0.1
LOOK_TIMEOUT_S: Final = 3.0


class Received(NamedTuple):
    """A record or a tombstone (None); sorts by when the broker took it."""

    at_us: int
    topic: str
    offset: int
    key: str
    record: Any


class Refused(NamedTuple):
    """A record that cannot be used, and why."""

    message: Message
    error: DecodeError


class Inbox:
    """Reads the topics from their beginning on.

    Attributes
    ----------
    caught_up
        Whether all that was there at the start was read.
    away
        Whether no broker answered when it was last asked.
    """

    def __init__(self, settings: KafkaSettings, codec: Codec, lag: LogLag) -> None:
        self._settings = settings
        self._codec = codec
        self._lag = lag
        self._names: dict[str, Topic] = {settings.topic(t.name): t for t in INPUTS}
        self._waiting: list[tuple[int, str, int, str, Any]] = []
        # By partition, when its latest record was taken; partitions that were at an end once are
        # not in it.
        self._read_us: dict[Place, int] = {}
        self._next: dict[Place, int] = {}
        # A time, and where the partitions ended then.
        self._ends: tuple[int, dict[Place, int]] | None = None
        self._look_s = 0.0
        self._settled_us = 0
        self.caught_up = self.away = False
        self._consumer = Consumer(
            reader_options(
                settings,
                defaults={"fetch.message.max.bytes": MAX_VALUE_BYTES, "fetch.wait.max.ms": 50},
                fixed={"isolation.level": "read_committed"},
            )
        )

    def start(self) -> None:
        """Begin to read.

        Raises
        ------
        BrokerError
            If the broker does not answer or topics are missing.
        """
        found = partitions_of(self._consumer, self._settings, INPUTS)
        places = [(name, partition) for name, of in found.items() for partition in of]
        self._read_us = dict.fromkeys(places, 0)
        self._next = dict.fromkeys(places, 0)
        self._consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in places])

    @property
    def settled_us(self) -> int:
        """Time up to which nothing more can come."""
        # At a start the histories go on together; later each look settles what was there.
        return max(self._settled_us, min(self._read_us.values(), default=0))

    def _look(self) -> None:
        """Settle a time when all is read that was there then."""
        if self._ends is None and time.monotonic() >= self._look_s:
            at_us = ns_to_us(time.time_ns()) - SETTLE_US
            try:
                ends = {
                    place: int(
                        self._consumer.get_watermark_offsets(
                            TopicPartition(*place), timeout=LOOK_TIMEOUT_S
                        )[1]
                    )
                    for place in self._next
                }
            except KafkaException:
                self._look_s = time.monotonic() + LOOK_TIMEOUT_S
                self.away = True
                return
            self.away = False
            self._ends = at_us, ends
        if self._ends is not None and all(
            self._next[place] >= end for place, end in self._ends[1].items()
        ):
            self._settled_us, self._ends, self.caught_up = self._ends[0], None, True
            self._look_s = time.monotonic() + LOOK_S

    def poll(self) -> list[Refused]:
        """Take what has come; return what cannot be used.

        Raises
        ------
        BrokerError
            On an error that does not pass.
        """
        refused: list[Refused] = []
        self._lag.note_poll()
        for message in reported_once(cimpl, self._consumer.consume(BATCH, POLL_S)):
            error = message.error()
            place = str(message.topic()), int(message.partition() or 0)
            topic = self._names[place[0]]
            if error is None or step_over(cimpl, self._consumer, self._settings, message):
                arrived_ms = int(message.timestamp()[1])
                self._lag.note_record(topic.name, place[1], arrived_ms)
                self._next[place] = int(message.offset() or 0) + 1
                if place in self._read_us:
                    self._read_us[place] = arrived_ms * US_PER_MS
                try:
                    heapq.heappush(self._waiting, self._received(topic, message))
                except DecodeError as poison:
                    refused.append(Refused(message, poison))
            elif error.code() == KafkaError._PARTITION_EOF:
                self._read_us.pop(place, None)
                self._next[place] = max(self._next[place], int(message.offset() or 0))
                self._lag.note_end(topic.name, place[1])
            elif (access := refusal_of(self._settings, message)) is not None:
                raise access
            elif error.fatal():
                raise BrokerError(f"Kafka: {error.str()}")
        self._look()
        return refused

    def settled(self) -> Iterator[Received]:
        """Yield what nothing earlier can come to any more, in order."""
        until_us = self.settled_us
        while self._waiting and self._waiting[0][0] <= until_us:
            yield Received(*heapq.heappop(self._waiting))

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def _received(self, topic: Topic, message: Message) -> Received:
        key, value = message.key(), message.value()
        name = key.decode(errors="replace") if isinstance(key, bytes) else str(key or "")
        offset = int(message.offset() or 0)
        record = None
        if value is not None:
            raw = value if isinstance(value, bytes) else value.encode()
            record = self._codec.decode(
                topic, raw, partition=message.partition(), offset=offset,
                arrival_ns=arrival_of(message.timestamp()),
            )  # fmt: skip
            if record.cluster != self._settings.cluster or getattr(record, topic.key_field) != name:
                raise DecodeError(
                    f"key {name!r} or cluster {record.cluster!r} is not that of the record",
                    topic=str(message.topic()), partition=message.partition(), offset=offset,
                )  # fmt: skip
        at_us = int(message.timestamp()[1]) * US_PER_MS
        return Received(at_us, topic.name, offset, name, record)
