"""The agent's time: both clocks read together, timers, and two rate limits.

Events are dated by the wall clock; durations are measured on the monotonic clock. Nothing but
`SystemClock` reads the time: everything else is given an `Instant`.
"""

from collections import deque
from time import monotonic_ns, time_ns
from typing import Final, NamedTuple, Protocol

from schemas.units import MS_NS, SECOND_NS

# Three readings take some 200 ns; more than this, and the process was preempted.
PAIR_NS: Final = 20_000
PAIR_ATTEMPTS: Final = 4
# Packets that left within this time are one entry of a `SecondLimit`: 1,000 entries at most.
MERGE_NS: Final = MS_NS
# Half the time of calling the class.
_new: Final = tuple.__new__


class Instant(NamedTuple):
    """One moment on both clocks; a tuple, since thousands are built each second.

    `monotonic_ns` never jumps, `realtime_ns` is nanoseconds since the epoch and
    jumps when somebody sets the clock; their difference changes only then
    (slewing moves both).
    """

    monotonic_ns: int
    realtime_ns: int

    @property
    def offset_ns(self) -> int:
        """Wall clock less monotonic clock."""
        return self.realtime_ns - self.monotonic_ns

    @property
    def epoch_us(self) -> int:
        """Microseconds since the epoch, as records carry them."""
        return self.realtime_ns // 1000


class Clock(Protocol):
    """What gives the agent's parts the time."""

    def now(self) -> Instant:
        """Return this moment."""
        ...


class SystemClock:
    """The operating system's clocks.

    A process may be preempted between the two readings. They would then be milliseconds apart, a
    responder would state a hold longer than the round trip, and a good reply would look bad. So
    the monotonic clock is read before and after, and a pair that took long is read again.
    """

    def now(self) -> Instant:
        """Return this moment."""
        # Called a thousand times a second: the usual case has no loop.
        before = monotonic_ns()
        realtime_ns = time_ns()
        after = monotonic_ns()
        if after - before > PAIR_NS:
            before, realtime_ns, after = _read_again(before, realtime_ns, after)
        # The wall clock was read in the middle: without this, kernel stamps would seem later.
        return _new(Instant, (after, realtime_ns + (after - before) // 2))


def _read_again(before: int, realtime_ns: int, after: int) -> tuple[int, int, int]:
    """Read the clocks again until both are read quickly, or give up; return the last reading."""
    for _ in range(1, PAIR_ATTEMPTS):
        before, realtime_ns, after = monotonic_ns(), time_ns(), monotonic_ns()
        if after - before <= PAIR_NS:
            break
    return before, realtime_ns, after


class IntervalTimer:
    """Expires once per interval; intervals that passed unnoticed are not made up for.

    Parameters
    ----------
    slack_ns : how much too early it may expire while the process is awake anyway: each wake-up
        that is saved is a tenth of a millisecond of a core
    """

    def __init__(self, interval_ns: int, now_ns: int, slack_ns: int = 0) -> None:
        self._interval_ns = interval_ns
        self._slack_ns = slack_ns
        self.due_ns = now_ns

    def expired(self, now_ns: int) -> bool:
        """Return whether it is time; if so, set the next time one interval later."""
        if now_ns < self.due_ns - self._slack_ns:
            return False
        self.due_ns = max(self.due_ns + self._interval_ns, now_ns + self._interval_ns // 2)
        return True


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

    def take_token(self, now_ns: int) -> bool:
        """Take a token; return whether there was one."""
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


class SecondLimit:
    """At most so many packets in any second, wherever the second begins.

    A `TokenBucket` allows its burst and its rate within one second; this is exact. A packet is
    recorded after it has left, so two packets that are `packets` apart left at least a second
    apart.

    >>> limit = SecondLimit(2)
    >>> limit.record_sent(2, 0)
    >>> limit.wait_ns(1, 400_000_000), limit.wait_ns(1, 1_000_000_000)
    (600000000, 0)
    """

    def __init__(self, packets: int) -> None:
        if packets < 1:
            raise ValueError(f"{packets} packets a second")
        self._limit = packets
        # Of packets that left within `MERGE_NS`: when the first and the last did, and how many.
        self._sent: deque[tuple[int, int, int]] = deque()
        self._count = 0

    def record_sent(self, packets: int, now_ns: int) -> None:
        """Record that packets have just left."""
        first_ns, merged = now_ns, packets
        if self._sent and now_ns - self._sent[-1][0] < MERGE_NS:
            first_ns, _, before = self._sent.pop()
            merged += before
        self._sent.append((first_ns, now_ns, merged))
        self._count += packets

    def wait_ns(self, packets: int, now_ns: int) -> int:
        """Return how long until so many packets may leave, nanoseconds; 0: now.

        More than the limit allows count as the limit.
        """
        while self._sent and self._sent[0][1] + SECOND_NS <= now_ns:
            self._count -= self._sent.popleft()[2]
        excess = self._count + min(packets, self._limit) - self._limit
        for _, last_ns, count in self._sent:
            if excess <= 0:
                break
            excess -= count
            wait_ns = last_ns + SECOND_NS - now_ns
            if excess <= 0:
                return wait_ns
        return 0
