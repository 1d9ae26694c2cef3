"""Reads topics from their beginning, without a consumer group.

Of a personal topic (`schemas.topics.Topic.personal`) only the partition that the agent's id
chooses is read, of any other topic all partitions. They are compacted: read from the beginning
they are the present state, and every agent needs its own reading of it. An offset that was seen
before is marked as replayed when the topic is read again.
"""

import threading
from typing import Any, Final

from probers.clock import Clock
from probers.lists.inbox import Record
from probers.publish import kafka_client
from schemas import topics
from schemas.kafka.access import AccessError, refusal
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.murmur2 import partition_of
from schemas.kafka.options import reader_options
from schemas.kafka.unreadable import reported_once, step_over
from schemas.process.eventlog import EventLog
from schemas.topics import Topic

# How often the partitions are asked for until the broker tells them. The question
# blocks the agent's only thread, but before the answer it has nobody to probe.
ASK_EVERY_NS: Final = 2 * 10**9
ASK_TIMEOUT_S: Final = 0.3
# A topic that one can do without, and that was not there or was refused, is looked for so often. A
# question then waits behind a fetch that waits for records: in a thread, the agent goes on.
LOOK_EVERY_NS: Final = 60 * 10**9
LOOK_TIMEOUT_S: Final = 2.0
# Many more than any topic of the contract has; ends the question in any case.
MAX_PARTITIONS: Final = 2**16
# Without it an agent reads registrations where all agents publish theirs, as before an upgrade.
OPTIONAL: Final = (topics.TARGET,)
# Records taken in one turn of the loop.
MAX_RECORDS_AT_ONCE: Final = 200
# What librdkafka fetches ahead: a ping list of a thousand targets has 100 KB.
FETCH_BYTES: Final = 256 * 1024
QUEUED_KBYTES: Final = 512
# A record that is larger than this queue must not hold back the next one for a second, as it does
# by default.
QUEUE_BACKOFF_MS: Final = 50
# An idle fetch waits at the broker, where a new record ends the wait at once; but a
# partition that joins (at the start, or to be read again) waits for the next fetch.
FETCH_WAIT_MS: Final = 500


