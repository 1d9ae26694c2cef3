"""The Avro schema of a recording: the record as Kafka kept it, around the value's own schema.

Made for readers that are not ours. Polars' Avro reader panics on maps, on
unions wider than `[null, T]` and on enums anywhere but at the top level, so
enums become strings here; it reads no defaults but null, so the others are left
out. Everything else is as the topic's `.avsc` has it.
"""

import json
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, cast

import fastavro

from ops.log.entry import Entry
from schemas import avro
from schemas.codec import Codec, DecodeError
from schemas.topics import Topic

NAMESPACE: Final = "skeletonhunter.recording.v1"


@dataclass(frozen=True, slots=True)
class Shape:
    """How the entries of one topic are laid down.

    `written` goes into the file; `plain` is the same without logical types, so
    that reading gives integers, never dates that cannot be.
    """

    topic: Topic
    written: dict[str, Any]
    plain: dict[str, Any]
    value_name: str

    def datum(self, entry: Entry, codec: Codec) -> dict[str, Any]:
        """Return the entry as the file's record; a value that cannot be decoded stays bytes."""
        key, key_bytes = _text_or_bytes(entry.key)
        value, value_bytes, error = None, None, None
        if entry.value is not None:
            try:
                decoded = codec.decode_datum(self.topic, entry.value)
            except DecodeError as problem:
                value_bytes, error = entry.value, problem.reason
            else:
                # The branch of the union by name: otherwise fastavro tries the whole value twice.
                value = (self.value_name, decoded)
        return {
            "partition": entry.partition,
            "offset": entry.offset,
            "timestamp_ms": entry.timestamp_ms,
            "key": key,
            "value": value,
            "headers": [{"name": name, "value": content} for name, content in entry.headers],
            "key_bytes": key_bytes,
            "value_bytes": value_bytes,
            "decode_error": error,
        }

    def entry(self, datum: dict[str, Any], codec: Codec) -> Entry:
        """Return what Kafka held, framed as `codec` frames; the inverse of `datum`.

        Symbols of a later version become those that Avro's rules put in their place.

        Raises
        ------
        ValueError
            If the value does not fit the topic's current schema.
        """
        value = datum["value_bytes"]
        if value is None and datum["value"] is not None:
            schema = avro.current(self.topic.name).parsed
            try:
                value = codec.encode_datum(self.topic, _known(schema, datum["value"]))
            except avro.BAD_BYTES as error:
                raise ValueError(f"not a {self.topic.name} value: {error}") from error
        key = datum["key_bytes"]
        if key is None and datum["key"] is not None:
            key = datum["key"].encode()
        return Entry(
            partition=datum["partition"],
            offset=datum["offset"],
            timestamp_ms=datum["timestamp_ms"],
            key=key,
            value=value,
            headers=tuple((h["name"], h["value"]) for h in datum["headers"]),
        )


def _known(node: Any, value: Any) -> Any:
    """Return a value with the enums' defaults in place of symbols that the schema has not."""
    if isinstance(node, list):
        return None if value is None else _known(node[1], value)
    kind = node["type"] if isinstance(node, dict) else node
    if kind == "record":
        return {f["name"]: _known(f["type"], value[f["name"]]) for f in node["fields"]}
    if kind == "array":
        return [_known(node["items"], item) for item in value]
    if kind == "enum" and value not in node["symbols"]:
        return node["default"]
    return value


def _text_or_bytes(raw: bytes | None) -> tuple[str | None, bytes | None]:
    if raw is None:
        return None, None
    try:
        return raw.decode(), None
    except UnicodeDecodeError:
        return None, raw


@cache
def shape_of(topic: Topic) -> Shape:
    """Return the shape of the topic's recording, from the current version of its schema."""
    value = _enums_as_strings(json.loads(avro.current(topic.name).text))
    schema = _envelope(value)
    return Shape(
        topic,
        cast(dict[str, Any], fastavro.parse_schema(without_defaults(schema))),
        plain_schema(schema),
        f"{value['namespace']}.{value['name']}",
    )


def plain_schema(schema: Any) -> dict[str, Any]:
    """Return a parsed copy without logical types; raises what fastavro raises on a bad schema."""
    return cast(dict[str, Any], fastavro.parse_schema(_without_logical_types(schema)))


def without_defaults(node: Any) -> Any:
    """Return a copy of a schema without the fields' defaults but null.

    Polars reads no file whose schema has another; only who reads a record needs them.
    """
    if isinstance(node, dict):
        return {k: without_defaults(v) for k, v in node.items() if k != "default" or v is None}
    if isinstance(node, list):
        return [without_defaults(v) for v in node]
    return node


def _without_logical_types(node: Any) -> Any:
    if isinstance(node, dict):
        return {
            k: _without_logical_types(v)
            for k, v in node.items()
            if k != "logicalType" and not k.startswith("__")
        }
    if isinstance(node, list):
        return [_without_logical_types(v) for v in node]
    return node


def _enums_as_strings(node: Any) -> Any:
    if isinstance(node, list):
        return [_enums_as_strings(v) for v in node]
    if not isinstance(node, dict):
        return node
    if isinstance(node.get("type"), dict) and node["type"].get("type") == "enum":
        symbols = ", ".join(node["type"]["symbols"])
        return {**node, "type": "string", "doc": f"{node['doc']} (one of {symbols})"}
    return {k: _enums_as_strings(v) for k, v in node.items()}


def _envelope(value: dict[str, Any]) -> dict[str, Any]:
    def field(name: str, kind: Any, doc: str) -> dict[str, Any]:
        nullable = {"default": None} if isinstance(kind, list) else {}
        return {"name": name, "type": kind, **nullable, "doc": doc}

    header = {
        "type": "record",
        "name": "RecordedHeader",
        "doc": "A Kafka header.",
        "fields": [
            field("name", "string", "Name; may occur more than once"),
            field("value", ["null", "bytes"], "Content"),
        ],
    }
    timestamp = {"type": "long", "logicalType": "timestamp-millis"}
    return {
        "type": "record",
        "name": f"Recorded{value['name']}",
        "namespace": NAMESPACE,
        "doc": f"A Kafka record. {value['doc']}",
        "fields": [
            field("partition", "int", "Partition it was read from"),
            field("offset", "long", "Offset it was read at"),
            field(
                "timestamp_ms",
                ["null", timestamp],
                "Kafka timestamp, the event time (UTC, milliseconds since the epoch); null: none",
            ),
            field("key", ["null", "string"], "Key; null: none, or see key_bytes"),
            field("value", ["null", value], "Value; null: a tombstone, or see value_bytes"),
            field("headers", {"type": "array", "items": header}, "Kafka headers, in order"),
            field("key_bytes", ["null", "bytes"], "Key where it is not UTF-8"),
            field("value_bytes", ["null", "bytes"], "Value where it could not be decoded"),
            field("decode_error", ["null", "string"], "Why it could not be decoded"),
        ],
    }
