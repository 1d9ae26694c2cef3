"""Rounds of `probe.round.v1` from their bytes into columns, by a kernel.

The columns of `schemas.columns` hold what a round and its results say. Here the names in them
become numbers, and the source, destination and flow that a result begins with become the row of
its 5-tuple (`streams.columns.index`).
"""

from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas import topics
from schemas.columns.compiled import compiled
from schemas.columns.interpreter import FULL, key_end, read_fields, read_part
from schemas.columns.plan import FieldTable, Kind, Plan, Wanted
from schemas.columns.wire import BAD, read_block, same_bytes
from streams.columns.index import NONE, FlowArrays, NameArrays, find_flow, find_name
from streams.columns.quantities import COUNT, QUANTITIES
from streams.columns.rounds import STATUS_CODES, TRANSPORT_CODES


class Field(IntEnum):
    """Columns of a round."""

    # Where the name is, until it has been looked up: then its number.
    CLUSTER = 0
    CLUSTER_BYTES = 1
    AGENT = 2
    AGENT_BYTES = 3
    INCARNATION = 4
    SEQ = 5
    STARTED_US = 6


class Item(IntEnum):
    """Columns of the results; who probed whom is a row of the flow index."""

    OFFSET_NS = 0
    TRANSPORT = 1
    # The place of the status among `STATUS_CODES`.
    STATUS = 2
    # The first of the quantities (`streams.columns.quantities`).
    VALUES = 3


ITEMS: Final = int(Item.VALUES) + COUNT


ROUNDS: Final = FieldTable(
    topic=topics.PROBE_ROUND.name,
    fields={
        "cluster": Wanted(Field.CLUSTER, Kind.TEXT),
        "agent_id": Wanted(Field.AGENT, Kind.TEXT),
        "incarnation": Wanted(Field.INCARNATION),
        "round_seq": Wanted(Field.SEQ),
        "started_at": Wanted(Field.STARTED_US),
    },
    array="results",
    items={
        "sent_offset_ns": Wanted(Item.OFFSET_NS),
        "transport": Wanted(Item.TRANSPORT, Kind.ENUM, TRANSPORT_CODES),
        "status": Wanted(Item.STATUS, Kind.ENUM, STATUS_CODES),
        **{
            quantity.field: Wanted(Item.VALUES + number, Kind.NULLABLE_LONG)
            for number, quantity in enumerate(QUANTITIES)
        },
    },
    key=(("src", "string"), ("dst", "string"), ("flow", "int")),
)

# Returned instead of a number of results, as BAD is: a name or a 5-tuple is not known yet.
UNKNOWN: Final = -2

# numba takes module constants in as numbers, not members of an enum.
_CLUSTER: Final = int(Field.CLUSTER)
_CLUSTER_BYTES: Final = int(Field.CLUSTER_BYTES)
_AGENT: Final = int(Field.AGENT)
_AGENT_BYTES: Final = int(Field.AGENT_BYTES)


@compiled
def read_round(
    data: NDArray[np.uint8],
    at: int,
    end: int,
    plan: Plan,
    names: NameArrays,
    flows: FlowArrays,
    fields: NDArray[np.int64],
    message: int,
    items: NDArray[np.int64],
    rows: NDArray[np.int32],
    first: int,
) -> int:
    """Read one round; return how many results it has, or BAD, UNKNOWN or FULL.

    Parameters
    ----------
    data : uint8, padded; the round without its header is data[at:end]
    fields : (len(Field), messages), written at `message`
    items : (ITEMS, room), rows : (room,), written from `first` on
    """
    seed = names.seed[0]
    at = read_part(data, at, end, plan, 0, plan.items_at, fields, message)
    if at < 0:
        return BAD
    cluster = find_name(names, data, fields[_CLUSTER, message], fields[_CLUSTER_BYTES, message])
    agent = find_name(names, data, fields[_AGENT, message], fields[_AGENT_BYTES, message])
    if cluster < 0 or agent < 0:
        return UNKNOWN
    fields[_CLUSTER, message] = cluster
    fields[_AGENT, message] = agent
    before = int(NONE)
    guess = int(names.first_row[agent])
    place = first
    while True:
        count, at = read_block(data, at, end)
        if at < 0:
            return BAD
        if count == 0:
            break
        if count > len(rows) - place:
            return FULL
        for _ in range(count):
            if (
                guess >= 0
                and flows.agent[guess] == agent
                and flows.length[guess] <= end - at
                and same_bytes(data, at, flows.arena, flows.at[guess], flows.length[guess])
            ):
                row = guess
                at += flows.length[guess]
            else:
                behind = key_end(data, at, end, plan)
                if behind < 0:
                    return BAD
                row = find_flow(flows, data, at, behind - at, agent, seed)
                if row < 0:
                    return UNKNOWN
                if before >= 0:
                    flows.next_row[before] = row
                else:
                    names.first_row[agent] = row
                at = behind
            rows[place] = row
            at = read_fields(data, at, end, plan, plan.items_at, plan.items_end, items, place)
            if at < 0 or at > end:
                return BAD
            before = row
            guess = int(flows.next_row[row])
            place += 1
    at = read_part(data, at, end, plan, plan.items_end, len(plan.program), fields, message)
    return place - first if at == end else BAD


@compiled
def read_rounds(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    message: int,
    plan: Plan,
    names: NameArrays,
    flows: FlowArrays,
    fields: NDArray[np.int64],
    items: NDArray[np.int64],
    rows: NDArray[np.int32],
    counts: NDArray[np.int64],
) -> tuple[int, int]:
    """Read rounds from number `message` on; return the first one not read, and what is with it.

    `counts` gets the results of each; the second number is the count of all, or BAD, UNKNOWN or
    FULL of the one that was not read.
    """
    place = 0
    while message < len(starts):
        found = read_round(
            data, starts[message], ends[message], plan, names, flows, fields, message,
            items, rows, place,
        )  # fmt: skip
        if found < 0:
            counts[message] = found
            return message, place
        counts[message] = found
        place += found
        message += 1
    return message, place


@compiled
def key_spans(
    data: NDArray[np.uint8],
    at: int,
    end: int,
    plan: Plan,
    scratch: NDArray[np.int64],
    spans: NDArray[np.int64],
) -> int:
    """Find where the keys of a round's results are; return their number, or BAD.

    Parameters
    ----------
    scratch : (columns, 1) int64, to write what nobody reads
    spans : (room, 2) int64, written: where each key begins and ends
    """
    at = read_part(data, at, end, plan, 0, plan.items_at, scratch, 0)
    if at < 0:
        return BAD
    place = 0
    while True:
        count, at = read_block(data, at, end)
        if at < 0 or count > len(spans) - place:
            return BAD
        if count == 0:
            return place
        for _ in range(count):
            spans[place, 0] = at
            at = key_end(data, at, end, plan)
            if at < 0:
                return BAD
            spans[place, 1] = at
            at = read_part(data, at, end, plan, plan.items_at, plan.items_end, scratch, 0)
            if at < 0:
                return BAD
            place += 1
