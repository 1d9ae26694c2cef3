"""`docs/reference/topics.md`, written from the topic registry and the schemas."""

import json
from collections.abc import Iterator
from typing import Any, Final

from ops.topics.plan import DLQ_PARTITIONS
from schemas import avro
from schemas.bounds import BOUNDS, Bound
from schemas.topics import DAY_NS, DLQ_RETENTION_NS, TOPICS, Topic
from schemas.units import SECOND_NS

INTRODUCTION: Final = """\
# Topics

<!-- Written by `python -m ops.docs` from schemas/topics.py and schemas/avsc/. Do not edit. -->

The processes exchange everything through these topics; they are the interface to tap. How to read
them from other languages and tools: [tapping](../guide/tapping.md).

| | |
|---|---|
| values | Avro. With `schema.registry.url` in the `[kafka]` table: Confluent's wire format (`00`, \
4-byte schema id, datum; subject `<topic>-value`). Without: single-object encoding (`C3 01`, \
8-byte CRC-64-AVRO fingerprint of the schema, datum). Readers take both. Null: a tombstone |
| keys | UTF-8 text. *Latest per key*: compaction; a tombstone removes a key |
| Kafka timestamp | the time of arrival, set by the broker (`LogAppendTime`); of \
`probe.window.v1` the arrival that closed the window. A replay writes recorded timestamps into \
topics of its own |
| times | `*_at`, type *time*: `timestamp-micros`, microseconds since the epoch (UTC) |
| durations | `*_ns`: nanoseconds |
| type with `?` | the union with null. What is missing is null, with a reason beside it; never 0 \
or -1 |
| in every record | `cluster` (string): records of another cluster are refused. \
`producer_version` (string?): version of the program that wrote the record |
| topic names | `topic.prefix` in the `[kafka]` table comes before all of them |
| partitions | defaults of `topics apply`; a cluster may have more. Records are placed by the \
key's murmur2 hash, as Java does (librdkafka: `partitioner=murmur2_random`), unless the topic says \
otherwise |
| evolution | FULL_TRANSITIVE: fields are added with a default, never removed; every version is in \
`schemas/avsc/<topic>/<version>.avsc` |
| dead letters | what a reader cannot use goes to `<topic>.dlq` unchanged, with headers \
`__connect.errors.topic`, `.partition`, `.offset`, `.connector.name`, `.exception.class.name`, \
`.exception.message`. Of what is larger than the dead-letter topic takes, the first 64 KiB are \
kept; `__connect.errors.value.bytes` says how large it was |
| bounds | stand below each topic: limits of the fields that move time, memory or a life cycle. \
Every process checks them when it decodes a record. Null is always allowed |
"""

# The introduction explains them for all topics.
COMMON_FIELDS: Final = frozenset({"cluster", "producer_version"})


def page() -> str:
    """Return the text of the page."""
    parts = [INTRODUCTION, _overview()]
    described: dict[tuple[str, ...], tuple[Topic, dict[str, Any]]] = {}
    for topic in TOPICS:
        schema = json.loads(avro.current(topic.name).text)
        earlier = described.setdefault(_field_names(schema), (topic, schema))
        parts.append(_topic(topic, schema, earlier))
    return "\n".join(parts)


def _overview() -> str:
    rows = [
        "| topic | key | partitions | kept | written by | read by | what for |",
        "|---|---|---|---|---|---|---|",
    ]
    rows += [
        f"| [`{t.name}`](#{_anchor(t.name)}) | {t.key} | {t.partitions} | {_kept(t)} "
        f"| {_names(t.producers)} | {_names(t.consumers)} | {t.doc} |"
        for t in TOPICS
    ]
    dlq_days = DLQ_RETENTION_NS // DAY_NS
    rows.append(
        f"| `<topic>.dlq`, one for each | the original | {DLQ_PARTITIONS} | {dlq_days} d "
        "| every reader | people | What could not be decoded. |"
    )
    return "\n".join(rows) + "\n"


def _anchor(name: str) -> str:
    # As GitHub makes anchors of headings: lower case, dots dropped.
    return name.replace(".", "")


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(names)


def _kept(topic: Topic) -> str:
    days = "" if topic.retention_ns is None else f"{topic.retention_ns // DAY_NS} d"
    if topic.compacted:
        return f"latest per key{f', {days}' if days else ''}"
    return days


