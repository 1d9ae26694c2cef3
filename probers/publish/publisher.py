"""The agent's only Kafka producer: never blocks, bounded, and drops the oldest records first.

librdkafka refuses *new* messages when its queue is full, but the latest matter most. So
librdkafka gets only a small window of messages, and the others wait in a `Backlog`. When that is
full, the messages queued in librdkafka, which are the oldest, are purged, and the oldest of the
backlog take their place. After an outage of any length the latest records are left.
"""

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from probers.clock import Clock, Instant, TokenBucket
from probers.publish import kafka_client
from probers.publish.backlog import Backlog, Message
from probers.publish.clock_offset import ClockOffset
from schemas import topics
from schemas.codec import Codec, DecodeError
from schemas.kafka.access import TELLING, AccessError, reason, refusal
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.deadletter import Headers, dead_letter, dead_letter_topic
from schemas.kafka.options import producer_options
from schemas.process.eventlog import EventLog
from schemas.topics import DLQ_MAX_MESSAGE_BYTES, Topic

# librdkafka's own queue: the largest message must fit into it. The window below bounds what is
# in it; measured during an outage: 29 MB of the process with a bound of 1 MB, 58 MB without any.
QUEUE_KBYTES: Final = 2 * DLQ_MAX_MESSAGE_BYTES // 1024
# Messages given to librdkafka and not yet acknowledged. A healthy agent has a
# handful; a window of half a second at 20 messages/s keeps the pipe full.
WINDOW_MESSAGES: Final = 32
WINDOW_BYTES: Final = 512 * 1024
# States have a window of their own: a heartbeat must not wait for the rounds of an outage.
WINDOW_STATES: Final = 16
# Not zstd, though a round of 80 results is a fifth smaller with it: librdkafka's consumers, who
# must guess how large such a batch will be, take 0.7 s of CPU to unpack a million results that came
# one round a batch, more than a worker needs for all else; of lz4 it is 0.05 s.
COMPRESSION: Final = "lz4"
# Rounds wait this long in our own queue in any case; librdkafka's default.
MESSAGE_TIMEOUT_MS: Final = 300_000
# Longer than a leader election takes on a healthy cluster, shorter than anybody
# takes to notice otherwise.
AWAY_AFTER_NS: Final = 3 * 10**9
# Records that cannot be decoded are copied to the dead-letter topic at this rate at most.
DEAD_LETTERS_HZ: Final = 1.0
DEAD_LETTER_BURST: Final = 50
# A larger one is kept by reference: it would drop the agent's own records from the queue.
MAX_DEAD_LETTER_BYTES: Final = 128 * 1024


@dataclass(slots=True)
class PublishCounts:
    """What became of what was published, since the start."""

    rounds_sent: int = 0
    results_sent: int = 0
    rounds_dropped: int = 0
    results_dropped: int = 0
    # By topic of the contract; rounds among them.
    dropped: Counter[str] = field(default_factory=Counter)
    dead_letters: int = 0
    dead_letters_withheld: int = 0
    producers_rebuilt: int = 0


