"""Which 5-tuples a round probes, and when each of its probes is sent. Pure."""

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from schemas.enums import Transport as TransportKind
from schemas.ids import path_id

T = TypeVar("T")

# Probes of one slot leave together. Each time the process is woken costs 0.1 to 0.3 ms
# of a core whatever it does then (measured in a virtual machine), so a probe by itself
# every few milliseconds would cost more than all else: 40 probes in 10-ms slots took
# 1.9 % of a core, in 50-ms slots half of that; 80 in 100-ms slots take a tenth less than those.
# At the highest rate a slot is 200 packets: 20 KB, which no port of a fabric notices.
SLOT_NS: Final = 100 * 10**6
# VXLAN's outer source port comes from the dynamic range (RFC 7348, section 5).
ENTROPY_FIRST: Final = 49_152
ENTROPY_COUNT: Final = 16_384
# A round is one message: each flow confirmed twice, of 50 bytes each, are 750 KB, and
# Kafka takes 1 MB.
MAX_FLOWS_PER_ROUND: Final = 5_000


@dataclass(frozen=True, slots=True)
class FlowTarget:
    """One 5-tuple of one pair, as it is probed now.

    Equal only when the address is, too: an endpoint that comes back elsewhere is
    a new target. For RDMA the address is its GID, the port the number of its queue pair.
    `host_id` is the host of `dst`, whose agent answers; None: unknown.
    """

    src: str
    dst: str
    flow: int
    address: str
    port: int
    transport: TransportKind
    entropy: int
    qkey: int | None = None
    host_id: str | None = None

    @property
    def path_id(self) -> str:
        """The pair's id."""
        return path_id(self.src, self.dst)

    @property
    def key(self) -> tuple[str, str, int]:
        """What the flow is called, wherever it answers."""
        return self.src, self.dst, self.flow

    def __str__(self) -> str:
        return f"{self.src}>{self.dst}#{self.flow}"


def entropy_of(src: str, dst: str, flow: int) -> int:
    """Return the flow number in an encapsulation: fixed per flow, spread over flows."""
    return ENTROPY_FIRST + fraction(f"{src}>{dst}#{flow}", ENTROPY_COUNT)


def fraction(text: str, of: int) -> int:
    """Return a number in [0, of) that depends on the text alone, the same on every host."""
    # CRC-32 of similar names differs in few bits only; the multiplication (Knuth's
    # golden-ratio constant) spreads them over the upper ones.
    mixed = (zlib.crc32(text.encode()) * 2_654_435_769) & 0xFFFFFFFF
    return mixed * of >> 32


def _rank(text: str) -> int:
    return fraction(text, 2**32)


def stagger_ns(agent_id: str, interval_ns: int) -> int:
    """Return by how much an agent's rounds start after whole multiples of the interval."""
    return fraction(agent_id, interval_ns)


def next_start_ns(realtime_ns: int, interval_ns: int, offset_ns: int) -> int:
    """Return the first k * interval + offset after `realtime_ns`."""
    return realtime_ns - (realtime_ns - offset_ns) % interval_ns + interval_ns


def shuffled(items: Iterable[T], key: str, group: Callable[[T], str] = str) -> list[T]:
    """Return the items in an order that depends on key and item alone, groups undivided.

    In the order of the ping list all agents would probe a host at the same moment. The probes
    from one agent to one host stay together: its agent is woken once for all of them, which
    costs it less than to be woken for each.
    """

    def place(item: T) -> tuple[int, str, int, str]:
        together, name = group(item), str(item)
        return _rank(f"{key}|{together}"), together, _rank(f"{key}|{name}"), name

    return sorted(items, key=place)


def spread_ns(count: int, window_ns: int, slot_ns: int = SLOT_NS) -> list[int]:
    """Return `count` offsets in [0, window), evenly, ascending, on whole slots."""
    return [index * window_ns // count // slot_ns * slot_ns for index in range(count)]


class Plan:
    """Which flows each round probes, and when within it."""

    def __init__(
        self, agent_id: str, *, interval_ns: int, spread_ns: int, max_rate_hz: int
    ) -> None:
        self._agent_id = agent_id
        self._max_rate_hz = max_rate_hz
        self._spread_ns = spread_ns
        # Per round; more than this takes several rounds.
        self.capacity = max(1, min(MAX_FLOWS_PER_ROUND, max_rate_hz * interval_ns // 10**9))
        self._flows: tuple[FlowTarget, ...] = ()
        self._ordered: list[FlowTarget] = []
        # Index of the flow that the next round begins with.
        self._first = 0
        # Planned probes of the last round that the rate did not allow.
        self._postponed = 0
        self.wanted: frozenset[FlowTarget] = frozenset()

    @property
    def overloaded(self) -> bool:
        """Whether the rate does not allow to probe every flow in each round."""
        return self._exceeds_capacity or self._postponed > 0

    @property
    def _exceeds_capacity(self) -> bool:
        return len(self._ordered) > self.capacity

    def follow(self, flows: tuple[FlowTarget, ...]) -> bool:
        """Take the flows to probe; return whether they are others than before."""
        if flows is self._flows:
            return False
        self._flows = flows
        self.wanted = frozenset(flows)
        self._ordered = shuffled(flows, self._agent_id, lambda flow: flow.host_id or flow.dst)
        return True

    def next_round(self) -> list[tuple[int, FlowTarget]]:
        """Return the next round's probes with their offsets, nanoseconds."""
        count = min(len(self._ordered), self.capacity)
        first = self._first % max(1, len(self._ordered))
        self._first = first + count if self._exceeds_capacity else first
        chosen = (self._ordered[first:] + self._ordered[:first])[:count]
        window_ns = max(self._spread_ns, count * 10**9 // self._max_rate_hz)
        return list(zip(spread_ns(count, window_ns), chosen, strict=True))

    def postpone(self, count: int) -> None:
        """Begin the next round with the last `count` probes of this one, which were not sent."""
        self._postponed = count
        self._first -= count
