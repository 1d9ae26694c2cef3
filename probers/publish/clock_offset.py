"""How far the agent's wall clock is from the broker's. Pure.

The broker appends a record with its own time (LogAppendTime), and says it in the confirmation. The
record was appended between the agent's sending and the confirmation, so the broker's time is that
of the middle, give or take half of the time between them (as in NTP, RFC 5905).
"""

from collections import deque
from typing import Final, NamedTuple

from probers.clock import Instant
from schemas.units import MS_NS, SECOND_NS

WINDOW_NS: Final = 60 * SECOND_NS
SAMPLE_EVERY_NS: Final = SECOND_NS
# Fewer samples may all be of a moment at which the host was busy.
LEAST_SAMPLES: Final = 3
# A confirmation that took longer says too little.
MAX_ROUND_TRIP_NS: Final = SECOND_NS
# Kafka's timestamps are whole milliseconds, rounded down.
RESOLUTION_NS: Final = MS_NS


class Offset(NamedTuple):
    """The agent's clock less the broker's, and how far that may be off, nanoseconds.

    Without an offset `reason` says why.
    """

    offset_ns: int | None
    error_ns: int | None
    reason: str | None


class _Sample(NamedTuple):
    at_ns: int
    # Monotonic clock less the broker's: setting the wall clock does not change it.
    difference_ns: int
    error_ns: int


class ClockOffset:
    """The median over a minute of what confirmations say."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque()
        self._says_time = True

    def record_confirmed(self, sent: Instant, took_ns: int, appended_ms: int | None) -> None:
        """Observe a confirmation.

        Parameters
        ----------
        sent : when the record was handed to the client
        took_ns : how long after that the broker confirmed it
        appended_ms : the broker's time of appending, milliseconds since the epoch; None: it keeps
            the time that the writer gave
        """
        self._says_time = appended_ms is not None
        last_ns = self._samples[-1].at_ns if self._samples else None
        rested = last_ns is None or sent.monotonic_ns - last_ns >= SAMPLE_EVERY_NS
        if appended_ms is None or not rested or not 0 <= took_ns <= MAX_ROUND_TRIP_NS:
            return
        middle_ns = sent.monotonic_ns + took_ns // 2
        appended_ns = appended_ms * MS_NS + RESOLUTION_NS // 2
        self._samples.append(
            _Sample(sent.monotonic_ns, middle_ns - appended_ns, (took_ns + RESOLUTION_NS) // 2)
        )

    def latest_ns(self, now: Instant) -> int | None:
        """Return the offset by the latest confirmation alone; None: there was none lately."""
        if not self._samples or now.monotonic_ns - self._samples[-1].at_ns > WINDOW_NS:
            return None
        return self._samples[-1].difference_ns + now.offset_ns

    def estimate(self, now: Instant) -> Offset:
        """Return the offset by the samples of the last minute."""
        while self._samples and now.monotonic_ns - self._samples[0].at_ns > WINDOW_NS:
            self._samples.popleft()
        if len(self._samples) < LEAST_SAMPLES:
            reason = (
                f"{len(self._samples)} of {LEAST_SAMPLES} confirmations in the last minute"
                if self._says_time
                else "the broker does not say when it appended a record (message.timestamp.type)"
            )
            return Offset(None, None, reason)
        middle = len(self._samples) // 2
        difference_ns = sorted(s.difference_ns for s in self._samples)[middle]
        error_ns = sorted(s.error_ns for s in self._samples)[middle]
        return Offset(difference_ns + now.offset_ns, error_ns, None)
