"""Avro schemas of the contract, all versions, and bounded reading and writing of one datum."""

import io
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form

# Largest value accepted: eight times Kafka's default message limit. What a
# hostile length claims beyond the bytes at hand is never allocated, so this
# bounds the work done for one message.
MAX_VALUE_BYTES: Final = 8 * 2**20
# What fastavro raises on bytes that are not the datum they claim to be.
BAD_BYTES: Final = (
    EOFError,
    IndexError,
    KeyError,
    MemoryError,
    OverflowError,
    TypeError,
    UnicodeDecodeError,
    ValueError,
    fastavro.read.SchemaResolutionError,
)


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """One version of one topic's schema.

    `parsed` has no logical types: times stay integers. `text` is the file as
    kept, for a registry.
    """

    topic: str
    version: int
    text: str
    parsed: dict[str, Any]
    fingerprint: bytes


def _without_logical_types(node: Any) -> Any:
    if isinstance(node, dict):
        return {k: _without_logical_types(v) for k, v in node.items() if k != "logicalType"}
    if isinstance(node, list):
        return [_without_logical_types(v) for v in node]
    return node


def crc64_avro(schema: dict[str, Any]) -> bytes:
    """Return the CRC-64-AVRO fingerprint, 8 bytes little-endian (Avro specification)."""
    digest = fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO")
    return bytes.fromhex(digest)


def load_version(topic: str, version: int, text: str) -> SchemaVersion:
    """Parse the text of a schema file."""
    schema = json.loads(text)
    parsed = cast(dict[str, Any], fastavro.parse_schema(_without_logical_types(schema)))
    return SchemaVersion(topic, version, text, parsed, crc64_avro(schema))


@cache
def versions(topic: str) -> tuple[SchemaVersion, ...]:
    """Return all kept versions of the topic's schema, oldest first.

    Raises
    ------
    KeyError
        If the contract has no schema for the topic.
    """
    folder = Path(__file__).parent / "avsc" / topic
    if not folder.is_dir():
        raise KeyError(f"no schema for topic {topic!r}")
    numbers = sorted(
        int(f.name.removesuffix(".avsc")) for f in folder.iterdir() if f.name.endswith(".avsc")
    )
    return tuple(
        load_version(topic, n, (folder / f"{n}.avsc").read_text(encoding="utf-8")) for n in numbers
    )


def current(topic: str) -> SchemaVersion:
    """Return the version that is written today."""
    return versions(topic)[-1]


def write_datum(schema: SchemaVersion, datum: dict[str, Any]) -> bytes:
    """Encode one datum, without framing."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema.parsed, datum)
    return out.getvalue()


def read_datum(
    writer: SchemaVersion, reader: SchemaVersion, payload: bytes | memoryview
) -> dict[str, Any]:
    """Decode one datum that fills `payload` exactly.

    Raises
    ------
    ValueError
        If the bytes are truncated, too many, or not of this schema.
    """
    if len(payload) > MAX_VALUE_BYTES:
        raise ValueError(f"{len(payload)} bytes; a value has at most {MAX_VALUE_BYTES}")
    source = io.BytesIO(payload)
    same = writer.fingerprint == reader.fingerprint
    try:
        datum = fastavro.schemaless_reader(source, writer.parsed, None if same else reader.parsed)
    except BAD_BYTES as error:
        raise ValueError(f"not a {writer.topic} datum: {type(error).__name__}: {error}") from error
    if source.tell() != len(payload):
        raise ValueError(
            f"{len(payload) - source.tell()} bytes after the end of the {writer.topic} datum"
        )
    return cast(dict[str, Any], datum)
