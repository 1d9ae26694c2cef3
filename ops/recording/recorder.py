"""Kafka to files: contiguous ranges of offsets, and the latest state before them."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from ops.log.entry import Entry
from ops.log.read_range import ReadRange
from ops.log.reading import LogReader, Place, Range, now_ms
from ops.log.timespan import BEGINNING, Bound
from ops.recording.manifest import Manifest
from ops.recording.writer import RecordingWriter, prepare_folder
from schemas import topics as t
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.registry import codec_for
from schemas.topics import Topic

# Everything that worker, localizer and hang watcher read; their outputs are made again by a replay.
DEFAULT_TOPICS: Final[tuple[Topic, ...]] = (
    t.PROBE_ROUND,
    t.RNIC_COUNTERS,
    t.PATH_TRACE,
    t.ENDPOINT,
    t.HEARTBEAT,
    t.TASK,
    t.PINGLIST,
    t.TOPOLOGY,
    t.OVERLAY_FLOWS,
    t.COMPONENT_STATE,
    t.COLLECTIVE_COMM,
    t.COLLECTIVE_OP,
    t.COLLECTIVE_FLOW,
)
POLL_S: Final = 0.2
# What a SIGKILL may cost: the records of this long. A block of one second of a
# partition is still large enough to be compressed well.
FLUSH_MS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to record.

    In each partition: from the first record at or after `start` up to, without
    it, the first at or after `to`.
    """

    topics: tuple[Topic, ...] = DEFAULT_TOPICS
    start: Bound = BEGINNING
    to: Bound
    follow: bool = False
    codec: str = "deflate"


class Recorder:
    """Records until the request is met or `stop` says so."""

    def __init__(self, settings: KafkaSettings, request: Request, version: str | None) -> None:
        self._settings = settings
        self._request = request
        self._codec = codec_for(settings, bounded=False)
        self._topics = {settings.topic(topic.name): topic for topic in request.topics}
        self._version = version

    def run(
        self,
        folder: Path,
        stop: Callable[[], bool],
        progress: Callable[[Manifest], None] = lambda _manifest: None,
    ) -> Manifest:
        """Write the recording into `folder`, which is made.

        Raises
        ------
        NotEmptyError
            If there is something in the folder.
        UnknownTopicError
            If the broker lacks a topic.
        ConnectionError
            If the broker cannot be reached; what was read is kept.
        OSError
            If the disk is full; what was read is kept.
        """
        with LogReader(self._settings) as reader:
            ranges = reader.partitions(self._topics)
            starts = reader.offsets_at(ranges, self._request.start)
            prepare_folder(folder)
            writer = self._open(folder, ranges)
            session = _Session(reader, writer, self._topics, ranges, starts, stop)
            complete = False
            try:
                session.keep_state()
                session.keep_range(self._request, progress)
                complete = True
            finally:
                writer.close(complete=complete)
        progress(writer.manifest)
        return writer.manifest

    def _open(self, folder: Path, ranges: Collection[Place]) -> RecordingWriter:
        request = self._request
        manifest = Manifest(
            cluster=self._settings.cluster,
            recorded_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            from_ms=_time_of(request.start),
            to_ms=_time_of(request.to),
            codec=request.codec,
            producer_version=self._version,
        )
        writer = RecordingWriter(folder, manifest, self._codec)
        for name, topic in self._topics.items():
            writer.add_topic(topic, sum(1 for found, _ in ranges if found == name))
        return writer


@dataclass(frozen=True, slots=True)
class _Session:
    """One run: where each partition starts, and where its records go."""

    reader: LogReader
    writer: RecordingWriter
    topics: Mapping[str, Topic]
    ranges: Mapping[Place, Range]
    starts: Mapping[Place, int]
    stop: Callable[[], bool]

    def keep_state(self) -> None:
        """Keep what compacted topics said before the start: the latest record of each key."""
        before = {
            place: self.ranges[place].low
            for place, at in self.starts.items()
            if self.topics[place[0]].compacted and self.ranges[place].low < at
        }
        latest: dict[tuple[Place, bytes | None], Entry] = {}
        for place, entry in self.reader.read_to(before, self.starts):
            latest.pop((place, entry.key), None)
            latest[(place, entry.key)] = entry
            if self.stop():
                return
        for (place, _), entry in latest.items():
            # A tombstone at this point says no more than that there is nothing.
            if entry.value is not None:
                topic = self.topics[place[0]]
                self.writer.write_entry(topic, entry)
                self.writer.manifest.topics[topic.name].state += 1

    def keep_range(self, request: Request, progress: Callable[[Manifest], None]) -> None:
        """Keep what lies between the bounds."""
        highs = {place: r.high for place, r in self.ranges.items()}
        wanted = ReadRange(self.starts, highs, request.to, follow=request.follow)
        expected = dict(self.starts)
        self.reader.start({place: self.starts[place] for place in wanted.open})
        due_ms = now_ms() + FLUSH_MS
        while wanted.open and not self.stop():
            open_before = wanted.open
            for place, entry in self.reader.batch(POLL_S):
                if wanted.takes(place, entry.offset, entry.timestamp_ms):
                    self._note_gap(place, expected[place], entry.offset)
                    expected[place] = entry.offset + 1
                    self.writer.write_entry(self.topics[place[0]], entry)
            wanted.at_end(self.reader.ended, now_ms())
            if wanted.open != open_before:
                self.reader.pause(open_before - wanted.open)
            if now_ms() >= due_ms:
                self.writer.flush()
                progress(self.writer.manifest)
                due_ms = now_ms() + FLUSH_MS

    def _note_gap(self, place: Place, expected: int, found: int) -> None:
        """Count what retention deleted before it was read.

        Transactions leave gaps as well; only offsets below the low one are gone.
        """
        topic = self.topics[place[0]]
        if found > expected and not topic.compacted:
            gone = min(self.reader.range_of(place).low, found) - expected
            self.writer.manifest.topics[topic.name].expired += max(0, gone)


def _time_of(bound: Bound) -> int | None:
    return bound.at_ms if bound.place == "time" else None
