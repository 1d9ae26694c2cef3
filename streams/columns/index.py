"""The index by which kernels find the row of a 5-tuple from its bytes.

The bytes of a result's first fields (source, destination, flow) name the 5-tuple within its
agent. An agent probes the same targets in the same order round after round: so each row knows
the row that followed it last time, and only when that guess fails is a hash looked up.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.columns.arrays import Int64s
from schemas.columns.compiled import compiled, inlined
from schemas.columns.texts import GOLDEN, mixed
from schemas.columns.wire import same_bytes
from streams.columns.table import grown

NONE: Final = -1
# A slot whose entry is gone; a search goes on behind it.
GONE: Final = -2
# Bytes behind the end of what is read by words, so that no word reaches beyond the array.
PAD_BYTES: Final = 16


class NameArrays(NamedTuple):
    """Names by number: cluster and agents.

    Attributes
    ----------
    seed : (1,) uint64; of the hashes, so that nobody can prepare names that collide
    slots : open addressing, a power of two; number, or NONE
    at, length : where a name's bytes are in `arena`; length NONE: not in the index
    first_row : row of an agent's first result last time
    """

    seed: NDArray[np.uint64]
    slots: NDArray[np.int32]
    at: NDArray[np.int64]
    length: NDArray[np.int32]
    arena: NDArray[np.uint8]
    first_row: NDArray[np.int32]


class FlowArrays(NamedTuple):
    """5-tuples by row.

    Attributes
    ----------
    slots : open addressing, a power of two; row, NONE or GONE
    agent : number of the agent's name; NONE: the row is not in the index
    at, length : where a row's key is in `arena`
    next_row : the row behind this one in the agent's latest round
    """

    slots: NDArray[np.int32]
    agent: NDArray[np.int32]
    at: NDArray[np.int64]
    length: NDArray[np.int32]
    arena: NDArray[np.uint8]
    next_row: NDArray[np.int32]


@compiled
def find_name(names: NameArrays, data: NDArray[np.uint8], at: int, length: int) -> int:
    """Return the number of a name, NONE where it is not known."""
    mask = len(names.slots) - 1
    slot = int(np.int64(mixed(data, at, length, names.seed[0]) >> np.uint64(16))) & mask
    while names.slots[slot] >= 0:
        number = int(names.slots[slot])
        if names.length[number] == length and same_bytes(
            data, at, names.arena, names.at[number], length
        ):
            return number
        slot = (slot + 1) & mask
    return NONE


@compiled
def put_name(names: NameArrays, number: int) -> None:
    """Enter a name whose bytes are in the arena."""
    mask = len(names.slots) - 1
    mark = mixed(names.arena, names.at[number], names.length[number], names.seed[0])
    slot = int(np.int64(mark >> np.uint64(16))) & mask
    while names.slots[slot] >= 0:
        slot = (slot + 1) & mask
    names.slots[slot] = number


@inlined
def flow_slot(
    data: NDArray[np.uint8], at: int, length: int, agent: int, seed: np.uint64, mask: int
) -> int:
    """Return where the search for a 5-tuple begins."""
    mark = mixed(data, at, length, seed ^ np.uint64(agent) * GOLDEN)
    return int(np.int64(mark >> np.uint64(16))) & mask


@compiled
def find_flow(
    flows: FlowArrays, data: NDArray[np.uint8], at: int, length: int, agent: int, seed: np.uint64
) -> int:
    """Return the row of a 5-tuple, NONE where it is not in the index."""
    mask = len(flows.slots) - 1
    slot = flow_slot(data, at, length, agent, seed, mask)
    while flows.slots[slot] != NONE:
        row = int(flows.slots[slot])
        if (
            row >= 0
            and flows.length[row] == length
            and flows.agent[row] == agent
            and same_bytes(data, at, flows.arena, flows.at[row], length)
        ):
            return row
        slot = (slot + 1) & mask
    return NONE


@compiled
def put_flow(flows: FlowArrays, row: int, seed: np.uint64) -> None:
    """Enter a row whose agent and key are set."""
    mask = len(flows.slots) - 1
    slot = flow_slot(flows.arena, flows.at[row], flows.length[row], flows.agent[row], seed, mask)
    while flows.slots[slot] >= 0:
        slot = (slot + 1) & mask
    flows.slots[slot] = row


@compiled
def put_flows(
    flows: FlowArrays,
    rows: NDArray[np.int64],
    agent: int,
    data: NDArray[np.uint8],
    spans: NDArray[np.int64],
    used: int,
    seed: np.uint64,
) -> tuple[int, int]:
    """Enter rows with an agent's keys at `spans` of `data`, unless they are there.

    Returns the bytes of the arena that are used then, and how many were entered.
    """
    entered = 0
    for number in range(len(rows)):
        row = rows[number]
        if flows.agent[row] != NONE:
            continue
        begin, end = spans[number, 0], spans[number, 1]
        for place in range(begin, end):
            flows.arena[used + place - begin] = data[place]
        flows.agent[row] = agent
        flows.at[row] = used
        flows.length[row] = end - begin
        put_flow(flows, row, seed)
        used += end - begin
        entered += 1
    return used, entered


@compiled
def put_again(flows: FlowArrays, rows: NDArray[np.int64], seed: np.uint64) -> None:
    """Enter rows into slots that are new."""
    for number in range(len(rows)):
        put_flow(flows, rows[number], seed)


@compiled
def pack(flows: FlowArrays, rows: NDArray[np.int64], arena: NDArray[np.uint8]) -> int:
    """Move the rows' keys into another arena, one behind the other; return the bytes used."""
    used = 0
    for number in range(len(rows)):
        row = rows[number]
        begin = flows.at[row]
        for place in range(flows.length[row]):
            arena[used + place] = flows.arena[begin + place]
        flows.at[row] = used
        used += flows.length[row]
    return used


