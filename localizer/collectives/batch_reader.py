"""Reads many messages of collective.op.v1 at once: batches of ranks, with their operations.

Operations become columns by the kernel that all readers share (`schemas.columns.records`). What
they refer to, a job says again and again in the same bytes: it is decoded once.
"""

from collections.abc import Iterator, Sequence
from itertools import repeat
from operator import add
from typing import Any, Final, NamedTuple

import numpy as np

from localizer.collectives.batch_operations import (
    BatchOperations,
    check_references,
    greatest_references,
)
from localizer.collectives.rank_batch import BatchHead, RankBatch, Who
from localizer.collectives.remembered import Known, SharedNames
from schemas import topics
from schemas.bounds import bound_of
from schemas.codec import Codec, DecodeError
from schemas.columns.arrays import Int64s
from schemas.columns.interpreter import NULL
from schemas.columns.records import NO_ARRIVAL, RecordColumns, RecordReader
from schemas.columns.texts import texts_of
from schemas.enums import CollectiveSource, ProcessState
from schemas.framing import header_bytes
from schemas.records import CollectiveBatch
from schemas.records.batches import BatchError, Tables, tables_of

TABLES: Final = ("shapes", "signatures", "frames", "stacks", "reasons")
ARRAYS: Final = ("endpoint_ids", "communicators", *TABLES)
# What a batch says beside who the rank is.
SAID: Final = BatchHead._fields[len(Who._fields) :]
NOTHING: Final = CollectiveBatch(
    cluster="c", rank_id="j|0", task_id="j", rank=0, host_id="h", endpoint_ids=(), attempt=0,
    process_state=ProcessState.UNKNOWN, source=CollectiveSource.UNKNOWN, taken_at=0,
    snapshot=False, dropped_before=0, communicators=(), shapes=(), signatures=(), frames=(),
    stacks=(), reasons=(), operations=(),
)  # fmt: skip


class _Sender(NamedTuple):
    """Who sent a message, and how it names its communicators."""

    who: Who
    communicators: tuple[str, ...]


class _Row(NamedTuple):
    """A message: its sender and its tables as bytes, its other fields, and its operations.

    `place` is which of those that were read it is; `begin` and `end` say which operations are its,
    of `numbers`, `greatest` to what they refer; `arrays_end` is how many bytes behind its header
    the last of these arrays ends.
    """

    place: int
    sender: bytes
    said: tuple[Any, ...]
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


