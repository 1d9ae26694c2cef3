"""Compiles a writer's schema into instructions that read its datums into columns.

A `FieldTable` names the fields of a topic that somebody wants, and the column of each. `make_plan`
turns it and a writer's schema into a `Plan`: one instruction for each field on the wire, which
either fills a column or passes over the field. `schemas.columns.interpreter` carries it out.

A datum is a record; at most one of its fields is an array of records, its items. Other arrays are
passed over, and it can be noted where they stand. A schema with anything else (maps, arrays within
arrays of arrays, unions of several types, another order) has no plan, and fastavro decodes its
datums. `ops.recording.message_plan` adds instructions to a `Compiler`: nested
arrays, and enums that are written as strings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum, auto
from typing import Any, Final, NamedTuple

import numpy as np
from fastavro.utils import generate_one
from numpy.typing import NDArray

from schemas import avro
from schemas.avro import SchemaVersion

# No schema of the contract needs more. The interpreter compares a position with the message's end
# once per record or item, so that this bounds how far it reads behind the end.
MAX_INSTRUCTIONS: Final = 128
NO_COLUMN: Final = -1
# Arrays within arrays that are passed over.
MAX_DEPTH: Final = 2
# The symbol whose value stands for all symbols that a table does not know: the schemas' default.
UNKNOWN_SYMBOL: Final = "UNKNOWN"


class Kind(Enum):
    """What a column holds of a field."""

    # A number that is always there.
    LONG = auto()
    # A number, or NULL.
    NULLABLE_LONG = auto()
    # The table's value of the symbol.
    ENUM = auto()
    # Where the text begins in the data; the next column holds its length in bytes.
    TEXT = auto()
    # The same, or NULL in the first column.
    NULLABLE_TEXT = auto()
    # 0: false, -1: true; any other number is none.
    BOOLEAN = auto()
    # The same, or NULL.
    NULLABLE_BOOLEAN = auto()
    # The bits of a double, to be looked at as float64.
    DOUBLE = auto()
    # The same, or NULL.
    NULLABLE_DOUBLE = auto()
    # Where an array begins in the data; the next column holds its length in bytes.
    ARRAY = auto()


@dataclass(frozen=True, slots=True)
class Wanted:
    """A field to read, its column, and for an enum the value of each symbol."""

    column: int
    kind: Kind = Kind.LONG
    values: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FieldTable:
    """The fields of a topic that are read.

    Attributes
    ----------
    topic : its name
    fields : wanted fields of the record, by name
    array : name of the record's array; "" for none
    items : wanted fields of the array's items, by name
    key : (name, type) of the fields that an item (or, without an array, the record) must begin
        with, "string" or "int"; the plan has no instructions for them, since callers look up
        their bytes as a whole
    """

    topic: str
    fields: Mapping[str, Wanted]
    array: str = ""
    items: Mapping[str, Wanted] = field(default_factory=dict)
    key: tuple[tuple[str, str], ...] = ()


class Op(IntEnum):
    """Instructions; each has a column (or NO_COLUMN) and an argument."""

    LONG = 0
    # Argument: which branch is null.
    NULLABLE_LONG = 1
    # Argument: where in `symbols` the number of symbols is, followed by the value of each.
    ENUM = 2
    TEXT = 3
    # A text that nobody reads must be ASCII: whether another one is UTF-8 is fastavro's to say.
    SKIP_TEXT = 4
    SKIP_BYTES = 5
    # Argument: number of bytes.
    SKIP_FIXED = 6
    # Argument: which branch is null. Column: how many instructions the other branch has.
    SKIP_NULL = 7
    DOUBLE = 8
    # Column: where it begins, and the next how many bytes it has. Argument: how many of the
    # instructions that follow pass over an item. For `interpreter.read_part`.
    ARRAY = 9


# What the other branch of a nullable field is, and what reads it.
_OF_NULLABLE: Final = {
    Kind.NULLABLE_TEXT: ("string", Op.TEXT),
    # One byte, 0 or 1.
    Kind.NULLABLE_BOOLEAN: ("boolean", Op.LONG),
    Kind.NULLABLE_DOUBLE: ("double", Op.DOUBLE),
}


class Plan(NamedTuple):
    """How to read one version of a schema; arrays, so that a kernel can use it.

    Attributes
    ----------
    program : (n, 3) int32 instructions: operation, column, argument
    items_at, items_end : the instructions of an item, without its key. Those before them are of
        the fields in front of the array, those behind them of the fields after it. Without an
        array both are n.
    symbols : int32; of each enum the number of symbols, then the value of each
    key : bool, of each field of the key: whether it is a string
    """

    program: NDArray[np.int32]
    items_at: int
    items_end: int
    symbols: NDArray[np.int32]
    key: NDArray[np.bool_]


class PlanError(ValueError):
    """The schema has something that no plan can express; the message says what."""


def make_plan(writer: SchemaVersion, table: FieldTable) -> Plan:
    """Return how to read the datums of a writer's schema.

    Raises
    ------
    PlanError
        If the schema has something that no plan can express, lacks a wanted field, or cannot be
        resolved to the current schema.
    """
    compiler = Compiler()
    fields = fields_of(writer.parsed)
    if not table.array:
        compiler.record(_behind_key(fields, table.key), table.fields)
        items_at = items_end = len(compiler.program)
    else:
        array = dict(fields).get(table.array, "null")
        if type_of(array) != "array" or type_of(array["items"]) != "record":
            raise PlanError(f"{table.array} is no array of records")
        at = [name for name, _ in fields].index(table.array)
        # What items belong to must be known before they are read.
        texts = {name for name, wanted in table.fields.items() if wanted.kind is Kind.TEXT}
        if late := texts & {name for name, _ in fields[at:]}:
            raise PlanError(f"{sorted(late)} after {table.array}")
        before, behind = fields[:at], fields[at + 1 :]
        compiler.require(before + behind, table.fields)
        compiler.values(before, table.fields)
        items_at = len(compiler.program)
        compiler.record(_behind_key(fields_of(array["items"]), table.key), table.items)
        compiler.refuse_arrays(items_at, table.array)
        items_end = len(compiler.program)
        compiler.values(behind, table.fields)
    _check_resolves(writer)
    return Plan(
        np.array(compiler.program, np.int32).reshape(-1, 3),
        items_at,
        items_end,
        np.array(compiler.symbols, np.int32),
        np.array([kind == "string" for _, kind in table.key], np.bool_),
    )


Fields = list[tuple[str, Any]]
_FIXED_BYTES: Final = {"boolean": 1, "float": 4, "double": 8}


class Compiler:
    """Appends the instructions of fields to a program."""

    def __init__(self) -> None:
        self.program: list[tuple[int, int, int]] = []
        self.symbols: list[int] = []
        self._depth = 0

    def record(self, fields: Fields, wanted: Mapping[str, Wanted]) -> None:
        """Append the instructions of a record that has all wanted fields."""
        self.require(fields, wanted)
        self.values(fields, wanted)

    @staticmethod
    def require(fields: Fields, wanted: Mapping[str, Wanted]) -> None:
        """Raise PlanError if a record lacks wanted fields."""
        if missing := wanted.keys() - dict(fields).keys():
            raise PlanError(f"no {sorted(missing)}")

    def values(self, fields: Fields, wanted: Mapping[str, Wanted]) -> None:
        """Append the instructions of fields: wanted ones are read, the others passed over."""
        for name, node in fields:
            if name in wanted:
                self._read(name, node, wanted[name])
            else:
                self.skip(name, node)

    def add(self, op: IntEnum, column: int = NO_COLUMN, argument: int = 0) -> None:
        """Append an instruction."""
        self.program.append((op, column, argument))
        if len(self.program) > MAX_INSTRUCTIONS:
            raise PlanError(f"more than {MAX_INSTRUCTIONS} instructions")

    def _read(self, name: str, node: Any, wanted: Wanted) -> None:
        kind, column = type_of(node), wanted.column
        if wanted.kind is Kind.TEXT and kind == "string":
            self.add(Op.TEXT, column)
        elif wanted.kind is Kind.DOUBLE and kind == "double":
            self.add(Op.DOUBLE, column)
        elif wanted.kind in _OF_NULLABLE and kind == "union":
            null, other = _nullable(node)
            own, op = _OF_NULLABLE[wanted.kind]
            if type_of(other) != own:
                raise PlanError(f"{name} is of type {type_of(other)!r}")
            self.add(Op.SKIP_NULL, 1, null)
            self.add(op, column)
        elif wanted.kind is Kind.BOOLEAN and kind == "boolean":
            # One byte, 0 or 1.
            self.add(Op.LONG, column)
        elif wanted.kind is Kind.ENUM and kind == "enum":
            self.add(Op.ENUM, column, self._symbols(node["symbols"], wanted.values))
        elif wanted.kind is Kind.ARRAY and kind == "array":
            self._pass_array(name, node["items"], column)
        elif wanted.kind in (Kind.LONG, Kind.NULLABLE_LONG) and kind in ("int", "long"):
            self.add(Op.LONG, column)
        elif wanted.kind is Kind.NULLABLE_LONG and kind == "union":
            null, other = _nullable(node)
            if type_of(other) not in ("int", "long"):
                raise PlanError(f"{name} is of type {type_of(other)!r}")
            self.add(Op.NULLABLE_LONG, column, null)
        else:
            raise PlanError(f"{name} is of type {kind!r}")

    def _symbols(self, symbols: Sequence[str], values: Mapping[str, int]) -> int:
        at = len(self.symbols)
        self.symbols.append(len(symbols))
        self.symbols.extend(values.get(symbol, values[UNKNOWN_SYMBOL]) for symbol in symbols)
        return at

    def skip(self, name: str, node: Any) -> None:
        """Append the instructions that pass over a value."""
        kind = type_of(node)
        if kind in ("int", "long"):
            self.add(Op.LONG)
        elif kind == "enum":
            # Read as well: a number without a symbol is an error.
            self.add(Op.ENUM, argument=self._symbols(node["symbols"], {UNKNOWN_SYMBOL: 0}))
        elif kind == "string":
            self.add(Op.SKIP_TEXT)
        elif kind == "bytes":
            self.add(Op.SKIP_BYTES)
        elif kind in _FIXED_BYTES:
            self.add(Op.SKIP_FIXED, argument=_FIXED_BYTES[kind])
        elif kind == "fixed":
            self.add(Op.SKIP_FIXED, argument=int(node["size"]))
        elif kind == "record":
            self.values(fields_of(node), {})
        elif kind == "union":
            null, other = _nullable(node)
            if type_of(other) in ("int", "long"):
                self.add(Op.NULLABLE_LONG, argument=null)
                return
            at = len(self.program)
            self.add(Op.SKIP_NULL)
            self.skip(name, other)
            self.refuse_arrays(at, name)
            self.program[at] = (Op.SKIP_NULL, len(self.program) - at - 1, null)
        elif kind == "array":
            self._pass_array(name, node["items"], NO_COLUMN)
        elif kind != "null":
            raise PlanError(f"{name} is of type {kind!r}")

    def refuse_arrays(self, begin: int, name: str) -> None:
        """Raise PlanError if an array is passed over from an instruction on."""
        if any(op == Op.ARRAY for op, _, _ in self.program[begin:]):
            raise PlanError(f"{name} has an array")

    def _pass_array(self, name: str, items: Any, column: int) -> None:
        if self._depth == MAX_DEPTH:
            raise PlanError(f"{name} is an array within {MAX_DEPTH} others")
        self._depth += 1
        at = len(self.program)
        self.add(Op.ARRAY)
        self.skip(name, items)
        self.program[at] = (Op.ARRAY, column, len(self.program) - at - 1)
        self._depth -= 1


def _behind_key(fields: Fields, key: tuple[tuple[str, str], ...]) -> Fields:
    begin = tuple((name, type_of(node)) for name, node in fields[: len(key)])
    if begin != key:
        raise PlanError(f"begins with {begin}")
    return fields[len(key) :]


def fields_of(node: Any) -> Fields:
    """Return the (name, type) pairs of a record's schema."""
    return [(field["name"], field["type"]) for field in node["fields"]]


def _nullable(branches: Any) -> tuple[int, Any]:
    if len(branches) != 2 or "null" not in branches:
        raise PlanError(f"a union of {len(branches)} types")
    null: int = branches.index("null")
    return null, branches[1 - null]


def type_of(node: Any) -> str:
    """Return the name of a schema's type, "union" for a list of branches."""
    if isinstance(node, list):
        return "union"
    return str(node["type"] if isinstance(node, dict) else node)


def _check_resolves(schema: SchemaVersion) -> None:
    """Let fastavro read a generated datum: a plan does not resolve the fields that it skips."""
    try:
        example = avro.write_datum(schema, generate_one(schema.parsed))
        avro.read_datum(schema, avro.current(schema.topic), example)
    except ValueError as error:
        raise PlanError(str(error)) from error
