"""Whatever bytes come, decoding ends in a record or in a DecodeError that says where they stood."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.avro import MAX_VALUE_BYTES
from schemas.codec import Codec, DecodeError
from schemas.framing import SINGLE_OBJECT_HEADER_BYTES
from schemas.topics import TOPICS, Topic, topic_named
from tests.unit.schemas.golden import Golden, all_goldens

GOLDENS = [g for g in all_goldens() if g.style == "full"]
AT = {"partition": 3, "offset": 77}


def decode(topic: Topic, value: bytes) -> object | None:
    """Return the record, or None where a DecodeError was raised with its place."""
    failure: DecodeError | None = None
    record: object = None
    try:
        record = Codec(bounded=False).decode(topic, value, **AT)
    except DecodeError as error:
        failure = error
    if failure is not None:
        assert (failure.topic, failure.partition, failure.offset) == (topic.name, 3, 77)
        assert f"{topic.name}[3]@77" in str(failure)
    return record


@given(st.sampled_from(GOLDENS), st.data())
def test_truncated_values_never_decode(golden: Golden, data: st.DataObject) -> None:
    """Every proper prefix of a value is an error."""
    end = data.draw(st.integers(0, len(golden.framed) - 1))
    assert decode(topic_named(golden.topic), golden.framed[:end]) is None


@given(st.sampled_from(GOLDENS), st.binary(min_size=1, max_size=64))
def test_trailing_bytes_never_decode(golden: Golden, tail: bytes) -> None:
    """A value that goes on after its datum is an error."""
    assert decode(topic_named(golden.topic), golden.framed + tail) is None


@settings(max_examples=400)
@given(st.sampled_from(GOLDENS), st.data())
def test_mutated_values_decode_or_fail_cleanly(golden: Golden, data: st.DataObject) -> None:
    """Flipped bytes give a record of the right class or a DecodeError, nothing else."""
    value = bytearray(golden.framed)
    for _ in range(data.draw(st.integers(1, 8))):
        place = data.draw(st.integers(SINGLE_OBJECT_HEADER_BYTES, len(value) - 1))
        value[place] = data.draw(st.integers(0, 255))
    topic = topic_named(golden.topic)
    record = decode(topic, bytes(value))
    assert record is None or isinstance(record, topic.record)


@given(st.sampled_from(TOPICS), st.binary(max_size=300))
def test_garbage_never_decodes_silently(topic: Topic, value: bytes) -> None:
    """Bytes without a known header are an error."""
    assert decode(topic, value) is None


@pytest.mark.parametrize("golden", GOLDENS, ids=lambda g: g.topic)
def test_an_absurd_length_is_refused_at_once(golden: Golden) -> None:
    """A string or array that claims exabytes costs neither time nor memory."""
    absurd = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f" * 40
    started = time.process_time()
    value = golden.framed[:SINGLE_OBJECT_HEADER_BYTES] + absurd
    assert decode(topic_named(golden.topic), value) is None
    # Not a speed test: an allocation of what is claimed would not come back at all.
    assert time.process_time() - started < 5.0


def test_a_value_beyond_the_bound_is_refused() -> None:
    """The bound is in the message."""
    golden = GOLDENS[0]
    with pytest.raises(DecodeError, match=str(MAX_VALUE_BYTES)):
        Codec().decode(topic_named(golden.topic), golden.framed + bytes(MAX_VALUE_BYTES))


def test_an_unknown_fingerprint_is_named() -> None:
    """The error says which schema is unknown."""
    golden = GOLDENS[0]
    value = golden.framed[:2] + bytes(range(8)) + golden.framed[10:]
    with pytest.raises(DecodeError, match="fingerprint 0001020304050607"):
        Codec().decode(topic_named(golden.topic), value, **AT)


def test_framings_are_told_apart() -> None:
    """Confluent-framed bytes without a registry say what to set."""
    golden = GOLDENS[0]
    with pytest.raises(DecodeError, match=r"schema\.registry\.url"):
        Codec().decode(topic_named(golden.topic), b"\0\0\0\0\x01" + golden.framed[10:])


@pytest.mark.parametrize("topic", TOPICS, ids=lambda t: t.name)
def test_a_record_of_another_topic_is_not_encoded(topic: Topic) -> None:
    """A programming error stays one."""
    with pytest.raises(TypeError, match=topic.record.__name__):
        Codec().encode(topic, object())
