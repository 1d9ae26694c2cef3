"""The messages of one partition, given to its machine: many at a time where that is possible.

Most rounds are plain (`streams.core.absorb`) and go through a kernel. The others are decoded by
fastavro and processed one by one. The outputs are the same.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from schemas import topics
from schemas.bounds import MAX_ARRIVAL_MS, arrival_of
from schemas.codec import Codec, DecodeError, OutOfBoundsError
from schemas.columns.arrays import Int64s
from schemas.columns.blocks import Block, Blocks
from schemas.units import MS_NS
from streams.columns.round_kernel import ROUNDS
from streams.core.machine import PartitionMachine
from streams.core.metrics import Metric, Tally
from streams.core.outputs import Output
from streams.core.partition import RefusedRoundError
from streams.core.window_bytes import WindowBytes


class RoundMessage(Protocol):
    """What a feed reads of a Kafka message."""

    def value(self) -> bytes | None:
        """Return its bytes."""
        ...

    def offset(self) -> int | None:
        """Return its offset in the log."""
        ...

    def timestamp(self) -> tuple[int, int]:
        """Return the type of its timestamp, 0: it has none, and milliseconds since the epoch."""
        ...


NOT_KNOWN: Final = -1

M = TypeVar("M", bound=RoundMessage)


class LogMessage(NamedTuple):
    """A message of a log in memory, where there is no broker."""

    raw: bytes
    number: int
    arrival_ms: int | None = None

    def value(self) -> bytes:
        """Return its bytes."""
        return self.raw

    def offset(self) -> int:
        """Return its place in the log."""
        return self.number

    def timestamp(self) -> tuple[int, int]:
        """Return the time of its arrival, as a client does."""
        return (0, -1) if self.arrival_ms is None else (2, self.arrival_ms)


@dataclass(frozen=True, slots=True)
class Refused(Generic[M]):
    """A message that goes to the dead letters, why, and what is counted."""

    message: M
    error: DecodeError
    counter: Metric


@dataclass(frozen=True, slots=True)
class Processed(Generic[M]):
    """What consecutive messages publish; the last one may have been refused."""

    outputs: list[Output] = field(default_factory=list)
    refused: Refused[M] | None = None


class Feed:
    """Gives messages to one partition's machine."""

    def __init__(self, machine: PartitionMachine, codec: Codec) -> None:
        self._machine = machine
        self._codec = codec
        self._partition = machine.identity.partition
        self._blocks = Blocks(codec.framer, ROUNDS)

    def process(self, messages: Sequence[M]) -> Iterator[Processed[M]]:
        """Process messages in order; yield what they publish, in order."""
        arrivals_ns = _arrivals_ns(messages)
        for block in self._blocks.make([m.value() or b"" for m in messages]):
            at = 0
            own = messages[block.first :]
            while at < len(block):
                at, outputs = self._machine.process_plain(
                    block,
                    at,
                    arrivals_ns[block.first :],
                    partial(_offset_of, own),
                )
                if outputs:
                    yield Processed(outputs)
                if at < len(block):
                    yield self.process_one(own[at], block, at)
                    at += 1

    def warm(self, messages: Sequence[RoundMessage]) -> None:
        """Process messages of the look-back for their effect on the state only."""
        self._machine.live = False
        try:
            for _ in self.process(messages):
                pass
        finally:
            self._machine.live = True
            self._machine.tally = Tally()

    def process_one(self, message: M, block: Block | None = None, at: int = 0) -> Processed[M]:
        """Process a message by itself; the kernel learns what it did not know in `block`."""
        self._machine.counts["rounds_alone"] += 1
        offset = int(message.offset() or 0)
        arrival_ns = arrival_of(message.timestamp())
        try:
            datum = self._codec.decode_datum(
                topics.PROBE_ROUND,
                message.value() or b"",
                partition=self._partition,
                offset=offset,
                arrival_ns=arrival_ns,
            )
        except OutOfBoundsError as error:
            ahead = error.found.ahead
            return Processed(refused=Refused(message, error, "clock_ahead" if ahead else "invalid"))
        except DecodeError as error:
            return Processed(refused=Refused(message, error, "undecodable"))
        try:
            outputs = self._machine.process(datum, offset, arrival_ns)
        except RefusedRoundError as error:
            reason = DecodeError(
                str(error), topic=topics.PROBE_ROUND.name, partition=self._partition, offset=offset
            )
            return Processed(refused=Refused(message, reason, error.counter))
        if block is not None:
            self._machine.learn(block, at, datum)
        return Processed(outputs)


def _offset_of(messages: Sequence[RoundMessage], number: int) -> int:
    return int(messages[number].offset() or 0)


def _arrivals_ns(messages: Sequence[RoundMessage]) -> Int64s:
    """Return when messages arrived, as `arrival_of` does, for kernels; negative: not known."""
    stamps = chain.from_iterable([message.timestamp() for message in messages])
    kinds, at_ms = np.fromiter(stamps, np.int64, 2 * len(messages)).reshape(-1, 2).T
    known = (kinds != 0) & (at_ms <= MAX_ARRIVAL_MS)
    return np.where(known, at_ms * MS_NS, NOT_KNOWN)


def window_bytes(codec: Codec, machine: PartitionMachine) -> WindowBytes:
    """Return what encodes a machine's closed windows many at a time."""
    encoder = WindowBytes(codec, machine.identity.cluster)
    machine.recent.flows.on_removed.append(encoder.forget)
    return encoder
