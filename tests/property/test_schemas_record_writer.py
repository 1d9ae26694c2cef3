"""Records are written in C as fastavro writes them, byte by byte, or left to it."""

import gc
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import avro, record_writer, topics
from schemas.avro import SchemaVersion, current, load_version, write_datum
from schemas.codec import Codec, to_datum
from schemas.record_writer import Node, UnplannedError, native, plan_of, writer_of
from schemas.topics import Topic

pytestmark = pytest.mark.skipif(native is None, reason="the C code was not compiled here")

TOPICS: Final = tuple(t for t in vars(topics).values() if isinstance(t, Topic))
HEAD: Final = b"\xc3\x01head"
LONGS: Final = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 62).map(lambda bits: 2**bits)
PLAIN: Final[dict[int, st.SearchStrategy[Any]]] = {
    2: LONGS,
    3: st.integers(-(2**31), 2**31 - 1),
    4: st.text(max_size=20),
    5: st.binary(max_size=20),
    6: st.floats(),
    7: st.booleans(),
}
# What a field may hold by mistake: of another type, out of its range, or no text at all.
STRANGE: Final = st.sampled_from(
    [None, True, 1.5, 2**63, -(2**63) - 1, "\ud800", "text", b"bytes", (), [], object(), (None,)]
)


def values(node: Node) -> st.SearchStrategy[Any]:
    """Return what a node of a plan may hold."""
    kind, nullable, record, names, children = node
    if kind == 0 and record is not None:
        parts = dict(zip(names, map(values, children), strict=True))
        found: st.SearchStrategy[Any] = st.builds(record, **parts)
    elif kind == 1:
        found = st.lists(values(children[0]), max_size=3).map(tuple)
    elif kind == 8:
        found = st.sampled_from(names)
    else:
        found = PLAIN[kind]
    return st.none() | found if nullable else found


@pytest.mark.parametrize("topic", TOPICS, ids=lambda t: t.name)
def test_every_topic_is_written_as_fastavro_does(topic: Topic) -> None:
    """All topics of the contract have a writer, and it writes the same bytes."""
    writer = writer_of(topic)
    assert writer is not None
    schema = current(topic.name)

    @settings(max_examples=60, deadline=None)
    @given(values(plan_of(topic)))
    def holds(record: object) -> None:
        assert writer is not None
        assert writer.write(HEAD, record) == HEAD + write_datum(schema, to_datum(record))

    holds()


@settings(max_examples=300, deadline=None)
@given(st.data(), st.sampled_from(TOPICS))
def test_what_is_not_plain_is_left_to_fastavro(data: st.DataObject, topic: Topic) -> None:
    """A strange value gives the bytes, or the error, that it gave without the C code."""
    record = data.draw(values(plan_of(topic)))
    name = data.draw(st.sampled_from([field.name for field in fields(record)]))
    record = replace(record, **{name: data.draw(STRANGE)})

    def outcome(write: Any) -> object:
        try:
            return write()
        except Exception as error:  # noqa: BLE001 - whatever it is, it has to be the same
            return type(error)

    codec = Codec()
    assert outcome(lambda: codec.encode(topic, record)) == outcome(
        lambda: codec.encode_datum(topic, to_datum(record))
    )


class Colour(StrEnum):
    """An enum of a made-up record."""

    RED = "RED"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Inner:
    """A part of a made-up record."""

    colour: Colour


@dataclass(frozen=True, slots=True)
class Outer:
    """A made-up record: what no topic has."""

    first: Inner
    again: Inner | None
    end: int | None
    data: bytes
    colours: tuple[Colour, ...]


INNER: Final = """{"type": "record", "name": "Inner", "fields": [{"name": "colour",
    "type": {"type": "enum", "name": "Colour", "symbols": ["UNKNOWN", "RED"]}}]}"""
