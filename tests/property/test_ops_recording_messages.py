"""A kernel reads a block of records as fastavro does, or leaves it to fastavro."""

import io
import tempfile
from pathlib import Path
from typing import Any, cast

import fastavro
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.recording import message_kernel as kernel
from ops.recording import messages
from ops.recording.container import BlockExtent, ContainerReader, ContainerWriter, DamageError
from ops.recording.message_plan import MAX_DEPTH, Column, make_plan
from ops.recording.shape import shape_of
from schemas import avro
from schemas.avro import SchemaVersion
from schemas.codec import Codec, to_datum
from schemas.columns.interpreter import PAD_BYTES
from schemas.columns.plan import PlanError
from schemas.columns.wire import BAD
from schemas.enums import ClockSource, ProbeStatus, Transport
from schemas.topics import PROBE_ROUND, TOPICS, Topic
from tests.unit.ops.recording_samples import probe_round

# Compiled here rather than in the first example.
messages.read(PROBE_ROUND, b"", 0, b"")

SHAPE = shape_of(PROBE_ROUND)
EMPTY: dict[str, Any] = {
    "partition": 0, "offset": 0, "timestamp_ms": None, "key": "k", "value": None, "headers": [],
    "key_bytes": None, "value_bytes": None, "decode_error": None,
}  # fmt: skip
CODEC = Codec(bounded=False)
HEADER = CODEC.framer.header(avro.current(PROBE_ROUND.name))
LONG = st.integers(-(2**62), 2**62)
# Some beyond ASCII: fastavro's.
TEXT = st.one_of(
    st.text(alphabet="abc/-0", max_size=30),
    st.text(alphabet="abc/-0", max_size=30),
    st.text(alphabet=st.characters(codec="utf-8"), max_size=4),
)


def symbol(of: type[ClockSource | ProbeStatus | Transport]) -> st.SearchStrategy[str]:
    """Return symbols of an enum, and now and then one of a later version."""
    return st.sampled_from([*(member.value for member in of)] * 8 + ["LATER", "A" * 17])


RESULT = st.fixed_dictionaries(
    {
        "src": TEXT,
        "dst": TEXT,
        "flow": st.integers(0, 2**31 - 1),
        "sent_offset_ns": LONG,
        "transport": symbol(Transport),
        "status": symbol(ProbeStatus),
        "rtt_ns": st.none() | LONG,
        "prober_delay_ns": st.none() | LONG,
        "responder_delay_ns": st.none() | LONG,
        "clock": symbol(ClockSource),
    }
)
VALUE = st.fixed_dictionaries(
    {
        "cluster": TEXT,
        "agent_id": TEXT,
        "host_id": TEXT,
        "incarnation": LONG,
        "round_seq": LONG,
        "started_at": st.integers(-(2**59), 2**59),
        "interval_ns": LONG,
        "pinglist_version": st.none() | LONG,
        "producer_version": st.none() | TEXT,
        "results": st.lists(RESULT, max_size=4),
    }
)
RECORD = st.fixed_dictionaries(
    {
        "partition": st.integers(0, 2),
        "offset": st.integers(0, 2**40),
        "timestamp_ms": st.none() | st.integers(0, 2**43),
        "key": st.one_of(TEXT, TEXT, TEXT, st.none()),
        "value": st.one_of(VALUE, VALUE, VALUE, VALUE, st.none()),
        "headers": st.lists(
            st.fixed_dictionaries({"name": TEXT, "value": st.none() | st.binary(max_size=9)}),
            max_size=2,
        ),
        "key_bytes": st.none(),
        "value_bytes": st.none(),
        "decode_error": st.none(),
    }
)


def content_of(records: list[dict[str, Any]]) -> bytes:
    """Return the records as a block holds them."""
    out = io.BytesIO()
    for record in records:
        fastavro.schemaless_writer(out, SHAPE.plain, record)
    return out.getvalue()


