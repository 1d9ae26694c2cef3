"""Avro object container files: written block by block, read as far as they are whole.

Written by fastavro; read by our own loop over blocks (Avro specification 1.12,
"Object Container Files"), because a damaged file must still give all that
stands before the damage, and the damage its position.
"""

import io
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import fastavro
import fastavro.schema
import fastavro.write

from ops.recording.foreign import check_schema
from ops.recording.shape import plain_schema, without_defaults
from schemas import avro
from schemas.process.files import open_regular, parse_json

MAGIC: Final = b"Obj\x01"
SYNC_BYTES: Final = 16
# Compressors that every reader has; fastavro's zstandard needs one more package.
CODECS: Final = ("deflate", "null")
# A block is cut at 64 KiB and a value has at most MAX_VALUE_BYTES; foreign
# writers may cut later. What claims more than this is damage, not data.
MAX_BLOCK_BYTES: Final = 64 * 2**20
BLOCK_CUT_BYTES: Final = 64 * 2**10
MAX_VARINT_BYTES: Final = 10
MAX_REASON_CHARS: Final = 300

_HEADER: Final = fastavro.parse_schema(
    {
        "type": "record",
        "name": "org.apache.avro.file.Header",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "Magic", "size": 4}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": {"type": "fixed", "name": "Sync", "size": SYNC_BYTES}},
        ],
    }
)


class DamageError(ValueError):
    """A container file that is broken; what stands before `position` (bytes) is whole.

    `whole` holds the records of the broken block that could still be read.
    """

    def __init__(
        self, path: Path, position: int, reason: str, whole: Sequence[dict[str, Any]] = ()
    ) -> None:
        self.path = path
        self.position = position
        self.reason = reason
        self.whole = whole
        super().__init__(f"{path.name}: damaged at byte {position:,}: {reason}")

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        """Let it be told to another process; without the records."""
        return type(self), (self.path, self.position, self.reason)


class ContainerWriter:
    """Writes one file; every block reaches the disk whole, or is taken back."""

    def __init__(self, path: Path, schema: dict[str, Any], codec: str = "deflate") -> None:
        self._spool = io.BytesIO()
        self._file = path.open("xb", buffering=0)
        self._writer = fastavro.write.Writer(
            self._spool, schema, codec=codec, sync_interval=BLOCK_CUT_BYTES
        )
        self._push()

    def append(self, datum: dict[str, Any]) -> None:
        """Add a record to the block that is being filled."""
        self._writer.write(datum)
        if self._spool.tell():
            self._push()

    def cut(self) -> None:
        """End the block and hand it to the operating system: it survives a SIGKILL.

        Raises
        ------
        OSError
            If the disk is full; the file then ends with the last whole block.
        """
        self._writer.flush()
        if self._spool.tell():
            self._push()

    def close(self) -> None:
        """End the last block and close the file."""
        try:
            self.cut()
        finally:
            self._file.close()

    def _push(self) -> None:
        start = self._file.tell()
        left = memoryview(self._spool.getvalue())
        try:
            while left:
                left = left[self._file.write(left) or 0 :]
        except OSError:
            self._file.truncate(start)
            self._file.seek(start)
            raise
        finally:
            left.release()
            self._spool.seek(0)
            self._spool.truncate()


@dataclass(frozen=True, slots=True)
class BlockExtent:
    """Where a block is, by what its head says.

    `position` and `end` are those of the whole block, `start` is that of its `size` bytes of
    payload; `count` is how many records it claims.
    """

    position: int
    count: int
    start: int
    size: int

    @property
    def end(self) -> int:
        """Where the next block begins."""
        return self.start + self.size + SYNC_BYTES


