"""Effective times of records, and the watermark up to which the core may decide.

Inputs come from many partitions at different speeds. The core must see them in one order, whether
live, after a restart or in a replay; it sorts them by effective time. So each record gets an
effective time from the log alone:

* an anomaly: its event time, but after the progress mark before it in its partition and not far
  after the next one. So no agent's clock puts anything off;
* a heartbeat or a trace: its timestamp;
* any other record: its timestamp, but not before an earlier record of the same key (a clock that
  was set back does not change the order).

Each anomaly partition carries progress marks: how far the worker has decided it. The watermark is
the least of the last marks of all partitions that are not idle. It counts once the service has read
all that the input partitions held when the mark was seen (`Barrier`). A partition without a mark is
not idle: a worker that starts on a backlog may finish one partition before it begins another, and
marks those without input as idle. If all are idle, the greatest mark counts.

Marks are times of arrival of rounds. One that is far ahead of its own arrival is none: it counts
as one that is not.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from localizer.config import GRID_NS
from localizer.facts.inputs import Event
from schemas import topics
from schemas.bounds import MAX_ARRIVAL_AHEAD_NS
from schemas.enums import AnomalyKind, AnomalyState
from schemas.records import Anomaly
from schemas.units import MS_NS, SECOND_NS, US_NS, us_to_ns

Place = tuple[str, int]
# Topics whose records may be applied in any order: one from the future holds back no later one.
UNORDERED: Final = frozenset({topics.HEARTBEAT.name, topics.PATH_TRACE.name})
# An anomaly before the first mark of its partition is at most so much older than the mark.
BEFORE_FIRST_NS: Final = 60 * SECOND_NS
# Keys of a topic are in order over so much time; a key that says nothing for longer is forgotten.
ORDERED_NS: Final = 300 * SECOND_NS
# How often they are looked for; marks come four times a second from every partition.
FORGET_NS: Final = 10 * SECOND_NS
# Anomalies of a partition that wait for its next mark; a worker marks four times a second.
MAX_UNMARKED: Final = 262_144


@dataclass(slots=True)
class _Progress:
    at_ns: int
    idle: bool


@dataclass(slots=True)
class Merge:
    """Gives records their effective times and follows the progress of the partitions.

    Attributes
    ----------
    watermark_ns
        Time up to which all can be decided; None before the first mark; never falls.
    refused
        Anomalies beyond the bound.
    """

    watermark_ns: int | None = None
    refused: int = 0
    _without_mark: set[int] = field(default_factory=set)
    _progress: dict[int, _Progress] = field(default_factory=dict)
    # Effective time of the last record by key, for each topic and partition; the least recently
    # seen key first.
    _latest_ns: dict[Place, dict[str, int]] = field(default_factory=dict)
    # Anomalies since the last mark of their partition.
    _unmarked: dict[int, list[Event]] = field(default_factory=dict)
    _next_forget_ns: int = 0

    def wait_for(self, partitions: Iterable[int]) -> None:
        """Hold the watermark until each of these anomaly partitions has had a mark."""
        self._without_mark |= set(partitions) - self._progress.keys()

    def accept_record(
        self,
        topic: str,
        key: str,
        record: Any,
        *,
        partition: int,
        offset: int,
        timestamp_ms: int,
    ) -> list[Event]:
        """Return the events that a record makes known.

        An anomaly becomes known with the next progress mark of its partition: such a mark returns
        the anomalies before it.

        Parameters
        ----------
        record
            The decoded record; None: a tombstone.
        partition, offset
            Its place; the records of a partition must come in order.
        timestamp_ms
            Timestamp of the Kafka record.
        """
        arrived_ns = timestamp_ms * MS_NS
        if topic == topics.ANOMALY.name and isinstance(record, Anomaly):
            at_ns = us_to_ns(record.event_at)
            if record.kind is AnomalyKind.PROGRESS:
                at_ns = min(at_ns, arrived_ns + MAX_ARRIVAL_AHEAD_NS)
            event = Event(at_ns, topic, key, partition, offset, record)
            unmarked = self._unmarked.setdefault(partition, [])
            if record.kind is not AnomalyKind.PROGRESS:
                if len(unmarked) < MAX_UNMARKED:
                    unmarked.append(event)
                else:
                    self.refused += 1
                return []
            known = self._progress.get(partition)
            # Up to the mark before all may be decided, or not: it counts after that in any case.
            after_ns = at_ns - BEFORE_FIRST_NS if known is None else known.at_ns + US_NS
            self._mark(partition, at_ns, idle=record.state is AnomalyState.IDLE)
            self._unmarked[partition] = []
            self._forget_silent_keys(at_ns)
            until_ns = self._progress[partition].at_ns + GRID_NS
            return [
                Event(
                    min(max(e.at_ns, after_ns), until_ns),
                    e.topic, e.key, e.partition, e.offset, e.record,
                )
                for e in unmarked
            ]  # fmt: skip
        if topic not in UNORDERED:
            arrived_ns = self._in_order((topic, partition), key, arrived_ns)
        return [Event(arrived_ns, topic, key, partition, offset, record)]

    def _in_order(self, place: Place, key: str, arrived_ns: int) -> int:
        """Return when a record takes effect: not before an earlier one of its key."""
        latest_ns = self._latest_ns.setdefault(place, {})
        at_ns = max(arrived_ns, latest_ns.pop(key, arrived_ns))
        latest_ns[key] = at_ns
        return at_ns

    def _forget_silent_keys(self, now_ns: int) -> None:
        if now_ns < self._next_forget_ns:
            return
        self._next_forget_ns = now_ns + FORGET_NS
        for latest_ns in self._latest_ns.values():
            while latest_ns:
                oldest = next(iter(latest_ns))
                if latest_ns[oldest] >= now_ns - ORDERED_NS:
                    break
                del latest_ns[oldest]

    def _mark(self, partition: int, at_ns: int, *, idle: bool) -> None:
        known = self._progress.get(partition)
        if known is not None:
            at_ns = max(at_ns, known.at_ns)
        self._progress[partition] = _Progress(at_ns, idle)
        self._without_mark.discard(partition)
        if self._without_mark:
            return
        active_ns = [p.at_ns for p in self._progress.values() if not p.idle]
        # All idle: everything that was read is decided, whichever partition ended last.
        bound_ns = min(active_ns) if active_ns else max(p.at_ns for p in self._progress.values())
        if bound_ns > (self.watermark_ns or 0):
            self.watermark_ns = bound_ns


@dataclass(frozen=True, slots=True)
class Barrier:
    """A watermark, and how far every partition must be read before it holds.

    Attributes
    ----------
    ends
        End offsets of all input partitions when the mark was seen.
    """

    watermark_ns: int
    ends: Mapping[Place, int]

    def passed(self, read: Mapping[Place, int]) -> bool:
        """Return whether everything before the ends has been read.

        Parameters
        ----------
        read
            Next offset of each partition.
        """
        return all(read.get(place, 0) >= end for place, end in self.ends.items())