OUTER: Final = """{"type": "record", "name": "Outer", "fields": [
    {"name": "first", "type": %s},
    {"name": "again", "type": ["null", "Inner"]},
    {"name": "end", "type": [%s, "null"]},
    {"name": "data", "type": "bytes"},
    {"name": "colours", "type": {"type": "array", "items": "Colour"}}]}"""


def made_up(monkeypatch: pytest.MonkeyPatch, end: str) -> tuple[Topic, SchemaVersion]:
    """Return a topic of `Outer` and its schema."""
    schema = load_version("made.up", 1, OUTER % (INNER, end))
    monkeypatch.setattr(avro, "current", lambda _: schema)
    return replace(TOPICS[0], name="made.up", record=Outer), schema


def test_types_are_named_and_null_may_be_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """A type that is used again stands there by its name."""
    topic, schema = made_up(monkeypatch, '"long"')
    writer = record_writer.native.RecordWriter(plan_of(topic))
    for again in (None, Inner(Colour.RED)):
        for end in (None, 0, -1):
            record = Outer(Inner(Colour.UNKNOWN), again, end, b"\0", (Colour.RED,) * 3)
            assert writer.write(b"", record) == write_datum(schema, to_datum(record))


def test_what_is_not_planned_for_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A union of two types has no plan."""
    topic, _ = made_up(monkeypatch, '"string", "long"')
    with pytest.raises(UnplannedError):
        plan_of(topic)


@pytest.mark.parametrize(
    "plan",
    [
        (),
        (9, 0, None, (), ()),
        (-1, 0, None, (), ()),
        (2, 3, None, (), ()),
        (0, 0, None, (), ()),
        (0, 0, Outer, ("a",), ()),
        (0, 0, Outer, (1,), ((2, 0, None, (), ()),)),
        (0, 0, Outer, ("a", "b"), ((2, 0, None, (), ()), (9, 0, None, (), ()))),
        (0, 0, Outer, ("a",), (7,)),
        (1, 0, None, (), ()),
        (8, 0, None, (), ()),
    ],
)
def test_a_plan_that_is_none_is_refused(plan: Any) -> None:
    """Nothing is left of it."""
    with pytest.raises((ValueError, TypeError)):
        native.RecordWriter(plan)
    gc.collect()


def test_a_plan_is_not_nested_without_end() -> None:
    """Deeper than any record of the contract."""
    plan: Node = (2, 0, None, (), ())
    for _ in range(9):
        plan = (1, 0, None, (), (plan,))
    with pytest.raises(ValueError, match="deeper"):
        native.RecordWriter(plan)


def test_an_attribute_that_writes_by_the_same_writer_spoils_nothing() -> None:
    """And one that raises is an error."""

    class Sly:
        """Its attribute is code."""

        @property
        def number(self) -> int:
            assert writer.write(b"inner", Sly.plain) is None
            return 7

        plain: object = None

    class Broken:
        """Its attribute fails."""

        @property
        def number(self) -> int:
            raise RuntimeError("broken")

    number: Node = (2, 0, None, (), ())
    writer = native.RecordWriter((0, 0, Sly, ("number",), (number,)))
    assert writer.write(b"outer", Sly()) == b"outer\x0e"
    broken = native.RecordWriter((0, 0, Broken, ("number",), (number,)))
    with pytest.raises(RuntimeError, match="broken"):
        broken.write(b"", Broken())


def test_a_long_record_needs_no_room_afterwards() -> None:
    """A megabyte is written whole, and the next record as well."""
    items: Node = (1, 0, None, (), ((4, 0, None, (), ()),))

    @dataclass(frozen=True)
    class Texts:
        """Holds texts."""

        texts: tuple[str, ...]

    writer = native.RecordWriter((0, 0, Texts, ("texts",), (items,)))
    many = writer.write(b"", Texts(("x" * 99,) * 10_000))
    assert many is not None
    assert len(many) == 3 + 10_000 * 101 + 1
    assert writer.write(b"", Texts(())) == b"\0"
