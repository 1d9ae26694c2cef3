"""The messages of a poll as records, read together where there are many of a topic.

A start, a storm and the heartbeats of a large cluster are hundreds of messages of one topic a poll.
The kernel that all readers share takes a fraction of what decoding them one by one does.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, Final

import numpy as np
from confluent_kafka import Message

from localizer.collectives import operation_fold
from localizer.collectives.batch_reader import BatchReader
from localizer.facts.heartbeats import HeartbeatBatch, HeartbeatReader
from localizer.network.trace_batches import TraceBatch
from localizer.network.trace_reader import Places, TraceReader
from schemas import topics
from schemas.bounds import arrival_of
from schemas.codec import Codec
from schemas.columns.arrays import Int64s
from schemas.columns.records import NO_ARRIVAL, RecordReader
from schemas.topics import Topic
from schemas.units import MS_NS

# Those of which many come at once.
MANY: Final = (
    topics.HEARTBEAT, topics.ANOMALY, topics.ENDPOINT, topics.COMPONENT_STATE, topics.PINGLIST,
)  # fmt: skip
# Fewer are decoded sooner one by one.
LEAST: Final = 8


def raw_bytes(value: str | bytes | None) -> bytes | None:
    """Return a key or a value as bytes, whichever the client has made of it."""
    return value.encode() if isinstance(value, str) else value


Read = Callable[[Sequence[Message]], Sequence[Any]]


class PollReader:
    """Reads messages together where there are many of a topic.

    Parameters
    ----------
    readers
        By topic, what returns the records of messages.
    warm
        Compiles their kernels, some seconds once after an installation, or reads them from disk.
    """

    def __init__(self, readers: Mapping[Topic, Read], warm: Callable[[], None]) -> None:
        self._readers = readers
        self.warm = warm

    def read(self, messages: Sequence[tuple[Topic, Message]]) -> dict[int, Any]:
        """Return by message (its id) the record, or what is kept of it.

        What is missing, or None, somebody has to decode by itself.
        """
        by_topic: defaultdict[Topic, list[Message]] = defaultdict(list)
        for topic, message in messages:
            by_topic[topic].append(message)
        found: dict[int, Any] = {}
        for topic, own in by_topic.items():
            read = self._readers.get(topic)
            if len(own) < LEAST or read is None:
                continue
            found |= zip(map(id, own), read(own), strict=True)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PollBatches:
    """The messages of a poll.

    Attributes
    ----------
    heartbeats, traces
        Those that are columns; None: there are none, or few.
    others
        The messages that are in neither, in order.
    read
        By message (its id) the record, or what is kept of it. What is missing, or None, somebody
        has to decode by itself.
    """

    heartbeats: HeartbeatBatch | None
    traces: TraceBatch | None
    others: list[tuple[Topic, Message]]
    read: dict[int, Any]


class NetworkReader(PollReader):
    """Reads the localizer's inputs.

    Its records are those that `codec` decodes, but of traces what is kept of them.
    """

    def __init__(self, codec: Codec, cluster: str) -> None:
        self._heartbeats = HeartbeatReader(codec, cluster)
        self._traces = TraceReader(codec, cluster)
        plain = {topic: _unkeyed(RecordReader(codec, topic).read) for topic in MANY}
        super().__init__({topics.PATH_TRACE: self._read_traces, **plain}, self._traces.warm)

    def _read_traces(self, messages: Sequence[Message]) -> Sequence[Any]:
        return self._traces.read(_keys(messages), _values(messages), _arrivals_ns(messages))

    def read_batches(self, messages: Sequence[tuple[Topic, Message]]) -> PollBatches:
        """Return heartbeats and traces as columns, where there are many, and the others."""
        heartbeats, traces = None, None
        gone: set[int] = set()
        read: dict[int, Any] = {}
        own = _timed(messages, topics.HEARTBEAT)
        if len(own) >= LEAST:
            heartbeats, taken = self._heartbeats.read_batch(*_with_places(own))
            gone.update(map(id, compress(own, taken.tolist())))
        own = _timed(messages, topics.PATH_TRACE)
        if len(own) >= LEAST:
            traces, taken, kept = self._traces.read_batch(*_with_places(own))
            gone.update(map(id, compress(own, taken.tolist())))
            left = compress(own, (~taken).tolist())
            read |= zip(map(id, left), kept, strict=True)
        others = [each for each in messages if id(each[1]) not in gone]
        read |= self.read([each for each in others if id(each[1]) not in read])
        return PollBatches(heartbeats=heartbeats, traces=traces, others=others, read=read)


def collective_reader(codec: Codec) -> PollReader:
    """Return what reads the hang watcher's inputs."""
    ranks, sockets = BatchReader(codec), RecordReader(codec, topics.COLLECTIVE_FLOW)
    readers = {
        topics.COLLECTIVE_OP: _unkeyed(ranks.read),
        topics.COLLECTIVE_FLOW: _unkeyed(sockets.read),
    }

    def warm() -> None:
        ranks.warm()
        operation_fold.warm()

    return PollReader(readers, warm)


def _timed(messages: Sequence[tuple[Topic, Message]], wanted: Topic) -> list[Message]:
    """Return the messages of a topic with times that a column holds."""
    own = (message for topic, message in messages if topic is wanted)
    return [message for message in own if arrival_of(message.timestamp()) is not None]


def _keys(messages: Sequence[Message]) -> list[bytes]:
    return [raw_bytes(message.key()) or b"" for message in messages]


def _values(messages: Sequence[Message]) -> list[bytes]:
    return [raw_bytes(message.value()) or b"" for message in messages]


def _arrivals_ns(messages: Sequence[Message]) -> Int64s:
    arrivals_ns = [arrival_of(message.timestamp()) for message in messages]
    return np.array([NO_ARRIVAL if ns is None else ns for ns in arrivals_ns], np.int64)


def _with_places(
    messages: Sequence[Message],
) -> tuple[list[bytes], list[bytes], Int64s, Places]:
    places = Places(
        np.array([int(message.timestamp()[1]) * MS_NS for message in messages], np.int64),
        np.array([int(message.partition() or 0) for message in messages], np.int64),
        np.array([int(message.offset() or 0) for message in messages], np.int64),
    )
    return _keys(messages), _values(messages), _arrivals_ns(messages), places


def _unkeyed(read: Callable[[Sequence[bytes], Int64s], Sequence[Any]]) -> Read:
    return lambda messages: read(_values(messages), _arrivals_ns(messages))
