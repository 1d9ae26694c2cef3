"""A poll's messages read together are what the codec makes of each."""

from dataclasses import dataclass
from typing import cast

import pytest
from confluent_kafka import Message

from localizer.edge.batches import LEAST, MANY, NetworkReader, collective_reader
from localizer.network.traces import flow_trace_of
from schemas.codec import Codec
from schemas.topics import COLLECTIVE_FLOW, HEARTBEAT, PATH_TRACE, Topic
from schemas.units import MS_NS
from tests.unit.schemas.valid import ARRIVAL_NS, CLUSTER, valid_datum

CODEC = Codec()


@dataclass
class Received:
    """What the reader asks of a message."""

    own_key: str
    raw: bytes | None
    place: int = 0
    at_ms: int = ARRIVAL_NS // MS_NS

    def key(self) -> str:
        """Return the key."""
        return self.own_key

    def value(self) -> bytes | None:
        """Return the value."""
        return self.raw

    def partition(self) -> int:
        """Return the partition."""
        return 3

    def offset(self) -> int:
        """Return the place in it."""
        return self.place

    def timestamp(self) -> tuple[int, int]:
        """Return the time of arrival."""
        return 2, self.at_ms


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
    reader = collective_reader(CODEC) if of_jobs else NetworkReader(CODEC, CLUSTER)
    read = reader.read(poll)
    record = CODEC.decode(topic, value, arrival_ns=ARRIVAL_NS)
    kept = flow_trace_of(record) if topic is PATH_TRACE else record
    found = [read[id(message)] for _, message in poll]
    assert found == [kept, None, None, *[kept] * LEAST]
    assert reader.read(poll[: LEAST - 1]) == {}


def test_traces_are_taken_out_of_a_poll() -> None:
    """The others stay in order: of other topics, tombstones, garbage, complete ones with gaps."""
    hop = {"ttl": 1, "address": "10.0.0.1", "rtt_ns": 5}
    whole = valid_datum(PATH_TRACE.name) | {"complete": True, "hops": [hop]}
    silent = hop | {"address": None, "rtt_ns": None}
    gaps = whole | {"hops": [silent, hop | {"ttl": 2}]}
    broken = whole | {"complete": False, "hops": [silent]}
    key = str(whole["path_id"])
    values = [CODEC.encode_datum(PATH_TRACE, datum) for datum in (whole, gaps, broken)]
    beat = valid_datum(HEARTBEAT.name)
    raw = [values[0], None, values[1], b"x", *[values[0]] * LEAST, values[2]]
    poll = [(PATH_TRACE, cast(Message, Received(key, one, n))) for n, one in enumerate(raw)]
    value = CODEC.encode_datum(HEARTBEAT, beat)
    poll.insert(2, (HEARTBEAT, cast(Message, Received(str(beat["agent_id"]), value))))
    found = NetworkReader(CODEC, CLUSTER).read_batches(poll)
    batch, others, read = found.traces, found.others, found.read
    assert batch is not None
    kept, uneven, broke_off = (
        flow_trace_of(CODEC.decode(PATH_TRACE, value, arrival_ns=ARRIVAL_NS)) for value in values
    )
    assert list(batch.flow_traces(range(len(batch)))) == [kept] * (1 + LEAST) + [broke_off]
    assert batch.offset.tolist() == [0, *range(4, 5 + LEAST)]
    assert set(batch.partition.tolist()) == {3}
    assert set(batch.at_ns.tolist()) == {ARRIVAL_NS // MS_NS * MS_NS}
    assert others == [poll[place] for place in (1, 2, 3, 4)]
    kept_apart = [read.get(id(message)) for _, message in others]
    assert kept_apart == [None, None, uneven, None]
    few = NetworkReader(CODEC, CLUSTER).read_batches(poll[: LEAST - 1])
    assert (few.traces, few.others, few.read) == (None, poll[: LEAST - 1], {})


@pytest.mark.parametrize("topic", [HEARTBEAT, PATH_TRACE], ids=lambda topic: topic.name)
def test_a_time_that_no_column_holds_is_left_alone(topic: Topic) -> None:
    """A writer's clock may say anything, where the broker does not set the time."""
    datum = valid_datum(topic.name)
    if topic is HEARTBEAT:
        datum |= dict.fromkeys(("probing_reason", "list_refusal", "displaced_by"))
    value, key = CODEC.encode_datum(topic, datum), str(datum[topic.key_field])
    received = [Received(key, value, n) for n in range(LEAST + 1)]
    received[3].at_ms = 2**60
    poll = [(topic, cast(Message, one)) for one in received]
    assert NetworkReader(CODEC, CLUSTER).read_batches(poll).others == [poll[3]]
