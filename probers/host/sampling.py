"""Samples the byte counters at ticks of the wall clock, one batch a second.

All hosts sample at the same moments, whole multiples of the tick since the epoch: the skeleton is
inferred from bursts that coincide on different hosts, or follow each other. A tick during which
the process was not scheduled is a sample without values.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from probers.clock import Instant
from probers.host.counters import Reading
from schemas.records import CounterSample

BATCH_NS: Final = 10**9
MISSED: Final = "tick missed: the agent was not scheduled"
# A process that slept longer, or whose clock was set forward, does not list what
# it missed.
MAX_MISSED_NS: Final = BATCH_NS


@dataclass(frozen=True, slots=True)
class Source:
    """An RNIC whose counters are read."""

    rail: int
    read: Callable[[], Reading]


@dataclass(frozen=True, slots=True)
class Batch:
    """The samples of one second."""

    started_ns: int
    samples: tuple[CounterSample, ...]


class Sampler:
    """Knows the next tick and gathers the samples of a second."""

    def __init__(self, tick_ns: int, sources: Mapping[str, Source]) -> None:
        self._tick_ns = tick_ns
        self._sources = sources
        self._next_ns: int | None = None
        self._started_ns: int | None = None
        self._samples: list[CounterSample] = []

    def due_ns(self, now: Instant) -> int:
        """Return when `tick` is to be called, on the monotonic clock as of now.

        To be asked again after each call: when the wall clock is set, the answer changes.
        """
        if self._next_ns is None or self._next_ns - now.realtime_ns > self._tick_ns:
            return now.monotonic_ns
        return now.monotonic_ns + max(0, self._next_ns - now.realtime_ns)

    def tick(self, now: Callable[[], Instant]) -> list[Batch]:
        """Sample the tick that has come, if one has; return the batches it completes."""
        at_ns = now().realtime_ns
        latest_ns = at_ns - at_ns % self._tick_ns
        due_ns = self._next_ns
        if due_ns is None or due_ns - at_ns > self._tick_ns:
            # The first call, or the clock was set back: what was gathered ends here,
            # and the ticks go on from the new time.
            self._next_ns = latest_ns + self._tick_ns
            return self._flush()
        if at_ns < due_ns:
            return []
        batches: list[Batch] = []
        if latest_ns - due_ns > MAX_MISSED_NS:
            batches.extend(self._flush())
            due_ns = latest_ns
        while due_ns < latest_ns:
            batches.extend(self._add(due_ns, None))
            due_ns += self._tick_ns
        batches.extend(self._add(latest_ns, now))
        self._next_ns = latest_ns + self._tick_ns
        if self._next_ns % BATCH_NS == 0:
            batches.extend(self._flush())
        return batches

    @classmethod
    def of(cls, tick_ns: int | None, sources: Mapping[str, Source]) -> "Sampler | None":
        """Return a sampler of these sources; None where there is nothing to sample."""
        return None if tick_ns is None or not sources else cls(tick_ns, sources)

    def _add(self, tick_ns: int, now: Callable[[], Instant] | None) -> list[Batch]:
        flushed: list[Batch] = []
        if self._started_ns is not None and tick_ns // BATCH_NS != self._started_ns // BATCH_NS:
            flushed = self._flush()
        if self._started_ns is None:
            self._started_ns = tick_ns
        for endpoint_id, source in self._sources.items():
            reading = source.read() if now is not None else Reading(None, None, 64, MISSED)
            delay_ns = None
            if now is not None and reading.missing_reason is None:
                delay_ns = max(0, now().realtime_ns - tick_ns)
            self._samples.append(
                CounterSample(
                    endpoint_id=endpoint_id,
                    rail=source.rail,
                    tick_offset_ns=tick_ns - self._started_ns,
                    read_delay_ns=delay_ns,
                    tx_bytes=reading.tx_bytes,
                    rx_bytes=reading.rx_bytes,
                    counter_bits=reading.bits,
                    missing_reason=reading.missing_reason,
                )
            )
        return flushed

    def _flush(self) -> list[Batch]:
        if self._started_ns is None:
            return []
        batch = Batch(self._started_ns, tuple(self._samples))
        self._started_ns, self._samples = None, []
        return [batch]
