"""Many messages of a topic as records of its class, read by a kernel.

For topics whose records hold numbers, texts, enums and booleans, each of which may be null, and at
most one array of such records; of other arrays it is known where they stand. It reads only what is
certainly right and within its bounds, and texts of ASCII; of the rest `Codec.decode` says what it
is. The records are those that it returns, for a fifth of the time.
"""

import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from types import UnionType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from schemas.bounds import BOUNDS, Bound, Measure
from schemas.codec import Codec
from schemas.columns.arrays import Bools, Int64s
from schemas.columns.blocks import Block, Blocks
from schemas.columns.compiled import compiled
from schemas.columns.interpreter import NULL, read_lists, read_whole
from schemas.columns.plan import FieldTable, Kind, Plan, Wanted
from schemas.columns.wire import is_ascii
from schemas.topics import Topic

# Stands for an arrival that is not known.
NO_ARRIVAL: Final = -1
# The wire's byte of true, read as a number.
_TRUE: Final = -1

# Blocks of one topic have about as many items for their size; one that has more is read twice.
SPARE: Final = 1.25
_TEXTS: Final = (Kind.TEXT, Kind.NULLABLE_TEXT)
_BOOLEANS: Final = (Kind.BOOLEAN, Kind.NULLABLE_BOOLEAN)
_DOUBLES: Final = (Kind.DOUBLE, Kind.NULLABLE_DOUBLE)

# Returns one field of all records.
_Values = Callable[[str, Int64s], Iterable[Any]]


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Consecutive messages of a topic as columns.

    Attributes
    ----------
    first
        Number of the first message.
    whole : (n,) bool
        Which messages were read; `Codec.decode` must look at the others.
    data
        Bytes in which the texts are.
    starts : (read,) int64
        Where each of those that were read begins in the data, behind its header.
    columns : (columns, read) int64
        Of those that were read alone; `NULL` for null.
    wanted
        By field: which column it is.
    items : (columns, items) int64
        The same of the items of all arrays, one record's behind the other's.
    item_ends : (read,) int64
        Where the items of each record end.
    item_wanted
        By field of an item: which column it is.
    writer
        Which of the topic's schemas they were written by; equal for equal ones.
    """

    first: int
    whole: Bools
    data: bytes
    starts: Int64s
    columns: Int64s
    wanted: Mapping[str, Wanted]
    items: Int64s
    item_ends: Int64s
    item_wanted: Mapping[str, Wanted]
    writer: int

    def numbers(self, name: str) -> Int64s:
        """Return a field of numbers, `NULL` for null."""
        found: Int64s = self.columns[self.wanted[name].column]
        return found

    def arrays(self, name: str) -> Int64s:
        """Return where each record's array stands in the data, shape (2, read): begin and bytes."""
        column = self.wanted[name].column
        found: Int64s = self.columns[column : column + 2]
        return found

    def text(self, name: str, place: int) -> str:
        """Return a text of one record that is never null."""
        column = self.wanted[name].column
        start, length = self.columns[column : column + 2, place].tolist()
        return self.data[start : start + length].decode("ascii")

    def texts(self, name: str) -> list[str]:
        """Return a field of texts that are never null."""
        column = self.wanted[name].column
        starts, ends = self.columns[column], self.columns[column] + self.columns[column + 1]
        text = _text(self.data)
        return [text[at:end] for at, end in zip(starts.tolist(), ends.tolist(), strict=True)]

    def item_numbers(self, name: str) -> list[int | None]:
        """Return a field of all items that may be null."""
        return numbers_or_none(self.items[self.item_wanted[name].column])

    def item_texts(self, name: str) -> list[str | None]:
        """Return a text of all items that may be null."""
        column = self.item_wanted[name].column
        return _texts(_text(self.data), self.items[column], self.items[column + 1])


