"""When to probe whom: deterministic stagger, even spread, a rate limit. Pure."""

import zlib
from collections.abc import Iterable
from typing import Final, TypeVar

T = TypeVar("T")

# Probes of one slot leave together. Each time the process is woken costs 0.1 to 0.3 ms
# of a core whatever it does then (measured in a virtual machine), so a probe by itself
# every few milliseconds would cost more than all else: 40 probes in 10-ms slots took
# 1.9 % of a core, in 50-ms slots half of that. A slot's probes go to different targets.
SLOT_NS: Final = 50 * 10**6


def fraction(text: str, of: int) -> int:
    """Return a number in [0, of) that depends on the text alone, the same on every host."""
    # CRC-32 of similar names differs in few bits only; the multiplication (Knuth's
    # golden-ratio constant) spreads them over the upper ones.
    mixed = (zlib.crc32(text.encode()) * 2_654_435_769) & 0xFFFFFFFF
    return mixed * of >> 32


def stagger_ns(agent_id: str, interval_ns: int) -> int:
    """Return by how much an agent's rounds start after whole multiples of the interval."""
    return fraction(agent_id, interval_ns)


def next_start_ns(realtime_ns: int, interval_ns: int, offset_ns: int) -> int:
    """Return the first k * interval + offset after `realtime_ns`."""
    return realtime_ns - (realtime_ns - offset_ns) % interval_ns + interval_ns


def shuffled(items: Iterable[T], key: str) -> list[T]:
    """Return the items in an order that depends on key and item alone.

    Neighbours on the ping list share a target host; probing them one after another
    would make bursts at it, from all agents at the same place in the list.
    """
    return sorted(items, key=lambda item: (fraction(f"{key}|{item}", 2**32), str(item)))


def spread_ns(count: int, window_ns: int, slot_ns: int = SLOT_NS) -> list[int]:
    """Return `count` offsets in [0, window), evenly, ascending, on whole slots."""
    return [index * window_ns // count // slot_ns * slot_ns for index in range(count)]


class TokenBucket:
    """At most `burst` at once and `rate_hz` on average; starts full.

    Time is given, and may not run backwards: a call with an earlier time refills
    nothing.
    """

    def __init__(self, rate_hz: float, burst: int) -> None:
        if rate_hz <= 0 or burst < 1:
            raise ValueError(f"rate {rate_hz} Hz and burst {burst} must be positive")
        self._rate_hz = rate_hz
        self._burst = burst
        self._tokens = float(burst)
        self._filled_ns: int | None = None

    def take(self, now_ns: int) -> bool:
        """Take a token if there is one."""
        if self._filled_ns is None:
            self._filled_ns = now_ns
        elapsed_ns = now_ns - self._filled_ns
        if elapsed_ns > 0:
            self._tokens = min(self._burst, self._tokens + elapsed_ns * self._rate_hz / 1e9)
            self._filled_ns = now_ns
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def wait_ns(self, now_ns: int) -> int:
        """Return how long until there is a token, nanoseconds; 0 when there is one."""
        if self._filled_ns is None:
            return 0
        held = self._tokens + max(0, now_ns - self._filled_ns) * self._rate_hz / 1e9
        return 0 if held >= 1 else int((1 - held) / self._rate_hz * 1e9) + 1
