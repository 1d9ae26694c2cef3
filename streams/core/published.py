"""Windows read back from `probe.window.v1` as columns, for a restart.

A kernel reads them by a plan of their writer's schema; fastavro reads what the plan does not
accept. A window begins with the fields that name its 5-tuple, and the topic has the 5-tuples of
each closed window in the same order. So each 5-tuple knows which one followed it last time, as in
rounds (`streams.columns.index`).
"""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas import topics
from schemas.bounds import bound_of
from schemas.codec import Codec, DecodeError
from schemas.columns.arrays import Bools, Int64s
from schemas.columns.blocks import Block, Blocks
from schemas.columns.compiled import compiled
from schemas.columns.interpreter import NULL, key_end, read_part
from schemas.columns.plan import FieldTable, Kind, Plan, Wanted
from schemas.columns.wire import BAD, same_bytes
from schemas.records import PathWindow
from streams.columns.index import NONE, FlowArrays, FlowIndex, find_flow
from streams.columns.quantities import FEATURES, OBSERVED
from streams.columns.rounds import TRANSPORT_CODES, FlowKey


def _wanted(name: str) -> Wanted:
    if name == "transport":
        return Wanted(PLACES[name], Kind.ENUM, TRANSPORT_CODES)
    return Wanted(PLACES[name], Kind.NULLABLE_LONG if name.endswith("_ns") else Kind.LONG)


# What is read of a window, and in which order; the features stand together, the medians too.
FIELDS: Final = (
    *FEATURES,
    *OBSERVED,
    "transport",
    "window_start_at",
    "window_end_at",
    "sent",
    "ok",
    "lost",
)
PLACES: Final = {name: place for place, name in enumerate(FIELDS)}
WINDOWS: Final = FieldTable(
    topic=topics.PROBE_WINDOW.name,
    fields={name: _wanted(name) for name in FIELDS},
    # Their bytes together name cluster and 5-tuple.
    key=(
        ("cluster", "string"),
        ("path_id", "string"),
        ("src", "string"),
        ("dst", "string"),
        ("flow", "int"),
        ("agent_id", "string"),
    ),
)
# Limits of the fields that are read, (len(FIELDS), 1) each. The codec would check all others, too,
# which a kernel that passes over them cannot.
_BOUNDS: Final = [
    bound_of(topics.PROBE_WINDOW.name, name) if name != "transport" else None for name in FIELDS
]
LEAST: Final = np.array([[0 if b is None else b.least] for b in _BOUNDS], np.int64)
GREATEST: Final = np.array(
    [[len(TRANSPORT_CODES) if b is None else b.greatest] for b in _BOUNDS], np.int64
)
# All 5-tuples of the flow index are of one agent here: its name is among their bytes.
ONE_AGENT: Final = 0
SEED_BITS: Final = 64
# Stands for a row: the 5-tuple of this window is not in the index.
NEW: Final = -2
# A record that is not to be read: undecodable, or of another cluster.
NOT_OURS: Final = -1

Undecodable = Callable[[DecodeError], None]
Intern = Callable[[FlowKey], FlowKey]


@dataclass(frozen=True, slots=True)
class WindowColumns:
    """Consecutive windows of the topic.

    Attributes
    ----------
    keys : 5-tuples, by number; the list of the reader, which grows
    numbers : (n,) whose windows these are
    values : (len(FIELDS), n)
    """

    keys: Sequence[FlowKey]
    numbers: Int64s
    values: Int64s

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, name: str) -> Int64s:
        """Return a field of all windows."""
        out: Int64s = self.values[PLACES[name]]
        return out

    @property
    def features(self) -> Int64s:
        """The seven features, (n, 7)."""
        out: Int64s = self.values[: len(FEATURES)].T
        return out

    @property
    def medians(self) -> Int64s:
        """The medians of other quantities, (n, len(OBSERVED))."""
        out: Int64s = self.values[len(FEATURES) :][: len(OBSERVED)].T
        return out

    def take(self, which: Bools | slice) -> "WindowColumns":
        """Return some of them."""
        return WindowColumns(self.keys, self.numbers[which], self.values[:, which])

    def key(self, place: int) -> FlowKey:
        """Return the 5-tuple of a window."""
        return self.keys[int(self.numbers[place])]

    def number(self, name: str, place: int) -> int | None:
        """Return a field of a window, None for null."""
        value = int(self[name][place])
        return None if value == NULL else value


