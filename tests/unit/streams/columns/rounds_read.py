"""Rounds read by the kernel and by fastavro, in one form to compare."""

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
from confluent_kafka import Message

from schemas import avro
from schemas.avro import SchemaVersion
from schemas.columns.blocks import Blocks
from schemas.columns.interpreter import NULL
from schemas.columns.wire import BAD
from schemas.framing import SingleObjectFramer
from streams.columns.index import FlowIndex, Names
from streams.columns.round_kernel import ITEMS, ROUNDS, Field, Item, key_spans, read_round
from streams.columns.rounds import STATUS_CODES, TRANSPORT_CODES
from streams.core.feed import Feed, LogMessage, M, Processed

TOPIC = ROUNDS.topic
Datum = dict[str, Any]
ROOM = 512
FRAMER = SingleObjectFramer()


def framed(datum: Datum, schema: SchemaVersion | None = None) -> bytes:
    """Return a round as an agent of that schema's time sends it."""
    schema = schema or avro.current(TOPIC)
    return FRAMER.header(schema) + avro.write_datum(schema, datum)


def raw_message(value: bytes, offset: int) -> Message:
    """Return what stands in for a consumer's message."""
    return cast(Message, LogMessage(value, offset))


def message(datum: Datum, offset: int) -> Message:
    """Return a round's message."""
    return raw_message(framed(datum), offset)


class OneByOne(Feed):
    """A feed without the kernel for plain rounds: its oracle."""

    def process(self, messages: Sequence[M]) -> Iterator[Processed[M]]:
        """Process each message by itself."""
        return map(self.process_one, messages)


class Reader:
    """The kernel with the names and 5-tuples of the rounds that it was taught."""

    def __init__(self, seed: int = 1) -> None:
        self.names = Names(seed)
        self.flows = FlowIndex(seed)
        self.blocks = Blocks(FRAMER, ROUNDS)
        self.texts: list[str] = []
        self.keys: list[tuple[str, str, str, int]] = []
        self._fields = np.zeros((len(Field), 1), np.int64)
        self._items = np.zeros((ITEMS, ROOM), np.int64)
        self._rows = np.zeros(ROOM, np.int32)

    def number(self, text: str) -> int:
        """Return a name's number, a new one's as well."""
        if text not in self.texts:
            self.texts.append(text)
        number = self.texts.index(text)
        self.names.enter(number, text)
        return number

    def learn(self, value: bytes, datum: Datum) -> None:
        """Enter the names and 5-tuples of a round."""
        (block,) = self.blocks.make([value])
        assert block.plan is not None
        self.number(datum["cluster"])
        agent = self.number(datum["agent_id"])
        spans = np.zeros((ROOM, 2), np.int64)
        scratch = np.zeros((max(len(Field), ITEMS), 1), np.int64)
        found = key_spans(
            block.data,
            block.starts[0],
            block.ends[0],
            block.plan,
            scratch,
            spans,
        )
        assert found == len(datum["results"])
        keys = [(datum["agent_id"], r["src"], r["dst"], r["flow"]) for r in datum["results"]]
        self.keys += [key for key in dict.fromkeys(keys) if key not in self.keys]
        rows = np.array(list(map(self.keys.index, keys)), np.int64)
        self.flows.enter(rows, agent, block.data, spans[:found])

    def read(self, value: bytes) -> tuple[Any, ...] | int:
        """Return what the kernel reads, or why it does not."""
        (block,) = self.blocks.make([value])
        if block.plan is None:
            return BAD
        count = read_round(
            block.data, block.starts[0], block.ends[0], block.plan, self.names.arrays,
            self.flows.arrays, self._fields, 0, self._items, self._rows, 0,
        )  # fmt: skip
        if count < 0:
            return count
        fields = self._fields[:, 0].tolist()
        names = [self.texts[fields[Field.CLUSTER]], self.texts[fields[Field.AGENT]]]
        rows = self._rows[:count].tolist()
        items = [
            tuple(None if v == NULL else v for v in item)
            for item in self._items[:, :count].T.tolist()
        ]
        return (*names, *fields[Field.INCARNATION :], [self.keys[row] for row in rows], items)


def expected(datum: Datum) -> tuple[Any, ...]:
    """Return what the kernel is to read of a datum that fastavro decoded."""
    keys = [(datum["agent_id"], r["src"], r["dst"], r["flow"]) for r in datum["results"]]
    items = []
    for r in datum["results"]:
        item: list[int | None] = [0] * ITEMS
        for name, wanted in ROUNDS.items.items():
            item[wanted.column] = r[name]
        item[Item.TRANSPORT] = TRANSPORT_CODES[r["transport"]]
        item[Item.STATUS] = STATUS_CODES[r["status"]]
        items.append(tuple(item))
    return (*(datum[name] for name in ROUNDS.fields), keys, items)
