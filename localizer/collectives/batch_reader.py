"""Reads many messages of collective.op.v1 at once: batches of ranks, with their operations.

Operations become columns by the kernel that all readers share (`schemas.columns.records`). What
they refer to, a job says again and again in the same bytes: it is decoded once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any, Final, Generic, NamedTuple, TypeVar

import numpy as np

from localizer.collectives.batch_operations import (
    BatchOperations,
    check_references,
    greatest_references,
)
from schemas import topics
from schemas.bounds import bound_of
from schemas.codec import Codec, DecodeError
from schemas.columns.arrays import Int64s
from schemas.columns.records import NO_ARRIVAL, RecordColumns, RecordReader
from schemas.columns.texts import texts_of
from schemas.enums import CollectiveSource, ProcessState
from schemas.framing import header_bytes
from schemas.records import CollectiveBatch
from schemas.records.batches import BatchError, Tables, tables_of

T = TypeVar("T")

# Bytes of remembered arrays of each kind; what they mean takes a few times as many. A rank names
# its communicators in a few orders, one for each phase of an iteration in which a batch begins:
# those of ten thousand ranks take 12 MB.
MAX_KNOWN_BYTES: Final = 16_000_000
TABLES: Final = ("shapes", "signatures", "frames", "stacks", "reasons")
ARRAYS: Final = ("endpoint_ids", "communicators", *TABLES)
NOTHING: Final = CollectiveBatch(
    cluster="c", rank_id="j|0", task_id="j", rank=0, host_id="h", endpoint_ids=(), attempt=0,
    process_state=ProcessState.UNKNOWN, source=CollectiveSource.UNKNOWN, taken_at=0,
    snapshot=False, dropped_before=0, communicators=(), shapes=(), signatures=(), frames=(),
    stacks=(), reasons=(), operations=(),
)  # fmt: skip


class RankBatch(NamedTuple):
    """A batch without its operations and what they refer to, and these operations."""

    batch: CollectiveBatch
    operations: BatchOperations

    @property
    def cluster(self) -> str:
        """The batch's cluster."""
        return self.batch.cluster

    @property
    def rank_id(self) -> str:
        """The batch's key."""
        return self.batch.rank_id

    @property
    def task_id(self) -> str:
        """The batch's job."""
        return self.batch.task_id


def without_tables(batch: CollectiveBatch) -> CollectiveBatch:
    """Return a batch without its operations and what they refer to, its communicators excepted."""
    return replace(batch, shapes=(), signatures=(), frames=(), stacks=(), reasons=(), operations=())


def rank_batch(batch: CollectiveBatch) -> RankBatch:
    """Return a batch with its operations apart; raises BatchError if that cannot be."""
    return RankBatch(without_tables(batch), BatchOperations.of_batch(batch))


class _Row(NamedTuple):
    """A message: its plain fields, its arrays as bytes, and its operations.

    `begin` and `end` say which they are of `numbers`, `greatest` to what they refer;
    `arrays_end` is how many bytes behind its header the last of these arrays ends.
    """

    fields: dict[str, Any]
    endpoints: bytes
    communicators: bytes
    tables: bytes
    numbers: Int64s
    begin: int
    end: int
    greatest: list[int]
    arrays_end: int

    def operations(self, communicators: tuple[str, ...], tables: Tables) -> BatchOperations:
        """Return its operations; raises BatchError if they refer to what is not there."""
        # No index is negative: the topic's bounds.
        check_references(self.greatest, communicators, tables)
        return BatchOperations(self.numbers, self.begin, self.end, communicators, tables)


