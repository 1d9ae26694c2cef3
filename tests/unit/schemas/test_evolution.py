"""The rules of schema evolution, on the contract's schemas and on made-up ones."""

import json
from collections.abc import Callable
from importlib import resources
from itertools import permutations
from typing import Any

import fastavro
import pytest

from schemas import avro, topics
from schemas.avro import SchemaVersion, load_version
from schemas.evolution import cannot_read, evolution_faults, inlined, schema_faults

Json = dict[str, Any]


def kind_enum(*symbols: str, default: str | None = "UNKNOWN") -> Json:
    """Return an enum schema."""
    schema = {"type": "enum", "name": "Kind", "doc": "A kind.", "symbols": list(symbols)}
    return schema if default is None else {**schema, "default": default}


def good() -> Json:
    """Return a record schema that follows the rules, with every type that they allow."""
    item = {
        "type": "record",
        "name": "Item",
        "doc": "An item.",
        "fields": [{"name": "id", "type": "string", "doc": "Its id"}],
    }
    return {
        "type": "record",
        "name": "Thing",
        "namespace": "skeletonhunter.v1",
        "doc": "A thing.",
        "fields": [
            {"name": "id", "type": "string", "doc": "Its id"},
            {
                "name": "seen_at",
                "type": {"type": "long", "logicalType": "timestamp-micros"},
                "doc": "When it was seen",
            },
            {"name": "rtt_ns", "type": ["null", "long"], "default": None, "doc": "Its round trip"},
            {"name": "kind", "type": kind_enum("UNKNOWN", "A"), "doc": "Its kind"},
            {"name": "items", "type": {"type": "array", "items": item}, "doc": "Its items"},
        ],
    }


def field(schema: Json, name: str) -> Json:
    """Return the field of that name, to be changed in place."""
    return next(f for f in schema["fields"] if f["name"] == name)


def changed(change: Callable[[Json], Any]) -> Json:
    """Return the good schema after a change in place."""
    schema: Json = json.loads(json.dumps(good()))
    change(schema)
    return schema


def versions_of(*schemas: Json) -> tuple[SchemaVersion, ...]:
    """Return the schemas as versions 1, 2, ... of a topic."""
    return tuple(load_version("thing.v1", n, json.dumps(s)) for n, s in enumerate(schemas, 1))


def add(**extra: Any) -> Callable[[Json], Any]:
    """Return the change that adds a field."""
    return lambda s: s["fields"].append({"name": "extra", "doc": "Something new", **extra})


@pytest.mark.parametrize("topic", topics.TOPICS, ids=lambda t: t.name)
def test_contract_keeps_its_own_rules(topic: topics.Topic) -> None:
    """Every version of every schema follows the rules, and reads every other one."""
    assert evolution_faults(avro.versions(topic.name)) == []


def test_no_schema_is_orphaned() -> None:
    """Each folder of schemas belongs to a topic of the registry, and each topic has one."""
    folders = {f.name for f in (resources.files("schemas") / "avsc").iterdir() if f.is_dir()}
    assert folders == set(topics.BY_NAME)


GOOD_EVOLUTIONS: dict[str, Callable[[Json], Any]] = {
    "nothing": lambda _s: None,
    "nullable field added": add(type=["null", "long"], default=None),
    "field with a default added": add(type="long", default=0),
    "field with a default removed": lambda s: s["fields"].remove(field(s, "rtt_ns")),
    "enum symbol added": lambda s: field(s, "kind")["type"]["symbols"].append("B"),
    "enum symbol removed": lambda s: field(s, "kind")["type"]["symbols"].remove("A"),
    "fields in another order": lambda s: s["fields"].reverse(),
    "docs rewritten": lambda s: field(s, "id").update(doc="The id, in other words"),
    "field with a default added within": lambda s: field(s, "items")["type"]["items"][
        "fields"
    ].append({"name": "n", "type": "int", "default": 0, "doc": "How many"}),
}

BAD_EVOLUTIONS: dict[str, tuple[Callable[[Json], Any], str]] = {
    "field without default added": (add(type="long"), "extra: not written, and without a default"),
    "field without default removed": (
        lambda s: s["fields"].remove(field(s, "id")),
        "id: not written, and without a default",
    ),
    "field renamed": (lambda s: field(s, "id").update(name="ident"), "ident: not written"),
    "type widened": (
        lambda s: field(s, "rtt_ns").update(type=["null", "double"]),
        "rtt_ns: [null, long] became [null, double]",
    ),
    "type changed": (lambda s: field(s, "id").update(type="bytes"), "id: string became bytes"),
    "field made nullable": (
        lambda s: field(s, "id").update(type=["null", "string"], default=None),
        "id: string became [null, string]",
    ),
    "unit changed": (
        lambda s: field(s, "seen_at")["type"].update(logicalType="timestamp-millis"),
        "seen_at: long timestamp-micros became long timestamp-millis",
    ),
    "enum symbol added without default": (
        lambda s: field(s, "kind").update(type=kind_enum("UNKNOWN", "A", "B", default=None)),
        "needs the default UNKNOWN",  # or version 2 could not read a symbol of version 3
    ),
    "enum renamed": (
        lambda s: field(s, "kind")["type"].update(name="Sort"),
        "kind: enum Kind became Sort",
    ),
    "record renamed": (lambda s: s.update(name="Thingy"), "record Thing became Thingy"),
    "element type changed": (
        lambda s: field(s, "items")["type"].update(items="string"),
        "items[]: record became string",
    ),
    "change deep inside": (
        lambda s: field(s, "items")["type"]["items"]["fields"][0].update(type="long"),
        "items[].id: string became long",
    ),
}


