"""The messages of a poll as records, read together where there are many of a topic.

A start, a storm and the heartbeats of a large cluster are hundreds of messages of one topic a poll.
The kernel that all readers share takes a fraction of what decoding them one by one does.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from confluent_kafka import Message

from localizer.network.trace_reader import TraceReader
from schemas import topics
from schemas.bounds import arrival_of
from schemas.codec import Codec
from schemas.columns.records import NO_ARRIVAL, RecordReader
from schemas.topics import Topic

# Those of which many come at once.
MANY: Final = (
    topics.HEARTBEAT, topics.ANOMALY, topics.ENDPOINT, topics.COMPONENT_STATE, topics.PINGLIST,
)  # fmt: skip
# Fewer are decoded sooner one by one.
LEAST: Final = 8


def raw_bytes(value: str | bytes | None) -> bytes | None:
    """Return a key or a value as bytes, whichever the client has made of it."""
    return value.encode() if isinstance(value, str) else value


class BatchReader:
    """Reads messages of the localizer's inputs; its records are those that `codec` decodes."""

    def __init__(self, codec: Codec, cluster: str) -> None:
        self._traces = TraceReader(codec, cluster)
        self._records = {topic: RecordReader(codec, topic) for topic in MANY}

    def warm(self) -> None:
        """Compile the kernels, some seconds once after an installation, or read them from disk."""
        self._traces.warm()

    def read(self, messages: Sequence[tuple[Topic, Message]]) -> dict[int, Any]:
        """Return by message (its id) the record, of traces what is kept of it.

        What is missing, or None, somebody has to decode by itself.
        """
        by_topic: defaultdict[Topic, list[Message]] = defaultdict(list)
        for topic, message in messages:
            by_topic[topic].append(message)
        found: dict[int, Any] = {}
        for topic, own in by_topic.items():
            if len(own) < LEAST or (topic not in self._records and topic is not topics.PATH_TRACE):
                continue
            values = [raw_bytes(message.value()) or b"" for message in own]
            arrivals_ns = [arrival_of(message.timestamp()) for message in own]
            known_ns = np.array([NO_ARRIVAL if ns is None else ns for ns in arrivals_ns], np.int64)
            if topic is topics.PATH_TRACE:
                keys = [raw_bytes(message.key()) or b"" for message in own]
                records: Sequence[Any] = self._traces.read(keys, values, known_ns)
            else:
                records = self._records[topic].read(values, known_ns)
            found |= zip(map(id, own), records, strict=True)
        return found