class Publisher:
    """Encodes records and gets them to the broker.

    All methods return at once; `poll` is to be called some times a second.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        codec: Codec,
        clock: Clock,
        *,
        client_id: str,
        queue_bytes: int,
        log: EventLog,
    ) -> None:
        self._settings = settings
        self._codec = codec
        self._clock = clock
        self._log = log
        self._client_id = client_id
        self._backlog = Backlog(queue_bytes)
        self._dead_letter_budget = TokenBucket(DEAD_LETTERS_HZ, DEAD_LETTER_BURST)
        # Serial number -> message and when it was handed over; insertion order is age.
        self._in_flight: dict[int, tuple[Message, Instant]] = {}
        self._in_flight_bytes = 0
        self._states_in_flight = 0
        self._serial = 0
        self._all_down = False
        self._fatal = False
        self._confirmed = False
        self._access: AccessError | None = None
        # Endpoints whose registration the broker has taken since that was asked last.
        self._stored_endpoints: set[str] = set()
        # What was logged last of each: it comes again and again.
        self._said: dict[str, str] = {}
        self.counts = PublishCounts()
        self.clock_offset = ClockOffset()
        self._client = kafka_client.load()
        self._producer = self._connect()

    @property
    def waiting(self) -> int:
        """Messages that are not acknowledged yet."""
        return len(self._backlog) + len(self._in_flight)

    def broker_away(self) -> bool:
        """Whether nothing gets through: all brokers down, or no acknowledgement for 3 s."""
        if self._all_down:
            return True
        oldest = next(iter(self._in_flight.values()), None)
        return (
            oldest is not None
            and self._clock.now().monotonic_ns - oldest[1].monotonic_ns > AWAY_AFTER_NS
        )

    def publish(self, topic: Topic, key: str, record: Any, event_ns: int) -> None:
        """Queue a record; the oldest are dropped when there is no room."""
        self._add(topic, key, self._codec.encode(topic, record), event_ns, state=False)

    def publish_state(self, topic: Topic, key: str, record: Any | None, event_ns: int) -> None:
        """Queue the present state of a key, in place of one that still waits; None: a tombstone."""
        value = None if record is None else self._codec.encode(topic, record)
        self._add(topic, key, value, event_ns, state=True)

    def dead_letter(
        self, error: DecodeError, *, key: bytes | None, value: bytes, headers: Headers
    ) -> None:
        """Queue a poison record for its dead-letter topic, within the budget."""
        now = self._clock.now()
        if not self._dead_letter_budget.take_token(now.monotonic_ns):
            self.counts.dead_letters_withheld += 1
            return
        self.counts.dead_letters += 1
        letter = dead_letter(
            error,
            process="agent",
            key=key,
            value=value,
            headers=headers,
            max_bytes=MAX_DEAD_LETTER_BYTES,
        )
        self._queue(
            Message(
                topic=dead_letter_topic(self._settings.topic(error.topic)),
                kind=dead_letter_topic(error.topic),
                key=letter.key,
                value=letter.value,
                timestamp_ms=now.realtime_ns // 10**6,
                headers=letter.headers,
            )
        )

    def poll(self) -> None:
        """Serve acknowledgements and hand over what waits.

        Raises
        ------
        AccessError
            If Kafka refuses what is published, and never took anything. Of an agent that works
            some topics may be refused: it goes on, and says so.
        """
        self._serve_client()
        if self._access is not None and not self._confirmed:
            raise self._access
        if self._fatal:
            self._rebuild()
        self._hand_over()

    def take_stored_endpoints(self) -> set[str]:
        """Return the endpoints whose registrations the broker has taken since the last call."""
        stored, self._stored_endpoints = self._stored_endpoints, set()
        return stored

    def close(self, timeout_ns: int) -> int:
        """Wait for acknowledgements, that long at most; return how many are missing."""
        end_ns = self._clock.now().monotonic_ns + timeout_ns
        while self.waiting and self._clock.now().monotonic_ns < end_ns:
            self._hand_over()
            self._producer.poll(0.02)
        missing = self.waiting
        self._producer.purge()
        self._producer.poll(0)
        return missing

    def _connect(self) -> Any:
        config = producer_options(
            self._settings,
            defaults={
                **kafka_client.DEFAULTS,
                "linger.ms": 5,
                "compression.type": COMPRESSION,
                "queue.buffering.max.messages": 2 * (WINDOW_MESSAGES + WINDOW_STATES),
            },
            fixed={
                "client.id": self._client_id,
                "queue.buffering.max.kbytes": QUEUE_KBYTES,
                "message.timeout.ms": MESSAGE_TIMEOUT_MS,
                "error_cb": self._on_error,
            },
        )
        return self._client.Producer(config, logger=kafka_client.ClientLog(self._log))

    def _add(
        self, topic: Topic, key: str, value: bytes | None, event_ns: int, *, state: bool
    ) -> None:
        self._queue(
            Message(
                topic=self._settings.topic(topic.name),
                kind=topic.name,
                key=key.encode(),
                value=value,
                timestamp_ms=event_ns // 10**6,
                state=state,
            )
        )

    def publish_round(self, key: str, record: Any, event_ns: int) -> None:
        """Queue a round; its results are counted with it."""
        topic = topics.PROBE_ROUND
        self._queue(
            Message(
                topic=self._settings.topic(topic.name),
                kind=topic.name,
                key=key.encode(),
                value=self._codec.encode(topic, record),
                timestamp_ms=event_ns // 10**6,
                results=len(record.results),
            )
        )

    def _queue(self, message: Message) -> None:
        if not self._backlog.fits(message):
            self._producer.purge(in_queue=True, in_flight=False)
            self._producer.poll(0)
            self._hand_over()
        for dropped in self._backlog.enqueue(message):
            self._count_dropped(dropped)
        self._hand_over()

    def _hand_over(self) -> None:
        while (message := self._next_message()) is not None:
            self._serial += 1
            self._in_flight[self._serial] = (message, self._clock.now())
            self._in_flight_bytes += message.size_bytes
            self._states_in_flight += message.state
            try:
                self._producer.produce(
                    message.topic,
                    value=message.value,
                    key=message.key,
                    timestamp=message.timestamp_ms,
                    headers=message.headers,
                    on_delivery=partial(self._on_delivery, self._serial),
                )
            except (BufferError, self._client.KafkaException) as error:
                self._landed(self._serial)
                if isinstance(error, BufferError):
                    self._backlog.put_back(message)
                    return
                # Too large for the broker, say: the next one may not be.
                self._count_dropped(message)
                self._log.warning("record.refused", topic=message.topic, error=error)

    def _next_message(self) -> Message | None:
        records = len(self._in_flight) - self._states_in_flight
        return self._backlog.next_message(
            states=self._states_in_flight < WINDOW_STATES,
            records=records < WINDOW_MESSAGES and self._in_flight_bytes < WINDOW_BYTES,
        )

    def _on_delivery(self, serial: int, error: Any, confirmed: Any) -> None:
        _, sent = self._in_flight.get(serial, (None, None))
        message = self._landed(serial)
        if message is None:
            return
        if error is None:
            self._all_down = False
            self._confirmed = True
            if sent is not None:
                self._observe_confirmation(sent, confirmed)
            if message.kind == topics.PROBE_ROUND.name:
                self.counts.rounds_sent += 1
                self.counts.results_sent += message.results
            elif message.kind == topics.ENDPOINT.name and message.value and message.key:
                self._stored_endpoints.add(message.key.decode())
        elif access := refusal(self._settings, error, "Write", f"topic {message.topic}"):
            self._access = access
            self._count_dropped(message)
            self._say("access.refused", message.topic, str(access))
        elif message.state:
            self._backlog.put_back(message)
        else:
            self._count_dropped(message)
            self._log.debug("record.dropped", topic=message.topic, error=error)

    def _observe_confirmation(self, sent: Instant, confirmed: Any) -> None:
        """Learn the offset of the clock from the time at which the broker appended a record."""
        kind, appended_ms = confirmed.timestamp()
        latency_s = confirmed.latency()
        if latency_s is not None:
            by_broker = kind == self._client.TIMESTAMP_LOG_APPEND_TIME
            self.clock_offset.record_confirmed(
                sent, int(latency_s * 1e9), appended_ms if by_broker else None
            )

    def _landed(self, serial: int) -> Message | None:
        found = self._in_flight.pop(serial, None)
        if found is None:
            return None
        self._in_flight_bytes -= found[0].size_bytes
        self._states_in_flight -= found[0].state
        return found[0]

    def _count_dropped(self, message: Message) -> None:
        self.counts.dropped[message.kind] += 1
        if message.kind == topics.PROBE_ROUND.name:
            self.counts.rounds_dropped += 1
            self.counts.results_dropped += message.results

    def _say(self, event: str, about: str, reason: str) -> None:
        """Log a trouble unless it is what was said of the same last."""
        if self._said.get(about) != reason:
            self._said[about] = reason
            self._log.warning(event, reason=reason)

    def _on_error(self, error: Any) -> None:
        if error.code() in TELLING:
            self._say("broker.unreachable", "broker", reason(error))
        if error.code() == self._client.KafkaError._ALL_BROKERS_DOWN:
            self._all_down = True
        if error.fatal():
            self._on_fatal(error)

    def _on_fatal(self, error: Any) -> None:
        """Note that a producer never sends again: a new one does.

        An idempotent one lost its place, since a broker came back without its log; or it got none,
        since it may write to no topic at all.
        """
        self._fatal = True
        self._log.error("producer.fatal", error=error)
        topic = self._settings.topic(topics.PROBE_ROUND.name)
        self._access = refusal(self._settings, error, "Write", f"topic {topic}") or self._access

    def _serve_client(self) -> None:
        """Let the client hand over what has happened; some errors it raises instead."""
        try:
            self._producer.poll(0)
        except self._client.KafkaException as error:
            self._on_fatal(error.args[0])

    def _rebuild(self) -> None:
        self._producer.purge()
        self._serve_client()
        for serial in list(self._in_flight):
            message = self._landed(serial)
            if message is not None:
                self._count_dropped(message)
        self._producer = self._connect()
        self._fatal = False
        self.counts.producers_rebuilt += 1