@pytest.mark.parametrize("name", GOOD_EVOLUTIONS)
def test_good_evolution_passes(name: str) -> None:
    """A change that every reader can stand is not refused."""
    new = changed(GOOD_EVOLUTIONS[name])
    assert evolution_faults(versions_of(good(), new)) == []


@pytest.mark.parametrize("name", GOOD_EVOLUTIONS)
def test_what_passes_is_what_fastavro_resolves(name: str) -> None:
    """Oracle: bytes written by either version are read by the other, by Avro's own resolution."""
    first, second = versions_of(good(), changed(GOOD_EVOLUTIONS[name]))
    full = {
        "id": "x", "ident": "x", "seen_at": 1, "rtt_ns": 5, "kind": "UNKNOWN",
        "items": [{"id": "y", "n": 1}], "extra": 3,
    }  # fmt: skip
    for writer, reader in permutations((first, second)):
        read = avro.read_datum(writer, reader, avro.write_datum(writer, full))
        assert set(read) == {f["name"] for f in reader.parsed["fields"]}


@pytest.mark.parametrize("name", BAD_EVOLUTIONS)
def test_bad_evolution_is_refused_and_named(name: str) -> None:
    """A change that some reader cannot stand is refused, and the message names the field."""
    change, message = BAD_EVOLUTIONS[name]
    old, new = good(), changed(change)
    found = [*cannot_read(old, new), *cannot_read(new, old), *schema_faults(new)]
    assert any(message in fault for fault in found), found
    assert evolution_faults(versions_of(old, new))


def test_enum_reader_without_default_must_know_every_symbol() -> None:
    """A symbol that the reader lacks is read as its default; without one it is refused."""
    wide, narrow = kind_enum("UNKNOWN", "A", "B"), kind_enum("UNKNOWN", "A", default=None)
    assert cannot_read(wide, narrow, "kind") == ["kind: no default for the symbols B"]
    assert cannot_read(narrow, wide, "kind") == []


def test_transitive_means_all_pairs() -> None:
    """Version 3 may not clash with version 1, even where both get along with version 2."""
    first = changed(add(type=["null", "long"], default=None))
    second = good()
    third = changed(add(type=["null", "string"], default=None))
    assert evolution_faults(versions_of(first, second)) == []
    assert evolution_faults(versions_of(second, third)) == []
    faults = evolution_faults(versions_of(first, second, third))
    assert "version 3 cannot read version 1: extra: [null, long] became [null, string]" in faults


def test_gap_in_the_numbering_is_found() -> None:
    """A version that was deleted is missed."""
    first, second = versions_of(good(), changed(GOOD_EVOLUTIONS["enum symbol added"]))
    third = load_version("thing.v1", 3, second.text)
    assert evolution_faults((first, third)) == ["versions are [1, 3], not 1 to 2"]


BAD_SCHEMAS: dict[str, tuple[Callable[[Json], Any], str]] = {
    "record without doc": (lambda s: s.pop("doc"), "Thing: no doc"),
    "field without doc": (lambda s: field(s, "id").pop("doc"), "Thing.id: no doc"),
    "enum without doc": (lambda s: field(s, "kind")["type"].pop("doc"), "Kind has no doc"),
    "nested record without doc": (
        lambda s: field(s, "items")["type"]["items"].pop("doc"),
        "Thing.items[]: no doc",
    ),
    "other namespace": (lambda s: s.update(namespace="other"), "namespace"),
    "union of two": (add(type=["long", "string"]), "only union is [null, T]"),
    "union of three": (add(type=["null", "long", "string"], default=None), "only union"),
    "null last": (add(type=["long", "null"], default=1), "only union"),
    "nullable without default": (add(type=["null", "long"]), "has the default null"),
    "map": (add(type={"type": "map", "values": "long"}), "type 'map' is not used here"),
    "float": (add(type="float"), "type 'float' is not used here"),
    "array of unions": (add(type={"type": "array", "items": ["null", "long"]}), "a union within"),
    "time as a plain long": (
        lambda s: field(s, "seen_at").update(type="long"),
        "only they, are timestamp-micros",
    ),
    "time under another name": (
        lambda s: field(s, "seen_at").update(name="seen"),
        "only they, are timestamp-micros",
    ),
    "nanoseconds as double": (
        lambda s: field(s, "rtt_ns").update(type=["null", "double"]),
        "nanoseconds are long",
    ),
    "enum without default": (
        lambda s: field(s, "kind")["type"].pop("default"),
        "needs the default UNKNOWN",
    ),
}


@pytest.mark.parametrize("name", BAD_SCHEMAS)
def test_schema_against_the_rules_is_named(name: str) -> None:
    """Each rule has a message that says where it was broken."""
    change, message = BAD_SCHEMAS[name]
    faults = schema_faults(changed(change))
    assert any(message in fault for fault in faults), faults


def test_good_schema_has_no_faults() -> None:
    """The rules do not refuse what they allow."""
    assert schema_faults(good()) == []
    assert schema_faults(["null", "long"]) == ["a topic's schema is a record"]


def test_type_used_twice_is_checked_at_both_places() -> None:
    """A type named a second time counts as written out: a change in it shows at each use."""

    def name_it_again(schema: Json) -> None:
        schema["fields"].append({"name": "other", "type": "Kind", "doc": "Another kind"})

    old = inlined(changed(name_it_again))
    new = json.loads(json.dumps(old))
    for name in ("kind", "other"):
        field(new, name)["type"]["name"] = "Sort"
    assert schema_faults(old) == []
    assert [f.split(":")[0] for f in cannot_read(old, new)] == ["kind", "other"]
    fastavro.parse_schema(changed(name_it_again))  # Avro takes it as well
