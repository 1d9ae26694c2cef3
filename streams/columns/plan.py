"""What to do with each byte of a round, worked out once from the schema it was written with. Pure.

A plan is a list of instructions for the kernel: skip this, put that number into that column.
What it cannot express (maps, other arrays, unions of several types, fields in an order that it
does not know) is no plan, and the caller decodes with fastavro.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.avro import SchemaVersion
from schemas.enums import ProbeStatus
from streams.columns.rounds import TRANSPORT_CODES

# A schema with more instructions is not one of ours, and each costs time per result. The
# kernel counts on it: it looks at a message's end once per item.
MAX_INSTRUCTIONS: Final = 64
NOT_WANTED: Final = -1


class Op(IntEnum):
    """Instructions; each has a column (or -1) and an argument."""

    # The number of a known name: the cluster, the agent.
    NAME = 0
    LONG = 1
    # Writes null's mark where it is null; argument: which branch is null.
    NULLABLE_LONG = 2
    # Argument: where in `symbols` the columns' values of the writer's symbols begin, after
    # their number.
    ENUM = 3
    SKIP_LONG = 4
    SKIP_BYTES = 5
    # A string nobody reads has to be ASCII, or somebody else looks at it.
    SKIP_STRING = 6
    # Argument: how many bytes.
    SKIP_FIXED = 7
    # Argument: which branch is null; the next instruction is of the other one.
    SKIP_NULL = 8


class Field(IntEnum):
    """Columns of the rounds."""

    CLUSTER = 0
    AGENT = 1
    INCARNATION = 2
    SEQ = 3
    STARTED_US = 4


class Item(IntEnum):
    """Columns of the results; who probed whom is a row of the flow index."""

    OFFSET_NS = 0
    TRANSPORT = 1
    # 1: answered.
    OK = 2
    RTT_NS = 3
    HOST_NS = 4
    RESPONDER_NS = 5


ARRAY: Final = "results"
# The fields that an item begins with, in this order: their bytes together name its 5-tuple.
KEY: Final = ("src", "dst", "flow")
FIELDS: Final = {
    "cluster": Field.CLUSTER,
    "agent_id": Field.AGENT,
    "incarnation": Field.INCARNATION,
    "round_seq": Field.SEQ,
    "started_at": Field.STARTED_US,
}
ITEMS: Final = {
    "sent_offset_ns": Item.OFFSET_NS,
    "transport": Item.TRANSPORT,
    "status": Item.OK,
    "rtt_ns": Item.RTT_NS,
    "prober_delay_ns": Item.HOST_NS,
    "responder_delay_ns": Item.RESPONDER_NS,
}
NAMES: Final = ("cluster", "agent_id")
# What a writer's symbol is in a column.
ENUMS: Final[Mapping[str, Mapping[str, int]]] = {
    "transport": TRANSPORT_CODES,
    "status": {s.value: int(s is ProbeStatus.OK) for s in ProbeStatus},
}
# Of symbols that this reader does not know; the schemas' default.
UNKNOWN: Final = "UNKNOWN"


class Plan(NamedTuple):
    """How to read one version of the schema; arrays, so that a kernel can take it.

    Attributes
    ----------
    program : (n, 3) int32 instructions: what, column, argument
    items_at, items_end : the instructions of an item behind its key; before them stand those of
        the fields before the array, after them those of the fields behind it
    symbols : int32; by enum: how many symbols, and the column's value of each
    """

    program: NDArray[np.int32]
    items_at: int
    items_end: int
    symbols: NDArray[np.int32]


class PlanError(ValueError):
    """The schema has something that no plan can express; the message says what."""


@dataclass(frozen=True, slots=True)
class _Program:
    rows: list[tuple[int, int, int]]
    symbols: list[int]

    def add(self, op: Op, column: int = NOT_WANTED, argument: int = 0) -> None:
        self.rows.append((op, column, argument))
        if len(self.rows) > MAX_INSTRUCTIONS:
            raise PlanError(f"more than {MAX_INSTRUCTIONS} instructions")


def make_plan(writer: SchemaVersion) -> Plan:
    """Return how to read the rounds of a writer's schema.

    Raises
    ------
    PlanError
        If the schema has something that no plan can express.
    """
    program = _Program([], [])
    missing = set(FIELDS)
    bounds: tuple[int, int] | None = None
    for field in writer.parsed["fields"]:
        name, node = field["name"], field["type"]
        if name == ARRAY:
            if missing & set(NAMES):
                raise PlanError(f"{sorted(missing & set(NAMES))} behind the results")
            at = len(program.rows)
            _items(program, node)
            bounds = at, len(program.rows)
        elif name in FIELDS:
            missing.discard(name)
            _read(program, name, node, FIELDS[name])
        else:
            _skip(program, node)
    if bounds is None or missing:
        raise PlanError(f"no {sorted(missing) or ARRAY}")
    return Plan(
        np.array(program.rows, np.int32).reshape(-1, 3),
        *bounds,
        np.array(program.symbols, np.int32),
    )


def _items(program: _Program, node: Any) -> None:
    if _type(node) != "array" or _type(node["items"]) != "record":
        raise PlanError(f"{ARRAY} is no array of records")
    fields = [(f["name"], f["type"]) for f in node["items"]["fields"]]
    key = [(name, _type(of)) for name, of in fields[: len(KEY)]]
    if key != [("src", "string"), ("dst", "string"), ("flow", "int")]:
        raise PlanError(f"a result begins with {key}")
    missing = set(ITEMS)
    for name, of in fields[len(KEY) :]:
        if name in ITEMS:
            missing.discard(name)
            _read(program, name, of, ITEMS[name])
        else:
            _skip(program, of)
    if missing:
        raise PlanError(f"no {sorted(missing)}")


def _read(program: _Program, name: str, node: Any, column: int) -> None:
    kind = _type(node)
    if name in NAMES and kind == "string":
        program.add(Op.NAME, column)
    elif name in ENUMS and kind == "enum":
        program.add(Op.ENUM, column, _symbols(program, node["symbols"], ENUMS[name]))
    elif name not in ENUMS and name not in NAMES and kind in ("int", "long"):
        program.add(Op.LONG, column)
    elif kind == "union" and name not in FIELDS and name not in ENUMS:
        null, other = _nullable(node)
        if _type(other) not in ("int", "long"):
            raise PlanError(f"{name} is of type {_type(other)!r}")
        program.add(Op.NULLABLE_LONG, column, null)
    else:
        raise PlanError(f"{name} is of type {kind!r}")


def _symbols(program: _Program, symbols: Sequence[str], values: Mapping[str, int]) -> int:
    at = len(program.symbols)
    program.symbols.append(len(symbols))
    program.symbols.extend(values.get(symbol, values[UNKNOWN]) for symbol in symbols)
    return at


_FIXED_BYTES: Final = {"boolean": 1, "float": 4, "double": 8}


def _skip(program: _Program, node: Any) -> None:
    """Append what passes over a value."""
    kind = _type(node)
    if kind == "null":
        return
    if kind in ("int", "long"):
        program.add(Op.SKIP_LONG)
    elif kind == "enum":
        # Read, so that one without a symbol is noticed.
        program.add(Op.ENUM, NOT_WANTED, _symbols(program, node["symbols"], {UNKNOWN: 0}))
    elif kind == "string":
        program.add(Op.SKIP_STRING)
    elif kind == "bytes":
        program.add(Op.SKIP_BYTES)
    elif kind in _FIXED_BYTES:
        program.add(Op.SKIP_FIXED, argument=_FIXED_BYTES[kind])
    elif kind == "fixed":
        program.add(Op.SKIP_FIXED, argument=int(node["size"]))
    elif kind == "record":
        for field in node["fields"]:
            _skip(program, field["type"])
    elif kind == "union":
        null, other = _nullable(node)
        program.add(Op.SKIP_NULL, argument=null)
        at = len(program.rows)
        _skip(program, other)
        if len(program.rows) != at + 1:
            raise PlanError(f"a union of null and {_type(other)}")
    else:
        raise PlanError(f"a value of type {kind!r}")


def _nullable(branches: Any) -> tuple[int, Any]:
    if len(branches) != 2 or "null" not in branches:
        raise PlanError(f"a union of {len(branches)} types")
    null: int = branches.index("null")
    return null, branches[1 - null]


def _type(node: Any) -> str:
    if isinstance(node, list):
        return "union"
    return str(node["type"] if isinstance(node, dict) else node)
