"""Reads topics by assignment, never as a member of a group: nobody else's offsets move."""

import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Self, TypeVar

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
    cimpl,
)

from ops.log.entry import Entry
from ops.log.timespan import Bound
from schemas.kafka.access import named, refused
from schemas.kafka.clients import ask_until_answered, hidden_topics, metadata, refusal_of
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.errors import BrokerError
from schemas.kafka.options import QUIET, reader_options
from schemas.kafka.unreadable import reported_once, step_over

REQUEST_TIMEOUT_S: Final = 10.0
BATCH: Final = 1_000
# Enough for the largest message of the contract, little enough that reading a
# dozen topics at once stays below some hundred MB.
QUEUE_KB: Final = 16_384
RETRY_S: Final = 0.05
POLL_S: Final = 0.2
# A fetch answers within half a second. After such a silence it is asked for anew,
# so often until the broker is called unreachable.
SILENCE_S: Final = 5.0
MAX_TRIES: Final = 6
T = TypeVar("T")
Place = tuple[str, int]  # topic (as on the broker), partition


class UnknownTopicError(LookupError):
    """The broker has no such topic."""

    def __init__(self, topics: Collection[str], bootstrap: str) -> None:
        self.topics = tuple(topics)
        super().__init__(f"no topic {', '.join(topics)} on {bootstrap}")


class RefusedError(ConnectionError):
    """The broker does not let this principal read; the message says what grants it."""


@dataclass(frozen=True, slots=True)
class Range:
    """First offset of a partition and the one after its last, as the broker tells them."""

    low: int
    high: int

    @property
    def empty(self) -> bool:
        """Whether nothing is there."""
        return self.high <= self.low