def _topic(topic: Topic, schema: dict[str, Any], earlier: tuple[Topic, dict[str, Any]]) -> str:
    version = avro.current(topic.name)
    avsc = f"../../schemas/avsc/{topic.name}/{version.version}.avsc"
    lines = [
        f"## {topic.name}",
        "",
        f"{topic.doc} {schema['doc']}",
        "",
        f"{_placed(topic)}Schema "
        f"[`{schema['namespace']}.{schema['name']}`]({avsc}), "
        f"version {version.version}, fingerprint `{version.fingerprint.hex()}`. "
        f"Dead letters: `{topic.dlq}`.",
    ]
    if earlier[0] is not topic:
        return "\n".join([*lines, *_differences(schema, *earlier)]) + "\n"
    for record in _records(schema):
        lines += ["", f"**{record['name']}**" + _note(record, schema), ""]
        lines += ["| field | type | meaning |", "|---|---|---|"]
        lines += [_row(f) for f in record["fields"] if f["name"] not in COMMON_FIELDS]
    lines += ["", "**Bounds**", "", "| field | of its | least | greatest | why |"]
    lines += ["|---|---|---|---|---|"]
    lines += [_bound(bound) for bound in BOUNDS if bound.topic == topic.name]
    return "\n".join(lines) + "\n"


def _field_names(schema: dict[str, Any]) -> tuple[str, ...]:
    return tuple(field["name"] for field in schema["fields"])


def _differences(schema: dict[str, Any], topic: Topic, described: dict[str, Any]) -> Iterator[str]:
    """Yield what distinguishes a record from one of an earlier topic with the same fields."""
    pairs = zip(schema["fields"], described["fields"], strict=True)
    rows = [_row(field) for field, same in pairs if field != same]
    yield ""
    yield (
        f"**{schema['name']}** has the fields of [`{described['name']}`]"
        f"(#{_anchor(topic.name)})." + (" Different:" if rows else "")
    )
    if rows:
        yield ""
        yield "| field | type | meaning |"
        yield "|---|---|---|"
        yield from rows


def _row(field: dict[str, Any]) -> str:
    return f"| `{field['name']}` | {_type(field['type'])} | {_cell(field)} |"


def _bound(bound: Bound) -> str:
    greatest = _number(bound.greatest)
    if bound.ahead_ns is not None:
        greatest += f", and its arrival + {bound.ahead_ns // SECOND_NS} s"
    return (
        f"| `{bound.field.rstrip('.')}` | {bound.measure.value} | {_number(bound.least)} "
        f"| {greatest} | {bound.reason} |"
    )


def _number(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else f"{value:,}"


def _placed(topic: Topic) -> str:
    return "" if topic.partitioned_by == "the key" else f"Placed by {topic.partitioned_by}. "


def _note(record: dict[str, Any], root: dict[str, Any]) -> str:
    return "" if record is root else f": {record['doc']}"


def _records(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield the record and those nested in it, outside first."""
    if isinstance(schema, list):
        for branch in schema:
            yield from _records(branch)
    elif isinstance(schema, dict) and schema["type"] == "record":
        yield schema
        for field in schema["fields"]:
            yield from _records(field["type"])
    elif isinstance(schema, dict) and schema["type"] == "array":
        yield from _records(schema["items"])


def _type(schema: Any) -> str:
    if isinstance(schema, str):
        return schema
    if isinstance(schema, list):
        (present,) = (branch for branch in schema if branch != "null")
        return f"{_type(present)}?"
    if schema.get("logicalType") == "timestamp-micros":
        return "time"
    kind: str = schema["type"]
    if kind == "array":
        items = schema["items"]
        return f"array of {items['name'] if isinstance(items, dict) else items}"
    if kind == "enum":
        return "enum " + ", ".join(f"`{s}`" for s in schema["symbols"])
    return kind


def _cell(field: dict[str, Any]) -> str:
    # A bar would end the cell; angle brackets would be taken for HTML.
    text: str = field["doc"]
    text = text.replace("docs/kinds.md", "[kinds](kinds.md)")
    # The introduction says so of all times and durations.
    text = text.replace(" (UTC, microseconds since the epoch)", "")
    if field["name"].endswith("_ns"):
        text = text.replace(", nanoseconds", "")
    return text.replace("|", "\\|").replace("<", "&lt;").replace(">", "&gt;")
