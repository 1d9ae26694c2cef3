"""A recording as the pages saw it: its records folded up to any moment of it."""

import threading
from array import array
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from typing import Final, TypeVar

from ops.log.decoding import BatchDecoder, SeenRecord
from ops.log.timespan import iso_ms
from ops.recording.container import DamageError
from ops.recording.source import Item
from ops.recording.source import Source as Recording
from ops.view.cluster import FOLDED, ClusterView
from ops.view.counters import HORIZON_MS, RnicCounters, read_counters
from ops.view.job_ranks import (
    LOOKBACK_MS,
    RANK_LOGS,
    RANK_STATES,
    JobNow,
    RankBook,
)
from ops.web.pages.page import UnknownItemError, Wanted
from ops.web.ranked import decoded, fold
from ops.web.source import Trouble, nothing
from schemas import topics as t
from schemas.codec import Codec
from schemas.topics import Topic

T = TypeVar("T")

# Of messages that are made here and taken here.
CODEC: Final = Codec()
WANTED: Final[tuple[Topic, ...]] = tuple(topic for topic in FOLDED if topic is not t.PROBE_ROUND)
# Of an incident alone; heartbeats and windows are most of a recording's records.
OF_INCIDENTS: Final[tuple[Topic, ...]] = tuple(
    topic for topic in WANTED if topic not in (t.HEARTBEAT, t.PROBE_WINDOW)
)
# Read where somebody looks, and only there.
ON_DEMAND: Final[tuple[Topic, ...]] = (t.RNIC_COUNTERS, *RANK_STATES, *RANK_LOGS)
# Copies of the view to go on from: a jump back folds no more than so many records anew.
STEP: Final = 20_000
MAX_COPIES: Final = 64
DAMAGED: Final = "what stands before the damage is shown"


@dataclass(frozen=True, slots=True)
class Due:
    """A record and when it was there, in milliseconds since the epoch."""

    at_ms: int
    item: Item


def in_time(recording: Recording, only: Sequence[Topic]) -> Iterator[Due]:
    """Yield the records of a recording by the time at which readers had them.

    That is their Kafka timestamp, but never before that of one which stands before it in its
    partition.
    """
    streams = (_due(items) for items in recording.others(CODEC, only))
    return merge(*streams, key=lambda due: due.at_ms)


def _due(items: Iterator[Item]) -> Iterator[Due]:
    latest_ms = 0
    for item in items:
        latest_ms = max(latest_ms, item.entry.timestamp_ms or 0)
        yield Due(latest_ms, item)


