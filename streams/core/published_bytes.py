"""Published windows from their bytes into columns by a kernel.

A window begins with the fields that name its 5-tuple; the topic has the 5-tuples of each closed
window in the same order. So each one knows which followed it last time, as in the rounds
(`streams.columns.index`). The kernel leaves to fastavro whatever it is not sure of.
"""

import secrets
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas import avro, topics
from schemas.avro import MAX_VALUE_BYTES, SchemaVersion
from schemas.columns.compiled import compiled, inlined
from schemas.columns.wire import is_ascii, read_number, same_bytes
from schemas.framing import Framer
from streams.columns.blocks import check_resolves
from streams.columns.index import NONE, FlowArrays, FlowIndex, find_flow
from streams.columns.plan import MAX_INSTRUCTIONS, PlanError
from streams.columns.rounds import TRANSPORT_CODES, FlowKey
from streams.core.published import FIELDS, NOT_OURS, NULL, PLACES, PublishedReader, WindowColumns

TOPIC: Final = topics.PROBE_WINDOW.name
# The fields that a window begins with: their bytes together name cluster and 5-tuple.
KEY: Final = (
    ("cluster", "string"),
    ("path_id", "string"),
    ("src", "string"),
    ("dst", "string"),
    ("flow", "int"),
    ("agent_id", "string"),
)
# Two numbers of ten bytes an instruction, and a word behind.
PAD_BYTES: Final = 20 * MAX_INSTRUCTIONS + 16
UNWANTED: Final = -1
# All of the flow index's 5-tuples are of one agent here: its name is among their bytes.
ONE_AGENT: Final = 0
SEED_BITS: Final = 64

# Instructions: into a column (or none), with an argument.
LONG: Final = 0
# Argument: which branch is null.
NULLABLE_LONG: Final = 1
# Argument: where in `symbols` their number stands, before the values.
SYMBOL: Final = 2
# Of ASCII: whether another is one is fastavro's to say.
STRING: Final = 3
NULLABLE_STRING: Final = 4

# What stands for a row in a message that was not read, or whose 5-tuple is new.
BAD: Final = -1
NEW: Final = -2


class WindowPlan(NamedTuple):
    """How to read one version of the schema.

    Attributes
    ----------
    header : what a message of it begins with, padded; `header_bytes` without the padding
    program : (n, 3) int32; what, column, argument of the fields behind the key
    symbols : int32
    """

    header: NDArray[np.uint8]
    header_bytes: int
    program: NDArray[np.int32]
    symbols: NDArray[np.int32]


def make_window_plan(writer: SchemaVersion, header: bytes) -> WindowPlan:
    """Return how to read the windows of a writer's schema.

    Raises
    ------
    PlanError
        If the schema has something that no plan can express.
    """
    fields = [(f["name"], _plain(f["type"])) for f in writer.parsed["fields"]]
    if tuple(fields[: len(KEY)]) != KEY:
        raise PlanError(f"a window begins with {fields[: len(KEY)]}")
    rest = fields[len(KEY) :]
    missing = set(FIELDS) - {name for name, _ in rest}
    if missing or len(rest) > MAX_INSTRUCTIONS:
        raise PlanError(f"no {sorted(missing)}" if missing else f"{len(rest)} fields")
    symbols: list[int] = []
    program = [_instruction(name, node, symbols) for name, node in rest]
    check_resolves(writer)
    return WindowPlan(
        header=np.frombuffer(header + bytes(PAD_BYTES), np.uint8),
        header_bytes=len(header),
        program=np.array(program, np.int32),
        symbols=np.array(symbols, np.int32),
    )


def _plain(node: Any) -> Any:
    """Return {"type": "long"}, which is left of a logical type, as "long"."""
    if isinstance(node, list):
        return [_plain(branch) for branch in node]
    if isinstance(node, dict) and set(node) == {"type"} and isinstance(node["type"], str):
        return node["type"]
    return node