class _Fields:
    """How the fields of a record's class, or of its items, stand in columns.

    Attributes
    ----------
    count
        Number of columns.
    """

    def __init__(self, hints: Mapping[str, Any]) -> None:
        self.wanted: dict[str, Wanted] = {}
        self.values: dict[str, _Values] = {}
        self.count = 0
        for name, hint in hints.items():
            if typing.get_origin(hint) is tuple:
                self.wanted[name] = Wanted(self.count, Kind.ARRAY)
            else:
                self.wanted[name], self.values[name] = _field(self.count, hint)
            self.count += 2 if self.wanted[name].kind in (*_TEXTS, Kind.ARRAY) else 1
        self.booleans = [each.column for each in self.wanted.values() if each.kind in _BOOLEANS]
        texts = [wanted.column for wanted in self.wanted.values() if wanted.kind in _TEXTS]
        self.texts = np.array(texts, np.int64)

    def rows(self, data: bytes, columns: Int64s) -> Iterator[dict[str, Any]]:
        """Yield the fields of each row by name, without arrays."""
        text = _text(data)
        values = (of_field(text, columns) for of_field in self.values.values())
        return (dict(zip(self.values, row, strict=True)) for row in zip(*values, strict=True))

    def good(
        self,
        columns: Int64s,
        arrivals_ns: Int64s,
        bounds: Iterable[tuple[Bound, Wanted]],
    ) -> Bools:
        """Return which rows are certainly within the bounds."""
        within = np.ones(columns.shape[1], np.bool_)
        for column in self.booleans:
            values = columns[column]
            within &= (values == 0) | (values == _TRUE) | (values == NULL)
        for bound, wanted in bounds:
            # A text has no more characters than bytes, and none only without bytes.
            text = bound.measure is Measure.CHARACTERS
            bits = columns[wanted.column + text]
            values = bits.view(np.float64) if wanted.kind in _DOUBLES else bits
            good = (values >= bound.least) & (values <= bound.greatest)
            if bound.ahead_ns is not None:
                latest = (arrivals_ns + bound.ahead_ns) // bound.unit_ns
                good &= (arrivals_ns == NO_ARRIVAL) | (values <= latest)
            within &= good | (bits == NULL)
        return within


