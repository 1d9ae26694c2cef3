"""Many messages of a topic as records of its class, read by a kernel.

For topics whose records have no arrays: numbers, texts, enums and booleans, each of which may be
null. It reads only what is certainly right and within its bounds, and texts of ASCII; of the rest
`Codec.decode` says what it is. The records are those that it returns, for a fifth of the time.
"""

import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from itertools import repeat
from types import UnionType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from schemas.bounds import BOUNDS, Measure
from schemas.codec import Codec
from schemas.columns.arrays import Bools, Int64s
from schemas.columns.blocks import Block, Blocks
from schemas.columns.compiled import compiled
from schemas.columns.interpreter import NULL, read_whole
from schemas.columns.plan import FieldTable, Kind, Plan, Wanted
from schemas.columns.wire import is_ascii
from schemas.topics import Topic

# Stands for an arrival that is not known.
NO_ARRIVAL: Final = -1
# The wire's byte of true, read as a number.
_TRUE: Final = -1

_TEXTS: Final = (Kind.TEXT, Kind.NULLABLE_TEXT)

# Returns one field of all records.
_Values = Callable[[bytes, Int64s], Iterable[Any]]


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
    columns : (columns, read) int64
        Of those that were read alone; `NULL` for null.
    wanted
        By field: which column it is.
    """

    first: int
    whole: Bools
    data: bytes
    columns: Int64s
    wanted: Mapping[str, Wanted]

    def numbers(self, name: str) -> Int64s:
        """Return a field of numbers, `NULL` for null."""
        found: Int64s = self.columns[self.wanted[name].column]
        return found

    def texts(self, name: str) -> list[str]:
        """Return a field of texts that are never null."""
        column = self.wanted[name].column
        starts, lengths = self.columns[column].tolist(), self.columns[column + 1].tolist()
        data = self.data
        return [
            data[at : at + length].decode("ascii")
            for at, length in zip(starts, lengths, strict=True)
        ]


class RecordReader:
    """Reads messages of one topic.

    Parameters
    ----------
    codec
        Whose framing the messages have.
    topic
        Its record has no arrays.
    """

    def __init__(self, codec: Codec, topic: Topic) -> None:
        self._record: Callable[..., Any] = topic.record
        self._names = tuple(each.name for each in fields(topic.record))
        self._values: list[_Values] = []
        self._wanted: dict[str, Wanted] = {}
        hints = typing.get_type_hints(topic.record)
        column = 0
        for name in self._names:
            self._wanted[name], values = _field(column, hints[name])
            self._values.append(values)
            column += 2 if self._wanted[name].kind in _TEXTS else 1
        self._columns = column
        self._blocks = Blocks(codec.framer, FieldTable(topic.name, self._wanted))
        self._bounds = [(b, self._wanted[b.field]) for b in BOUNDS if b.topic == topic.name]
        self._booleans = [self._wanted[n].column for n in self._names if hints[n] is bool]
        texts = [wanted.column for wanted in self._wanted.values() if wanted.kind in _TEXTS]
        self._texts = np.array(texts, np.int64)

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

    def columns(self, values: Sequence[bytes], arrivals_ns: Int64s) -> Iterator[RecordColumns]:
        """Yield the same messages as columns, in order."""
        for block in self._blocks.make(values):
            columns = np.full((self._columns, len(block)), NULL, np.int64)
            whole = np.zeros(len(block), np.bool_)
            if block.plan is not None:
                own = arrivals_ns[block.first : block.first + len(block)]
                self._read(block, block.plan, own, columns, whole)
            yield RecordColumns(
                first=block.first,
                whole=whole,
                data=block.data.tobytes(),
                columns=columns[:, whole],
                wanted=self._wanted,
            )

    def _read(
        self, block: Block, plan: Plan, arrivals_ns: Int64s, columns: Int64s, whole: Bools
    ) -> None:
        """Read a block into columns, and note which of its messages could be read."""
        read_whole(block.data, block.starts, block.ends, plan, columns, whole)
        _refuse_others_than_ascii(block.data, columns, self._texts, whole)
        whole &= self._within(columns, arrivals_ns)

    def _records(self, block: RecordColumns) -> Iterator[Any]:
        names, record = self._names, self._record
        records = (
            record(**dict(zip(names, row, strict=True)))
            for row in zip(*(each(block.data, block.columns) for each in self._values), strict=True)
        )
        return (next(records) if good else None for good in block.whole.tolist())

    def _within(self, columns: Int64s, arrivals_ns: Int64s) -> Bools:
        """Return which records are certainly within the bounds."""
        within = np.ones(columns.shape[1], np.bool_)
        for column in self._booleans:
            within &= (columns[column] == 0) | (columns[column] == _TRUE)
        for bound, wanted in self._bounds:
            # A text has no more characters than bytes, and none only without bytes.
            text = bound.measure is Measure.CHARACTERS
            values = columns[wanted.column + text]
            good = (values >= bound.least) & (values <= bound.greatest)
            if bound.ahead_ns is not None:
                latest = (arrivals_ns + bound.ahead_ns) // bound.unit_ns
                good &= (arrivals_ns == NO_ARRIVAL) | (values <= latest)
            within &= good | (values == NULL)
        return within


def _field(column: int, hint: Any) -> tuple[Wanted, _Values]:
    """Return how a field is read, and what makes its values of its columns."""
    nullable = isinstance(hint, UnionType)
    if nullable:
        (hint,) = (each for each in typing.get_args(hint) if each is not type(None))
    if hint is str:
        kind = Kind.NULLABLE_TEXT if nullable else Kind.TEXT
        return Wanted(column, kind), lambda data, columns: _texts(
            data, columns[column], columns[column + 1]
        )
    if hint is bool and not nullable:
        return Wanted(column, Kind.BOOLEAN), lambda _, columns: (columns[column] == _TRUE).tolist()
    if hint is int:
        if not nullable:
            return Wanted(column), lambda _, columns: columns[column].tolist()
        return Wanted(column, Kind.NULLABLE_LONG), lambda _, columns: _numbers(columns[column])
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


def _numbers(column: Int64s) -> Iterable[int | None]:
    if (column == NULL).all():
        return repeat(None, len(column))
    return [None if value == NULL else value for value in column.tolist()]


def _texts(data: bytes, starts: Int64s, lengths: Int64s) -> list[str | None]:
    if (starts == NULL).all():
        return [None] * len(starts)
    return [
        None if at == NULL else data[at : at + length].decode("ascii")
        for at, length in zip(starts.tolist(), lengths.tolist(), strict=True)
    ]
