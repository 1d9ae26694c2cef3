"""Values on the wire: what is right comes back, and everything else is one typed error."""

import struct

import pytest

from schemas import avro
from schemas.codec import Codec, DecodeError, from_datum
from schemas.enums import ProbeStatus
from schemas.framing import ConfluentFramer, FramingError, SingleObjectFramer
from schemas.records import PathTrace
from schemas.topics import PATH_TRACE, PROBE_ROUND, TOPICS, Topic
from tests.unit.schemas.golden import all_goldens

GOLDENS = {(g.topic, g.style): g for g in all_goldens() if g.schema == avro.current(g.topic)}
FULL = GOLDENS[PROBE_ROUND.name, "full"].framed
HEADER_BYTES = 10
# Avro's zigzag varint of 2**62: an array, or a string, that claims to be that long.
ABSURD_LENGTH = bytes.fromhex("80808080808080808001")


class Ids:
    """A registry of ids that needs no server: the topic's place in the list."""

    def id_of(self, schema: avro.SchemaVersion) -> int:
        """Return the id."""
        return [t.name for t in TOPICS].index(schema.topic) + 1

    def schema_of(self, topic: str, schema_id: int) -> avro.SchemaVersion:
        """Return the schema with that id."""
        if not 1 <= schema_id <= len(TOPICS) or TOPICS[schema_id - 1].name != topic:
            raise FramingError(f"unknown schema id {schema_id} for {topic}")
        return avro.current(topic)


CODECS = {
    "single-object": Codec(bounded=False),
    "confluent": Codec(ConfluentFramer(Ids()), bounded=False),
}


@pytest.mark.parametrize("framing", CODECS)
@pytest.mark.parametrize("topic", TOPICS, ids=lambda t: t.name)
def test_round_trip(topic: Topic, framing: str) -> None:
    """Each record of each topic survives both framings."""
    record = Codec(bounded=False).decode(topic, GOLDENS[topic.name, "full"].framed)
    codec = CODECS[framing]
    assert codec.decode(topic, codec.encode(topic, record)) == record


@pytest.mark.parametrize("topic", TOPICS, ids=lambda t: t.name)
def test_whoever_knows_a_registry_reads_both_framings(topic: Topic) -> None:
    """Records from before a registry came, and from after it went, are read as they are."""
    record = Codec(bounded=False).decode(topic, GOLDENS[topic.name, "full"].framed)
    readers = (CODECS["confluent"], Codec(SingleObjectFramer(Ids()), bounded=False))
    for reader in readers:
        for writer in CODECS.values():
            assert reader.decode(topic, writer.encode(topic, record)) == record
    # Which one it writes is a setting of its own.
    assert [reader.encode(topic, record)[:1] for reader in readers] == [b"\x00", b"\xc3"]


def test_error_names_topic_partition_and_offset() -> None:
    """The one that must find the record in the log can."""
    with pytest.raises(DecodeError) as caught:
        Codec().decode(PROBE_ROUND, b"", partition=3, offset=42)
    error = caught.value
    assert (error.topic, error.partition, error.offset) == ("probe.round.v1", 3, 42)
    assert str(error).startswith("probe.round.v1[3]@42: ")


BAD_VALUES: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "0 bytes, the first are none"),
    "half a header": (FULL[:9], "9 bytes"),
    "header only": (FULL[:HEADER_BYTES], "not a probe.round.v1 datum"),
    "other marker": (b"\xff\xff" + FULL[2:], "the first are ffff: neither c301"),
    "the other framing": (
        struct.pack(">bI", 0, 7) + FULL[HEADER_BYTES:],
        "Confluent framing",
    ),
    "unknown fingerprint": (FULL[:2] + bytes(8) + FULL[HEADER_BYTES:], "unknown schema finger"),
    "another topic's schema": (GOLDENS["anomaly.v1", "full"].framed, "unknown schema finger"),
    "truncated": (FULL[:-1], "not a probe.round.v1 datum"),
    "trailing byte": (FULL + b"\x00", "1 bytes after the end"),
    "absurd string length": (FULL[:HEADER_BYTES] + ABSURD_LENGTH, "not a probe.round.v1 datum"),
    "negative string length": (FULL[:HEADER_BYTES] + b"\x01", "not a probe.round.v1 datum"),
    "too large": (FULL + bytes(avro.MAX_VALUE_BYTES), "a value has at most"),
}


@pytest.mark.parametrize("name", BAD_VALUES)
def test_bad_value_is_a_decode_error(name: str) -> None:
    """Nothing but DecodeError comes out, and it says what was wrong."""
    value, message = BAD_VALUES[name]
    with pytest.raises(DecodeError) as caught:
        Codec().decode(PROBE_ROUND, value)
    assert message in str(caught.value)


def test_array_that_claims_to_be_endless_costs_nothing() -> None:
    """The count of an array is the sender's word; its items must be there."""
    prefix = GOLDENS[PROBE_ROUND.name, "sparse"].framed[:-1]  # the last byte is the empty array
    with pytest.raises(DecodeError):
        Codec().decode(PROBE_ROUND, prefix + ABSURD_LENGTH)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"\x00\x00\x00", "a Confluent header has 5"),
        (b"\x01" + bytes(8), "the first are 0100: neither c301"),
        (struct.pack(">bI", 0, 999), "unknown schema id 999"),
        (struct.pack(">bI", 0, 2), "unknown schema id 2"),
    ],
    ids=["short", "magic", "unknown id", "id of another topic"],
)
def test_bad_confluent_header_is_a_decode_error(value: bytes, message: str) -> None:
    """The registry's framing is as strict."""
    with pytest.raises(DecodeError) as caught:
        CODECS["confluent"].decode(PROBE_ROUND, value)
    assert message in str(caught.value)


def test_record_of_another_topic_is_a_programming_error() -> None:
    """A record cannot be written to a topic that is not its own."""
    record = Codec(bounded=False).decode(PROBE_ROUND, FULL)
    with pytest.raises(TypeError, match=r"path\.trace\.v1 takes PathTrace, not ProbeRound"):
        Codec().encode(PATH_TRACE, record)


def test_symbol_of_a_later_version_is_unknown() -> None:
    """An enum symbol that this program does not know is read as UNKNOWN, not refused."""
    datum = dict(GOLDENS[PATH_TRACE.name, "full"].datum, cause="BY_TELEPATHY")
    assert from_datum(PathTrace, datum).cause.value == "UNKNOWN"
    assert "UNKNOWN" in {s.value for s in ProbeStatus}
