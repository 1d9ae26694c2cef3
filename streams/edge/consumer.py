"""The batch source's consumer: librdkafka in a group of its own.

librdkafka delivers rebalances inside `consume`, in the thread that calls it, and
the client library may hold a lock of its own meanwhile. So one thread alone
touches the client: a commit that another thread wants is left here, and made by
the next `poll`. (A commit straight from the detecting thread could meet a
rebalance that waits for that thread: both stood still for good.)
"""

import threading
import time
from itertools import groupby
from typing import Final

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
    cimpl,
)

from schemas import topics
from schemas.kafka.clients import PASSING, refusal_of
from schemas.kafka.options import consumer_options
from schemas.kafka.unreadable import reported_once, step_over
from schemas.process.eventlog import EventLog
from streams.config import WorkerConfig
from streams.core.metrics import Metrics
from streams.edge.engine import Batch, Engine
from streams.edge.errors import SessionLostError
from streams.edge.lookback import QUEUE_BACKOFF
from streams.edge.publisher import CLIENT_LOG
from streams.edge.restoring import restore_all
from streams.edge.session import Restorer, Session

BATCH: Final = 2000
POLL_S: Final = 0.05
TIMEOUT_S: Final = 10.0
# A restart re-reads a look-back between two polls; hours of it fit in here.
MAX_POLL_INTERVAL_MS: Final = 600_000
# Of the session: partitions were lost, and no assignment came for so long after. A
# group settles within one session; a client that does not rejoin is replaced.
REJOIN_SESSIONS: Final = 5
# A broker that answers nothing for so long, when the process is to end, is not waited for.
ANSWER_S: Final = 3.0


