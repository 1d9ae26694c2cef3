"""How to walk over a recorded value, worked out from the topic's schema. Pure.

A recorded value is the topic's own Avro but for enums, which are strings there
(`ops.recording.shape`). So its bytes become a message's when they are copied, each of those
strings replaced by the number of its symbol. A plan is a list of instructions for that.
"""

from enum import IntEnum
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.avro import SchemaVersion
from schemas.topics import PROBE_ROUND

NOT_NOTED: Final = -1
# A symbol is compared as two words, and its number takes one byte.
MAX_SYMBOL_BYTES: Final = 16
MAX_SYMBOLS: Final = 64
MAX_INSTRUCTIONS: Final = 64
# Arrays within arrays.
MAX_DEPTH: Final = 4


class Op(IntEnum):
    """Instructions; each has a column and an argument."""

    # Column: where it is noted (`Noted`), or -1.
    LONG = 0
    # Has to be ASCII, or fastavro looks at it.
    STRING = 1
    # A union of null and something; argument: the instruction behind that.
    NULLABLE = 2
    # Column: how many symbols; argument: where in `symbols` they begin.
    SYMBOL = 3
    # Column: where the number of items is noted; argument: the instruction behind `NEXT`.
    ARRAY = 4
    # Behind an item; argument: where `ARRAY` is.
    NEXT = 5
    # Argument: how many bytes.
    FIXED = 6
    BYTES = 7


class Noted(IntEnum):
    """What the walk tells of rounds."""

    STARTED_US = 0
    # The largest.
    SENT_NS = 1
    RESULTS = 2


NOTED: Final = {
    (PROBE_ROUND.name, "started_at"): Noted.STARTED_US,
    (PROBE_ROUND.name, "sent_offset_ns"): Noted.SENT_NS,
    (PROBE_ROUND.name, "results"): Noted.RESULTS,
}
_FIXED_BYTES: Final = {"boolean": 1, "float": 4, "double": 8}


class Plan(NamedTuple):
    """How to walk; arrays, so that a kernel can take it.

    Attributes
    ----------
    program : (n, 3) int32 instructions: what, column, argument
    symbols : (symbols, 3) uint64; bytes, and the text as two words, of each enum's symbols
    """

    program: NDArray[np.int32]
    symbols: NDArray[np.uint64]


class PlanError(ValueError):
    """The schema has something that no plan can express; the message says what."""


class _Planner:
    def __init__(self, topic: str) -> None:
        self._topic = topic
        self.program: list[tuple[int, int, int]] = []
        self.symbols: list[tuple[int, int, int]] = []

    def append(self, name: str, node: Any, depth: int = 0) -> None:
        """Append what walks over a value of a field."""
        kind = (
            "union" if isinstance(node, list) else node["type"] if isinstance(node, dict) else node
        )
        noted = NOTED.get((self._topic, name), NOT_NOTED)
        if kind in ("int", "long"):
            self.program.append((Op.LONG, noted, 0))
        elif kind == "string":
            self.program.append((Op.STRING, NOT_NOTED, 0))
        elif kind == "bytes":
            self.program.append((Op.BYTES, NOT_NOTED, 0))
        elif kind in _FIXED_BYTES:
            self.program.append((Op.FIXED, NOT_NOTED, _FIXED_BYTES[kind]))
        elif kind == "enum":
            self._enum(name, node["symbols"])
        elif kind == "record":
            for field in node["fields"]:
                self.append(field["name"], field["type"], depth)
        elif kind == "array" and depth < MAX_DEPTH:
            self._around(Op.ARRAY, noted, "", node["items"], depth + 1)
        elif kind == "union" and len(node) == 2 and node[0] == "null":
            self._around(Op.NULLABLE, NOT_NOTED, name, node[1], depth)
        elif kind != "null":
            raise PlanError(f"{name} of {self._topic} is of type {kind!r}")

    def _around(self, op: Op, column: int, name: str, node: Any, depth: int) -> None:
        """Append an instruction that may pass over the value behind it."""
        at = len(self.program)
        self.program.append((op, column, 0))
        self.append(name, node, depth)
        if op is Op.ARRAY:
            self.program.append((Op.NEXT, NOT_NOTED, at))
        self.program[at] = (op, column, len(self.program))

    def _enum(self, name: str, symbols: list[str]) -> None:
        texts = [symbol.encode() for symbol in symbols]
        if max(map(len, texts)) > MAX_SYMBOL_BYTES or len(texts) > MAX_SYMBOLS:
            raise PlanError(f"{len(texts)} symbols of {name}, or long ones")
        self.program.append((Op.SYMBOL, len(texts), len(self.symbols)))
        self.symbols.extend(map(_words, texts))


def make_plan(schema: SchemaVersion) -> Plan:
    """Return how to walk over the recorded values of a schema; raises PlanError."""
    planner = _Planner(schema.topic)
    planner.append("", schema.parsed)
    if len(planner.program) > MAX_INSTRUCTIONS:
        raise PlanError(f"{len(planner.program)} instructions for {schema.topic}")
    found = {column for op, column, _ in planner.program if op in (Op.LONG, Op.ARRAY)}
    wanted = {column for (topic, _), column in NOTED.items() if topic == schema.topic}
    if not found >= wanted:
        raise PlanError(f"{schema.topic}: {wanted - found} are of another type")
    return Plan(
        np.array(planner.program, np.int32).reshape(-1, 3),
        np.array(planner.symbols, np.uint64).reshape(-1, 3),
    )


def _words(text: bytes) -> tuple[int, int, int]:
    return (
        len(text), int.from_bytes(text[:8], "little"), int.from_bytes(text[8:], "little"),
    )  # fmt: skip
