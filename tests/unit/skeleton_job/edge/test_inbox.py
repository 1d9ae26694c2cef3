"""What the skeleton job takes from a message: the table of bounds holds for its topics."""

from typing import Any, cast

import pytest
from confluent_kafka import Message

from schemas.bounds import BOUNDS, Bound, Measure
from schemas.codec import Codec, DecodeError
from schemas.topics import BY_NAME, SKELETON, Topic
from skeleton_job.edge.inbox import read
from tests.unit.schemas.valid import ARRIVAL_NS, CLUSTER, mutated, probes_of, valid_datum

CODEC = Codec()
ROWS = [
    b for b in BOUNDS if SKELETON in BY_NAME[b.topic].consumers and b.measure is not Measure.ITEMS
]


class Received:
    """A message as a client gives it."""

    def __init__(self, topic: Topic, datum: dict[str, Any]) -> None:
        self._topic = topic
        self._key = str(datum[topic.key_field])
        self._value = CODEC.encode_datum(topic, datum)

    def error(self) -> None:
        """Return that it is a record."""

    def topic(self) -> str:
        """Return the topic's name."""
        return self._topic.name

    def key(self) -> bytes:
        """Return the key."""
        return self._key.encode()

    def value(self) -> bytes:
        """Return the value."""
        return self._value

    def partition(self) -> int:
        """Return the partition."""
        return 1

    def offset(self) -> int:
        """Return the offset."""
        return 7

    def headers(self) -> list[tuple[str, bytes]] | None:
        """Return the headers."""
        return None

    def timestamp(self) -> tuple[int, int]:
        """Return the time of arrival."""
        return 2, ARRIVAL_NS // 10**6


def read_datum(topic: Topic, datum: dict[str, Any]) -> Any:
    """Return the record that the job gets."""
    return read(topic, cast(Message, Received(topic, datum)), CODEC, cluster=CLUSTER)[1]


@pytest.mark.parametrize("bound", ROWS, ids=[f"{b.topic}:{b.field}" for b in ROWS])
def test_each_bound_holds(bound: Bound) -> None:
    """Counters are read by a kernel, the others by the codec: both refuse the same."""
    topic = BY_NAME[bound.topic]
    for value, allowed in probes_of(bound):
        datum = mutated(valid_datum(bound.topic), bound, value)
        if bound.field == topic.key_field and not value:
            continue  # a record without a key
        if allowed:
            assert read_datum(topic, datum) is not None
            continue
        try:
            with pytest.raises(DecodeError, match=bound.field):
                read_datum(topic, datum)
        except (OverflowError, ValueError):
            continue  # no encoder writes it
