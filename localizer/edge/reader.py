"""Inputs of a process that decides: partitions read by assignment, and how far they reach.

A process reads every partition, since a verdict needs them all. What was decided is remembered
as committed offsets, with the time decided up to as their metadata, under the group in which
`schemas.kafka.leadership` says who decides.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
    cimpl,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from localizer.config import SECTION
from localizer.merge import Place
from schemas import topics
from schemas.kafka.clients import (
    METADATA_TIMEOUT_S,
    ask_until_answered,
    offsets_at,
    partitions_of,
    refusal_of,
)
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.errors import BrokerError
from schemas.kafka.leadership import role_group
from schemas.kafka.options import batched_fetch, reader_options
from schemas.kafka.unreadable import reported_once, step_over
from schemas.process.errors import CannotRunError
from schemas.process.lag import LogLag
from schemas.topics import Topic
from schemas.units import MS_NS

Answer = TypeVar("Answer")

# Read whole: their latest records say what the cluster is.
STATE_INPUTS: Final = (
    topics.ENDPOINT,
    topics.TASK,
    topics.PINGLIST,
    topics.TOPOLOGY,
    topics.OVERLAY_FLOWS,
    topics.COMPONENT_STATE,
    topics.COLLECTIVE_HANG,
)
# Read from the look-back: they say what happened.
LOG_INPUTS: Final = (topics.ANOMALY, topics.HEARTBEAT, topics.PATH_TRACE)


class StalledError(CannotRunError):
    """Nothing is read though there is something; a new process can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What a process reads.

    Attributes
    ----------
    role
        Name of its group.
    states
        Topics that are read whole: their latest records say what there is.
    logs
        Topics that are read from the look-back.
    marks
        The one of them at which it is remembered how far everything is decided.
    batch
        How many records it takes at once, at most.
    """

    role: str
    states: tuple[Topic, ...]
    logs: tuple[Topic, ...]
    marks: Topic
    batch: int = 500


LOCALIZER: Final = Inputs(role=SECTION, states=STATE_INPUTS, logs=LOG_INPUTS, marks=topics.ANOMALY)
POLL_S: Final = 0.03
FETCH_WAIT_MS: Final = 20
# Of a partition with each answer; a larger batch comes whole. A client unpacks an answer at once:
# of large ones it held some hundred megabytes, whose pages took as much time as what was done with
# them.
FETCHED_BYTES: Final = 2**20
# A client asks for no more while so much waits to be taken; what it has asked for comes on top.
# librdkafka asks for no more than this at once, either: it lowers `fetch.max.bytes` to it, which
# must have room for the largest message of a topic.
QUEUED_KBYTES: Final = 2 * topics.MAX_MESSAGE_BYTES // 1024
# A client whose queue is full looks again so often, each second by default: it would be empty long
# before.
QUEUE_BACKOFF_MS: Final = 10
# Nothing is decided meanwhile; the answer takes milliseconds when the broker is there.
ENDS_TIMEOUT_S: Final = 3.0
# A broker loads its coordinators within seconds of its start, on a busy machine within ten.
PATIENCE_S: Final = 30.0
LATEST: Final[Any] = cast(Any, OffsetSpec).latest()


class Reader:
    """Reads all partitions of the inputs and knows the next offset of each."""

    def __init__(self, settings: KafkaSettings, lag: LogLag, inputs: Inputs = LOCALIZER) -> None:
        self._settings = settings
        self._lag = lag
        self._inputs = inputs
        self._group = role_group(settings, inputs.role)
        self._names: dict[str, Topic] = {
            settings.topic(t.name): t for t in (*inputs.states, *inputs.logs)
        }
        self.read: dict[Place, int] = {}
        self._consumer = Consumer(
            reader_options(
                settings,
                self._group,
                defaults={
                    "fetch.message.max.bytes": FETCHED_BYTES,
                    "queued.max.messages.kbytes": QUEUED_KBYTES,
                    "fetch.queue.backoff.ms": QUEUE_BACKOFF_MS,
                    **batched_fetch(FETCH_WAIT_MS),
                },
            )
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
        BrokerError
            If the broker does not answer or topics are missing.
        """
        places = self._places()
        logs = [p for p in places if self._names[p[0]] in self._inputs.logs]
        self.read = dict.fromkeys(places, 0)
        decided_ns = self._patiently("committed offsets", self._committed_ns)
        begin = [
            TopicPartition(*p, OFFSET_BEGINNING)
            for p in places
            if self._names[p[0]] in self._inputs.states or decided_ns is None
        ]
        if decided_ns is not None:
            begin += self._since(logs, max(0, decided_ns - lookback_ns) // MS_NS)
        self._consumer.assign(begin)
        return decided_ns

    def decided_ns(self) -> int | None:
        """Return the time up to which the leader has decided; None: not known now."""
        try:
            return self._committed_ns()
        except KafkaException:
            return None

    def _places(self) -> list[Place]:
        found = partitions_of(self._consumer, self._settings, self._names.values())
        return [(name, p) for name, partitions in found.items() for p in partitions]

    def _committed_ns(self) -> int | None:
        marks = self._inputs.marks
        wanted = [TopicPartition(*p) for p in self.read if self._names[p[0]] is marks]
        committed = self._consumer.committed(wanted, timeout=METADATA_TIMEOUT_S)
        times = [int(text) for tp in committed if (text := tp.metadata or "").isdigit()]
        return min(times, default=None)

    def _since(self, places: list[Place], at_ms: int) -> list[TopicPartition]:
        return self._patiently("offsets by time", lambda: offsets_at(self._consumer, places, at_ms))

    def _patiently(self, what: str, ask: Callable[[], Answer]) -> Answer:
        """Ask until there is an answer: a broker that has just started has no coordinator yet."""
        try:
            return ask_until_answered(
                ask,
                patience_s=PATIENCE_S,
                retry_s=POLL_S,
                passing=None,
                stopping=self._hears_refusal,
            )
        except KafkaException as error:
            raise BrokerError(f"{what}: {error.args[0].str()}") from error

    def _hears_refusal(self) -> bool:
        """Raise AccessError if the group is refused: the client tells it to whoever polls alone."""
        for message in self._consumer.consume(self._inputs.batch, POLL_S):
            if (access := refusal_of(self._settings, message, self._group)) is not None:
                raise access
        return False

    def poll(self) -> list[Message]:
        """Return what has come; errors that pass by themselves are left out.

        Raises
        ------
        BrokerError
            On an error that does not pass.
        """
        good: list[Message] = []
        newest: dict[Place, Message] = {}
        self._lag.note_poll()
        heard = self._consumer.consume(self._inputs.batch, POLL_S)
        for message in reported_once(cimpl, heard, in_group=True):
            error = message.error()
            place = (str(message.topic()), int(message.partition() or 0))
            if error is None or step_over(cimpl, self._consumer, self._settings, message):
                good.append(message)
                newest[place] = message
                self.read[place] = int(message.offset() or 0) + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                self.read[place] = max(self.read.get(place, 0), int(message.offset() or 0))
                newest.pop(place, None)
                self._lag.note_end(self._names[place[0]].name, place[1])
            elif (access := refusal_of(self._settings, message, self._group)) is not None:
                raise access
            elif error.fatal():
                raise BrokerError(f"Kafka: {error.str()}")
        for (topic, partition), message in newest.items():
            arrived_ms = int(message.timestamp()[1])
            self._lag.note_record(self._names[topic].name, partition, arrived_ms)
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

    def position(self, decided_ns: int) -> list[TopicPartition]:
        """Return what is to be committed where all is decided up to a time."""
        return [
            TopicPartition(*place, offset, metadata=str(decided_ns))
            for place, offset in self.read.items()
            if self._names[place[0]] is self._inputs.marks
        ]

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()