class ContainerReader:
    """Reads one file.

    Parameters
    ----------
    path
        The file.
    reader_schema
        Parsed schema to which the records are resolved.

    Raises
    ------
    DamageError
        If there is no whole header, or one that is not for us.
    """

    def __init__(self, path: Path, reader_schema: dict[str, Any]) -> None:
        self._path = path
        self._reader_schema: dict[str, Any] | None = reader_schema
        self._file: BinaryIO = open_regular(path)
        try:
            self._size = os.fstat(self._file.fileno()).st_size
            self._read_header()
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def spans(self) -> Iterator[BlockExtent]:
        """Yield where the blocks are; raises DamageError at the first head that is broken."""
        position = self._first
        while position < self._size:
            span = self._head(position)
            yield span
            position = span.end

    def content(self, span: BlockExtent) -> bytes:
        """Return the bytes of a block's records; from any thread.

        Raises
        ------
        DamageError
            If the block is not whole.
        """
        payload = os.pread(self._file.fileno(), span.size + SYNC_BYTES, span.start)
        try:
            if payload[span.size :] != self._sync:
                raise ValueError("no sync marker after the block")
            content = payload[: span.size]
            return content if self._codec == "null" else _inflated(content)
        except (ValueError, OSError, zlib.error) as error:
            raise DamageError(self._path, span.position, _named(error)) from error

    def header(self) -> bytes:
        """Return the file's bytes before its first block."""
        return os.pread(self._file.fileno(), self._first, 0)

    def raw(self, span: BlockExtent) -> bytes:
        """Return a block as it stands in the file, head and sync marker with it."""
        return os.pread(self._file.fileno(), span.end - span.position, span.position)

    def records(self, span: BlockExtent, content: bytes) -> list[dict[str, Any]]:
        """Return the records of a block; raises DamageError, which holds those that are whole."""
        source, records = io.BytesIO(content), list[dict[str, Any]]()
        try:
            for _ in range(span.count):
                records.append(
                    cast(
                        dict[str, Any],
                        fastavro.schemaless_reader(source, self._schema, self._reader_schema),
                    )
                )
            if source.tell() != len(content):
                raise ValueError(f"{len(content) - source.tell():,} bytes after the last record")
        except avro.BAD_BYTES as error:
            reason = f"record {len(records)} of the block: {_named(error)}"
            raise DamageError(self._path, span.position, reason, records) from error
        return records

    @property
    def current(self) -> bool:
        """Whether the file was written with the schema that it is read with."""
        return self._reader_schema is None

    def _read_header(self) -> None:
        if self._file.read(len(MAGIC)) != MAGIC:
            raise DamageError(self._path, 0, "not an Avro object container file")
        self._file.seek(0)
        try:
            header = cast(dict[str, Any], fastavro.schemaless_reader(self._file, _HEADER, None))
            meta = header["meta"]
            schema = parse_json(meta["avro.schema"])
            check_schema(schema)
            self._schema = plain_schema(schema)
        except (*avro.BAD_BYTES, AttributeError, fastavro.schema.SchemaParseException) as error:
            raise DamageError(self._path, 0, f"header: {_named(error)}") from error
        self._codec = meta.get("avro.codec", b"null").decode("ascii", "replace")
        if self._codec not in CODECS:
            raise DamageError(
                self._path, 0, f"codec {self._codec!r}; this reads {', '.join(CODECS)}"
            )
        self._sync = header["sync"]
        self._first = self._file.tell()
        if self._schema == without_defaults(self._reader_schema):
            self._reader_schema = None

    def _head(self, position: int) -> BlockExtent:
        head = os.pread(self._file.fileno(), 2 * MAX_VARINT_BYTES, position)
        try:
            count, at = _varint(head, 0)
            size, at = _varint(head, at)
            if not 0 <= size <= MAX_BLOCK_BYTES or not 0 <= count <= MAX_BLOCK_BYTES:
                raise ValueError(f"a block of {count:,} records in {size:,} bytes")
            span = BlockExtent(position, count, position + at, size)
            if span.end > self._size:
                raise EOFError(f"the file ends {span.end - self._size:,} bytes too early")
        except (EOFError, ValueError, OSError) as error:
            raise DamageError(self._path, position, _named(error)) from error
        return span


def _varint(head: bytes, at: int) -> tuple[int, int]:
    """Return a number and the position behind it."""
    raw = shift = 0
    for _ in range(MAX_VARINT_BYTES):
        if at >= len(head):
            raise EOFError("the file ends in the head of a block")
        byte = head[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7
    raise ValueError("no length where a block should begin")


def _inflated(payload: bytes) -> bytes:
    # Raw deflate, as Avro asks for; bounded, so that a small file cannot fill the memory.
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    content = stream.decompress(payload, MAX_BLOCK_BYTES)
    if not stream.eof:
        raise ValueError("the compressed block is cut off or too large")
    return content


def _named(error: BaseException) -> str:
    return str(error)[:MAX_REASON_CHARS] or type(error).__name__
