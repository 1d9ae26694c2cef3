"""The agent's time: both clocks read together, timers, and a rate limit.

Events are dated by the wall clock; durations are measured on the monotonic clock. Nothing but
`SystemClock` reads the time: everything else is given an `Instant`.
"""

from time import monotonic_ns, time_ns
from typing import Final, NamedTuple, Protocol

# Three readings take some 200 ns; more than this, and the process was preempted.
PAIR_NS: Final = 20_000
PAIR_ATTEMPTS: Final = 4
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
