"""The record classes are the schemas, field by field; the schemas are the truth."""

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from typing import Any, Final, cast, get_args, get_origin, get_type_hints

import pytest

from schemas import avro
from schemas.topics import PATH_TRACE, TOPICS, Topic

REQUIRED: Final = "required"
PRIMITIVES: Final[Mapping[str, type]] = {
    "string": str, "int": int, "long": int, "double": float, "boolean": bool, "bytes": bytes,
}  # fmt: skip


def shape_of_schema(kind: Any) -> Any:
    """Describe an Avro type so that it can be compared with a class."""
    if isinstance(kind, list):
        return ("optional", shape_of_schema(kind[1]))
    name = kind["type"] if isinstance(kind, dict) else kind
    if name == "array":
        return ("array", shape_of_schema(kind["items"]))
    if name == "enum":
        return ("enum", kind["symbols"])
    if name == "record":
        described = [
            (f["name"], shape_of_schema(f["type"]), f.get("default", REQUIRED))
            for f in kind["fields"]
        ]
        return (kind["name"].rpartition(".")[2], described)
    return PRIMITIVES[name]


def _default(value: Any) -> Any:
    """Return a field's default as schemas write it."""
    if value is MISSING:
        return REQUIRED
    return list(value) if isinstance(value, tuple) else value


def shape_of_hint(hint: Any) -> Any:
    """Describe a type annotation in the same words."""
    if get_origin(hint) is types.UnionType:
        first, second = get_args(hint)
        assert second is types.NoneType
        return ("optional", shape_of_hint(first))
    if get_origin(hint) is tuple:
        item, rest = get_args(hint)
        assert rest is ...
        return ("array", shape_of_hint(item))
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return ("enum", [m.value for m in hint])
    if is_dataclass(hint):
        record = cast(type, hint)
        hints = get_type_hints(record)
        described = [
            (f.name, shape_of_hint(hints[f.name]), _default(f.default)) for f in fields(record)
        ]
        return (record.__name__, described)
    return hint


@pytest.mark.parametrize("topic", TOPICS, ids=lambda t: t.name)
def test_record_mirrors_its_schema(topic: Topic) -> None:
    """Names, order, types, symbols and defaults are the same on both sides."""
    assert shape_of_hint(topic.record) == shape_of_schema(avro.current(topic.name).parsed)


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("flow", {"type": "string"}),
        ("flow", {"type": ["null", "int"], "default": None}),
        ("producer_version", {"default": "x"}),
        ("cause", {"type": {"type": "enum", "name": "TraceCause", "symbols": ["UNKNOWN"]}}),
        ("hops", {"type": {"type": "array", "items": "string"}}),
        ("src", {"name": "source"}),
    ],
)
def test_a_difference_is_found(field: str, change: dict[str, Any]) -> None:
    """The comparison sees another type, nullability, default, symbol, element and name."""
    good = avro.current(PATH_TRACE.name).parsed
    changed = [{**f, **change} if f["name"] == field else f for f in good["fields"]]
    schema = {**good, "fields": changed}
    assert shape_of_hint(PATH_TRACE.record) != shape_of_schema(schema)


def test_another_order_is_a_difference() -> None:
    """Avro writes by order; so does the class."""
    good = avro.current(PATH_TRACE.name).parsed
    schema = {**good, "fields": good["fields"][::-1]}
    assert shape_of_hint(PATH_TRACE.record) != shape_of_schema(schema)
