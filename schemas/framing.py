"""How a value says which schema wrote it.

Confluent's wire format where a registry is configured, Avro single-object
encoding where none is (Avro spec 1.12, "Single-object encoding").
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


class SingleObjectFramer:
    """C3 01, the 8-byte CRC-64-AVRO fingerprint, the datum."""

    def header(self, schema: SchemaVersion) -> bytes:
        """Return marker and fingerprint."""
        return SINGLE_OBJECT_MARKER + schema.fingerprint

    def parse(self, topic: str, value: bytes) -> tuple[SchemaVersion, int]:
        """Find the version by its fingerprint."""
        if len(value) < SINGLE_OBJECT_HEADER_BYTES:
            raise FramingError(
                f"{len(value)} bytes; a single-object header has {SINGLE_OBJECT_HEADER_BYTES}"
            )
        if value[:2] != SINGLE_OBJECT_MARKER:
            hint = " (Confluent framing? set schema.registry.url)" if value[0] == 0 else ""
            raise FramingError(f"marker {value[:2].hex()} instead of c301{hint}")
        wanted = value[2:SINGLE_OBJECT_HEADER_BYTES]
        for version in avro.versions(topic):
            if version.fingerprint == wanted:
                return version, SINGLE_OBJECT_HEADER_BYTES
        raise FramingError(f"unknown schema fingerprint {wanted.hex()} for {topic}")


class SchemaIds(Protocol):
    """Ids that a registry gave to schemas."""

    def id_of(self, schema: SchemaVersion) -> int:
        """Return the id under which the registry knows the schema."""
        ...

    def schema_of(self, topic: str, schema_id: int) -> SchemaVersion:
        """Return the schema with that id; raises FramingError where there is none."""
        ...


class ConfluentFramer:
    """00, the 4-byte big-endian id, the datum."""

    def __init__(self, ids: SchemaIds) -> None:
        self._ids = ids

    def header(self, schema: SchemaVersion) -> bytes:
        """Return magic byte and id."""
        return struct.pack(">bI", CONFLUENT_MAGIC, self._ids.id_of(schema))

    def parse(self, topic: str, value: bytes) -> tuple[SchemaVersion, int]:
        """Find the schema by its id."""
        if len(value) < CONFLUENT_HEADER_BYTES:
            raise FramingError(
                f"{len(value)} bytes; a Confluent header has {CONFLUENT_HEADER_BYTES}"
            )
        if value[0] != CONFLUENT_MAGIC:
            hint = (
                " (single-object encoding? unset schema.registry.url)"
                if value[:2] == SINGLE_OBJECT_MARKER
                else ""
            )
            raise FramingError(f"first byte {value[0]:#04x} instead of 0x00{hint}")
        schema_id = int.from_bytes(value[1:CONFLUENT_HEADER_BYTES], "big")
        return self._ids.schema_of(topic, schema_id), CONFLUENT_HEADER_BYTES