@compiled
def remove_flow(flows: FlowArrays, row: int, seed: np.uint64) -> None:
    """Take a row out."""
    mask = len(flows.slots) - 1
    slot = flow_slot(flows.arena, flows.at[row], flows.length[row], flows.agent[row], seed, mask)
    while flows.slots[slot] != row:
        slot = (slot + 1) & mask
    flows.slots[slot] = GONE
    flows.agent[row] = NONE


class Names:
    """The names that a kernel finds; their numbers are somebody else's (`streams.core.clock`)."""

    def __init__(self, seed: int) -> None:
        self._used = 0
        self._entries: list[int] = []
        self.arrays = NameArrays(
            seed=np.array([seed], np.uint64),
            slots=np.full(64, NONE, np.int32),
            at=np.zeros(16, np.int64),
            length=np.full(16, NONE, np.int32),
            arena=np.zeros(1024, np.uint8),
            first_row=np.full(16, NONE, np.int32),
        )

    def enter(self, number: int, text: str) -> None:
        """Enter a name, unless it is there."""
        if number < len(self.arrays.length) and self.arrays.length[number] != NONE:
            return
        raw = np.frombuffer(text.encode(), np.uint8)
        self._make_room(number, len(raw))
        names = self.arrays
        names.arena[self._used : self._used + len(raw)] = raw
        names.at[number], names.length[number] = self._used, len(raw)
        self._used += len(raw)
        self._entries.append(number)
        put_name(names, number)

    def forget(self, numbers: list[int]) -> None:
        """Take names out; their numbers may be given to others."""
        gone = set(numbers)
        names, entries = self.arrays, self._entries
        self._entries = [number for number in entries if number not in gone]
        names.length[[number for number in entries if number in gone]] = NONE
        names.slots[:] = NONE
        used = 0
        arena = np.zeros_like(names.arena)
        for number in self._entries:
            at, length = names.at[number], names.length[number]
            arena[used : used + length] = names.arena[at : at + length]
            names.at[number] = used
            used += int(length)
        self._used = used
        self.arrays = names._replace(arena=arena)
        for number in self._entries:
            put_name(self.arrays, number)

    def _make_room(self, number: int, count: int) -> None:
        names = self.arrays
        if self._used + count + PAD_BYTES > len(names.arena):
            names = names._replace(arena=grown(names.arena, 2 * len(names.arena) + count))
        while number >= len(names.at):
            twice = 2 * len(names.at)
            names = names._replace(
                at=grown(names.at, twice),
                length=grown(names.length, twice, NONE),
                first_row=grown(names.first_row, twice, NONE),
            )
        if 2 * len(self._entries) >= len(names.slots):
            names = names._replace(slots=np.full(4 * len(names.slots), NONE, np.int32))
            for entry in self._entries:
                put_name(names, entry)
        self.arrays = names


