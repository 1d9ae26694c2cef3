"""How often something happened within a window, from counters that are read now and then. Pure.

Counters of drivers start anew after a reset, are cleared by people, wrap, disappear with their
device, and stop when they are full. None of that is an event: only growth between two readings
counts. A counter that went back counts nothing, and its new value is the start of what follows.
"""

from collections import deque
from collections.abc import Mapping

Grown = tuple[tuple[str, int], ...]


class Meter:
    """What some counters grew by within the last `window_ns`.

    The window consists of whole steps between readings. After a long pause it is one step, which
    may be longer than the window.
    """

    def __init__(self, window_ns: int) -> None:
        self._window_ns = window_ns
        self._last: dict[str, int] = {}
        self._known = False
        self._since_ns = 0
        self._now_ns = 0
        # When a step ended, and what grew in it.
        self._steps: deque[tuple[int, Grown]] = deque()

    def forget(self) -> None:
        """Begin anew: the device was gone."""
        self._last = {}
        self._known = False
        self._steps.clear()

    def observe(self, counts: Mapping[str, int], now_ns: int) -> None:
        """Observe the counters' values, by name."""
        last = self._last
        self._known = any(name in last for name in counts)
        if self._known:
            grown = tuple((n, v - last[n]) for n, v in counts.items() if v > last.get(n, v))
            self._steps.append((now_ns, grown))
        else:
            self._steps.clear()
            self._since_ns = now_ns
        while len(self._steps) > 1 and self._steps[0][0] <= now_ns - self._window_ns:
            self._since_ns = self._steps.popleft()[0]
        self._last = dict(counts)
        self._now_ns = now_ns

    def total(self) -> int | None:
        """Return what all of them grew by in the window; None before the second look."""
        if not self._known:
            return None
        return sum(by for _, grown in self._steps for _, by in grown)

    def largest(self) -> int | None:
        """Return what the one grew by that grew most: of counters that count the same events."""
        if not self._known:
            return None
        sums: dict[str, int] = {}
        for _, grown in self._steps:
            for name, by in grown:
                sums[name] = sums.get(name, 0) + by
        return max(sums.values(), default=0)

    def rate_hz(self) -> float | None:
        """Return events per second over the window; None before the second look."""
        total, span_ns = self.total(), self._now_ns - self._since_ns
        return None if total is None or span_ns <= 0 else total * 1e9 / span_ns