class RecordedSource:
    """The pages of a recording.

    Parameters
    ----------
    recording
        The opened recording.
    made
        Records to show beside those in it, by the time at which they count: verdicts made anew
        where it holds none.
    only
        Topics that are read.
    damage
        What was wrong with a file that `made` is of, and that is not read here.
    """

    def __init__(
        self,
        recording: Recording,
        made: Sequence[SeenRecord] = (),
        only: Sequence[Topic] = WANTED,
        damage: DamageError | None = None,
    ) -> None:
        self._recording = recording
        self._damage = damage
        self._only = only
        self._made = made
        self._decoder = BatchDecoder(CODEC)
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="recording", daemon=True)
        self._stopping = threading.Event()
        self._changed: Callable[[], None] = lambda: None
        self._records: list[Item | SeenRecord] = []
        self._times_ms = array("q")
        self._copies: list[tuple[int, ClusterView]] = [(0, ClusterView())]
        self._place, self._view = 0, ClusterView()
        self.folder: str | None = str(recording.folder)
        self.span_ms: tuple[int, int] | None = (0, 0)
        self.ready = False
        self.trouble: Trouble | None = None

    def start(self, changed: Callable[[], None]) -> None:
        """Begin to read."""
        self._changed = changed
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stopping.set()
        self._thread.join(timeout=5.0)

    @property
    def alive(self) -> bool:
        """Whether it can be looked at, or will be."""
        return self.ready or self._thread.is_alive()

    def read(self) -> None:
        """Read all of it now, in this thread."""
        self._run()

    def look(
        self,
        use: Callable[[ClusterView, int], T],
        at_ms: int | None = None,
        wanted: Callable[[ClusterView], Wanted] = nothing,
    ) -> T:
        """Return what a function makes of the view at a time; None: at the end."""
        first_ms, last_ms = self.span_ms or (0, 0)
        time_ms = last_ms if at_ms is None else at_ms
        if not first_ms <= time_ms <= last_ms:
            raise UnknownItemError(
                f"{iso_ms(time_ms)} is outside the recording",
                f"choose a time from {iso_ms(first_ms)} to {iso_ms(last_ms)}",
            )
        with self._lock:
            self._move(bisect_right(self._times_ms, time_ms))
            own = wanted(self._view)
            if own.agents:
                self._view.counters = self._counters(own.agents, time_ms)
            if own.jobs:
                self._view.ranks = self._ranks(own.jobs, time_ms)
            return use(self._view, time_ms)

    def _counters(self, agents: Collection[str], time_ms: int) -> RnicCounters:
        """Read what some agents counted before a time, from the file: all would be too much."""
        keys = {agent.encode() for agent in agents}
        found = RnicCounters()
        found.missing = f"the recording holds no {t.RNIC_COUNTERS.name} of them then"
        from_ms = time_ms - HORIZON_MS
        try:
            for entry in self._recording.between(t.RNIC_COUNTERS, from_ms, time_ms, CODEC):
                batch = read_counters(entry, CODEC) if entry.key in keys else None
                if batch is not None:
                    found.add(batch)
        except DamageError as damage:
            found.missing = str(damage)
        return found

    def _ranks(self, tasks: Collection[str], time_ms: int) -> RankBook:
        """Read where the ranks of some jobs stood at a time, from the file."""
        jobs = [JobNow.of(task) for task in tasks]
        found = RankBook()
        found.put(jobs)
        found.missing = f"the recording holds no {t.COLLECTIVE_OP.name} of it then"
        try:
            for topic in (*RANK_STATES, *RANK_LOGS):
                from_ms = time_ms - LOOKBACK_MS if topic in RANK_LOGS else 0
                for entry in self._recording.between(topic, from_ms, time_ms, CODEC):
                    fold(decoded(CODEC, topic, entry, jobs))
        except DamageError as damage:
            found.missing = str(damage)
        return found

    def _run(self) -> None:
        damages = list(self._recording.damages)
        if self._damage is not None:
            damages.append(self._damage)
        try:
            for at_ms, record in self._all():
                if self._stopping.is_set():
                    return
                self._times_ms.append(at_ms)
                self._records.append(record)
        except DamageError as damage:
            damages.append(damage)
        self.span_ms = self._bounds()
        if damages:
            self.trouble = Trouble(
                what="; ".join(map(str, damages)), todo=DAMAGED, since_ms=self.span_ms[1]
            )
        with self._lock:
            while self._place < len(self._records) and not self._stopping.is_set():
                self._fold(min(len(self._records), self._place + STEP))
        self.ready = True
        self._changed()

    def _all(self) -> Iterator[tuple[int, Item | SeenRecord]]:
        recorded = ((due.at_ms, due.item) for due in in_time(self._recording, self._only))
        made = ((record.timestamp_ms or 0, record) for record in self._made)
        return merge(recorded, made, key=lambda pair: pair[0])

    def _bounds(self) -> tuple[int, int]:
        """Return first and last moment: what a compacted topic said before is no part of it."""
        manifest = self._recording.manifest
        times = [at for at in self._times_ms if at > 0]
        last_ms = max(times, default=0)
        flowing = [
            at_ms
            for at_ms, record in zip(self._times_ms, self._records, strict=True)
            if at_ms > 0 and not record.topic.compacted
        ]
        first_ms = manifest.from_ms or min(flowing or times, default=0)
        return min(first_ms, last_ms), last_ms

    def _move(self, place: int) -> None:
        """Bring the view to so many records."""
        copy_place, copy = max(
            (one for one in self._copies if one[0] <= place), key=lambda one: one[0]
        )
        if not copy_place <= self._place <= place:
            self._place, self._view = copy_place, copy.copy()
        self._fold(place)

    def _fold(self, place: int) -> None:
        # The order between partitions does not matter to the view.
        recorded = []
        for record in self._records[self._place : place]:
            if isinstance(record, SeenRecord):
                self._view.apply(record)
            else:
                recorded.append((record.topic, record.entry))
        for seen in self._decoder.decode(recorded):
            self._view.apply(seen)
        self._place = place
        if place >= self._copies[-1][0] + STEP:
            self._copies.append((place, self._view.copy()))
            if len(self._copies) > MAX_COPIES:
                # Every second one: copies stay evenly far apart.
                del self._copies[1::2]
