"""A record of a topic, decoded, with the place at which it stood: what readers of topics fold."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ops.log.entry import Entry
from ops.log.windows import SeenWindows, read_windows
from schemas.codec import Codec, DecodeError
from schemas.columns.arrays import Bools
from schemas.columns.records import NO_ARRIVAL, RecordColumns, RecordReader
from schemas.enums import AnomalyKind
from schemas.topics import (
    BY_NAME,
    ENDPOINT,
    HEARTBEAT,
    PROBE_ROUND,
    PROBE_WINDOW,
    RNIC_COUNTERS,
    Topic,
)

# What is most of the others, and can be read by kernels.
MANY: Final = (PROBE_WINDOW, HEARTBEAT, ENDPOINT)
# Fewer are decoded sooner one by one.
LEAST: Final = 8
# Most of all records, of which readers of states want no more than that they came, and when.
NOT_DECODED: Final = (PROBE_ROUND, RNIC_COUNTERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRecord:
    """A record of a topic.

    Attributes
    ----------
    topic, partition, offset
        Where it stood.
    timestamp_ms
        Its Kafka timestamp, milliseconds since the epoch; None where the broker has none.
    key
        Its key as text.
    record
        The decoded value; None for a tombstone, for what was refused, and in topics that are
        not decoded.
    refused
        Why it could not be used; None: it could.
    """

    topic: Topic
    partition: int
    offset: int
    timestamp_ms: int | None
    key: str
    record: Any | None = None
    refused: str | None = None

    @property
    def tombstone(self) -> bool:
        """Whether it says that its key is gone."""
        return self.record is None and self.refused is None and self.topic not in NOT_DECODED


Seen = SeenRecord | SeenWindows


def decode(topic: Topic, entry: Entry, codec: Codec) -> SeenRecord:
    """Return the record of an entry; what cannot be decoded says why.

    A record with the key of another is refused as everywhere: what it says must not pass for
    another's state. Event times are not held against the record's arrival: whoever looks at agents
    wants to see those whose clocks are ahead.
    """
    record: Any | None = None
    if entry.value is not None and topic not in NOT_DECODED:
        try:
            record = codec.decode(
                topic, entry.value, partition=entry.partition, offset=entry.offset
            )
        except DecodeError as error:
            return _seen(topic, entry, None, error.reason)
    return _seen(topic, entry, record)


class BatchDecoder:
    """Decodes many records at once: what `decode` returns, for less."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._readers = {topic: RecordReader(codec, topic) for topic in MANY}

    def decode(self, entries: Iterable[tuple[Topic, Entry]]) -> Iterator[Seen]:
        """Yield records of any topics: those of a partition in their order."""
        places: defaultdict[tuple[str, int], list[Entry]] = defaultdict(list)
        for topic, entry in entries:
            places[topic.name, entry.partition].append(entry)
        for (name, _), own in places.items():
            topic = BY_NAME[name]
            reader = self._readers.get(topic)
            if reader is None or len(own) < LEAST:
                yield from (decode(topic, entry, self._codec) for entry in own)
                continue
            values = [entry.value or b"" for entry in own]
            arrivals_ns = np.full(len(own), NO_ARRIVAL)
            if topic is PROBE_WINDOW:
                for block in reader.columns(values, arrivals_ns):
                    yield from self._windows(
                        own[block.first : block.first + len(block.whole)], block
                    )
            else:
                records = reader.read(values, arrivals_ns)
                for entry, record in zip(own, records, strict=True):
                    if record is None:
                        yield decode(topic, entry, self._codec)
                    else:
                        yield _seen(topic, entry, record)

    def _windows(self, entries: Sequence[Entry], block: RecordColumns) -> Iterator[Seen]:
        """Yield windows as columns, broken off where one has to be looked at by itself."""
        good = block.whole.copy()
        keys = [(entries[place].key or b"").decode(errors="replace") for place in _places(good)]
        good[good] = np.fromiter(map(str.__eq__, block.texts("path_id"), keys), np.bool_, len(keys))
        row = np.cumsum(block.whole) - 1
        windows = read_windows(block)
        offsets = np.array([entry.offset for entry in entries], np.int64)
        timestamps_ms = np.array([max(entry.timestamp_ms or 0, 0) for entry in entries], np.int64)
        first = 0
        for end in (*_places(~good), len(entries)):
            if end > first:
                yield SeenWindows(
                    partition=entries[first].partition,
                    offsets=offsets[first:end],
                    timestamps_ms=timestamps_ms[first:end],
                    windows=windows[int(row[first]) : int(row[end - 1]) + 1],
                )
            if end < len(entries):
                yield decode(PROBE_WINDOW, entries[end], self._codec)
            first = end + 1


def _places(chosen: Bools) -> list[int]:
    found: list[int] = np.flatnonzero(chosen).tolist()
    return found


def _seen(topic: Topic, entry: Entry, record: Any | None, refused: str | None = None) -> SeenRecord:
    """Return a record with its place, if it bears its own key."""
    key = (entry.key or b"").decode(errors="backslashreplace")
    if record is not None:
        own = getattr(record, topic.key_field)
        if own != key and getattr(record, "kind", None) is not AnomalyKind.PROGRESS:
            record, refused = None, f"key {key!r} is not its {topic.key} {own!r}"
    return SeenRecord(
        topic=topic,
        partition=entry.partition,
        offset=entry.offset,
        timestamp_ms=entry.timestamp_ms,
        key=key,
        record=record,
        refused=refused,
    )
