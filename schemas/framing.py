"""How a value says which schema wrote it.

Two framings: Confluent's wire format, and Avro single-object encoding (Avro spec 1.12,
"Single-object encoding"). A writer has one; a reader tells them apart by their first bytes, so that
records of both stand in one topic, as they do after a registry came or went.
"""

import struct
from typing import Final, Protocol

from schemas import avro
from schemas.avro import SchemaVersion

SINGLE_OBJECT_MARKER: Final = b"\xc3\x01"
SINGLE_OBJECT_HEADER_BYTES: Final = 10
CONFLUENT_MAGIC: Final = 0
CONFLUENT_HEADER_BYTES: Final = 5


class FramingError(ValueError):
    """The header of a value is not one that names a known schema."""


class Framer(Protocol):
    """Puts a schema's name before a datum, and reads it again."""

    def header(self, schema: SchemaVersion) -> bytes:
        """Return the bytes that go before a datum of this schema."""
        ...

    def parse(self, topic: str, value: bytes) -> tuple[SchemaVersion, int]:
        """Return the writer's schema and where the datum begins; raises FramingError."""
        ...


class SchemaIds(Protocol):
    """Ids that a registry gave to schemas."""

    def id_of(self, schema: SchemaVersion) -> int:
        """Return the id under which the registry knows the schema."""
        ...

    def schema_of(self, topic: str, schema_id: int) -> SchemaVersion:
        """Return the schema with that id; raises FramingError where there is none."""
        ...


class SingleObjectFramer:
    """Writes C3 01, the 8-byte CRC-64-AVRO fingerprint, the datum.

    With a registry's `ids` it reads Confluent's framing as well.
    """

    def __init__(self, ids: SchemaIds | None = None) -> None:
        self._ids = ids

    def header(self, schema: SchemaVersion) -> bytes:
        """Return marker and fingerprint."""
        return SINGLE_OBJECT_MARKER + schema.fingerprint

    def parse(self, topic: str, value: bytes) -> tuple[SchemaVersion, int]:
        """Find the version by its fingerprint, or by its id."""
        return _parse(topic, value, self._ids)


class ConfluentFramer:
    """Writes 00, the 4-byte big-endian id, the datum; reads single-object encoding as well."""

    def __init__(self, ids: SchemaIds) -> None:
        self._ids = ids

    def header(self, schema: SchemaVersion) -> bytes:
        """Return magic byte and id."""
        return struct.pack(">bI", CONFLUENT_MAGIC, self._ids.id_of(schema))

    def parse(self, topic: str, value: bytes) -> tuple[SchemaVersion, int]:
        """Find the schema by its id, or by its fingerprint."""
        return _parse(topic, value, self._ids)


def header_bytes(value: bytes) -> int:
    """Return how long a value's header is, by its first byte; of what has none, any length."""
    single = value[:1] == SINGLE_OBJECT_MARKER[:1]
    return SINGLE_OBJECT_HEADER_BYTES if single else CONFLUENT_HEADER_BYTES


def _parse(topic: str, value: bytes, ids: SchemaIds | None) -> tuple[SchemaVersion, int]:
    if value[:2] == SINGLE_OBJECT_MARKER:
        return _by_fingerprint(topic, value), SINGLE_OBJECT_HEADER_BYTES
    if value[:1] != bytes([CONFLUENT_MAGIC]):
        raise FramingError(
            f"{len(value)} bytes, the first are {value[:2].hex() or 'none'}: neither c301 "
            "(single-object encoding) nor 00 (Confluent framing)"
        )
    if ids is None:
        raise FramingError("Confluent framing: set schema.registry.url to read it")
    if len(value) < CONFLUENT_HEADER_BYTES:
        raise FramingError(f"{len(value)} bytes; a Confluent header has {CONFLUENT_HEADER_BYTES}")
    schema_id = int.from_bytes(value[1:CONFLUENT_HEADER_BYTES], "big")
    return ids.schema_of(topic, schema_id), CONFLUENT_HEADER_BYTES


def _by_fingerprint(topic: str, value: bytes) -> SchemaVersion:
    if len(value) < SINGLE_OBJECT_HEADER_BYTES:
        raise FramingError(
            f"{len(value)} bytes; a single-object header has {SINGLE_OBJECT_HEADER_BYTES}"
        )
    wanted = value[2:SINGLE_OBJECT_HEADER_BYTES]
    for version in avro.versions(topic):
        if version.fingerprint == wanted:
            return version
    raise FramingError(f"unknown schema fingerprint {wanted.hex()} for {topic}")
