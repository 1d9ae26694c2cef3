"""The queue of messages that wait for Kafka: bounded, and the oldest are dropped first. Pure."""

import zlib
from collections import OrderedDict, deque
from dataclasses import dataclass, field, replace
from typing import Final

# A round of 80 probes has 3 KB, of which two thirds go at the lowest level, in a tenth of a
# millisecond. Small ones gain nothing.
LEAST_BYTES: Final = 512
LEVEL: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message ready to be sent.

    `topic` is the name on the broker, `kind` that of the contract; `results` is the
    number of probe results in it. A `state` is superseded by the next one of its key.
    """

    topic: str
    kind: str
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: list[tuple[str, bytes]] = field(default_factory=list)
    results: int = 0
    state: bool = False
    packed: bool = False

    @property
    def size_bytes(self) -> int:
        """Bytes of key, value and headers."""
        return (
            len(self.key or b"")
            + len(self.value or b"")
            + sum(len(name) + len(value) for name, value in self.headers)
        )

    def pack(self) -> "Message":
        """Return the message with a compressed value, if that is smaller."""
        if self.packed or self.value is None or len(self.value) < LEAST_BYTES:
            return self
        packed = zlib.compress(self.value, LEVEL)
        if len(packed) >= len(self.value):
            return self
        return replace(self, value=packed, packed=True)

    def unpack(self) -> "Message":
        """Return the message uncompressed."""
        if not self.packed or self.value is None:
            return self
        return replace(self, value=zlib.decompress(self.value), packed=False)


class Backlog:
    """Two queues: of records each of which counts, and of states of which the latest does.

    The first is bounded in bytes, and what waits behind others is compressed. The second
    holds one message per topic and key (registrations, heartbeats), is as small as the
    agent's own endpoints, goes out first, and is never dropped: after an outage the present
    state is what matters.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._records: deque[Message] = deque()
        self._states: OrderedDict[tuple[str, bytes | None], Message] = OrderedDict()

    def __len__(self) -> int:
        return len(self._records) + len(self._states)

    @property
    def size_bytes(self) -> int:
        """Bytes of the records that wait."""
        return self._bytes

    def fits(self, message: Message) -> bool:
        """Whether a message can be added without dropping one."""
        return message.state or self._bytes + message.size_bytes <= self._max_bytes

    def enqueue(self, message: Message) -> list[Message]:
        """Add a message; return those that were dropped for it, the oldest first.

        A state takes the place of an earlier one and drops nothing. A record larger
        than all the room, compressed, is itself dropped.
        """
        if message.state:
            slot = (message.topic, message.key)
            self._states.pop(slot, None)
            self._states[slot] = message
            return []
        if self._records or message.size_bytes > self._max_bytes:
            message = message.pack()
        if message.size_bytes > self._max_bytes:
            return [message]
        dropped = []
        while not self.fits(message):
            oldest = self._records.popleft()
            self._bytes -= oldest.size_bytes
            dropped.append(oldest)
        self._records.append(message)
        self._bytes += message.size_bytes
        return dropped

    def next_message(self, *, states: bool = True, records: bool = True) -> Message | None:
        """Take the next message of those that are wanted, states first; None: there is none."""
        if states and self._states:
            return self._states.popitem(last=False)[1]
        if not (records and self._records):
            return None
        message = self._records.popleft()
        self._bytes -= message.size_bytes
        return message.unpack()

    def put_back(self, message: Message) -> None:
        """Put back, in front, what could not be handed over; a state only if none is newer."""
        if message.state:
            slot = (message.topic, message.key)
            if slot not in self._states:
                self._states[slot] = message
                self._states.move_to_end(slot, last=False)
            return
        self._records.appendleft(message)
        self._bytes += message.size_bytes