class LogReader:
    """A consumer that is told what to read.

    Raises ConnectionError from every method that cannot reach the broker.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._last_error: KafkaError | None = None
        self._ended: set[Place] = set()
        self._consumer = Consumer(
            reader_options(
                settings,
                fixed={
                    "queued.max.messages.kbytes": QUEUE_KB,
                    **QUIET,
                    "error_cb": self._remember,
                },
            )
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def _remember(self, error: KafkaError) -> None:
        self._last_error = error

    @property
    def away(self) -> str | None:
        """Why no broker can be reached, as long as nothing has come since; None: nothing is wrong.

        The client goes on by itself once one is back.
        """
        error = self._last_error
        if error is None or error.code() != KafkaError._ALL_BROKERS_DOWN:
            return None
        return str(self._failed(KafkaException(error)))

    def topics(self) -> dict[str, int]:
        """Return all topics of the broker and their partition counts."""
        try:
            found = metadata(self._consumer, self._settings)
        except BrokerError as error:
            raise ConnectionError(str(error)) from error
        self._last_error = None
        return {
            name: len(topic.partitions)
            for name, topic in found.topics.items()
            if topic.error is None
        }

    def partitions(self, topics: Collection[str]) -> dict[Place, Range]:
        """Return the ranges of all partitions of the topics.

        Raises
        ------
        UnknownTopicError
            Naming all topics that the broker does not have.
        """
        counts = self.topics()
        missing = [t for t in topics if t not in counts]
        if missing:
            if (access := self.refusal(missing)) is not None:
                raise RefusedError(access)
            raise UnknownTopicError(missing, self._settings.bootstrap)
        return {
            (t, p): self.range_of((t, p)) for t in dict.fromkeys(topics) for p in range(counts[t])
        }

    def refusal(self, topics: Collection[str]) -> str | None:
        """Return what Kafka refuses of topics that seem to be missing; None: they are missing."""
        try:
            hidden = hidden_topics(self._settings, topics)
        except BrokerError as error:
            raise ConnectionError(str(error)) from error
        if not hidden:
            return None
        return str(refused(self._settings, f"Describe of {named('topic', hidden)}"))

    def range_of(self, place: Place) -> Range:
        """Return the range of one partition."""
        low, high = self._asked(
            lambda: self._consumer.get_watermark_offsets(
                TopicPartition(*place), timeout=REQUEST_TIMEOUT_S
            )
        )
        return Range(low, high)

    def offsets_at(self, ranges: Mapping[Place, Range], bound: Bound) -> dict[Place, int]:
        """Return for each partition the first offset at or after the bound."""
        if bound.place == "beginning":
            return {place: r.low for place, r in ranges.items()}
        if bound.place == "end" or not ranges:
            return {place: r.high for place, r in ranges.items()}
        found = self._asked(lambda: self._offsets_for_times(ranges, bound.at_ms))
        # A negative offset: no record is that late.
        return {place: at if at >= 0 else ranges[place].high for place, at in found.items()}

    def _offsets_for_times(self, places: Collection[Place], at_ms: int) -> dict[Place, int]:
        found = self._consumer.offsets_for_times(
            [TopicPartition(*place, at_ms) for place in places], timeout=REQUEST_TIMEOUT_S
        )
        for place in found:
            if place.error is not None:
                raise KafkaException(place.error)
        return {(place.topic, place.partition): place.offset for place in found}

    def _asked(self, ask: Callable[[], T]) -> T:
        """Ask until there is an answer: the leader of a new partition takes a moment."""
        try:
            return ask_until_answered(ask, patience_s=REQUEST_TIMEOUT_S, retry_s=RETRY_S)
        except KafkaException as error:
            raise self._failed(error) from error

    def start(self, offsets: Mapping[Place, int]) -> None:
        """Read these partitions from these offsets, instead of what was read before."""
        self._ended.clear()
        self._consumer.assign([TopicPartition(*place, at) for place, at in offsets.items()])

    def pause(self, places: Collection[Place]) -> None:
        """Fetch nothing more of these partitions."""
        self._consumer.pause([TopicPartition(*place) for place in places])

    def batch(
        self, timeout_s: float, keys: Collection[bytes] | None = None
    ) -> list[tuple[Place, Entry]]:
        """Return what came within the time, at most a thousand records; see `ended`.

        With `keys` those of others are left out, before anything is made of them.
        """
        entries: list[tuple[Place, Entry]] = []
        for message in reported_once(cimpl, self._consumer.consume(BATCH, timeout_s)):
            place = (message.topic() or "", message.partition() or 0)
            error = message.error()
            if error is None or step_over(cimpl, self._consumer, self._settings, message):
                self._ended.discard(place)
                self._last_error = None
                if keys is None or message.key() in keys:
                    entries.append((place, _entry(message)))
            elif error.code() == KafkaError._PARTITION_EOF:
                self._ended.add(place)
            elif (access := refusal_of(self._settings, message)) is not None:
                raise RefusedError(str(access))
            elif error.fatal() or not error.retriable():
                raise self._failed(KafkaException(error))
        return entries

    def read_to(
        self, starts: Mapping[Place, int], ends: Mapping[Place, int]
    ) -> Generator[tuple[Place, Entry], None, None]:
        """Yield what lies between two offsets of each partition, in each one's order.

        Afterwards nothing is read any more: end or close it before you `start` anything else.

        Raises
        ------
        ConnectionError
            If nothing comes for long though something is there.
        """
        next_at = {place: at for place, at in starts.items() if at < ends[place]}
        self.start(next_at)
        try:
            yield from self._read_to(next_at, ends)
        finally:
            # Whatever is asked next would wait behind a fetch of what is not there yet. Whoever
            # stopped in between may have closed the client.
            with suppress(RuntimeError):
                self._consumer.unassign()

    def _read_to(
        self, next_at: dict[Place, int], ends: Mapping[Place, int]
    ) -> Iterator[tuple[Place, Entry]]:
        tries = 0
        moved_s = time.monotonic()
        while next_at:
            entries = self.batch(POLL_S)
            for place, entry in entries:
                if place in next_at and next_at[place] <= entry.offset < ends[place]:
                    next_at[place] = entry.offset + 1
                    yield place, entry
            # The last offsets may be compacted away, or marks of transactions.
            done = [p for p, at in next_at.items() if at >= ends[p] or p in self._ended]
            for place in done:
                del next_at[place]
            if entries or done:
                tries, moved_s = 0, time.monotonic()
            elif time.monotonic() - moved_s > SILENCE_S:
                tries += 1
                if tries == MAX_TRIES:
                    raise ConnectionError(
                        f"Kafka at {self._settings.bootstrap}: nothing comes from "
                        f"{', '.join(f'{topic}[{p}]@{at}' for (topic, p), at in next_at.items())}"
                    )
                moved_s = time.monotonic()
                self.start(next_at)

    @property
    def ended(self) -> frozenset[Place]:
        """Partitions whose end was reached, with no record since."""
        return frozenset(self._ended)

    def _failed(self, error: KafkaException) -> ConnectionError:
        return ConnectionError(f"Kafka at {self._settings.bootstrap}: {error.args[0].str()}")


def _entry(message: "Message[bytes, bytes]") -> Entry:
    kind, at_ms = message.timestamp()
    headers = message.headers() or []
    pairs = headers.items() if isinstance(headers, dict) else headers
    return Entry(
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        timestamp_ms=None if kind == TIMESTAMP_NOT_AVAILABLE else at_ms,
        key=message.key(),
        value=message.value(),
        headers=tuple((k, v.encode() if isinstance(v, str) else v) for k, v in pairs),
    )


def now_ms() -> int:
    """Return the time, milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
