"""A poll's messages read together are what the codec makes of each."""

from dataclasses import dataclass
from typing import cast

import pytest
from confluent_kafka import Message

from localizer.edge.batches import LEAST, MANY, collective_reader, network_reader
from localizer.network.traces import flow_trace_of
from schemas.codec import Codec
from schemas.topics import COLLECTIVE_FLOW, PATH_TRACE, Topic
from tests.unit.schemas.valid import ARRIVAL_NS, CLUSTER, valid_datum

CODEC = Codec()


@dataclass
class Received:
    """What the reader asks of a message."""

    own_key: str
    raw: bytes | None

    def key(self) -> str:
        """Return the key."""
        return self.own_key

    def value(self) -> bytes | None:
        """Return the value."""
        return self.raw

    def timestamp(self) -> tuple[int, int]:
        """Return the time of arrival."""
        return 2, ARRIVAL_NS // 10**6


@pytest.mark.parametrize(
    "topic", [*MANY, PATH_TRACE, COLLECTIVE_FLOW], ids=lambda topic: topic.name
)
def test_what_is_read_together_is_what_is_decoded_alone(topic: Topic) -> None:
    """Tombstones and garbage between them are left to the codec, and so are a few messages."""
    datum = valid_datum(topic.name)
    value, key = CODEC.encode_datum(topic, datum), str(datum[topic.key_field])
    poll = [
        (topic, cast(Message, Received(key, raw))) for raw in [value, None, b"x", *[value] * LEAST]
    ]
    of_jobs = topic is COLLECTIVE_FLOW
    reader = collective_reader(CODEC) if of_jobs else network_reader(CODEC, CLUSTER)
    read = reader.read(poll)
    record = CODEC.decode(topic, value, arrival_ns=ARRIVAL_NS)
    kept = flow_trace_of(record) if topic is PATH_TRACE else record
    found = [read[id(message)] for _, message in poll]
    assert found == [kept, None, None, *[kept] * LEAST]
    assert reader.read(poll[: LEAST - 1]) == {}
