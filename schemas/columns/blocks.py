"""Messages of one topic as blocks of bytes, each with the plan that reads it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.avro import MAX_VALUE_BYTES, SchemaVersion
from schemas.columns.arrays import Int64s
from schemas.columns.compiled import compiled
from schemas.columns.interpreter import PAD_BYTES
from schemas.columns.plan import FieldTable, Plan, PlanError, make_plan
from schemas.columns.wire import same_bytes
from schemas.framing import Framer, header_bytes

# Headers remembered; there are as many as the topic's schema has versions, in each framing.
MAX_HEADERS: Final = 64


@compiled
def _begin_alike(data: NDArray[np.uint8], starts: Int64s, ends: Int64s, header_bytes: int) -> bool:
    """Return whether all messages have the header of the first, and none is too long."""
    first = starts[0] - header_bytes
    for message in range(len(starts)):
        start, end = starts[message], ends[message]
        begin = start - header_bytes
        if start > end or end - begin > MAX_VALUE_BYTES:
            return False
        if not same_bytes(data, begin, data, first, header_bytes):
            return False
    return True


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive messages of one writer's schema and framing.

    Attributes
    ----------
    first : number of the first message
    plan : how to read them; None: fastavro has to
    data : their bytes, one message after the other, padded
    starts, ends : (n,) int64; where each datum is, without its header
    """

    first: int
    plan: Plan | None
    data: NDArray[np.uint8]
    starts: Int64s
    ends: Int64s

    def __len__(self) -> int:
        return len(self.starts)


class Blocks:
    """Puts messages of a topic into blocks, and keeps the plans of the schemas it has met."""

    def __init__(self, framer: Framer, table: FieldTable) -> None:
        self._framer = framer
        self._table = table
        self._plans: dict[bytes, Plan | None] = {}
        # By header, whose length its first byte tells.
        self._headers: dict[bytes, Plan | None] = {}

    def make(self, values: Sequence[bytes]) -> list[Block]:
        """Return the messages in blocks, in order."""
        if not values:
            return []
        header = values[0][: header_bytes(values[0])]
        whole = _block(0, None, values, len(header))
        if _begin_alike(whole.data, whole.starts, whole.ends, len(header)):
            # They rarely have several headers.
            plan = self._headers.get(header)
            if plan is not None:
                return [Block(0, plan, whole.data, whole.starts, whole.ends)]
        blocks = []
        at = 0
        for _, group in groupby(values, key=self._kind_of):
            part = list(group)
            blocks.append(_block(at, self._plan_of(part[0]), part, header_bytes(part[0])))
            at += len(part)
        return blocks

    def _kind_of(self, value: bytes) -> tuple[int, int]:
        """Return what the messages of a block have in common."""
        return id(self._plan_of(value)), header_bytes(value)

    def _plan_of(self, value: bytes) -> Plan | None:
        header = value[: header_bytes(value)]
        plan = self._headers[header] if header in self._headers else self._learn(header, value)
        return plan if len(value) <= MAX_VALUE_BYTES else None

    def _learn(self, header: bytes, value: bytes) -> Plan | None:
        try:
            schema, start = self._framer.parse(self._table.topic, value)
        except ValueError:
            # Not remembered: anybody could fill the memory with such headers.
            return None
        plan = self._planned(schema) if start == len(header) else None
        if len(self._headers) < MAX_HEADERS:
            self._headers[header] = plan
        return plan

    def _planned(self, schema: SchemaVersion) -> Plan | None:
        if schema.fingerprint not in self._plans:
            try:
                plan: Plan | None = make_plan(schema, self._table)
            except PlanError:
                plan = None
            self._plans[schema.fingerprint] = plan
        return self._plans[schema.fingerprint]


def _block(first: int, plan: Plan | None, values: Sequence[bytes], header: int) -> Block:
    """Return messages in one block; `header` is the number of bytes before each datum."""
    data = np.frombuffer(b"".join([*values, bytes(PAD_BYTES)]), np.uint8)
    ends = np.cumsum(np.fromiter(map(len, values), np.int64, len(values)))
    starts = np.concatenate(([0], ends[:-1])) + header
    return Block(first, plan, data, starts, ends)
