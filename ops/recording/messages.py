"""Blocks of records as messages, read many at a time by a kernel."""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, cast

import fastavro
import numpy as np

from ops.log.entry import Entry, Headers
from ops.recording import message_kernel as kernel
from ops.recording.message_plan import MAX_DEPTH, Column, Plan, make_plan
from ops.recording.order import MAX_LEAD_MS
from ops.recording.rounds import FiledRounds
from ops.recording.shape import shape_of
from schemas import avro
from schemas.columns.arrays import Int64s
from schemas.columns.interpreter import NULL, PAD_BYTES
from schemas.columns.plan import PlanError
from schemas.columns.wire import WORD_BYTES
from schemas.topics import PROBE_ROUND, Topic
from schemas.units import MS_NS, US_PER_MS
from streams.core.feed import LogMessage


class Message(NamedTuple):
    """A record as Kafka held it; of a round also up to when it goes, and its results.

    `end_ms` is when the last probe was sent (rounded up), `results` how many there are; 0 for all
    else.
    """

    entry: Entry
    end_ms: int
    results: int


class Head(NamedTuple):
    """What a block says of a partition.

    `times_ms`: of each record, 0 where it has none; `first_ms` and `last_ms` of those that do.
    """

    partition: int
    records: int
    tombstones: int
    first_offset: int
    last_offset: int
    first_ms: int | None
    last_ms: int | None
    times_ms: Int64s


@dataclass(frozen=True, slots=True)
class MessageBlock:
    """The messages of a block.

    Attributes
    ----------
    content : the block's bytes, without compression
    values : the messages' bytes
    places : (n, len(Column)) int64; what the kernel says of each record
    rounds : whether they are rounds
    """

    content: bytes
    values: bytes
    places: Int64s
    rounds: bool

    def within(self, partitions: int) -> bool:
        """Return whether each record is of one of so many partitions."""
        own = self.places[:, Column.PARTITION]
        return bool(((own >= 0) & (own < partitions)).all())

    def heads(self) -> list[Head]:
        """Return what the block says of each partition; a pass over the block for each."""
        return [_head(partition, self._places(partition)) for partition in self._partitions()]

    def of(self, partition: int) -> Iterator[Message]:
        """Yield the messages of a partition, in order."""
        content, values, own = self.content, self.values, self._places(partition)
        ends_ms = _ends_ms(own).tolist() if self.rounds else [0] * len(own)
        for (
            _, offset, timestamp_ms, key_at, key_bytes, at, end, headers_at, headers_end, headers,
            _, _, results,
        ), end_ms in zip(own.tolist(), ends_ms, strict=True):  # fmt: skip
            entry = Entry(
                partition=partition,
                offset=offset,
                timestamp_ms=None if timestamp_ms == NULL else timestamp_ms,
                key=content[key_at : key_at + key_bytes],
                value=None if at < 0 else values[at:end],
                headers=_headers(content[headers_at:headers_end]) if headers else (),
            )
            yield Message(entry, end_ms, results)

    def filed_rounds(self) -> Iterator[FiledRounds]:
        """Yield the rounds of each partition, in the order in which these appear."""
        values = self.values
        for partition in self._partitions():
            own = self._places(partition)
            times_ms, begins = own[:, Column.TIMESTAMP_MS], own[:, Column.VALUE_AT]
            yield FiledRounds(
                partition=partition,
                messages=[
                    LogMessage(
                        values[at:end] if at >= 0 else b"",
                        offset,
                        None if timestamp_ms == NULL else timestamp_ms,
                    )
                    for at, end, offset, timestamp_ms in zip(
                        begins.tolist(), own[:, Column.VALUE_END].tolist(),
                        own[:, Column.OFFSET].tolist(), times_ms.tolist(), strict=True,
                    )
                ],
                times_ms=np.where(times_ms == NULL, 0, times_ms),
                ends_ms=_ends_ms(own),
                results=own[:, Column.RESULTS],
            )  # fmt: skip

    def _partitions(self) -> list[int]:
        """Return the partitions in the order in which they appear."""
        return list(dict.fromkeys(self.places[:, Column.PARTITION].tolist()))

    def _places(self, partition: int) -> Int64s:
        own = self.places[:, Column.PARTITION] == partition
        return self.places if own.all() else self.places[own]


def _ends_ms(places: Int64s) -> Int64s:
    """Return up to when rounds decide things, as `round_end_ms` says; 0 where there is no value."""
    times_ms = places[:, Column.TIMESTAMP_MS]
    sent_ns = np.where(places[:, Column.RESULTS] > 0, places[:, Column.SENT_NS], 0)
    ends_ms = places[:, Column.STARTED_US] // US_PER_MS + sent_ns // MS_NS + 1
    timed = (times_ms != NULL) & (times_ms != 0)
    ends_ms[timed] = np.minimum(ends_ms[timed], times_ms[timed] + MAX_LEAD_MS)
    return np.where(places[:, Column.VALUE_AT] >= 0, ends_ms, 0)


def _head(partition: int, places: Int64s) -> Head:
    offsets, times_ms = places[:, Column.OFFSET], places[:, Column.TIMESTAMP_MS]
    timed = times_ms != NULL
    return Head(
        partition=partition,
        records=len(places),
        tombstones=int((places[:, Column.VALUE_AT] == kernel.NO_VALUE).sum()),
        first_offset=int(offsets[0]),
        last_offset=int(offsets[-1]),
        first_ms=int(times_ms[timed].min()) if timed.any() else None,
        last_ms=int(times_ms[timed].max()) if timed.any() else None,
        times_ms=np.where(timed, times_ms, 0),
    )


def read(topic: Topic, content: bytes, count: int, header: bytes) -> MessageBlock | None:
    """Return the messages of a block; None if fastavro must look at it.

    Parameters
    ----------
    topic
        Of the records.
    content
        So many records, as the current version of the topic's schema has them.
    header
        What goes before each datum.
    """
    plan = _plan(topic.name)
    # No more room than the records can need, whatever the count claims.
    if plan is None or count * kernel.MIN_RECORD_BYTES > len(content):
        return None
    data = np.frombuffer(content + bytes(PAD_BYTES), np.uint8)
    out = np.empty(len(data) + count * len(header), np.uint8)
    places = np.empty((count, len(Column)), np.int64)
    end = kernel.read_block(
        data, len(content), count, plan, np.frombuffer(header + bytes(WORD_BYTES), np.uint8), out,
        places, np.zeros(MAX_DEPTH, np.int64),
    )  # fmt: skip
    if end < 0:
        return None
    return MessageBlock(content, out[:end].tobytes(), places, topic is PROBE_ROUND)


@cache
def _plan(topic: str) -> Plan | None:
    try:
        return make_plan(avro.current(topic))
    except PlanError:
        return None


@cache
def _header_schema() -> dict[str, Any]:
    (field,) = (f for f in shape_of(PROBE_ROUND).plain["fields"] if f["name"] == "headers")
    schema: dict[str, Any] = field["type"]
    return schema


def _headers(content: bytes) -> Headers:
    found = cast(
        list[dict[str, Any]],
        fastavro.schemaless_reader(io.BytesIO(content), _header_schema(), None),
    )
    return tuple((h["name"], h["value"]) for h in found)
