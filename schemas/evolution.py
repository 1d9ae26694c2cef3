"""What a schema must look like, and how it may change: FULL_TRANSITIVE, checked without a registry.

Every version reads every other one, older or newer (Avro specification 1.12,
"Schema Resolution"). Stricter than that where it helps people: a field never
changes its type, not even to a wider one.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import permutations
from typing import Any, Final

from schemas.avro import SchemaVersion

NAMESPACE: Final = "skeletonhunter.v1"
# `float` holds seven digits, and maps have no documented keys.
PRIMITIVES: Final = frozenset({"boolean", "int", "long", "double", "string", "bytes"})
UNKNOWN: Final = "UNKNOWN"

Schema = Any  # a parsed Avro schema: a name, a list (union) or a dict


def inlined(schema: Schema, named: dict[str, Schema] | None = None) -> Schema:
    """Return the schema with each type that is used by its name put in place of the name."""
    named = {} if named is None else named
    if isinstance(schema, str):
        return named.get(schema.rpartition(".")[2], schema)
    if isinstance(schema, list):
        return [inlined(s, named) for s in schema]
    if schema["type"] == "record":
        fields = [{**f, "type": inlined(f["type"], named)} for f in schema["fields"]]
        schema = {**schema, "fields": fields}
    elif schema["type"] == "array":
        return {**schema, "items": inlined(schema["items"], named)}
    if "name" in schema:
        named[schema["name"]] = schema
    return schema


def schema_faults(schema: Schema) -> list[str]:
    """Return what is wrong with one schema by the rules of the contract; empty: nothing."""
    if not isinstance(schema, dict) or schema.get("type") != "record":
        return ["a topic's schema is a record"]
    faults = [] if schema.get("namespace") == NAMESPACE else [f"namespace is not {NAMESPACE}"]
    return [*faults, *_record_faults(schema, str(schema.get("name")))]


def _record_faults(schema: dict[str, Any], where: str) -> Iterator[str]:
    if not schema.get("doc"):
        yield f"{where}: no doc"
    for field in schema["fields"]:
        yield from _field_faults(field, f"{where}.{field['name']}")


def _field_faults(field: dict[str, Any], where: str) -> Iterator[str]:
    if not field.get("doc"):
        yield f"{where}: no doc"
    kind = field["type"]
    if isinstance(kind, list):
        if len(kind) != 2 or kind[0] != "null" or "null" in kind[1:]:
            yield f"{where}: the only union is [null, T]"
            return
        if "default" not in field or field["default"] is not None:
            yield f"{where}: a field that may be null has the default null"
        kind = kind[1]
    yield from _unit_faults(field["name"], kind, where)
    yield from _type_faults(kind, where)


def _unit_faults(name: str, kind: Schema, where: str) -> Iterator[str]:
    is_time = isinstance(kind, dict) and kind.get("logicalType") == "timestamp-micros"
    if name.endswith("_at") != is_time:
        yield f"{where}: names ending in _at, and only they, are timestamp-micros"
    if name.endswith("_ns") and kind != "long":
        yield f"{where}: nanoseconds are long"


def _type_faults(kind: Schema, where: str) -> Iterator[str]:
    name = kind.get("type") if isinstance(kind, dict) else kind
    if isinstance(kind, list):
        yield f"{where}: a union within {where}"
    elif name in PRIMITIVES:
        return
    elif name == "array":
        yield from _type_faults(kind["items"], f"{where}[]")
    elif name == "record":
        yield from _record_faults(kind, where)
    elif name == "enum":
        yield from _enum_faults(kind, where)
    else:
        yield f"{where}: type {name!r} is not used here"


def _enum_faults(kind: dict[str, Any], where: str) -> Iterator[str]:
    if not kind.get("doc"):
        yield f"{where}: the enum {kind['name']} has no doc"
    if kind.get("default") != UNKNOWN or UNKNOWN not in kind["symbols"]:
        yield f"{where}: the enum {kind['name']} needs the default {UNKNOWN}"


def cannot_read(writer: Schema, reader: Schema, where: str = "") -> list[str]:
    """Return why `reader` cannot read what `writer` wrote; empty: it can."""
    if _kind(writer) != _kind(reader):
        return [f"{where}: {_kind(writer)} became {_kind(reader)}"]
    check = _BY_KIND.get(_kind(reader))
    return [] if check is None else list(check(writer, reader, where))


def _kind(schema: Schema) -> str:
    if isinstance(schema, list):
        return f"[{', '.join(_kind(s) for s in schema)}]"
    if not isinstance(schema, dict):
        return str(schema)
    logical = schema.get("logicalType")
    return f"{schema['type']} {logical}" if logical else _kind(schema["type"])


def _union(writer: Schema, reader: Schema, where: str) -> Iterator[str]:
    for old, new in zip(writer, reader, strict=True):
        yield from cannot_read(old, new, where)


def _array(writer: Schema, reader: Schema, where: str) -> Iterator[str]:
    yield from cannot_read(writer["items"], reader["items"], f"{where}[]")


def _enum(writer: Schema, reader: Schema, where: str) -> Iterator[str]:
    if writer["name"] != reader["name"]:
        yield f"{where}: enum {writer['name']} became {reader['name']}"
    strange = [s for s in writer["symbols"] if s not in reader["symbols"]]
    if strange and "default" not in reader:
        yield f"{where}: no default for the symbols {', '.join(strange)}"


def _record(writer: Schema, reader: Schema, where: str) -> Iterator[str]:
    if writer["name"] != reader["name"]:
        yield f"{where}: record {writer['name']} became {reader['name']}"
    written = {f["name"]: f for f in writer["fields"]}
    for field in reader["fields"]:
        path = f"{where}.{field['name']}" if where else field["name"]
        if field["name"] in written:
            yield from cannot_read(written[field["name"]]["type"], field["type"], path)
        elif "default" not in field:
            yield f"{path}: not written, and without a default"


_BY_KIND: Final[dict[str, Callable[[Schema, Schema, str], Iterator[str]]]] = {
    "record": _record,
    "enum": _enum,
    "array": _array,
    **{f"[null, {kind}]": _union for kind in ("record", "enum", "array")},
}


def evolution_faults(versions: Sequence[SchemaVersion]) -> list[str]:
    """Return what is wrong with all versions of a topic's schema; empty: nothing.

    Each version by itself, the numbering, and each version against each other.
    """
    schemas = {v.version: inlined(json.loads(v.text)) for v in versions}
    faults = [f"version {n}: {f}" for n, s in schemas.items() for f in schema_faults(s)]
    if list(schemas) != list(range(1, len(schemas) + 1)):
        faults.append(f"versions are {list(schemas)}, not 1 to {len(schemas)}")
    for old, new in permutations(schemas, 2):
        faults += [
            f"version {new} cannot read version {old}: {reason}"
            for reason in cannot_read(schemas[old], schemas[new])
        ]
    return faults
