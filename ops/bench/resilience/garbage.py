"""Garbage up to a topic's greatest message, on each input: a dead letter each, nothing stops."""

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from ops.bench.resilience.stage import Stage
from ops.bench.rig.report import Figure, Parts, Say, figure
from ops.log.watch import WatchedRecord
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.deadletter import ORIGIN_PREFIX
from schemas.kafka.options import producer_options, reader_options
from schemas.topics import MAX_MESSAGE_BYTES, OPS, TOPICS, Topic

STAGE: Final = "garbage"
# A record's key and headers, and the batch around it, must fit, too.
SIZES: Final = (1, 1_500_000, MAX_MESSAGE_BYTES - 200)
# What is far larger than a message of its topic may be, and compressed is not.
COMPRESSED_BYTES: Final = 3 * MAX_MESSAGE_BYTES
# More than a client inflates (`receive.message.max.bytes`); some kilobytes on the wire.
INFLATING_BYTES: Final = 120_000_000
GARBAGE_BAR_S: Final = 1.0
LETTERS_TIMEOUT_S: Final = 20.0
FLUSH_S: Final = 60.0
READ: Final = 100
# As processes call themselves in dead letters.
PROCESSES: Final = {"skeleton job": "skeleton"}

# Offset of a message, and who could not use it.
Letter = tuple[int, str]


@dataclass(slots=True)
class Outcome:
    """What became of one piece of garbage and the small one behind it.

    Attributes
    ----------
    missing
        Processes that wrote no dead letter of it.
    twice
        Processes that wrote several.
    delay_s
        From its append until the slowest reader refused what stands behind it; None: never.
    """

    missing: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    delay_s: float | None = None


class Thrower:
    """Publishes garbage, knows its offsets, reads the dead letters."""

    def __init__(self, stage: Stage, topic: Topic, place: WatchedRecord, reader: Consumer) -> None:
        self._settings: KafkaSettings = stage.settings
        self._topic = topic
        self._place = place
        self._reader = reader
        self._stage = stage
        self._appended: list[tuple[int, int]] = []
        self._letters: dict[Letter, list[int]] = {}

    @property
    def readers(self) -> list[str]:
        """Processes that read the topic all the time."""
        return [PROCESSES.get(name, name) for name in self._topic.consumers if name != OPS]

    def throw(self, value: bytes, compression: str = "none") -> Outcome:
        """Publish garbage and a small piece behind it; wait for the dead letters of both."""
        limit = {"message.max.bytes": 2 * INFLATING_BYTES, "compression.type": compression}
        producer = Producer(producer_options(self._settings, fixed=limit))
        self._appended.clear()
        for each in (value, b"behind"):
            producer.produce(
                self._settings.topic(self._topic.name), each, key=self._place.key,
                partition=self._place.partition, on_delivery=self._delivered,
            )  # fmt: skip
            # In one batch they would be one message too large.
            producer.flush(FLUSH_S)
        (offset, at_ms), (behind, _) = self._appended
        deadline = time.monotonic() + LETTERS_TIMEOUT_S
        while self._missing(offset) + self._missing(behind) and time.monotonic() < deadline:
            self._read()
        delays_ms = [self._letters[behind, name][0] - at_ms for name in self.readers
                     if (behind, name) in self._letters]  # fmt: skip
        whole = len(delays_ms) == len(self.readers)
        return Outcome(
            missing=self._missing(offset),
            twice=[n for n in self.readers if n != "agent" and len(self._of(offset, n)) > 1],
            delay_s=max(delays_ms) / 1e3 if whole else None,
        )

    def _of(self, offset: int, name: str) -> list[int]:
        return self._letters.get((offset, name), [])

    def _missing(self, offset: int) -> list[str]:
        return [name for name in self.readers if not self._of(offset, name)]

    def _read(self) -> None:
        for message in self._reader.consume(READ, 0.05):
            if message.error() is None:
                self._note(message)
        self._stage.listen(0)

    def _note(self, message: Message) -> None:
        headers = dict(message.headers() or [])
        origin = {}
        for name in ("partition", "offset", "connector.name"):
            value = headers.get(ORIGIN_PREFIX + name) or b""
            origin[name] = value.decode() if isinstance(value, bytes) else value
        if origin["partition"] == str(self._place.partition):
            letter = int(origin["offset"]), origin["connector.name"]
            self._letters.setdefault(letter, []).append(message.timestamp()[1])

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise RuntimeError(f"{self._topic.name}: {error.str()}")
        self._appended.append((message.offset() or 0, message.timestamp()[1]))


@contextmanager
def dead_letters(settings: KafkaSettings, topic: Topic) -> Iterator[Consumer]:
    """Give a reader of a topic's dead letters from now on."""
    name = settings.topic(topic.dlq)
    reader = Consumer(reader_options(settings))
    try:
        found = reader.list_topics(name, timeout=FLUSH_S).topics[name].partitions
        places = [TopicPartition(name, p) for p in found]
        for place in places:
            place.offset = reader.get_watermark_offsets(place, timeout=FLUSH_S)[1]
        reader.assign(places)
        yield reader
    finally:
        reader.close()


def garbage(runs: int, say: Say) -> list[Figure]:
    """Throw garbage at every topic that a process reads all the time; then cut a link."""
    del runs  # All topics, once.
    found: list[Outcome] = []
    with Stage(STAGE) as stage:
        since, since_s = stage.signs(), time.monotonic()
        for topic in TOPICS:
            places = stage.records_of(topic)
            if not places or set(topic.consumers) <= {OPS} or topic.name.startswith("fault"):
                continue
            with dead_letters(stage.settings, topic) as reader:
                thrower = Thrower(stage, topic, places[0], reader)
                here = [thrower.throw(os.urandom(size)) for size in SIZES]
                here.append(thrower.throw(bytes(COMPRESSED_BYTES), "lz4"))
                here.append(thrower.throw(bytes(INFLATING_BYTES), "zstd"))
            found += here
            delays = ", ".join("never" if o.delay_s is None else f"{o.delay_s:.2f} s" for o in here)
            lacking = Counter(name for o in here for name in o.missing)
            say(f"{topic.name}: read by {', '.join(thrower.readers)}; on after {delays}; "
                f"without a dead letter: {dict(lacking)}")  # fmt: skip
        cut = stage.cut()
        say(str(cut))
        stuck = sorted({*stage.ended(), *stage.hung(since, since_s)})
    what = f"{len(found)} pieces of garbage up to {INFLATING_BYTES / 1e6:.0f} MB"
    delays_s = [o.delay_s for o in found if o.delay_s is not None]
    never = [o for o in found if o.delay_s is None]
    return [
        figure(f"{what}: read on after, worst", [] if never else delays_s, "s", GARBAGE_BAR_S,
               worst=True),
        figure(f"{what}: dead letters missing or double",
               [float(sum(len(o.missing) + len(o.twice) for o in found))], "", 0.0),
        figure(f"{what}: processes ended or hung", [float(len(stuck))], "", 0.0),
    ]  # fmt: skip


PARTS: Final[Parts] = {"garbage": garbage}