class FlowIndex:
    """The 5-tuples that a kernel finds; rows are somebody else's (`streams.detectors.recent`)."""

    def __init__(self, seed: int) -> None:
        self.seed = np.uint64(seed)
        self._used = 0
        self._dead = 0
        self._entries = 0
        self.arrays = FlowArrays(
            slots=np.full(1024, NONE, np.int32),
            agent=np.full(256, NONE, np.int32),
            at=np.zeros(256, np.int64),
            length=np.zeros(256, np.int32),
            arena=np.zeros(16_384, np.uint8),
            next_row=np.full(256, NONE, np.int32),
        )

    def enter(self, rows: Int64s, agent: int, data: NDArray[np.uint8], spans: Int64s) -> None:
        """Enter rows, unless they are there (then by other bytes of the same meaning).

        Parameters
        ----------
        spans
            (n, 2); where each row's key begins and ends in `data`.
        """
        size = int((spans[:, 1] - spans[:, 0]).sum())
        self._make_room(int(rows.max(initial=-1)), len(rows), size)
        self._used, entered = put_flows(
            self.arrays, rows, agent, data, spans, self._used, self.seed
        )
        self._entries += entered

    def forget(self, row: int) -> None:
        """Take a row out, if it is there."""
        if row < len(self.arrays.agent) and self.arrays.agent[row] != NONE:
            self._dead += int(self.arrays.length[row])
            remove_flow(self.arrays, row, self.seed)

    def _make_room(self, row: int, rows: int, count: int) -> None:
        flows = self.arrays
        while row >= len(flows.agent):
            twice = 2 * len(flows.agent)
            flows = flows._replace(
                agent=grown(flows.agent, twice, NONE),
                at=grown(flows.at, twice),
                length=grown(flows.length, twice),
                next_row=grown(flows.next_row, twice, NONE),
            )
        if self._used + count + PAD_BYTES > len(flows.arena):
            flows = self._packed(flows, count)
        if 2 * (self._entries + rows) > len(flows.slots):
            flows = self._spread(flows, rows)
        self.arrays = flows

    def _packed(self, flows: FlowArrays, count: int) -> FlowArrays:
        """Return the arrays with an arena that has room, and nothing of rows that are gone."""
        live = np.flatnonzero(flows.agent != NONE)
        needed = self._used - self._dead + count + PAD_BYTES
        arena = np.zeros(2 * needed, np.uint8)
        self._used, self._dead = pack(flows, live, arena), 0
        return flows._replace(arena=arena)

    def _spread(self, flows: FlowArrays, more: int) -> FlowArrays:
        """Return the arrays with slots for twice the rows there will be, without the gone ones."""
        live = np.flatnonzero(flows.agent != NONE)
        size = 1 << max(10, (4 * (len(live) + more)).bit_length())
        flows = flows._replace(slots=np.full(size, NONE, np.int32))
        put_again(flows, live, self.seed)
        self._entries = len(live)
        return flows
