"""A clock that tests move by hand."""

from probers.clock import Instant

START_NS = 1_700_000_000 * 10**9


class ManualClock:
    """Stands still until told otherwise."""

    def __init__(self, monotonic_ns: int = 10**12, realtime_ns: int = START_NS) -> None:
        self.monotonic_ns = monotonic_ns
        self.realtime_ns = realtime_ns

    def now(self) -> Instant:
        """Return this moment."""
        return Instant(self.monotonic_ns, self.realtime_ns)

    def advance(self, by_ns: int) -> Instant:
        """Let time pass on both clocks."""
        self.monotonic_ns += by_ns
        self.realtime_ns += by_ns
        return self.now()

    def step(self, by_ns: int) -> Instant:
        """Set the wall clock."""
        self.realtime_ns += by_ns
        return self.now()