def by_fastavro(content: bytes, count: int) -> list[dict[str, Any]] | None:
    """Return the records of a block; None if it is damaged."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "a.avro"
        ContainerWriter(path, SHAPE.written).close()
        reader = ContainerReader(path, SHAPE.plain)
        try:
            return reader.records(BlockExtent(0, count, 0, 0), content)
        except DamageError:
            return None
        finally:
            reader.close()


def is_plain(record: dict[str, Any]) -> bool:
    """Return whether the kernel takes a record: ASCII, a key, known symbols."""
    value = record["value"]
    if record["key"] is None:
        return False
    if value is None:
        return all(t.isascii() for t in (record["key"], *(h["name"] for h in record["headers"])))
    texts = [record["key"], value["cluster"], value["agent_id"], value["host_id"]]
    texts += [value["producer_version"] or "", *(h["name"] for h in record["headers"])]
    known = True
    for result in value["results"]:
        texts += [result["src"], result["dst"]]
        known &= result["transport"] in list(Transport) and result["clock"] in list(ClockSource)
        known &= result["status"] in list(ProbeStatus)
    return known and all(text.isascii() for text in texts)


def same(block: messages.MessageBlock, records: list[dict[str, Any]]) -> None:
    """Check what a kernel read against what fastavro reads, field by field."""
    for partition in {r["partition"] for r in records}:
        own = [r for r in records if r["partition"] == partition]
        found = list(block.of(partition))
        assert [f.entry for f in found] == [SHAPE.entry(r, CODEC) for r in own]
        for one, record in zip(found, own, strict=True):
            value = record["value"]
            if value is None:
                assert (one.end_ms, one.results) == (0, 0)
                continue
            last_ns = max((r["sent_offset_ns"] for r in value["results"]), default=0)
            assert one.end_ms == value["started_at"] // 1000 + last_ns // 10**6 + 1
            assert one.results == len(value["results"])
    heads = {h.partition: h for h in block.heads()}
    assert heads.keys() == {r["partition"] for r in records}
    for partition, head in heads.items():
        own = [r for r in records if r["partition"] == partition]
        times = [r["timestamp_ms"] for r in own if r["timestamp_ms"] is not None]
        assert head.records == len(own)
        assert head.tombstones == sum(r["value"] is None for r in own)
        assert head.times_ms.tolist() == [r["timestamp_ms"] or 0 for r in own]
        assert (head.first_offset, head.last_offset) == (own[0]["offset"], own[-1]["offset"])
        assert head.first_ms == min(times, default=None)
        assert head.last_ms == max(times, default=None)


@settings(max_examples=150)
@given(st.lists(RECORD, max_size=5))
def test_plain_rounds_are_read_as_fastavro_reads_them(records: list[dict[str, Any]]) -> None:
    """Messages to the byte, ends, results, counts; anything unusual is left alone."""
    content = content_of(records)
    block = messages.read(PROBE_ROUND, content, len(records), HEADER)
    assert (block is not None) == all(map(is_plain, records))
    if block is not None:
        same(block, records)


PLAIN = st.lists(RECORD.filter(is_plain), min_size=1, max_size=4)


@settings(max_examples=300)
@given(PLAIN, st.data())
def test_damage_is_never_read(records: list[dict[str, Any]], data: st.DataObject) -> None:
    """Bytes changed, cut or added: what the kernel still takes, fastavro takes, and the same."""
    content = bytearray(content_of(records))
    count = len(records) + data.draw(st.sampled_from([0, 0, 0, 1, -1, 2**26]))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content)))
        kind = data.draw(st.sampled_from(["flip", "cut", "put"]))
        if kind == "flip" and at < len(content):
            content[at] = data.draw(st.integers(0, 255))
        elif kind == "cut":
            del content[at : at + data.draw(st.integers(1, 9))]
        else:
            content[at:at] = data.draw(st.binary(min_size=1, max_size=12))
    block = messages.read(PROBE_ROUND, bytes(content), count, HEADER)
    if block is not None:
        found = by_fastavro(bytes(content), count)
        assert found is not None
        decoded = [f.entry.value and CODEC.decode_datum(PROBE_ROUND, f.entry.value)
                   for p in range(-1, 300) for f in block.of(p)]  # fmt: skip
        kept = [r["value"] for p in range(-1, 300) for r in found if r["partition"] == p]
        assert decoded == kept


@pytest.mark.parametrize("before", [0, 2, 128, 255])
@pytest.mark.parametrize("rest", [b"", b"\0\2\0"], ids=["value", "header"])
def test_a_number_too_long_ends_the_walk(before: int, rest: bytes) -> None:
    """Nothing is read of what stands before the block, whatever it is."""
    overlong = b"\xff" * 9 + b"\x02"
    # Up to a branch that is no number. Whoever read on before the block, and found a 0 there, would
    # take the first three bytes for the end of this record, and the rest for one more: the key of
    # the first holds the head of that one, and of a header that hides the number.
    key = b"\0\2\2k\0\2\0\2" + bytes([2 * len(rest + overlong)])
    content = b"\0\0\0\2" + bytes([2 * len(key)]) + key + rest + overlong + bytes(4)
    plan = make_plan(avro.current(PROBE_ROUND.name))
    data = np.frombuffer(bytes([before]) + content + bytes(PAD_BYTES), np.uint8)[1:]
    out = np.empty(2 * len(data), np.uint8)
    places = np.empty((2, len(Column)), np.int64)
    end = kernel.read_block(
        data, len(content), 2, plan, np.zeros(8, np.uint8), out, places,
        np.zeros(MAX_DEPTH, np.int64),
    )  # fmt: skip
    assert end == BAD


def values(node: Any, enums: Any) -> st.SearchStrategy[Any]:
    """Return values of a schema, those of enums as recordings have them: strings."""
    if isinstance(node, list):
        return st.none() | values(node[1], enums[1])
    kind = node["type"] if isinstance(node, dict) else node
    if isinstance(enums, dict) and enums["type"] == "enum":
        return st.sampled_from(enums["symbols"])
    if kind == "record":
        fields = zip(node["fields"], enums["fields"], strict=True)
        return st.fixed_dictionaries(
            {field["name"]: values(field["type"], wire["type"]) for field, wire in fields}
        )
    if kind == "array":
        return st.lists(values(node["items"], enums["items"]), max_size=3)
    plain: dict[str, st.SearchStrategy[Any]] = {
        "string": st.text(alphabet="abc-/", max_size=12),
        "int": st.integers(-(2**31), 2**31 - 1),
        "long": LONG,
        "double": st.floats(allow_nan=False),
        "boolean": st.booleans(),
        "bytes": st.binary(max_size=9),
    }
    return plain[kind]


@pytest.mark.parametrize("topic", TOPICS, ids=lambda t: t.name)
def test_every_topic_has_a_plan(topic: Topic) -> None:
    """Whatever a record of the contract says, the kernel makes the codec's message of it."""
    shape, current = shape_of(topic), avro.current(topic.name)
    (field,) = (f for f in shape.plain["fields"] if f["name"] == "value")
    header = CODEC.framer.header(current)

    @settings(max_examples=25)
    @given(st.lists(values(field["type"][1], current.parsed), min_size=1, max_size=3))
    def check(said: list[Any]) -> None:
        records = [{**EMPTY, "offset": number, "value": value} for number, value in enumerate(said)]
        out = io.BytesIO()
        for record in records:
            fastavro.schemaless_writer(out, shape.plain, record)
        block = messages.read(topic, out.getvalue(), len(records), header)
        assert block is not None
        assert [m.entry for m in block.of(0)] == [shape.entry(r, CODEC) for r in records]

    check()


