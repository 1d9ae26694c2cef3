"""Compiles a topic's schema into instructions that turn recorded values into messages. Pure.

A recorded value is the topic's own Avro, but its enums are strings (`ops.recording.shape`). So a
message is a copy of the value's bytes in which each of these strings is replaced by the number of
its symbol. The instructions are those of `schemas.columns.plan`, and a few more.
"""

from enum import IntEnum
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ops.recording.shape import shape_of
from schemas.avro import SchemaVersion
from schemas.columns.plan import (
    NO_COLUMN,
    Compiler,
    FieldTable,
    Kind,
    Op,
    PlanError,
    Wanted,
    fields_of,
    type_of,
)
from schemas.topics import BY_NAME, PROBE_ROUND

# A symbol is compared as two words, and its number takes one byte.
MAX_SYMBOL_BYTES: Final = 16
MAX_SYMBOLS: Final = 64
# Arrays within arrays.
MAX_DEPTH: Final = 4


class Column(IntEnum):
    """What is noted of each record."""

    PARTITION = 0
    OFFSET = 1
    TIMESTAMP_MS = 2
    # In the block: where the key begins, and its length.
    KEY_AT = 3
    KEY_BYTES = 4
    # In the messages' bytes.
    VALUE_AT = 5
    VALUE_END = 6
    # In the block: the array of Kafka headers.
    HEADERS_AT = 7
    HEADERS_END = 8
    HEADERS = 9
    # Of rounds: when they started, their latest probe, how many results they have.
    STARTED_US = 10
    SENT_NS = 11
    RESULTS = 12


class WalkOp(IntEnum):
    """Instructions beside those of `schemas.columns.plan.Op`."""

    # Column: how many symbols; argument: where in `symbols` they begin.
    SYMBOL = 16
    # Column: where the number of items is added up; argument: the instruction behind `NEXT`.
    ARRAY = 17
    # Argument: the only branch of a union that is accepted.
    BRANCH = 18
    # The following read no number. Behind an item; argument: where `ARRAY` is.
    NEXT = 19
    # Note the position.
    MARK = 20
    # Around the value.
    BEGIN = 21
    END = 22


# What a record begins with.
NUMBERS: Final = {
    "partition": Wanted(Column.PARTITION),
    "offset": Wanted(Column.OFFSET),
    "timestamp_ms": Wanted(Column.TIMESTAMP_MS, Kind.NULLABLE_LONG),
}
# What is noted of values.
TABLES: Final = {
    PROBE_ROUND.name: FieldTable(
        topic=PROBE_ROUND.name,
        fields={"started_at": Wanted(Column.STARTED_US)},
        array="results",
        items={"sent_offset_ns": Wanted(Column.SENT_NS)},
    )
}


class Plan(NamedTuple):
    """How to walk over a record; arrays, so that a kernel can use it.

    Attributes
    ----------
    program : (n, 3) int32 instructions: operation, column, argument
    symbols : (symbols, 3) uint64; bytes, and the text as two words, of each enum's symbols
    """

    program: NDArray[np.int32]
    symbols: NDArray[np.uint64]


class _Walk(Compiler):
    """Adds arrays, and enums that are written as strings."""

    def __init__(self, table: FieldTable) -> None:
        super().__init__()
        self._items = {table.array: table.items} if table.array else {}
        self._depth = 0
        self.words: list[tuple[int, int, int]] = []

    def skip(self, name: str, node: Any) -> None:
        kind = type_of(node)
        if kind == "enum":
            self._symbol(name, node["symbols"])
        elif kind == "array":
            self.array(name, node["items"], Column.RESULTS if name in self._items else NO_COLUMN)
        else:
            super().skip(name, node)

    def array(self, name: str, items: Any, column: int) -> None:
        """Append the instructions of an array."""
        if self._depth == MAX_DEPTH:
            raise PlanError(f"{name} is an array within {MAX_DEPTH} others")
        self._depth += 1
        at = len(self.program)
        self.add(WalkOp.ARRAY)
        if name in self._items:
            self.record(fields_of(items), self._items[name])
        else:
            self.skip("", items)
        self.add(WalkOp.NEXT, argument=at)
        self.program[at] = (WalkOp.ARRAY, column, len(self.program))
        self._depth -= 1

    def _symbol(self, name: str, symbols: list[str]) -> None:
        texts = [symbol.encode() for symbol in symbols]
        if max(map(len, texts)) > MAX_SYMBOL_BYTES or len(texts) > MAX_SYMBOLS:
            raise PlanError(f"{len(texts)} symbols of {name}, or long ones")
        self.add(WalkOp.SYMBOL, len(texts), len(self.words))
        self.words.extend(map(_words, texts))


def make_plan(schema: SchemaVersion) -> Plan:
    """Return how to walk over a topic's records whose values have this schema; raises PlanError."""
    table = TABLES.get(schema.topic, FieldTable(schema.topic, {}))
    values = fields_of(schema.parsed)
    if table.array and type_of(dict(values).get(table.array, "null")) != "array":
        raise PlanError(f"{table.array} of {schema.topic} is no array")
    record = fields_of(shape_of(BY_NAME[schema.topic]).plain)
    walk = _Walk(table)
    walk.values(record[: len(NUMBERS)], NUMBERS)
    walk.add(WalkOp.BRANCH, argument=1)
    walk.add(Op.TEXT, Column.KEY_AT)
    at = len(walk.program)
    walk.add(Op.SKIP_NULL)
    walk.add(WalkOp.BEGIN)
    walk.record(values, table.fields)
    walk.add(WalkOp.END)
    walk.program[at] = (Op.SKIP_NULL, len(walk.program) - at - 1, 0)
    walk.add(WalkOp.MARK, Column.HEADERS_AT)
    walk.array("", dict(record)["headers"]["items"], Column.HEADERS)
    walk.add(WalkOp.MARK, Column.HEADERS_END)
    # No key as bytes, no value as bytes, no reason why.
    for _ in range(3):
        walk.add(WalkOp.BRANCH, argument=0)
    return Plan(
        np.array(walk.program, np.int32).reshape(-1, 3),
        np.array(walk.words, np.uint64).reshape(-1, 3),
    )


def _words(text: bytes) -> tuple[int, int, int]:
    return (
        len(text), int.from_bytes(text[:8], "little"), int.from_bytes(text[8:], "little"),
    )  # fmt: skip