class RecordReader:
    """Reads messages of one topic.

    Parameters
    ----------
    codec
        Whose framing the messages have.
    topic
        Its record has at most one array, or `items` says which of them is read.
    items
        The array that is read, of records. Of the others only `columns` tells where they stand.
    """

    def __init__(self, codec: Codec, topic: Topic, items: str | None = None) -> None:
        self._record: Callable[..., Any] = topic.record
        self._array, self._item, hints, items_hints = _shape(topic.record, items)
        self._fields, self._items = _Fields(hints), _Fields(items_hints)
        table = FieldTable(topic.name, self._fields.wanted, self._array, self._items.wanted)
        self._blocks = Blocks(codec.framer, table)
        # Of the last block.
        self._items_each_byte = 0.0
        own = [bound for bound in BOUNDS if bound.topic == topic.name]
        self._bounds = [
            (b, self._fields.wanted[b.field])
            for b in own
            if b.field in self._fields.wanted and b.measure is not Measure.ITEMS
        ]
        self._item_bounds = [
            (b, self._items.wanted[b.field.removeprefix(f"{self._array}.")])
            for b in own
            if b.field.startswith(f"{self._array}.")
        ]
        self._most_items = min(
            (b.greatest for b in own if b.measure is Measure.ITEMS and b.field == self._array),
            default=float("inf"),
        )

    def read(self, values: Sequence[bytes], arrivals_ns: Int64s) -> list[Any]:
        """Return the record of each message; None where `Codec.decode` must look at it.

        Parameters
        ----------
        values
            Messages.
        arrivals_ns : (n,) int64
            When they arrived; `NO_ARRIVAL`: not known, then no time is compared with it.
        """
        found: list[Any] = []
        for block in self.columns(values, arrivals_ns):
            found += self._records(block)
        return found

    def values(self, block: RecordColumns, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Yield some fields of each record of a block; none is an array."""
        text = _text(block.data)
        return zip(*(self._fields.values[n](text, block.columns) for n in names), strict=True)

    def columns(self, values: Sequence[bytes], arrivals_ns: Int64s) -> Iterator[RecordColumns]:
        """Yield the same messages as columns, in order."""
        for block in self._blocks.make(values):
            own = arrivals_ns[block.first : block.first + len(block)]
            for room in self._rooms(block):
                columns = np.full((self._fields.count, len(block)), NULL, np.int64)
                whole = np.zeros(len(block), np.bool_)
                items = np.empty((self._items.count, room), np.int64)
                # Of a null all columns but the length of a text are written.
                items[self._items.texts + 1] = NULL
                item_ends = np.zeros(len(block), np.int64)
                if block.plan is not None:
                    self._read(block, block.plan, own, columns, items, item_ends, whole)
                if whole.all():
                    # None of them lacked room.
                    break
            count = int(item_ends[-1])
            self._items_each_byte = count / max(1, len(block.data))
            items = items[:, :count]
            starts = block.starts
            if not whole.all():
                counts = np.diff(item_ends, prepend=0)
                read = np.flatnonzero(whole)
                # In C's order, as kernels are compiled for.
                items = items.take(np.flatnonzero(np.repeat(whole, counts)), axis=1)
                columns, starts = columns.take(read, axis=1), starts[read]
                item_ends = np.cumsum(counts[read])
            yield RecordColumns(
                first=block.first,
                whole=whole,
                data=block.data.tobytes(),
                starts=starts,
                columns=columns,
                wanted=self._fields.wanted,
                items=items,
                item_ends=item_ends,
                item_wanted=self._items.wanted,
                writer=id(block.plan),
            )

    def _rooms(self, block: Block) -> Sequence[int]:
        """Return for how many items to make room: what is likely enough, and what surely is.

        An item has at least a byte for each of its fields. Room for so many is several times what
        items take as a rule, and to fill it takes longer than to read them.
        """
        if not self._array:
            return (0,)
        most = len(block.data) // len(self._items.wanted)
        likely = int(SPARE * self._items_each_byte * len(block.data))
        return (likely, most) if 0 < likely < most else (most,)

    def _read(
        self,
        block: Block,
        plan: Plan,
        arrivals_ns: Int64s,
        columns: Int64s,
        items: Int64s,
        item_ends: Int64s,
        whole: Bools,
    ) -> None:
        """Read a block into columns, and note which of its messages could be read."""
        data = block.data
        if not self._array:
            read_whole(data, block.starts, block.ends, plan, columns, whole)
        else:
            read_lists(data, block.starts, block.ends, plan, columns, items, item_ends, whole)
        _refuse_others_than_ascii(data, columns, self._fields.texts, whole)
        whole &= self._fields.good(columns, arrivals_ns, self._bounds)
        if self._array:
            counts = np.diff(item_ends, prepend=0)
            found = items[:, : counts.sum()]
            good = np.ones(found.shape[1], np.bool_)
            _refuse_others_than_ascii(data, found, self._items.texts, good)
            good &= self._items.good(found, np.full(len(good), NO_ARRIVAL), self._item_bounds)
            if not good.all():
                whole[np.repeat(np.arange(len(whole)), counts)[~good]] = False
            whole &= counts <= self._most_items

    def _records(self, block: RecordColumns) -> Iterator[Any]:
        rows = self._fields.rows(block.data, block.columns)
        if self._array:
            items = [self._item(**row) for row in self._items.rows(block.data, block.items)]
            ends = block.item_ends.tolist()
            rows = (
                {**row, self._array: tuple(items[begin:end])}
                for row, begin, end in zip(rows, [0, *ends[:-1]], ends, strict=True)
            )
        return (self._record(**next(rows)) if good else None for good in block.whole.tolist())


def _shape(
    record: type, items: str | None
) -> tuple[str, Callable[..., Any], dict[str, Any], dict[str, Any]]:
    """Return a record's array and the class of its items; hints of its fields and of theirs.

    The array's name is "" where there is none.
    """
    hints = _hints(record)
    arrays = [name for name, hint in hints.items() if typing.get_origin(hint) is tuple]
    if not arrays:
        return "", dict, hints, {}
    if items is None and len(arrays) > 1:
        raise TypeError(f"no kernel reads several arrays: {arrays}")
    array = items or arrays[0]
    item: Any = typing.get_args(hints.pop(array))[0]
    if not is_dataclass(item):
        raise TypeError(f"no kernel reads items of {item}")
    made: Any = item
    return array, made, hints, _hints(made)


def _hints(record: type) -> dict[str, Any]:
    hints = typing.get_type_hints(record)
    return {each.name: hints[each.name] for each in fields(record)}


def _field(column: int, hint: Any) -> tuple[Wanted, _Values]:
    """Return how a field is read, and what makes its values of its columns."""
    nullable = isinstance(hint, UnionType)
    if nullable:
        (hint,) = (each for each in typing.get_args(hint) if each is not type(None))
    if hint is str:
        kind = Kind.NULLABLE_TEXT if nullable else Kind.TEXT
        return Wanted(column, kind), lambda text, columns: _texts(
            text, columns[column], columns[column + 1]
        )
    if hint is bool and not nullable:
        return Wanted(column, Kind.BOOLEAN), lambda _, columns: (columns[column] == _TRUE).tolist()
    if hint is bool:
        return Wanted(column, Kind.NULLABLE_BOOLEAN), lambda _, columns: (
            None if value == NULL else value == _TRUE for value in columns[column].tolist()
        )
    if hint is int:
        if not nullable:
            return Wanted(column), lambda _, columns: columns[column].tolist()
        return Wanted(column, Kind.NULLABLE_LONG), lambda _, columns: numbers_or_none(
            columns[column]
        )
    if hint is float:
        kind = Kind.NULLABLE_DOUBLE if nullable else Kind.DOUBLE
        return Wanted(column, kind), lambda _, columns: _doubles(columns[column])
    if isinstance(hint, type) and issubclass(hint, StrEnum) and not nullable:
        members = list(hint)
        codes = {member.value: code for code, member in enumerate(members)}
        return Wanted(column, Kind.ENUM, codes), lambda _, columns: map(
            members.__getitem__, columns[column].tolist()
        )
    raise TypeError(f"no kernel reads {hint}")


@compiled
def _refuse_others_than_ascii(
    data: NDArray[np.uint8], columns: Int64s, texts: Int64s, whole: Bools
) -> None:
    """Note of messages with texts that may be no UTF-8 that they were not read."""
    for message in range(len(whole)):
        for text in texts:
            at = columns[text, message]
            if whole[message] and at != NULL:
                whole[message] = is_ascii(data, at, at + columns[text + 1, message])


def numbers_or_none(column: Int64s) -> list[Any]:
    """Return a column of numbers of which any may be null."""
    values: list[int] = column.tolist()
    if NULL not in values:
        return values
    return [None if value == NULL else value for value in values]


def _doubles(column: Int64s) -> Iterable[float | None]:
    null = column == NULL
    found: list[float | None] = column.view(np.float64).tolist()
    if null.any():
        for place in np.flatnonzero(null).tolist():
            found[place] = None
    return found


def _text(data: bytes) -> str:
    """Return bytes as a text of as many characters: a part of it takes less than to decode one."""
    return data.decode("latin-1")


def _texts(text: str, starts: Int64s, lengths: Int64s) -> list[str | None]:
    if (starts == NULL).all():
        return [None] * len(starts)
    return [
        None if at == NULL else text[at : at + length]
        for at, length in zip(starts.tolist(), lengths.tolist(), strict=True)
    ]