@pytest.mark.parametrize("name", ["results", "started_at", "cluster"])
def test_a_schema_without_a_plan_says_why(name: str) -> None:
    """A field of a kind that no plan knows, or one that is missing, is no plan."""
    current = avro.current(PROBE_ROUND.name)
    parsed = dict(current.parsed)
    parsed["fields"] = [
        {**f, "type": ["null", "long", "string"]} if f["name"] == name else f
        for f in parsed["fields"]
    ]
    with pytest.raises(PlanError):
        make_plan(cast(SchemaVersion, _Parsed(parsed)))


def test_no_more_room_is_made_than_records_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """A count that the content cannot hold makes no arrays; the least record there is, one."""
    least = content_of([{**EMPTY, "key": ""}])
    assert len(least) == kernel.MIN_RECORD_BYTES
    block = messages.read(PROBE_ROUND, least, 1, HEADER)
    assert block is not None
    assert (block.within(1), block.within(0)) == (True, False)
    monkeypatch.setattr(np, "empty", lambda *_: pytest.fail("room was made"))
    assert messages.read(PROBE_ROUND, least, 2, HEADER) is None


def test_symbols_of_a_later_version_become_their_defaults() -> None:
    """What fastavro reads of them is encoded all the same: a replay of it does not fail."""
    said = {**EMPTY, "value": to_datum(probe_round())}
    for field in ("transport", "status", "clock"):
        said["value"]["results"][0][field] = "LATER"
    content = content_of([said])
    assert messages.read(PROBE_ROUND, content, 1, HEADER) is None
    found = by_fastavro(content, 1)
    assert found is not None
    (record,) = found
    datum = CODEC.decode_datum(PROBE_ROUND, SHAPE.entry(record, CODEC).value or b"")
    first, *others = datum["results"]
    assert {first[field] for field in ("transport", "status", "clock")} == {"UNKNOWN"}
    assert others == said["value"]["results"][1:]


class _Parsed:
    """As much of a schema version as a plan looks at."""

    def __init__(self, parsed: dict[str, Any]) -> None:
        self.topic = PROBE_ROUND.name
        self.parsed = parsed
