"""Follows the topics of a running cluster: one reader for all who look."""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, TypeVar

from ops.log.decoding import BatchDecoder, Seen
from ops.log.reading import (
    LogReader,
    Place,
    Range,
    RefusedError,
    UnknownTopicError,
    now_ms,
)
from ops.log.timespan import Bound
from ops.log.windows import SeenWindows
from ops.view.cluster import FOLDED, ClusterView
from ops.view.job_ranks import JobNow
from ops.web.counted import Batch, CounterFollower
from ops.web.pages.page import UnknownItemError, Wanted
from ops.web.ranked import RankFollower, Told, fold
from ops.web.source import Trouble, nothing
from schemas import topics as t
from schemas.codec import Codec
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.registry import RegistryError, codec_for
from schemas.process.lag import LogLag
from schemas.topics import Topic

T = TypeVar("T")

# Rounds are most of all bytes, and no page shows them one by one.
FOLLOWED: Final[tuple[Topic, ...]] = tuple(topic for topic in FOLDED if topic is not t.PROBE_ROUND)
# How far back a topic is read that is no state. Faults: a day, or as long as one says. Windows: two
# of 30 s, and the lateness. Heartbeats: those who are silent for longer have their registration.
BACK_MS: Final[Mapping[Topic, int]] = {
    t.HEARTBEAT: 900_000,
    t.PROBE_WINDOW: 120_000,
    t.ANOMALY: 3_600_000,
    t.PATH_TRACE: 3_600_000,
}
# A record waits so long for others to be read with it.
BATCH_S: Final = 0.05
# Records folded before somebody who wants to look gets a turn: 5 ms of heartbeats.
TURN: Final = 1_000
RETRY_S: Final = 2.0
AWAY: Final = "is the broker up, and --bootstrap right? It is tried again"
NO_REGISTRY: Final = "is it up, and schema.registry.url in the table kafka right? It is tried again"
# Nothing came for so long: is the broker there, and are topics that were missing?
QUIET_MS: Final = 2_000