class RoundConsumer:
    """Takes rounds in batches and hands partitions to the engine and back."""

    def __init__(
        self,
        config: WorkerConfig,
        restorer: Restorer,
        engine: Engine,
        log: EventLog,
        metrics: Metrics,
    ) -> None:
        self._restorer = restorer
        self._settings = settings = restorer.settings
        self._engine = engine
        self._log = log
        self._metrics = metrics
        self._topic = settings.topic(topics.PROBE_ROUND.name)
        self._group = settings.topic(config.group)
        # What the client complained of last.
        self._trouble: str | None = None
        self._epochs: dict[int, int] = {}
        self._next: dict[int, int] = {}
        self._epoch = 0
        self._number = 0
        self.paused = False
        self._failure: Exception | None = None
        self._given_up: set[int] = set()
        # Whether the group has answered: an assignment has come, if only an empty one.
        self.joined = False
        # Partitions that are being rebuilt; another thread asks.
        self.rebuilding = 0
        self._closing = False
        # Commits that another thread asked for, by partition; the latest counts.
        self._due: dict[int, TopicPartition] = {}
        self._due_lock = threading.Lock()
        self._lost_at: float | None = None
        self._rejoin_s = REJOIN_SESSIONS * config.session_timeout_s
        session_ms = int(config.session_timeout_s * 1000)
        options = consumer_options(
            settings,
            self._group,
            defaults=QUEUE_BACKOFF,
            fixed={
                "client.id": "skeletonhunter-worker",
                "session.timeout.ms": session_ms,
                "heartbeat.interval.ms": session_ms // 4,
                "max.poll.interval.ms": max(MAX_POLL_INTERVAL_MS, session_ms),
                "partition.assignment.strategy": "cooperative-sticky",
                "auto.offset.reset": "earliest",
                "on_commit": self._on_commit,
            },
        )
        if config.instance_id:
            options["group.instance.id"] = config.instance_id
        self._consumer = Consumer(options, logger=CLIENT_LOG)
        self._consumer.subscribe(
            [self._topic],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    def poll(self) -> Batch | None:
        """Return the next batch, None when nothing came.

        Raises
        ------
        SessionLostError
            If the group or the broker makes it impossible to go on.
        AccessError
            If Kafka refuses group or topic.
        """
        self._given_up.clear()
        self._engine.beat()
        self._commit_due()
        try:
            messages: list[Message] = self._consumer.consume(BATCH, POLL_S)
        except KafkaException as error:
            raise SessionLostError(f"consumer: {error}") from error
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if self._given_up & set(self._epochs):
            # What of this batch came before and what after cannot be told apart.
            raise SessionLostError("a partition was taken and given back at once")
        if self._lost_at is not None and time.monotonic() - self._lost_at > self._rejoin_s:
            raise SessionLostError(f"lost its partitions, got none for {self._rejoin_s:.0f} s")
        reported = reported_once(cimpl, messages, in_group=True)
        good = [m for m in reported if m.error() is None or self._passes(m)]
        return self._batch(good) if good else None

    def commit(self, offsets: list[TopicPartition], wait: bool) -> None:
        """Commit offsets.

        With `wait`, called in the consumer's thread, at once and confirmed; without,
        from any thread: the next `poll` sends it, and the answer comes by callback.

        Raises
        ------
        SessionLostError
            With `wait`, if the offsets were not committed.
        """
        if not wait:
            with self._due_lock:
                self._due.update({place.partition: place for place in offsets})
            return
        try:
            for done in self._consumer.commit(offsets=offsets, asynchronous=False) or []:
                if done.error is not None:
                    raise SessionLostError(f"commit: {done.error.str()}")
        except KafkaException as error:
            raise SessionLostError(f"commit: {error}") from error

    def log_ends(self) -> dict[int, int]:
        """Return the ends of the partitions' logs as last heard, negative: unknown."""
        return {
            partition: int(
                self._consumer.get_watermark_offsets(
                    TopicPartition(self._topic, partition), cached=True
                )[1]
            )
            for partition in self._epochs
        }

    def hold(self, paused: bool) -> None:
        """Pause or resume all partitions; polling goes on, so that the group stays."""
        if paused == self.paused:
            return
        self.paused = paused
        partitions = [TopicPartition(self._topic, p) for p in self._epochs]
        if partitions:
            (self._consumer.pause if paused else self._consumer.resume)(partitions)

    def why_not_joined(self, after_s: float) -> str:
        """Return the sentence for an operator: the group did not answer for so long."""
        said = f"; the last error was: {self._trouble}" if self._trouble else ""
        return (
            f"not ready after {after_s:.0f} s: the group {self._group} at "
            f"{self._settings.bootstrap} gave no partitions{said}"
        )

    def close(self) -> None:
        """Leave the group; partitions are released on the way."""
        self._closing = True
        self._consumer.close()

    def end(self) -> None:
        """Close, as the last thing that this process does.

        Where no broker answers, the group is left to notice it: the client would wait without limit
        for the answer to the commit that goes with a release.
        """
        try:
            self._consumer.list_topics(self._topic, timeout=ANSWER_S)
        except KafkaException as error:
            self._log.warning("group.not_left", reason=error.args[0].str())
        else:
            self.close()

    def _commit_due(self) -> None:
        with self._due_lock:
            due, self._due = list(self._due.values()), {}
        if due:
            try:
                self._consumer.commit(offsets=due, asynchronous=True)
            except KafkaException as error:
                raise SessionLostError(f"commit: {error}") from error

    def _batch(self, messages: list[Message]) -> Batch:
        starts: dict[int, int] = {}
        kept: dict[int, list[Message]] = {}
        # A partition's messages come in long runs: no look-up for each of them.
        for place, run in groupby(messages, Message.partition):
            partition, taken = int(place or 0), list(run)
            if partition not in self._next:
                continue
            starts.setdefault(partition, self._next[partition])
            self._next[partition] = int(taken[-1].offset() or 0) + 1
            kept.setdefault(partition, []).extend(taken)
        self._number += 1
        return Batch(self._number, {p: self._epochs[p] for p in starts}, starts, kept)

    def _passes(self, message: Message) -> bool:
        """Take an error, which the client delivers as a message: False if it passes by itself."""
        error = message.error()
        if error is None or step_over(cimpl, self._consumer, self._settings, message):
            return True
        access = refusal_of(self._settings, message, self._group)
        if access is not None:
            raise access
        self._trouble = error.str()
        if error.code() in PASSING or error.retriable():
            self._log.warning("consumer.error", reason=error.str())
            return False
        raise SessionLostError(f"consumer: {error.str()}")

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Rebuild the sessions of new partitions, then let their rounds come."""
        if self._closing:
            # Another member has left, too. The client assigns its partitions itself, and takes
            # them back before `close` returns; it would no longer answer what was committed.
            return
        # Before it counts as joined: nobody may take it for ready in between.
        self.rebuilding = len(partitions)
        self.joined = True
        self._lost_at = None
        if not partitions:
            consumer.incremental_assign([])
            return
        sessions: list[Session] = []
        try:
            committed = consumer.committed(partitions, timeout=TIMEOUT_S)
            self._epoch += 1
            sessions = restore_all(self._restorer, committed, self._epoch, self._engine.rebuilding)
            consumer.incremental_assign(
                [TopicPartition(self._topic, s.partition, s.next_offset) for s in sessions]
            )
            for session in sessions:
                self._epochs[session.partition] = session.epoch
                self._next[session.partition] = session.next_offset
            self._engine.take_over(sessions)
            if self.paused:
                consumer.pause(partitions)
            return
        except (KafkaException, SessionLostError) as error:
            self._failure = SessionLostError(f"assignment: {error}")
        except Exception as error:  # noqa: BLE001 - the client swallows what a callback raises
            self._failure = error
        finally:
            self.rebuilding = 0
        for session in sessions:
            session.give_up()

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Finish, confirm and commit what was begun, then let go."""
        self._let_go(partitions, commit=True)

    def _on_lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Drop partitions that are another's already."""
        self._log.warning("partitions.lost", partitions=sorted(p.partition for p in partitions))
        self._let_go(partitions, commit=False)
        self._lost_at = time.monotonic()

    def _let_go(self, partitions: list[TopicPartition], *, commit: bool) -> None:
        numbers = [p.partition for p in partitions]
        for number in numbers:
            self._epochs.pop(number, None)
            self._next.pop(number, None)
        self._given_up.update(numbers)
        try:
            self._engine.release(numbers, commit=commit)
        except Exception as error:  # noqa: BLE001 - the client swallows what a callback raises
            self._failure = error
        with self._due_lock:
            # The next owner's commits must not be followed by an older one.
            for number in numbers:
                self._due.pop(number, None)

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        failed = error or next((p.error for p in partitions if p.error is not None), None)
        if failed is not None:
            self._metrics.add("commit_errors")
            self._log.warning("commit.failed", reason=failed.str())
            self._engine.commit_failed(p.partition for p in partitions)