class _Names:
    """Reads an array of names as the current schema has it.

    Each rank has its own: at a start there are as many new ones as ranks, and to let the codec read
    a message takes longer than all that is done with it else.
    """

    def __init__(self, field: str, shared: SharedNames) -> None:
        name = topics.COLLECTIVE_OP.name
        self._items = bound_of(name, field)
        self._characters = bound_of(name, f"{field}.")
        self._shared = shared

    def read(self, data: bytes) -> tuple[str, ...] | None:
        """Return the names; None: the codec has to."""
        items, characters = self._items, self._characters
        found = texts_of(data, items.greatest)
        if found is None or len(found) < items.least:
            return None
        within = (characters.least <= len(name) <= characters.greatest for name in found)
        return tuple(map(self._shared.shared, found)) if all(within) else None


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
        self._shared = SharedNames()
        self._endpoint_names = _Names("endpoint_ids", self._shared)
        self._communicator_names = _Names("communicators", self._shared)
        self._senders: Known[_Sender] = Known()
        self._tables: Known[Tables] = Known()
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
            # Fields of another version may stand in another order, and be of another type.
            is_current = self._is_current(values[block.first])
            rows = self._rows(block, is_current=is_current)
            for number, whole in enumerate(block.whole.tolist(), block.first):
                made = None
                if whole:
                    row = next(rows)
                    made = self._made(block, row, is_current=is_current)
                    if made is None:
                        made = self._learned(block, row, values[number], int(arrivals_ns[number]))
                found.append(made)
        return found

    def _is_current(self, value: bytes) -> bool:
        return self._codec.payload(topics.COLLECTIVE_OP, value) is not None

    def _made(self, block: RecordColumns, row: _Row, *, is_current: bool) -> RankBatch | None:
        """Return the batch of a message whose arrays are known, or names."""
        writer = block.writer
        tables = self._tables.get(writer, row.tables)
        sender = self._senders.get(writer, row.sender)
        if sender is None and is_current:
            endpoints = self._endpoint_names.read(_array_of(block, "endpoint_ids", row.place))
            communicators = self._communicator_names.read(
                _array_of(block, "communicators", row.place)
            )
            if endpoints is not None and communicators is not None:
                sender = self._note_sender(block, row, endpoints, communicators)
        if tables is None or sender is None:
            return None
        try:
            operations = row.operations(sender.communicators, tables)
        except BatchError:
            return None
        return RankBatch(BatchHead._make(sender.who + row.said), operations)

    def _note_sender(
        self, block: RecordColumns, row: _Row, endpoints: tuple[str, ...],
        communicators: tuple[str, ...],
    ) -> _Sender:  # fmt: skip
        """Return who sent a message and how it names communicators, and remember it."""
        shared = self._shared.shared
        rank, size = (int(block.numbers(name)[row.place]) for name in ("rank", "world_size"))
        who = Who(
            cluster=shared(block.text("cluster", row.place)),
            rank_id=block.text("rank_id", row.place),
            task_id=shared(block.text("task_id", row.place)), rank=rank,
            world_size=None if size == NULL else size,
            host_id=shared(block.text("host_id", row.place)), endpoint_ids=endpoints,
        )  # fmt: skip
        found = _Sender(who, communicators)
        self._senders.put(block.writer, row.sender, found)
        return found

    def _learned(
        self, block: RecordColumns, row: _Row, value: bytes, arrival_ns: int
    ) -> RankBatch | None:
        """Return the batch of a message by itself, and remember what its arrays mean.

        Its operations were read by the kernel; decoding them one by one as well would take most
        of a start, at which everything is new.
        """
        known_ns = None if arrival_ns == NO_ARRIVAL else arrival_ns
        writer = block.writer
        try:
            batch = self._codec.decode(
                topics.COLLECTIVE_OP, self._shortened(value, row), arrival_ns=known_ns
            )
            # Ranks share them.
            tables = self._tables.get(writer, row.tables) or tables_of(batch)
            operations = row.operations(batch.communicators, tables)
        except (DecodeError, BatchError):
            return None
        self._tables.put(writer, row.tables, tables)
        sender = self._note_sender(block, row, batch.endpoint_ids, batch.communicators)
        return RankBatch(BatchHead._make(sender.who + row.said), operations)

    def _shortened(self, value: bytes, row: _Row) -> bytes:
        """Return a message as it would be without its operations and what follows them."""
        if not self._is_current(value):
            return value
        if self._rest is None:
            nothing = self._codec.encode(topics.COLLECTIVE_OP, NOTHING)
            (block,) = self._reader.columns([nothing], np.full(1, NO_ARRIVAL, np.int64))
            self._rest = nothing[header_bytes(nothing) + int(_arrays_ends(block)[0]) :]
        return value[: header_bytes(value) + row.arrays_end] + self._rest

    def _rows(self, block: RecordColumns, *, is_current: bool) -> Iterator[_Row]:
        """Yield the messages of a block that were read."""
        begins, sizes = block.arrays("endpoint_ids")
        # In the current version nothing but who the rank is stands before the endpoints' end.
        who_begins = block.starts if is_current else begins
        who = _slices(block.data, who_begins, begins + sizes)
        if not is_current:
            others = self._reader.values(block, Who._fields[:-1])
            who = [repr(fields).encode() + ids for fields, ids in zip(others, who, strict=True)]
        ends = block.item_ends.tolist()
        yield from map(
            _Row,
            range(len(ends)),
            map(add, who, _bytes_of(block, ("communicators",))),
            self._reader.values(block, SAID),
            _bytes_of(block, TABLES),
            repeat(block.items),
            [0, *ends[:-1]],
            ends,
            greatest_references(block.items, block.item_ends).tolist(),
            _arrays_ends(block).tolist(),
        )


def _array_of(block: RecordColumns, name: str, place: int) -> bytes:
    """Return the bytes of an array of a record."""
    begin, size = block.arrays(name)[:, place].tolist()
    return block.data[begin : begin + size]


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
