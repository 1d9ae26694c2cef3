"""Effective times of records, and the watermark up to which the core may decide.

Inputs come from many partitions at different speeds. The core must see them in one order, whether
live, after a restart or in a replay; it sorts them by effective time. So each record gets an
effective time from the log alone:

* an anomaly: its event time, but not before the last progress mark ahead of it in its partition
  (what the worker reports late counts late);
* a heartbeat or a trace: its timestamp;
* any other record: its timestamp, but not before an earlier record of the same key (a clock that
  was set back does not change the order).

Each anomaly partition carries progress marks: how far the worker has decided it. The watermark is
the least of the last marks of all partitions that are not idle. It counts once the service has read
all that the input partitions held when the mark was seen (`Barrier`). A partition without a mark is
not idle: a worker that starts on a backlog may finish one partition before it begins another, and
marks those without input as idle. If all are idle, the greatest mark counts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from localizer.facts.inputs import Event
from schemas import topics
from schemas.enums import AnomalyKind, AnomalyState
from schemas.records import Anomaly
from schemas.units import MS_NS, us_to_ns

Place = tuple[str, int]
# Topics whose records may be applied in any order: one from the future holds back no later one.
UNORDERED: Final = frozenset({topics.HEARTBEAT.name, topics.PATH_TRACE.name})


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
    """

    watermark_ns: int | None = None
    _without_mark: set[int] = field(default_factory=set)
    _progress: dict[int, _Progress] = field(default_factory=dict)
    _latest_ns: dict[tuple[str, str], int] = field(default_factory=dict)

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
    ) -> Event | None:
        """Return the event of a record; None for a progress mark.

        Parameters
        ----------
        record
            The decoded record; None: a tombstone.
        partition, offset
            Its place; the records of a partition must come in order.
        timestamp_ms
            Timestamp of the Kafka record.
        """
        if topic == topics.ANOMALY.name and isinstance(record, Anomaly):
            at_ns = us_to_ns(record.event_at)
            known = self._progress.get(partition)
            if record.kind is AnomalyKind.PROGRESS:
                self._mark(partition, at_ns, idle=record.state is AnomalyState.IDLE)
                return None
            if known is not None:
                at_ns = max(at_ns, known.at_ns)
        elif topic in UNORDERED:
            at_ns = timestamp_ms * MS_NS
        else:
            at_ns = max(timestamp_ms * MS_NS, self._latest_ns.get((topic, key), 0))
            self._latest_ns[topic, key] = at_ns
        return Event(at_ns, topic, key, partition, offset, record)

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