class Keys:
    """Gives 5-tuples numbers, in the order in which they are met."""

    def __init__(self, intern: Intern) -> None:
        self.list: list[FlowKey] = []
        self._intern = intern
        self._numbers: dict[FlowKey, int] = {}

    def number(self, key: FlowKey) -> int:
        """Return the number of a 5-tuple."""
        number = self._numbers.get(key)
        if number is None:
            # The same key with whoever has it already: a copy takes some hundred bytes.
            key = self._intern(key)
            number = self._numbers[key] = len(self.list)
            self.list.append(key)
        return number


class PublishedReader:
    """Reads windows record by record."""

    def __init__(
        self, codec: Codec, cluster: str, undecodable: Undecodable, intern: Intern
    ) -> None:
        self._codec = Codec(codec.framer, bounded=False)
        self._cluster = cluster
        self._undecodable = undecodable
        self.keys = Keys(intern)

    def read(self, values: Sequence[bytes]) -> WindowColumns:
        """Return the windows of consecutive messages, without what is not ours."""
        out = np.zeros((len(FIELDS), len(values)), np.int64)
        numbers = np.array([self.read_one(v, out[:, n]) for n, v in enumerate(values)], np.int64)
        self._drop_out_of_bounds(out, numbers)
        found = WindowColumns(self.keys.list, numbers, out)
        return found.take(numbers != NOT_OURS)

    def _drop_out_of_bounds(self, out: Int64s, numbers: Int64s) -> None:
        """Mark windows as not ours whose numbers no worker writes: sums would overflow."""
        outside = ((out < LEAST) & (out != NULL)) | (out > GREATEST)
        for message in np.flatnonzero(outside.any(axis=0) & (numbers != NOT_OURS)).tolist():
            field = int(np.flatnonzero(outside[:, message])[0])
            numbers[message] = NOT_OURS
            self._undecodable(
                DecodeError(
                    f"{FIELDS[field]}={out[field, message]} is out of bounds",
                    topic=topics.PROBE_WINDOW.name,
                    partition=None,
                    offset=None,
                )
            )

    def read_one(self, value: bytes, out: Int64s) -> int:
        """Read a message into (len(FIELDS),); return the 5-tuple's number, or NOT_OURS."""
        try:
            window: PathWindow = self._codec.decode(topics.PROBE_WINDOW, value)
            out[:] = _fields(window)
        except DecodeError as error:
            self._undecodable(error)
            return NOT_OURS
        except OverflowError:
            # A number that no long holds was not written by an encoder.
            return NOT_OURS
        if window.cluster != self._cluster:
            return NOT_OURS
        return self.keys.number((window.agent_id, window.src, window.dst, window.flow))


def _fields(window: PathWindow) -> list[int]:
    values = [
        TRANSPORT_CODES[window.transport.value] if name == "transport" else getattr(window, name)
        for name in FIELDS
    ]
    return [NULL if value is None else value for value in values]


