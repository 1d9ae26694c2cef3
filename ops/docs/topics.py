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

- **Values** are Avro. With `schema.registry.url` set in the `[kafka]` table: Confluent's wire
  format (`00`, 4-byte schema id, datum; subject `<topic>-value`). Without: Avro single-object
  encoding (`C3 01`, 8-byte CRC-64-AVRO fingerprint of the schema, datum). A null value is a
  tombstone.
- **Keys** are UTF-8 text. *Latest per key* is compaction: a tombstone removes a key.
- **The Kafka timestamp** is the time of arrival, set by the broker (`LogAppendTime`); event times
  are in the values. Of `probe.window.v1` it is the event time, the window's end. A replay writes
  recorded timestamps into topics of its own.
- **Times** named `*_at` are microseconds since the epoch (UTC, `timestamp-micros`); **durations**
  named `*_ns` are nanoseconds. What is missing is null, with a reason beside it; never 0 or -1.
- **Names** carry no environment; `topic.prefix` in the `[kafka]` table puts one before all of
  them.
- **Partition counts** are the defaults of `topics apply`; a cluster may have more. Records are
  placed by the key's murmur2 hash, as Java does (librdkafka: `partitioner=murmur2_random`), unless
  the topic says otherwise.
- **Evolution** is FULL_TRANSITIVE: fields are added with a default, never removed; every version
  stays in `schemas/avsc/<topic>/<version>.avsc`.
- **Bounds** stand below each topic: limits of the fields that move time, memory or a life cycle.
  Every process checks them when it decodes a record. Null is always allowed; a field without a row
  moves nothing.
- **Dead letters**: what a reader cannot decode, or is out of bounds, goes to `<topic>.dlq` as it
  was, under its key, with headers `__connect.errors.topic`, `.partition`, `.offset`,
  `.connector.name`, `.exception.class.name` and `.exception.message`. Of what is larger than the
  dead-letter topic takes, the first 64 KiB are kept; `__connect.errors.value.bytes` says how large
  it was.
"""


def page() -> str:
    """Return the text of the page."""
    parts = [INTRODUCTION, _overview()]
    parts += [_topic(topic) for topic in TOPICS]
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


def _topic(topic: Topic) -> str:
    versions = avro.versions(topic.name)
    schema = json.loads(versions[-1].text)
    lines = [
        f"## {topic.name}",
        "",
        f"{topic.doc} {schema['doc']}",
        "",
        f"Key: {topic.key}{_placed(topic)}. Dead letters: `{topic.dlq}`. "
        f"Schema `{schema['namespace']}.{schema['name']}`, version {versions[-1].version} "
        f"([avsc](../../schemas/avsc/{topic.name}/{versions[-1].version}.avsc)), "
        f"fingerprint `{versions[-1].fingerprint.hex()}`.",
    ]
    for record in _records(schema):
        lines += ["", f"**{record['name']}**" + _note(record, schema), ""]
        lines += ["| field | type | meaning |", "|---|---|---|"]
        lines += [f"| `{f['name']}` | {_type(f['type'])} | {_cell(f)} |" for f in record["fields"]]
    lines += ["", "**Bounds**", "", "| field | of its | least | greatest | why |"]
    lines += ["|---|---|---|---|---|"]
    lines += [_bound(bound) for bound in BOUNDS if bound.topic == topic.name]
    return "\n".join(lines) + "\n"


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
    return "" if topic.partitioned_by == "the key" else f"; placed by {topic.partitioned_by}"


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
        return f"{_type(present)} or null"
    if schema.get("logicalType") == "timestamp-micros":
        return "timestamp-micros"
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
    # The introduction says so of all times.
    text = text.replace(" (UTC, microseconds since the epoch)", "")
    return text.replace("|", "\\|").replace("<", "&lt;").replace(">", "&gt;")