class _Known(Generic[T]):
    """What bytes mean, by who wrote them; the oldest are forgotten."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, bytes], T] = {}
        self._bytes = 0

    def get(self, writer: int, data: bytes) -> T | None:
        return self._found.get((writer, data))

    def put(self, writer: int, data: bytes, value: T) -> None:
        if (writer, data) not in self._found:
            self._bytes += len(data)
        self._found[writer, data] = value
        while self._bytes > MAX_KNOWN_BYTES:
            oldest = next(iter(self._found))
            del self._found[oldest]
            self._bytes -= len(oldest[1])


class _Names(_Known[tuple[str, ...]]):
    """What arrays of names mean, by their bytes.

    Each rank has its own: at a start there are as many new ones as ranks, and to let the codec read
    a message takes longer than all that is done with it else.
    """

    def __init__(self, field: str) -> None:
        super().__init__()
        name = topics.COLLECTIVE_OP.name
        self._items = bound_of(name, field)
        self._characters = bound_of(name, f"{field}.")

    def read(self, writer: int, data: bytes) -> tuple[str, ...] | None:
        """Return the names of an array as the current schema has it; None: the codec has to."""
        found = texts_of(data)
        items, characters = self._items, self._characters
        if not items.least <= len(found) <= items.greatest:
            return None
        if not all(characters.least <= len(name) <= characters.greatest for name in found):
            return None
        self.put(writer, data, found)
        return found


class BatchReader:
    """Reads batches.

    Parameters
    ----------
    codec
        Whose framing the messages have.
    """

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._reader = RecordReader(codec, topics.COLLECTIVE_OP, items="operations")
        self._endpoints = _Names("endpoint_ids")
        self._communicators = _Names("communicators")
        self._tables: _Known[Tables] = _Known()
        # What follows all arrays in a message that holds nothing.
        self._rest: bytes | None = None

    def warm(self) -> None:
        """Compile the kernel, some seconds once after an installation, or read it from disk."""
        value = self._codec.encode(topics.COLLECTIVE_OP, NOTHING)
        self.read([value], np.full(1, NO_ARRIVAL, np.int64))

    def read(self, values: Sequence[bytes], arrivals_ns: Int64s) -> list[RankBatch | None]:
        """Return the batch of each message; None where somebody has to look at it by itself.

        Parameters
        ----------
        values
            Of the messages.
        arrivals_ns : (n,) int64
            When they arrived; `NO_ARRIVAL`: not known.
        """
        found: list[RankBatch | None] = []
        for block in self._reader.columns(values, arrivals_ns):
            rows = self._rows(block)
            # Fields of another version may stand in another order, and be of another type.
            is_current = self._is_current(values[block.first])
            for number, whole in enumerate(block.whole.tolist(), block.first):
                made = None
                if whole:
                    row = next(rows)
                    made = self._made(block.writer, row, is_current=is_current)
                    if made is None:
                        made = self._learned(
                            block.writer, row, values[number], int(arrivals_ns[number])
                        )
                found.append(made)
        return found

    def _is_current(self, value: bytes) -> bool:
        return self._codec.payload(topics.COLLECTIVE_OP, value) is not None

    def _made(self, writer: int, row: _Row, *, is_current: bool) -> RankBatch | None:
        """Return the batch of a message whose arrays are known, or names."""
        tables = self._tables.get(writer, row.tables)
        if tables is None:
            return None
        endpoints = self._endpoints.get(writer, row.endpoints)
        communicators = self._communicators.get(writer, row.communicators)
        if is_current and endpoints is None:
            endpoints = self._endpoints.read(writer, row.endpoints)
        if is_current and communicators is None:
            communicators = self._communicators.read(writer, row.communicators)
        if endpoints is None or communicators is None:
            return None
        try:
            operations = row.operations(communicators, tables)
        except BatchError:
            return None
        return RankBatch(_batch_of(row, endpoints, communicators), operations)

    def _learned(self, writer: int, row: _Row, value: bytes, arrival_ns: int) -> RankBatch | None:
        """Return the batch of a message by itself, and remember what its arrays mean.

        Its operations were read by the kernel; decoding them one by one as well would take most
        of a start, at which everything is new.
        """
        known_ns = None if arrival_ns == NO_ARRIVAL else arrival_ns
        try:
            batch = self._codec.decode(
                topics.COLLECTIVE_OP, self._shortened(value, row), arrival_ns=known_ns
            )
            tables = tables_of(batch)
            operations = row.operations(batch.communicators, tables)
        except (DecodeError, BatchError):
            return None
        self._endpoints.put(writer, row.endpoints, batch.endpoint_ids)
        self._communicators.put(writer, row.communicators, batch.communicators)
        # Ranks share it, also where two of them were read anew.
        tables = self._tables.get(writer, row.tables) or tables
        self._tables.put(writer, row.tables, tables)
        return RankBatch(_batch_of(row, batch.endpoint_ids, batch.communicators), operations)

    def _shortened(self, value: bytes, row: _Row) -> bytes:
        """Return a message as it would be without its operations and what follows them."""
        if not self._is_current(value):
            return value
        if self._rest is None:
            nothing = self._codec.encode(topics.COLLECTIVE_OP, NOTHING)
            (block,) = self._reader.columns([nothing], np.full(1, NO_ARRIVAL, np.int64))
            self._rest = nothing[header_bytes(nothing) + int(_arrays_ends(block)[0]) :]
        return value[: header_bytes(value) + row.arrays_end] + self._rest

    def _rows(self, block: RecordColumns) -> Iterator[_Row]:
        """Yield the messages of a block that were read."""
        ends = block.item_ends.tolist()
        yield from map(
            _Row,
            self._reader.rows(block),
            _bytes_of(block, ("endpoint_ids",)),
            _bytes_of(block, ("communicators",)),
            _bytes_of(block, TABLES),
            repeat(block.items),
            [0, *ends[:-1]],
            ends,
            greatest_references(block.items, block.item_ends).tolist(),
            _arrays_ends(block).tolist(),
        )


def _batch_of(
    row: _Row, endpoints: tuple[str, ...], communicators: tuple[str, ...]
) -> CollectiveBatch:
    """Return a message's batch without its operations and what they refer to."""
    return CollectiveBatch(
        **row.fields, endpoint_ids=endpoints, communicators=communicators, shapes=(),
        signatures=(), frames=(), stacks=(), reasons=(), operations=(),
    )  # fmt: skip


def _arrays_ends(block: RecordColumns) -> Int64s:
    """Return how many bytes behind its header the last of the arrays of each record ends."""
    ends = [begins + sizes for begins, sizes in map(block.arrays, ARRAYS)]
    found: Int64s = np.max(ends, axis=0) - block.starts
    return found


def _bytes_of(block: RecordColumns, names: Sequence[str]) -> list[bytes]:
    """Return the bytes of some arrays of each record, those of one behind the other's."""
    parts = []
    begins, sizes = block.arrays(names[0])
    ends = begins + sizes
    for name in names[1:]:
        later, sizes = block.arrays(name)
        if (later != ends).any():
            parts.append(_slices(block.data, begins, ends))
            begins = later
        # As a rule one follows the other.
        ends = later + sizes
    parts.append(_slices(block.data, begins, ends))
    return parts[0] if len(parts) == 1 else [b"".join(each) for each in zip(*parts, strict=True)]


def _slices(data: bytes, begins: Int64s, ends: Int64s) -> list[bytes]:
    return [data[a:b] for a, b in zip(begins.tolist(), ends.tolist(), strict=True)]
