"""Records on their way to the broker, in order of arrival."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from arena.sealed.schedule import Schedule
from schemas.units import MS_NS, SECOND_NS


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One record as it arrives at the broker; `record` is None for a tombstone."""

    arrival_ms: int
    topic: str
    key: str
    record: Any


@dataclass(slots=True, kw_only=True)
class Outbox:
    """Takes records at the time at which they are sent, and lets them arrive.

    Each producer's records arrive in the order in which they were sent. While the broker pauses
    nothing arrives; what waits comes within a second and a half of its return.

    Attributes
    ----------
    pauses : of the broker
    """

    start_ns: int
    pauses: list[Schedule]
    rng: np.random.Generator
    _heap: list[tuple[int, int, Timed]] = field(default_factory=list)
    _count: int = 0
    _last_ms: dict[str, int] = field(default_factory=dict)

    def send(self, producer: str, at_s: float, topic: str, key: str, record: Any) -> None:
        """Send a record at a time, in seconds since the start of the world."""
        arrives_s = at_s + 0.002 + float(self.rng.exponential(0.006))
        for pause in self.pauses:
            if pause.begin_s <= arrives_s < pause.end_s:
                arrives_s = pause.end_s + float(self.rng.uniform(0.0, 1.5))
        arrival_ms = (self.start_ns + int(arrives_s * SECOND_NS)) // MS_NS
        arrival_ms = max(arrival_ms, self._last_ms.get(producer, 0))
        self._last_ms[producer] = arrival_ms
        timed = Timed(arrival_ms=arrival_ms, topic=topic, key=key, record=record)
        heapq.heappush(self._heap, (arrival_ms, self._count, timed))
        self._count += 1

    def arrived(self, before_s: float) -> Iterator[Timed]:
        """Yield, and forget, what has arrived before a time."""
        before_ms = (self.start_ns + int(before_s * SECOND_NS)) // MS_NS
        while self._heap and self._heap[0][0] < before_ms:
            yield heapq.heappop(self._heap)[2]