class LiveSource:
    """A view of the topics as they are.

    Parameters
    ----------
    settings
        Broker, prefix, registry.
    faults_back_ms
        How far back transitions of faults are read.
    """

    folder: str | None = None
    span_ms: tuple[int, int] | None = None

    def __init__(self, settings: KafkaSettings, *, faults_back_ms: int) -> None:
        self._settings = settings
        self._back_ms = {**BACK_MS, t.FAULT_EVENT: faults_back_ms, t.INCIDENT_NOTE: faults_back_ms}
        self._view = ClusterView()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._changed: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)
        self._counters = CounterFollower(settings, self._count)
        self._ranks = RankFollower(settings, self._rank)
        self._targets: dict[Place, int] = {}
        self.lag = LogLag()
        self.records = {topic.name: 0 for topic in FOLLOWED}
        self.unreadable = dict(self.records)
        self.ready = False
        self._refused = False
        self.trouble: Trouble | None = None

    def start(self, changed: Callable[[], None]) -> None:
        """Begin to read; `changed` is called, in the reader's thread, when something came."""
        self._changed = changed
        self._thread.start()
        self._counters.start()
        self._ranks.start()

    def stop(self) -> None:
        """End the reader."""
        self._stopping.set()
        self._counters.stop()
        self._ranks.stop()
        self._thread.join(timeout=5.0)

    def look(
        self,
        use: Callable[[ClusterView, int], T],
        at_ms: int | None = None,
        wanted: Callable[[ClusterView], Wanted] = nothing,
    ) -> T:
        """Return what a function makes of the view and the present time."""
        if at_ms is not None:
            raise UnknownItemError(
                "this page shows the cluster as it is now, not at another time",
                "record it (`skeletonhunter record`) and open the recording: "
                "`skeletonhunter web --recording DIR`",
            )
        with self._lock:
            own = wanted(self._view)
            self._counters.want(own.agents)
            self._ranks.want(own.jobs)
            return use(self._view, now_ms())

    def _count(self, batches: Iterable[Batch], missing: str | None) -> None:
        """Take counters that somebody looks at, or why there are none."""
        with self._lock:
            for batch in batches:
                self._view.counters.add(batch)
            self._view.counters.missing = missing
        self._changed()

    def _rank(self, jobs: Collection[JobNow], told: Iterable[Told], missing: str | None) -> None:
        """Take what jobs' ranks told that somebody looks at, or why there is nothing."""
        with self._lock:
            fold(told)
            self._view.ranks.put(jobs)
            self._view.ranks.missing = missing
        self._changed()

    @property
    def alive(self) -> bool:
        """Whether the reader runs."""
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._read()
        except Exception as error:
            # A page that stands still must not look as if it moved.
            self._say(f"the reader ended: {error!r}", "restart `skeletonhunter web`; see its log")
            raise

    def _read(self) -> None:
        while not self._stopping.is_set():
            try:
                codec = codec_for(self._settings)
                with LogReader(self._settings) as reader:
                    self._follow(reader, codec)
            except (ConnectionError, RegistryError, UnknownTopicError, OSError) as error:
                self._note_refused(isinstance(error, RefusedError))
                self._say(str(error), NO_REGISTRY if isinstance(error, RegistryError) else AWAY)
                self._stopping.wait(RETRY_S)

    def _note_refused(self, refused: bool) -> None:
        """Note whether something may not be read: who sees nothing for that is not ready."""
        self._refused = refused
        self.ready &= not refused

    def _say(self, what: str, todo: str) -> None:
        known = self.trouble
        if known is None or known.what != what:
            since_ms = now_ms() if known is None else known.since_ms
            self.trouble = Trouble(what=what, todo=todo, since_ms=since_ms)
            self._changed()

    def _follow(self, reader: LogReader, codec: Codec) -> None:
        """Read until the end, or until a topic that was missing is there."""
        there = reader.topics()
        wanted = {self._settings.topic(topic.name): topic for topic in FOLLOWED}
        missing = [name for name in wanted if name not in there]
        ranges = reader.partitions([name for name in wanted if name in there])
        starts = self._starts(reader, ranges, wanted)
        # Of an empty one its end: it tells that it may be read.
        self._targets = {place: max(r.high, 1) for place, r in ranges.items()}
        reader.start(starts)
        if missing:
            what = reader.refusal(missing)
            self._note_refused(what is not None)
            todo = "what they hold is missing on the pages"
            if what is None:
                what = f"no topic {', '.join(missing)} on {self._settings.bootstrap}"
                todo = f"run `skeletonhunter topics apply`; {todo}"
            self._say(what, todo)
        else:
            self._well()
        decoder = BatchDecoder(codec)
        began_ms = quiet_ms = now_ms()
        while not self._stopping.is_set():
            entries = reader.batch(BATCH_S)
            # What is refused is told at once: by now it would have been.
            self._refused &= bool(missing) or now_ms() - began_ms < QUIET_MS
            self.lag.note_poll()
            for first in range(0, len(entries), TURN):
                turn = entries[first : first + TURN]
                self._take(decoder.decode((wanted[place[0]], entry) for place, entry in turn))
            for name, partition in reader.ended:
                self.lag.note_end(wanted[name].name, partition)
            self._note_targets(reader)
            if entries:
                quiet_ms = now_ms()
                self._changed()
                if not missing:
                    self._well()
            elif reader.away is not None:
                self._say(reader.away, AWAY)
            if missing or now_ms() - quiet_ms > QUIET_MS:
                # Raises if the broker is away.
                there = reader.topics()
                quiet_ms = now_ms()
                if missing and any(name in there for name in missing):
                    return
                if not missing:
                    self._well()

    def _take(self, seen: Iterable[Seen]) -> None:
        told = list(seen)
        with self._lock:
            for one in told:
                self._view.apply(one)
        for one in told:
            name = one.topic.name
            if isinstance(one, SeenWindows):
                self.records[name] += len(one)
                self.lag.note_record(name, one.partition, int(one.timestamps_ms[-1]))
                continue
            self.records[name] += 1
            self.unreadable[name] += one.refused is not None
            if one.timestamp_ms is not None:
                self.lag.note_record(name, one.partition, one.timestamp_ms)

    def _well(self) -> None:
        if self.trouble is not None and not self._refused:
            self.trouble = None
            self._changed()

    def _starts(
        self, reader: LogReader, ranges: Mapping[Place, Range], wanted: Mapping[str, Topic]
    ) -> dict[Place, int]:
        """Return where to read on; where nothing was read yet, as far back as the topic needs."""
        known = dict(self._view.positions)
        gone = [
            place
            for place, r in ranges.items()
            if known.get((wanted[place[0]].name, place[1]), 0) > r.high
        ]
        if gone:
            # The topics were made anew: what was known is of others.
            with self._lock:
                self._view = ClusterView()
            known = {}
        starts: dict[Place, int] = {}
        for name, topic in wanted.items():
            own = {place: r for place, r in ranges.items() if place[0] == name}
            back_ms = self._back_ms.get(topic)
            at = "beginning" if back_ms is None else "time"
            bound = Bound(at, now_ms() - (back_ms or 0))  # type: ignore[arg-type]
            first = reader.offsets_at(own, bound)
            starts |= {
                place: max(r.low, known.get((topic.name, place[1]), first[place]))
                for place, r in own.items()
            }
        return starts

    def _note_targets(self, reader: LogReader) -> None:
        """Note whether all that was there at the start has been read."""
        if self.ready or not self._targets:
            if not (self._targets or self.ready or self._refused):
                with self._lock:
                    self._view.prepare()
                self.ready = True
                self._changed()
            return
        ended = reader.ended
        positions = self._view.positions
        prefix = len(self._settings.topic_prefix)
        self._targets = {
            place: high
            for place, high in self._targets.items()
            if place not in ended and positions.get((place[0][prefix:], place[1]), 0) < high
        }