def _instruction(name: str, node: Any, symbols: list[int]) -> tuple[int, int, int]:
    column = PLACES.get(name, UNWANTED)
    if isinstance(node, dict) and node["type"] == "enum":
        at = len(symbols)
        values = TRANSPORT_CODES if name == "transport" else dict.fromkeys(node["symbols"], 0)
        symbols.append(len(node["symbols"]))
        symbols.extend(values.get(s, TRANSPORT_CODES["UNKNOWN"]) for s in node["symbols"])
        return SYMBOL, column, at
    if name == "transport":
        raise PlanError(f"{name} is no enum")
    if node in ("int", "long"):
        return LONG, column, 0
    if node == "string" and column == UNWANTED:
        return STRING, column, 0
    if isinstance(node, list) and len(node) == 2 and "null" in node:
        null = node.index("null")
        if node[1 - null] in ("int", "long"):
            return NULLABLE_LONG, column, null
        if node[1 - null] == "string" and column == UNWANTED:
            return NULLABLE_STRING, column, null
    raise PlanError(f"{name} is of type {node!r}")


class KernelReader:
    """Reads windows many at a time; `slow` reads the others, and knows the 5-tuples' numbers."""

    def __init__(self, framer: Framer, cluster: str, slow: PublishedReader) -> None:
        self._framer = framer
        self._cluster = cluster
        self._slow = slow
        self._header_bytes = len(framer.header(avro.current(TOPIC)))
        # Of each header met; None: not by the kernel.
        self._plans: dict[bytes, WindowPlan | None] = {}
        self._flows = FlowIndex(secrets.randbits(SEED_BITS))
        # By row of the index; the array has one more, for BAD, which is the last.
        self._numbers: list[int] = []
        self._known = np.array([NOT_OURS], np.int64)
        self._before = np.full(1, NONE, np.int64)

    def read(self, values: Sequence[bytes]) -> WindowColumns:
        """Return the windows of consecutive messages, without what is not ours."""
        data = np.frombuffer(b"".join([*values, bytes(PAD_BYTES)]), np.uint8)
        ends = np.cumsum(np.fromiter(map(len, values), np.int64, len(values)))
        starts = np.concatenate((np.zeros(1, np.int64), ends))
        rows = np.full(len(values), BAD, np.int64)
        behind = np.zeros(len(values), np.int64)
        out = np.zeros((len(FIELDS), len(values)), np.int64)
        message = 0
        one_by_one: list[tuple[int, int]] = []
        while message < len(values):
            plan = self._plan(values[message])
            begun = message
            if plan is not None:
                message = _read(
                    data, starts, message, plan, self._flows.arrays, self._flows.seed,
                    self._before, rows, behind, out,
                )  # fmt: skip
            if message < len(values) and (message == begun or self._plan(values[message]) is plan):
                one_by_one.append((message, self._slow.read_one(values[message], out[:, message])))
                message += 1
        entered: dict[bytes, int] = {}
        new_rows: list[int] = []
        spans: list[tuple[int, int]] = []
        for number in np.flatnonzero(rows == NEW).tolist():
            span = int(starts[number]) + self._header_bytes, int(behind[number])
            name = data[slice(*span)].tobytes()
            row = entered.get(name, NEW)
            if row == NEW:
                row = entered[name] = self._new_row(name)
                if row != BAD:
                    new_rows.append(row)
                    spans.append(span)
            rows[number] = row
            if row == BAD:
                found = self._slow.read_one(values[number], out[:, number])
                one_by_one.append((number, found))
        if new_rows:
            self._flows.enter(np.array(new_rows), ONE_AGENT, data, np.array(spans))
            self._known = np.array([*self._numbers, NOT_OURS], np.int64)
        numbers = self._known[rows]
        for number, found in one_by_one:
            numbers[number] = found
        columns = WindowColumns(self._slow.keys.list, numbers, out)
        return columns if not (numbers == NOT_OURS).any() else columns.take(numbers != NOT_OURS)

    def _plan(self, value: bytes) -> WindowPlan | None:
        header = value[: self._header_bytes]
        if header not in self._plans:
            try:
                schema, start = self._framer.parse(TOPIC, value)
            except ValueError:
                # Not remembered: anybody could fill the memory so.
                return None
            try:
                found = make_window_plan(schema, header) if start == len(header) else None
            except PlanError:
                found = None
            self._plans[header] = found
        return self._plans[header]

    def _new_row(self, name: bytes) -> int:
        """Return the row of a new 5-tuple, BAD where fastavro has to look at it."""
        try:
            cluster, key = parse_key(name)
        except ValueError:
            return BAD
        row = len(self._numbers)
        ours = cluster == self._cluster
        self._numbers.append(self._slow.keys.number(key) if ours else NOT_OURS)
        return row


