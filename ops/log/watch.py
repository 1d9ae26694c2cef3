"""Follows topics from the outside: what the demo, the benchmarks and end-to-end tests look at."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from ops.log.reading import LogReader, UnknownTopicError
from schemas.codec import Codec, DecodeError
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.registry import codec_for
from schemas.topics import Topic


@dataclass(frozen=True, slots=True)
class WatchedRecord:
    """A record read from a topic; `record` is None for a tombstone."""

    topic: str
    key: str
    record: Any
    value: bytes | None
    partition: int
    offset: int
    timestamp_ms: int


class Watch:
    """Reads topics by assignment: no consumer group, nothing committed.

    Without `from_start` it begins at their ends as of this instant.

    Raises
    ------
    ConnectionError
        If no broker answers, or a topic is missing.
    """

    def __init__(
        self, settings: KafkaSettings, topics: Iterable[Topic], *, from_start: bool = False
    ) -> None:
        self._codec: Codec = codec_for(settings)
        self._topics = {settings.topic(t.name): t for t in topics}
        self._reader = LogReader(settings)
        self.undecodable = 0
        try:
            ranges = self._reader.partitions(list(self._topics))
        except UnknownTopicError as error:
            raise ConnectionError(f"{error}; run `topics apply`") from error
        self._reader.start({p: r.low if from_start else r.high for p, r in ranges.items()})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(RuntimeError):
            self._reader.__exit__()

    def poll(self, timeout_s: float = 0.1) -> Iterator[WatchedRecord]:
        """Yield what has come within the timeout."""
        for (name, partition), entry in self._reader.batch(timeout_s):
            topic, value = self._topics[name], entry.value
            try:
                record = None if value is None else self._codec.decode(topic, value)
            except DecodeError:
                self.undecodable += 1
                continue
            yield WatchedRecord(
                topic.name,
                (entry.key or b"").decode(errors="replace"),
                record,
                value,
                partition,
                entry.offset,
                entry.timestamp_ms or 0,
            )

    def until(
        self,
        done: Callable[[WatchedRecord], bool],
        timeout_s: float,
        *,
        idle: Callable[[], None] = lambda: None,
    ) -> WatchedRecord | None:
        """Return the first record for which `done` holds, or None after the timeout.

        `idle` is called between polls, for example to draw or to check children.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for seen in self.poll(0.05):
                if done(seen):
                    return seen
            idle()
        return None
