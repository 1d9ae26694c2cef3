"""Samples the byte counters at ticks of the wall clock, one batch a second.

All hosts sample at the same moments, whole multiples of the tick since the epoch: the skeleton is
inferred from bursts that coincide on different hosts, or follow each other. A tick during which
the process was not scheduled is a sample without values. Somebody else may read the files at the
ticks (`ticks`, `take`): the agent's code in C does, while the agent sleeps.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from probers.clock import Instant
from probers.host.counters import Reading
from schemas.records import CounterSample

BATCH_NS: Final = 10**9
MISSED: Final = "tick missed: the agent was not scheduled"
_MISSED: Final = Reading(None, None, 64, MISSED)
# A process that slept longer, or whose clock was set forward, does not list what
# it missed.
MAX_MISSED_NS: Final = BATCH_NS


# At a tick of the wall clock (nanoseconds since the epoch) what each RNIC's files said: units sent
# and received, and how long after the tick; None: they could not be read so.
Tick = tuple[int, tuple[tuple[int, int, int] | None, ...]]
# For somebody else who reads: the next tick, how far ticks are apart, and each RNIC's descriptors.
Ticks = tuple[int, int, tuple[tuple[tuple[int, ...], tuple[int, ...]] | None, ...]]
# Of how many RNICs somebody else reads the files.
MAX_SOURCES: Final = 64


class Counters(Protocol):
    """The counters of an RNIC: `probers.host.counters.CounterFiles`."""

    @property
    def descriptors(self) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Open files of what was sent, and received."""
        ...

    def read(self) -> Reading:
        """Return what they say now."""
        ...

    def reading(self, tx_units: int, rx_units: int) -> Reading:
        """Return what numbers mean that were read from `descriptors`."""
        ...


@dataclass(frozen=True, slots=True)
class Source:
    """An RNIC whose counters are read."""

    rail: int
    counters: Counters


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
        sources = self._sources.values()
        while due_ns < latest_ns:
            batches.extend(self._add(due_ns, [(_MISSED, None)] * len(sources)))
            due_ns += self._tick_ns
        batches.extend(self._add(latest_ns, [_read(source, latest_ns, now) for source in sources]))
        return batches + self._passed(latest_ns)

    def ticks(self) -> Ticks | None:
        """Return what somebody else needs to sample in place of `tick`; None: it cannot.

        To be asked again whenever that somebody was not at it.
        """
        if self._next_ns is None or len(self._sources) > MAX_SOURCES:
            return None
        files = tuple(source.counters.descriptors for source in self._sources.values())
        return self._next_ns, self._tick_ns, files

    def take(self, taken: Sequence[Tick], now: Callable[[], Instant]) -> list[Batch]:
        """Take the samples of ticks that somebody else has read, one after the other.

        What could not be read so is read here, and has a reason if that fails, too.
        """
        batches: list[Batch] = []
        for tick_ns, units in taken:
            readings = []
            for source, found in zip(self._sources.values(), units, strict=True):
                reading = None if found is None else source.counters.reading(*found[:2])
                readings.append(
                    _read(source, tick_ns, now)
                    if reading is None or found is None
                    else (reading, None if reading.missing_reason is not None else found[2])
                )
            batches.extend(self._add(tick_ns, readings))
            batches.extend(self._passed(tick_ns))
        return batches

    @classmethod
    def of(cls, tick_ns: int | None, sources: Mapping[str, Source]) -> "Sampler | None":
        """Return a sampler of these sources; None where there is nothing to sample."""
        return None if tick_ns is None or not sources else cls(tick_ns, sources)

    def _passed(self, tick_ns: int) -> list[Batch]:
        """Go on to the tick after that one; with the last of a second its batch is complete."""
        self._next_ns = tick_ns + self._tick_ns
        return self._flush() if self._next_ns % BATCH_NS == 0 else []

    def _add(self, tick_ns: int, readings: list[tuple[Reading, int | None]]) -> list[Batch]:
        """Add the samples of a tick, each with how long after it they were read."""
        flushed: list[Batch] = []
        if self._started_ns is not None and tick_ns // BATCH_NS != self._started_ns // BATCH_NS:
            flushed = self._flush()
        if self._started_ns is None:
            self._started_ns = tick_ns
        for (endpoint_id, source), (reading, delay_ns) in zip(
            self._sources.items(), readings, strict=True
        ):
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


def _read(source: Source, tick_ns: int, now: Callable[[], Instant]) -> tuple[Reading, int | None]:
    """Read an RNIC's counters; return how long after the tick that was done as well."""
    reading = source.counters.read()
    if reading.missing_reason is not None:
        return reading, None
    return reading, max(0, now().realtime_ns - tick_ns)
