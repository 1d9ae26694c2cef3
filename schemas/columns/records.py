"""Many messages of a topic as records of its class, read by a kernel.

For topics whose records have no arrays: numbers, texts, enums and booleans, each of which may be
null. It reads only what is certainly right and within its bounds; of the rest `Codec.decode` says
what it is. The records are those that it returns, for a fifth of the time.
"""

import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from enum import StrEnum
from itertools import repeat
from types import UnionType
from typing import Any, Final

import numpy as np

from schemas.bounds import BOUNDS, Measure
from schemas.codec import Codec
from schemas.columns.arrays import Bools, Int64s
from schemas.columns.blocks import Block, Blocks
from schemas.columns.interpreter import NULL, read_whole
from schemas.columns.plan import FieldTable, Kind, Plan, Wanted
from schemas.topics import Topic

# Stands for an arrival that is not known.
NO_ARRIVAL: Final = -1
# The wire's byte of true, read as a number.
_TRUE: Final = -1

# Returns one field of all records.
_Values = Callable[[bytes, Int64s], Iterable[Any]]


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
        wanted: dict[str, Wanted] = {}
        hints = typing.get_type_hints(topic.record)
        column = 0
        for name in self._names:
            wanted[name], values = _field(column, hints[name])
            self._values.append(values)
            column += 2 if wanted[name].kind in (Kind.TEXT, Kind.NULLABLE_TEXT) else 1
        self._columns = column
        self._blocks = Blocks(codec.framer, FieldTable(topic.name, wanted))
        self._bounds = [(b, wanted[b.field]) for b in BOUNDS if b.topic == topic.name]
        self._booleans = [wanted[n].column for n in self._names if hints[n] is bool]

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
        for block in self._blocks.make(values):
            if block.plan is None:
                found += repeat(None, len(block))
            else:
                own = arrivals_ns[block.first : block.first + len(block)]
                found += self._read(block, block.plan, own)
        return found

    def _read(self, block: Block, plan: Plan, arrivals_ns: Int64s) -> Iterator[Any]:
        columns = np.full((self._columns, len(block)), NULL, np.int64)
        whole = np.zeros(len(block), np.bool_)
        read_whole(block.data, block.starts, block.ends, plan, columns, whole)
        whole &= self._within(columns, arrivals_ns)
        data, names, record = block.data.tobytes(), self._names, self._record
        columns = columns[:, whole]
        try:
            made = [
                record(**dict(zip(names, row, strict=True)))
                for row in zip(*(each(data, columns) for each in self._values), strict=True)
            ]
        except UnicodeDecodeError:
            return repeat(None, len(block))
        records = iter(made)
        return (next(records) if good else None for good in whole.tolist())

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


def _numbers(column: Int64s) -> Iterable[int | None]:
    if (column == NULL).all():
        return repeat(None, len(column))
    return [None if value == NULL else value for value in column.tolist()]


def _texts(data: bytes, starts: Int64s, lengths: Int64s) -> Iterable[str | None]:
    if (starts == NULL).all():
        return repeat(None, len(starts))
    return [
        None if at == NULL else data[at : at + length].decode()
        for at, length in zip(starts.tolist(), lengths.tolist(), strict=True)
    ]