class TopicReader:
    """Reads some topics; nothing here blocks but the first question for partitions.

    Parameters
    ----------
    followed : topics that are read from the start
    others : topics that may be followed later; they are asked for at the start, too
    client_id : the agent's id
    """

    def __init__(
        self,
        settings: KafkaSettings,
        clock: Clock,
        followed: tuple[Topic, ...],
        *,
        others: tuple[Topic, ...] = (),
        client_id: str,
        log: EventLog,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._log = log
        self._agent_key = client_id.encode()
        self._topics = {settings.topic(topic.name): topic for topic in (*followed, *others)}
        self._followed = {settings.topic(topic.name) for topic in followed}
        # Partitions to read of each topic; none of one that is not there.
        self._places: dict[str, list[int]] = {}
        self._client = kafka_client.load()
        self._not_there = frozenset(
            {
                self._client.KafkaError._UNKNOWN_PARTITION,
                self._client.KafkaError._UNKNOWN_TOPIC,
                self._client.KafkaError.UNKNOWN_TOPIC_OR_PART,
            }
        )
        self._seen: dict[tuple[str, int], int] = {}
        self._unread: dict[str, set[int]] = {}
        self._assigned = False
        self._ask_ns = 0
        # When topics that one can do without are looked for again.
        self._look_ns = 0
        self._asking: threading.Thread | None = None
        # What it found: how many partitions each has.
        self._came: dict[str, int] = {}
        self._said: str | None = None
        self._restarts = 0
        # Whether all was read once, and topics whose absence was looked into.
        self._was_read = False
        self._asked_for: set[str] = set()
        # Topics whose refusal was said; those that Kafka describes and does not let read.
        self._refused: set[str] = set()
        self._unreadable: set[str] = set()
        self._consumer = self._client.Consumer(
            reader_options(
                settings,
                defaults={
                    **kafka_client.DEFAULTS,
                    "fetch.wait.max.ms": FETCH_WAIT_MS,
                },
                fixed={
                    "client.id": client_id,
                    # Reported, not corrected silently: see `_restart`.
                    "auto.offset.reset": "error",
                    "fetch.message.max.bytes": FETCH_BYTES,
                    "fetch.max.bytes": 4 * FETCH_BYTES,
                    "queued.max.messages.kbytes": QUEUED_KBYTES,
                    "fetch.queue.backoff.ms": QUEUE_BACKOFF_MS,
                    "queued.min.messages": 100,
                },
            ),
            logger=kafka_client.ClientLog(log),
        )

    @property
    def read_to_end(self) -> bool:
        """Whether every partition has been read to its end since it was (re)opened."""
        return self._assigned and not any(self._unread.values())

    def poll(self) -> list[Record]:
        """Return what has come, at most some hundred records.

        Raises
        ------
        AccessError
            If Kafka refuses a topic before all was read once.
        """
        if not self._assigned and not self._assign():
            return []
        self._look_for_missing()
        try:
            messages = self._consumer.consume(MAX_RECORDS_AT_ONCE, 0)
        except self._client.KafkaException as error:
            self._say("consumer.error", error=error)
            return []
        reported = reported_once(self._client, messages)
        return [record for m in reported if (record := self._record(m)) is not None]

    def reread(self, topic: Topic) -> None:
        """Read a topic that is followed from its beginning again."""
        name = self._settings.topic(topic.name)
        for start in self._starts(name):
            self._unread.setdefault(name, set()).add(start.partition)
            try:
                self._consumer.seek(start)
            except self._client.KafkaException as error:
                self._unread[name].discard(start.partition)
                self._say("consumer.error", error=error)

    def has(self, topic: Topic) -> bool:
        """Whether the broker has a topic; unknown before it was asked: no."""
        return bool(self._places.get(self._settings.topic(topic.name)))

    def follow(self, topic: Topic) -> None:
        """Read a topic from its beginning, as if nothing of it had been read before."""
        self.leave(topic)
        name = self._settings.topic(topic.name)
        self._followed.add(name)
        self._begin(name)

    def leave(self, topic: Topic) -> None:
        """Read a topic no longer, if it is followed."""
        name = self._settings.topic(topic.name)
        if name in self._followed:
            self._followed.discard(name)
            self._end(name)

    def take_restarts(self) -> int:
        """Return how many partitions turned out to begin anew since the last call."""
        restarts, self._restarts = self._restarts, 0
        return restarts

    def close(self) -> None:
        """Leave the broker."""
        if self._asking is not None:
            self._asking.join()
        self._consumer.close()

    def _assign(self) -> bool:
        now_ns = self._clock.now().monotonic_ns
        if now_ns < self._ask_ns:
            return False
        self._ask_ns = now_ns + ASK_EVERY_NS
        # What was answered at an earlier try is not asked again.
        for name in [name for name in self._topics if name not in self._places]:
            count = self._count_partitions(name)
            if count is None or (count == 0 and self._topics[name] not in OPTIONAL):
                return False
            self._places[name] = self._place(name, count)
        for name in sorted(self._followed):
            self._begin(name)
        self._look_ns = now_ns + LOOK_EVERY_NS
        self._assigned = True
        self._said = None
        self._log.info("topics.assigned", partitions=len(self._seen))
        return True

    def _look_for_missing(self) -> None:
        """Read topics that have come since the start, once it is known how large they are."""
        for name, count in list(self._came.items()):
            del self._came[name]
            self._places[name] = self._place(name, count)
            self._log.info("topic.came", topic=name)
            if name in self._followed:
                self._begin(name)
        now_ns = self._clock.now().monotonic_ns
        if now_ns < self._look_ns or (self._asking is not None and self._asking.is_alive()):
            return
        self._look_ns = now_ns + LOOK_EVERY_NS
        # One that can be described and not read would seem to come, and be refused, each time.
        missing = [
            name
            for name, places in self._places.items()
            if not places and name not in self._unreadable
        ]
        if missing:
            self._asking = threading.Thread(target=self._look_for, args=(missing,), daemon=True)
            self._asking.start()

    def _look_for(self, names: list[str]) -> None:
        """Ask for topics; runs in a thread of its own."""
        for name in names:
            if self._is_there(name, 0, LOOK_TIMEOUT_S):
                count = self._count_partitions(name, LOOK_TIMEOUT_S)
                if count:
                    self._came[name] = count

    def _begin(self, name: str) -> None:
        self._unread[name] = set(self._places[name])
        self._seen |= {(name, partition): -1 for partition in self._places[name]}
        if starts := self._starts(name):
            self._consumer.incremental_assign(starts)

    def _end(self, name: str) -> None:
        self._unread.pop(name, None)
        if starts := self._starts(name):
            self._consumer.incremental_unassign(starts)
        for partition in self._places.get(name, ()):
            self._seen.pop((name, partition), None)

    def _place(self, name: str, count: int) -> list[int]:
        """Return which of the partitions of a topic are read."""
        if self._topics[name].personal and count:
            return [partition_of(self._agent_key, count)]
        return list(range(count))

    def _starts(self, name: str) -> list[Any]:
        begin = self._client.OFFSET_BEGINNING
        return [self._client.TopicPartition(name, p, begin) for p in self._places.get(name, ())]

    def _count_partitions(self, name: str, timeout_s: float = ASK_TIMEOUT_S) -> int | None:
        """Return how many partitions a topic has; 0: it is missing; None: the broker does not tell.

        Partitions are asked for their offsets, at doubled distances and then by halves:
        `list_topics` would load the package around the extension module (see `kafka_client`).
        """
        # The least and the greatest count that is possible.
        least, most = 0, MAX_PARTITIONS
        while least < most:
            asked = min(2 * least, (least + most) // 2)
            there = self._is_there(name, asked, timeout_s)
            if there is None:
                return None
            least, most = (asked + 1, most) if there else (least, asked)
        if not least:
            self._raise_refusal(name)
            if name not in self._refused:
                self._say("topic.missing", topic=name, hint="skeletonhunter topics apply")
        return least

    def _is_there(self, name: str, partition: int, timeout_s: float) -> bool | None:
        """Return whether a topic has that partition; None where the broker does not tell."""
        try:
            place = self._client.TopicPartition(name, partition)
            self._consumer.get_watermark_offsets(place, timeout_s)
        except self._client.KafkaException as error:
            code = error.args[0].code()
            if code in self._not_there:
                return False
            if code != self._client.KafkaError.NOT_LEADER_FOR_PARTITION:
                self._say("broker.unreachable", error=error.args[0].str())
                return None
        return True

    def _raise_refusal(self, name: str) -> None:
        """Raise AccessError if a topic only seems missing: Kafka hides what it refuses.

        The answer loads what `_count_partitions` does not want to load, so it is asked for once.
        """
        if name in self._asked_for:
            return
        self._asked_for.add(name)
        try:
            found = self._consumer.list_topics(name, ASK_TIMEOUT_S).topics[name].error
        except self._client.KafkaException:
            return
        if access := refusal(self._settings, found, "Read", f"topic {name}"):
            if self._topics[name] not in OPTIONAL:
                raise access
            self._say_refused(name, access)

    def _say_refused(self, name: str, access: AccessError) -> None:
        """Log, once, that a topic is refused that the agent can do without."""
        if name not in self._refused:
            self._refused.add(name)
            self._log.warning("access.refused", reason=str(access), instead=topics.ENDPOINT.name)

    def _record(self, message: Any) -> Record | None:
        error = message.error()
        name, partition, offset = message.topic(), message.partition(), message.offset()
        stepped = error is not None and step_over(
            self._client, self._consumer, self._settings, message
        )
        if error is not None and not stepped:
            if error.code() == self._client.KafkaError._PARTITION_EOF:
                self._unread.get(name, set()).discard(partition)
                self._was_read = self._was_read or self.read_to_end
            elif error.code() == self._client.KafkaError._AUTO_OFFSET_RESET:
                self._restart(name, partition)
            elif access := refusal(self._settings, error, "Read", f"topic {name}"):
                if self._topics[name] in OPTIONAL:
                    # It may be described and not read. It is done without, as if it were missing.
                    self._say_refused(name, access)
                    self._unreadable.add(name)
                    self._end(name)
                    self._places[name] = []
                elif not self._was_read:
                    raise access
                else:
                    # Taken away from an agent that works: it goes on answering others' probes.
                    self._say("access.refused", reason=str(access))
            elif error.code() != self._client.KafkaError._ALL_BROKERS_DOWN:
                self._say("consumer.error", error=error)
            return None
        place = (name, partition)
        if place not in self._seen:
            return None  # fetched before the topic was left
        replayed = offset <= self._seen[place]
        self._seen[place] = max(offset, self._seen[place])
        return Record(
            topic=self._topics[name],
            partition=partition,
            offset=offset,
            key=message.key(),
            value=message.value(),
            headers=[(k, v) for k, v in message.headers() or [] if v is not None],
            replayed=replayed,
            arrived_ns=self._arrived_ns(message),
        )

    def _arrived_ns(self, message: Any) -> int | None:
        kind, timestamp_ms = message.timestamp()
        by_broker = kind == self._client.TIMESTAMP_LOG_APPEND_TIME
        return int(timestamp_ms) * 10**6 if by_broker else None

    def _restart(self, name: str, partition: int) -> None:
        """Read a partition anew whose log ends before where we were.

        A broker lost its data, or the topic was made anew: offsets that were seen
        before are new records now.
        """
        self._log.warning("partition.restarted", topic=name, partition=partition)
        self._restarts += 1
        if self._topics[name].personal:
            # Perhaps it was made anew with another number of partitions.
            self._end(name)
            count = self._count_partitions(name)
            self._places[name] = self._place(name, count) if count else [partition]
            self._begin(name)
            return
        self._seen[name, partition] = -1
        self._unread.setdefault(name, set()).add(partition)
        start = self._client.TopicPartition(name, partition, self._client.OFFSET_BEGINNING)
        self._consumer.incremental_unassign([start])
        self._consumer.incremental_assign([start])

    def _say(self, event: str, **fields: Any) -> None:
        """Log a trouble once until another one comes."""
        if self._said != event:
            self._said = event
            self._log.warning(event, **fields)