class KernelReader(PublishedReader):
    """Reads windows many at a time; leaves to fastavro what the kernel does not accept."""

    def __init__(
        self, codec: Codec, cluster: str, undecodable: Undecodable, intern: Intern
    ) -> None:
        super().__init__(codec, cluster, undecodable, intern)
        self._blocks = Blocks(codec.framer, WINDOWS)
        self._flows = FlowIndex(secrets.randbits(SEED_BITS))
        # The 5-tuples' numbers by row of the index. The array has one more, for BAD, at its end.
        self._numbers: list[int] = []
        self._number_of = np.array([NOT_OURS], np.int64)
        self._previous_row = np.full(1, NONE, np.int64)

    def read(self, values: Sequence[bytes]) -> WindowColumns:
        """Return the windows of consecutive messages, without what is not ours."""
        out = np.zeros((len(FIELDS), len(values)), np.int64)
        numbers = np.full(len(values), NOT_OURS, np.int64)
        for block in self._blocks.make(values):
            self._read_block(block, values, out, numbers)
        self._drop_out_of_bounds(out, numbers)
        columns = WindowColumns(self.keys.list, numbers, out)
        return columns if not (numbers == NOT_OURS).any() else columns.take(numbers != NOT_OURS)

    def _read_block(
        self, block: Block, values: Sequence[bytes], out: Int64s, numbers: Int64s
    ) -> None:
        """Write fields and numbers of a block's windows into the columns of all messages."""
        first = block.first
        rows = np.full(len(block), BAD, np.int64)
        key_ends = np.zeros(len(block), np.int64)
        by_fastavro: list[tuple[int, int]] = []
        message = 0
        while message < len(block):
            if block.plan is not None:
                message = _read_windows(
                    block.data, block.starts, block.ends, message, block.plan, self._flows.arrays,
                    self._flows.seed, self._previous_row, rows, key_ends, out, first,
                )  # fmt: skip
            if message < len(block):
                number = self.read_one(values[first + message], out[:, first + message])
                by_fastavro.append((message, number))
                message += 1
        self._enter(block, rows, key_ends)
        for message in np.flatnonzero(rows == NEW).tolist():
            rows[message] = BAD
            number = self.read_one(values[first + message], out[:, first + message])
            by_fastavro.append((message, number))
        numbers[first : first + len(block)] = self._number_of[rows]
        for message, number in by_fastavro:
            numbers[first + message] = number

    def _enter(self, block: Block, rows: Int64s, key_ends: Int64s) -> None:
        """Enter new 5-tuples and write their rows; NEW stays where the names are no UTF-8."""
        entered: dict[bytes, int] = {}
        spans: list[tuple[int, int]] = []
        for message in np.flatnonzero(rows == NEW).tolist():
            span = int(block.starts[message]), int(key_ends[message])
            raw = block.data[slice(*span)].tobytes()
            if raw not in entered:
                try:
                    cluster, key = parse_key(raw)
                except ValueError:
                    continue
                entered[raw] = len(self._numbers)
                ours = cluster == self._cluster
                self._numbers.append(self.keys.number(key) if ours else NOT_OURS)
                spans.append(span)
            rows[message] = entered[raw]
        if entered:
            self._flows.enter(
                np.array(list(entered.values())), ONE_AGENT, block.data, np.array(spans)
            )
            self._number_of = np.array([*self._numbers, NOT_OURS], np.int64)


def parse_key(raw: bytes) -> tuple[str, FlowKey]:
    """Return cluster and 5-tuple of a window's first fields; ValueError for bad UTF-8."""
    texts: list[str] = []
    flow = at = 0
    for _, kind in WINDOWS.key:
        value, at = _read_number(raw, at)
        if kind == "int":
            flow = value
        else:
            texts.append(raw[at : at + value].decode())
            at += value
    cluster, _, src, dst, agent = texts
    return cluster, (agent, src, dst, flow)


def _read_number(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at


@compiled
def _read_windows(
    data: NDArray[np.uint8],
    starts: Int64s,
    ends: Int64s,
    message: int,
    plan: Plan,
    flows: FlowArrays,
    seed: np.uint64,
    previous: Int64s,
    rows: Int64s,
    key_ends: Int64s,
    out: Int64s,
    first: int,
) -> int:
    """Read windows from number `message` on; return the first that is left to fastavro.

    Parameters
    ----------
    data, starts, ends : as in a block
    previous : (1,) row of the window before the first
    rows : written: the row of each, NEW for a 5-tuple that is not in the index
    key_ends : written: where the key of a NEW one ends
    out : (len(FIELDS), messages), written at `first + message`
    """
    before = int(previous[0])
    while message < len(rows):
        at, end = starts[message], ends[message]
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
            behind = key_end(data, at, end, plan)
            if behind < 0:
                break
            found = find_flow(flows, data, at, behind - at, ONE_AGENT, seed)
            if found >= 0:
                row = found
                if before >= 0:
                    flows.next_row[before] = row
            key_ends[message] = behind
            at = behind
        at = read_part(data, at, end, plan, 0, len(plan.program), out, first + message)
        if at != end:
            break
        rows[message] = row
        before = row
        message += 1
    previous[0] = before
    return message


def columns_of(windows: Sequence[PathWindow]) -> WindowColumns:
    """Return records as columns."""
    keys = Keys(lambda key: key)
    numbers = [keys.number((w.agent_id, w.src, w.dst, w.flow)) for w in windows]
    values = np.array([_fields(w) for w in windows], np.int64).reshape(-1, len(FIELDS))
    return WindowColumns(keys.list, np.array(numbers, np.int64), values.T)