def parse_key(raw: bytes) -> tuple[str, FlowKey]:
    """Return cluster and 5-tuple of a window's first fields; ValueError for bad UTF-8."""
    texts: list[str] = []
    flow = at = 0
    for _, kind in KEY:
        value, at = _number(raw, at)
        if kind == "int":
            flow = value
        else:
            texts.append(raw[at : at + value].decode())
            at += value
    cluster, _, src, dst, agent = texts
    return cluster, (agent, src, dst, flow)


def _number(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at


@compiled
def _key_end(data: NDArray[np.uint8], at: int, end: int) -> int:
    """Return the position behind the key's fields, BAD where there is none."""
    for field in range(6):
        value, at = read_number(data, at)
        if at < 0:
            return BAD
        if field != 4:
            if value < 0 or value > end - at:
                return BAD
            at += value
    return at if at <= end else BAD


@inlined
def _passed(data: NDArray[np.uint8], at: int, end: int) -> int:
    """Return the position behind a text of ASCII, or BAD."""
    length, at = read_number(data, at)
    if at < 0 or length < 0 or length > end - at:
        return BAD
    return at + length if is_ascii(data, at, at + length) else BAD


@compiled
def _fields(
    data: NDArray[np.uint8],
    at: int,
    end: int,
    plan: WindowPlan,
    out: NDArray[np.int64],
    message: int,
) -> int:
    """Read the fields behind the key into `out`; return the position behind them, or BAD.

    Until the end is looked at, the position is at most so many numbers beyond it.
    """
    program, symbols = plan.program, plan.symbols
    for step in range(len(program)):
        op = program[step, 0]
        column = program[step, 1]
        argument = program[step, 2]
        if op == STRING:
            at = _passed(data, at, end)
            if at < 0:
                return BAD
            continue
        value, at = read_number(data, at)
        if at < 0:
            return BAD
        if op in (NULLABLE_LONG, NULLABLE_STRING):
            if value == argument:
                value = NULL
            elif value != 1 - argument:
                return BAD
            elif op == NULLABLE_STRING:
                at = _passed(data, at, end)
                if at < 0:
                    return BAD
            else:
                value, at = read_number(data, at)
                if at < 0 or value == NULL:
                    return BAD
        elif op == SYMBOL:
            if value < 0 or value >= symbols[argument]:
                return BAD
            value = int(symbols[argument + 1 + value])
        elif value == NULL:
            return BAD
        if column >= 0:
            out[column, message] = value
    return at if at == end else BAD


@compiled
def _read(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    message: int,
    plan: WindowPlan,
    flows: FlowArrays,
    seed: np.uint64,
    last: NDArray[np.int64],
    rows: NDArray[np.int64],
    behind: NDArray[np.int64],
    out: NDArray[np.int64],
) -> int:
    """Read windows from number `message` on; return the first that is not to be read so.

    Parameters
    ----------
    data : uint8, padded; message n is data[starts[n]:starts[n + 1]]
    last : (1,) row of the window before the first
    rows : written: the row of each, NEW for a 5-tuple that is not in the index
    behind : written: where the key of a NEW one ends
    out : (len(FIELDS), messages), written
    """
    before = int(last[0])
    while message < len(rows):
        at, end = starts[message], starts[message + 1]
        if (
            end - at < plan.header_bytes
            or end - at > MAX_VALUE_BYTES
            or not same_bytes(data, at, plan.header, 0, plan.header_bytes)
        ):
            break
        at += plan.header_bytes
        row = NEW
        guess = int(flows.next_row[before]) if before >= 0 else NONE
        if (
            guess >= 0
            and flows.length[guess] <= end - at
            and same_bytes(data, at, flows.arena, flows.at[guess], flows.length[guess])
        ):
            row = guess
            at += flows.length[guess]
        else:
            key = _key_end(data, at, end)
            if key < 0:
                break
            found = find_flow(flows, data, at, key - at, ONE_AGENT, seed)
            if found >= 0:
                row = found
                if before >= 0:
                    flows.next_row[before] = row
            behind[message] = key
            at = key
        if _fields(data, at, end, plan, out, message) < 0:
            break
        rows[message] = row
        before = row
        message += 1
    last[0] = before
    return message
