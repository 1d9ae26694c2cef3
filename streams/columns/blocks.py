"""Messages of `probe.round.v1` as one block of bytes, and as columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import numpy as np
from fastavro.utils import generate_one
from numpy.typing import NDArray

from schemas import avro, topics
from schemas.avro import MAX_VALUE_BYTES, SchemaVersion
from schemas.columns.arrays import Int64s
from schemas.framing import Framer
from streams.columns.interpreter import PAD_BYTES
from streams.columns.plan import Plan, PlanError, make_plan

# Headers remembered; there are as many as the topic's schema has versions.
MAX_HEADERS: Final = 64
TOPIC: Final = topics.PROBE_ROUND.name


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive messages of one writer's schema.

    Attributes
    ----------
    first : number of the first message
    plan : how to read them; None: not by a kernel
    data : their bytes, one after the other, padded
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
    """Makes blocks of messages; knows the plans of the schemas that were met."""

    def __init__(self, framer: Framer) -> None:
        self._framer = framer
        self._plans: dict[bytes, Plan | None] = {}
        # By header, whose length is that of the framing.
        self._headers: dict[bytes, Plan | None] = {}
        self._header_bytes = len(framer.header(avro.current(TOPIC)))

    def make(self, values: Sequence[bytes]) -> list[Block]:
        """Return the messages in blocks, in order."""
        if (only := self._only_plan(values)) is not None:
            return [self._block(0, values, only)]
        blocks = []
        at = 0
        for _, group in groupby(map(self._plan_of, values), key=id):
            plans = list(group)
            blocks.append(self._block(at, values[at : at + len(plans)], plans[0]))
            at += len(plans)
        return blocks

    def _only_plan(self, values: Sequence[bytes]) -> Plan | None:
        """Return the plan of all messages, None where they may have several: they rarely do."""
        headers = {value[: self._header_bytes] for value in values}
        if len(headers) != 1 or max(map(len, values)) > MAX_VALUE_BYTES:
            return None
        return self._headers.get(headers.pop())

    def _plan_of(self, value: bytes) -> Plan | None:
        header = value[: self._header_bytes]
        plan = self._headers[header] if header in self._headers else self._learn(header, value)
        return plan if len(value) <= MAX_VALUE_BYTES else None

    def _learn(self, header: bytes, value: bytes) -> Plan | None:
        try:
            schema, start = self._framer.parse(TOPIC, value)
        except ValueError:
            return None
        plan = self._planned(schema) if start == self._header_bytes else None
        if len(self._headers) < MAX_HEADERS:
            self._headers[header] = plan
        return plan

    def _planned(self, schema: SchemaVersion) -> Plan | None:
        if schema.fingerprint not in self._plans:
            try:
                check_resolves(schema)
                plan: Plan | None = make_plan(schema)
            except PlanError:
                plan = None
            self._plans[schema.fingerprint] = plan
        return self._plans[schema.fingerprint]

    def _block(self, first: int, values: Sequence[bytes], plan: Plan | None) -> Block:
        data = np.frombuffer(b"".join([*values, bytes(PAD_BYTES)]), np.uint8)
        ends = np.cumsum(np.fromiter(map(len, values), np.int64, len(values)))
        starts = np.concatenate(([0], ends[:-1])) + self._header_bytes
        return Block(first, plan, data, starts, ends)


def check_resolves(schema: SchemaVersion) -> None:
    """Let fastavro read one made-up datum: a plan resolves none of the fields that it skips.

    Raises
    ------
    PlanError
        If it cannot.
    """
    try:
        example = avro.write_datum(schema, generate_one(schema.parsed))
        avro.read_datum(schema, avro.current(schema.topic), example)
    except ValueError as error:
        raise PlanError(str(error)) from error
