"""The localizer's inputs: partitions read by assignment, and how far they reach.

No consumer group is joined: one process reads every partition, since a verdict
needs them all. What was decided is remembered as committed offsets, with the
time decided up to as their metadata, under a group of the cluster's.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from localizer.merge import Place
from schemas import topics
from schemas.avro import MAX_VALUE_BYTES
from schemas.kafka.connection import KafkaSettings
from schemas.process.errors import CannotRunError
from schemas.topics import Topic
from schemas.units import MS_NS

# Read whole: their latest records say what the cluster is.
STATE_INPUTS: Final = (
    topics.ENDPOINT,
    topics.TASK,
    topics.PINGLIST,
    topics.TOPOLOGY,
    topics.OVERLAY_FLOWS,
    topics.COMPONENT_STATE,
)
# Read from the look-back: they say what happened.
LOG_INPUTS: Final = (topics.ANOMALY, topics.HEARTBEAT, topics.PATH_TRACE)
BATCH: Final = 500
POLL_S: Final = 0.03
METADATA_TIMEOUT_S: Final = 10.0
# Nothing is decided meanwhile; the answer takes milliseconds when the broker is there.
ENDS_TIMEOUT_S: Final = 3.0
# A broker loads its coordinators within seconds of its start, on a busy machine within ten.
PATIENCE_S: Final = 30.0
LATEST: Final[Any] = cast(Any, OffsetSpec).latest()


class ReaderError(CannotRunError):
    """The broker or its topics are not as they must be; says what to do."""


class Reader:
    """Reads all partitions of the inputs and knows the next offset of each."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._group = f"{settings.topic_prefix}localizer-{settings.cluster}"
        self._names: dict[str, Topic] = {
            settings.topic(t.name): t for t in (*STATE_INPUTS, *LOG_INPUTS)
        }
        self.read: dict[Place, int] = {}
        self._consumer = Consumer(
            {
                "fetch.message.max.bytes": MAX_VALUE_BYTES,
                "fetch.wait.max.ms": 20,
                **settings.librdkafka(),
                "group.id": self._group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            }
        )
        # Kept for as long as its futures: a collected client never answers.
        self._admin = AdminClient(settings.librdkafka())

    def topic(self, message: Message) -> Topic:
        """Return the topic of a message."""
        return self._names[str(message.topic())]

    def assign(self, lookback_ns: int) -> int | None:
        """Begin to read; return the time up to which a former process has decided.

        Raises
        ------
        ReaderError
            If the broker does not answer or topics are missing.
        """
        places = self._places()
        logs = [p for p in places if self._names[p[0]] in LOG_INPUTS]
        decided_ns = self._decided_ns(p for p in logs if self._names[p[0]] is topics.ANOMALY)
        begin = [
            TopicPartition(*p, OFFSET_BEGINNING)
            for p in places
            if self._names[p[0]] in STATE_INPUTS or decided_ns is None
        ]
        if decided_ns is not None:
            begin += self._since(logs, max(0, decided_ns - lookback_ns) // MS_NS)
        self.read = dict.fromkeys(places, 0)
        self._consumer.assign(begin)
        return decided_ns

    def _places(self) -> list[Place]:
        try:
            found = self._consumer.list_topics(timeout=METADATA_TIMEOUT_S).topics
        except KafkaException as error:
            raise ReaderError(
                f"no Kafka broker answers at {self._settings.bootstrap}: {error.args[0].str()}"
            ) from error
        missing = sorted(n for n in self._names if n not in found or not found[n].partitions)
        if missing:
            raise ReaderError(
                f"missing topics: {', '.join(missing)}; run `skeletonhunter topics apply`"
            )
        return [(name, p) for name in self._names for p in sorted(found[name].partitions)]

    def _decided_ns(self, places: Iterable[Place]) -> int | None:
        wanted = [TopicPartition(*p) for p in places]
        committed = self._patiently(
            "committed offsets",
            lambda: self._consumer.committed(wanted, timeout=METADATA_TIMEOUT_S),
        )
        marks = [int(text) for tp in committed if (text := tp.metadata or "").isdigit()]
        return min(marks, default=None)

    def _since(self, places: list[Place], at_ms: int) -> list[TopicPartition]:
        wanted = [TopicPartition(*p, at_ms) for p in places]
        found = self._patiently(
            "offsets by time",
            lambda: self._consumer.offsets_for_times(wanted, timeout=METADATA_TIMEOUT_S),
        )
        for tp in found:
            tp.offset = tp.offset if tp.offset >= 0 else OFFSET_END
        return found

    @staticmethod
    def _patiently(what: str, ask: Callable[[], list[TopicPartition]]) -> list[TopicPartition]:
        """Ask until there is an answer: a broker that has just started has no coordinator yet."""
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                return ask()
            except KafkaException as error:
                if time.monotonic() > deadline_s:
                    raise ReaderError(f"{what}: {error.args[0].str()}") from error
                time.sleep(POLL_S)

    def poll(self) -> list[Message]:
        """Return what has come; errors that pass by themselves are left out.

        Raises
        ------
        ReaderError
            On an error that does not pass.
        """
        good = []
        for message in self._consumer.consume(BATCH, POLL_S):
            error = message.error()
            place = (str(message.topic()), int(message.partition() or 0))
            if error is None:
                good.append(message)
                self.read[place] = int(message.offset() or 0) + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                self.read[place] = max(self.read.get(place, 0), int(message.offset() or 0))
            elif error.fatal():
                raise ReaderError(f"Kafka: {error.str()}")
        return good

    def ends(self) -> dict[Place, int] | None:
        """Return the end offset of every partition now, None while the broker does not say."""
        wanted = {TopicPartition(*place): LATEST for place in self.read}
        futures: dict[Any, Any] = self._admin.list_offsets(wanted, request_timeout=ENDS_TIMEOUT_S)
        try:
            return {
                (tp.topic, tp.partition): int(future.result().offset)
                for tp, future in futures.items()
            }
        except KafkaException:
            # After a broker's restart an old client times out for ever: leave it.
            self._admin = AdminClient(self._settings.librdkafka())
            return None

    def remember(self, decided_ns: int) -> None:
        """Commit how far is decided; a failure is made good by the next time."""
        offsets = [
            TopicPartition(*place, offset, metadata=str(decided_ns))
            for place, offset in self.read.items()
            if self._names[place[0]] is topics.ANOMALY
        ]
        self._consumer.commit(offsets=offsets, asynchronous=True)

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()
