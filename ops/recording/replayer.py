"""Files to Kafka: writes a recording again, under a prefix of its own."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ops.log.entry import Entry, Headers
from ops.log.reading import LogReader
from ops.log.writing import LogWriter
from ops.recording.order import Slot, between, round_slots, slots
from ops.recording.source import Item, Source
from ops.topics.admin import TopicAdmin
from ops.topics.plan import FOREVER_MS, Create, Options, WantedTopic, wanted_topics
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.registry import codec_for
from schemas.topics import CREATE_TIME, LOG_APPEND_TIME, PROBE_ROUND, TOPICS, Topic

RUN_ID_HEADER: Final = "run_id"
ORIGIN_HEADER: Final = "replayed_from"
POLL_S: Final = 0.1
TIMESTAMP_TYPE: Final = "message.timestamp.type"


class ReplayRefusedError(RuntimeError):
    """The replay would mix with other records; the message says with which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """How to replay.

    `speed` is event time over wall-clock time; None: as fast as it goes.
    `from_ms` and `to_ms` bound the event time, milliseconds since the epoch.
    `topics` of the recording are written; rounds in any case.
    `unread`: nobody reads before all is written, so that no slot waits for the one before.
    """

    run_id: str
    speed: float | None = 1.0
    from_ms: int | None = None
    to_ms: int | None = None
    append: bool = False
    unread: bool = False
    replication_factor: int = 1
    topics: tuple[Topic, ...] = TOPICS


@dataclass(slots=True)
class Report:
    """What was written: records by topic, and the event time of the last slot."""

    records: dict[str, int] = field(default_factory=dict)
    event_ms: int | None = None
    stopped: bool = False

    @property
    def total(self) -> int:
        """Records of all topics."""
        return sum(self.records.values())


def wanted(
    prefix: str, partitions: Mapping[str, int], replication_factor: int
) -> tuple[WantedTopic, ...]:
    """Return the topics of a replay.

    Partition counts are the recorded ones; what the worker writes shares that of
    the rounds. Nothing is ever deleted or compacted: the records are old, and
    retention would take them away while they are still being read. The broker keeps
    the recorded timestamps.
    """
    options = Options(replication_factor=replication_factor, keep_all=True)
    topics = wanted_topics(prefix, options, TOPICS)
    by_name = {prefix + t.name: t for t in TOPICS}
    out = []
    for topic in topics:
        contract = by_name.get(topic.name)
        count = topic.partitions
        if contract is not None:
            # Not placed by its key: beside the rounds (see Topic.partitioned_by).
            beside_rounds = contract.partitioned_by != "the key"
            source = PROBE_ROUND if beside_rounds else contract
            count = partitions.get(source.name, count)
        config = {
            "cleanup.policy": "delete",
            "retention.ms": str(FOREVER_MS),
            "max.message.bytes": topic.config["max.message.bytes"],
            TIMESTAMP_TYPE: CREATE_TIME,
        }
        out.append(replace(topic, partitions=count, config=config))
    return tuple(out)


class Replayer:
    """Writes one recording to the topics of `settings.topic_prefix`.

    Raises
    ------
    ReplayRefusedError
        If there is no prefix.
    """

    def __init__(self, settings: KafkaSettings, source: Source, request: Request) -> None:
        if not settings.topic_prefix:
            raise ReplayRefusedError(
                "a replay needs a prefix of its own, so that live topics stay as they are"
            )
        self._settings = settings
        self._source = source
        self._request = request
        self._out = LogWriter(settings)
        self._made: list[str] = []
        self._cluster = source.manifest.cluster
        self._run_id = (RUN_ID_HEADER, request.run_id.encode())

    def prepare(self) -> None:
        """Make the topics, or check those that are there.

        Raises
        ------
        ReplayRefusedError
            If a topic holds records (and the request does not say append), has
            another partition count than the recording, or does not keep timestamps.
        """
        counts = {name: s.partitions for name, s in self._source.summaries.items()}
        topics = wanted(self._settings.topic_prefix, counts, self._request.replication_factor)
        admin = TopicAdmin(self._settings)
        found = admin.found(t.name for t in topics)
        odd = [
            f"{t.name} has {found[t.name].partitions} partitions, the recording {t.partitions}"
            for t in topics
            if t.name in found and found[t.name].partitions != t.partitions
        ]
        if odd:
            raise ReplayRefusedError("; ".join(odd))
        names = [self._settings.topic(t.name) for t in TOPICS]
        stamped = [
            name
            for name in names
            if name in found and found[name].config.get(TIMESTAMP_TYPE) == LOG_APPEND_TIME
        ]
        if stamped:
            raise ReplayRefusedError(
                f"{', '.join(stamped)}: the broker sets the timestamps, a replay keeps recorded "
                "ones; take another prefix, or `skeletonhunter topics apply --keep-all`"
            )
        if found and not self._request.append:
            with LogReader(self._settings) as reader:
                ranges = reader.partitions(list(found))
            full = sorted({name for (name, _), r in ranges.items() if not r.empty})
            if full:
                raise ReplayRefusedError(
                    f"{', '.join(full)} not empty: take another prefix, or --append"
                )
        changes = [Create(topic=t) for t in topics if t.name not in found]
        admin.apply(changes, self._request.replication_factor)
        self._made = [change.topic.name for change in changes]

    @property
    def fresh(self) -> bool:
        """Whether the topics were made by `prepare`."""
        return bool(self._made)

    def remove(self) -> None:
        """Delete the topics that `prepare` made; those that were there before stay."""
        TopicAdmin(self._settings).delete(self._made)

    def run(
        self,
        stop: Callable[[], bool],
        progress: Callable[[Report], None] = lambda _report: None,
    ) -> Report:
        """Write everything; each slot's rounds after all that they may rest on.

        Raises
        ------
        ConnectionError
            If the broker refused a record or could not be reached.
        """
        report = Report()
        request = self._request
        codec, source = codec_for(self._settings), self._source
        rounds, others = (
            [between(stream, request.from_ms, request.to_ms) for stream in streams]
            for streams in (source.rounds(codec), source.others(codec, request.topics))
        )
        pace = _Pace(request.speed)
        for slot in slots(round_slots(rounds), others):
            if stop() or not self._wait(pace.wait_s(slot), stop):
                report.stopped = True
                break
            for items in (slot.others, slot.rounds or []):
                self._write(items, report)
                if not request.unread:
                    self._out.flush()
            report.event_ms = slot.start_ms
            progress(report)
        self._out.flush()
        return report

    def _wait(self, wait_s: float, stop: Callable[[], bool]) -> bool:
        until = time.monotonic() + wait_s
        while (left_s := until - time.monotonic()) > 0:
            if stop():
                return False
            time.sleep(min(left_s, POLL_S))
        return True

    def _write(self, items: list[Item], report: Report) -> None:
        records = report.records
        for item in items:
            entry, name = item.entry, item.topic.name
            self._out.write(
                self._settings.topic(name),
                key=entry.key,
                value=entry.value,
                timestamp_ms=entry.timestamp_ms,
                partition=entry.partition,
                headers=self._headers(name, entry),
            )
            records[name] = records.get(name, 0) + 1

    def _headers(self, topic: str, entry: Entry) -> Headers:
        origin = f"{self._cluster}/{topic}[{entry.partition}]@{entry.offset}".encode()
        own = (self._run_id, (ORIGIN_HEADER, origin))
        if not entry.headers:
            return own
        kept = (h for h in entry.headers if h[0] not in (RUN_ID_HEADER, ORIGIN_HEADER))
        return (*kept, *own)


class _Pace:
    """When a slot is due: the first one with rounds, or of what is not state, is due at once."""

    def __init__(self, speed: float | None) -> None:
        self._speed = speed
        self._start: tuple[float, int] | None = None

    def wait_s(self, slot: Slot[list[Item], Item]) -> float:
        if self._speed is None:
            return 0.0
        if self._start is None:
            # State of compacted topics may be weeks older than what was recorded.
            if slot.rounds or any(not i.topic.compacted for i in slot.others):
                self._start = (time.monotonic(), slot.start_ms)
            return 0.0
        began_s, began_ms = self._start
        due_s = began_s + (slot.start_ms - began_ms) / 1000 / self._speed
        return max(0.0, due_s - time.monotonic())
