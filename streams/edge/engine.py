"""Runs the partitions of this worker: batches through their machines, outputs published, commits.

It also marks partitions without input as idle, so that they do not hold the localizer back. It
runs in one thread at a time, under one lock: batches come from the Faust agent, hand-overs of
partitions from the consumer's rebalance callbacks.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from confluent_kafka import Message, TopicPartition

from schemas import topics
from schemas.codec import Codec
from schemas.enums import AnomalyState
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.deadletter import dead_letter_of, dead_letter_topic
from schemas.process import memory
from schemas.process.eventlog import EventLog
from schemas.process.lag import LogLag
from streams.core.feed import Refused, window_bytes
from streams.core.metrics import Metrics
from streams.core.outputs import Output, anomaly_output, progress, window_output
from streams.core.window_bytes import WindowBytes
from streams.core.window_records import WindowBatch
from streams.edge.errors import SessionLostError
from streams.edge.publisher import UNKNOWN_OFFSET, Publisher, Receipt
from streams.edge.session import CommitPoint, Session


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages as the consumer took them, with what proves that none is missing.

    `epochs` and `starts` hold, by partition, the assignment and the offset that
    came next before this batch; `messages` the partition's, in order.
    """

    number: int
    epochs: dict[int, int]
    starts: dict[int, int]
    messages: dict[int, list[Message]]


# A partition without input for this long must not hold the localizer back.
IDLE_AFTER_S: Final = 2.0
# And says so again, so that a localizer that starts later hears it.
IDLE_REPEAT_S: Final = 5.0


@dataclass(slots=True)
class Idle:
    """What a partition's silence is measured by; times are monotonic, in seconds."""

    since: float
    progress_at: int | None = None
    told: float = float("-inf")

    def due(self, progress_at: int | None, now: float, *, at_end: bool) -> bool:
        """Return whether it is to be told that nothing has moved the partition for a while.

        Input that is late or refused does not move it either.

        Parameters
        ----------
        progress_at
            The machine's progress, microseconds.
        at_end
            Whether nothing waits in the log.
        """
        if progress_at != self.progress_at:
            self.progress_at, self.since, self.told = progress_at, now, float("-inf")
        if not at_end or now - self.since < IDLE_AFTER_S or now - self.told < IDLE_REPEAT_S:
            return False
        self.told = now
        return True


PROCESS: Final = "worker"
ROUNDS: Final = topics.PROBE_ROUND.name
# Batches whose outputs may be on their way while the next one is worked on: waiting for each
# took a quarter of a full worker's time.
UNCONFIRMED: Final = 1
# Windows encoded and sent at a time: all of a large partition's at once are a hundred megabytes.
WINDOWS_AT_ONCE: Final = 8_192

Commit = Callable[[list[TopicPartition], bool], None]
# Partition to the end of its log as the consumer last saw it, negative: unknown.
LogEnds = Mapping[int, int]


class Engine:
    """The partitions that this worker holds."""

    def __init__(
        self,
        settings: KafkaSettings,
        codec: Codec,
        log: EventLog,
        metrics: Metrics,
        commit_s: float,
    ) -> None:
        self._settings = settings
        self._codec = codec
        self._log = log
        self._metrics = metrics
        self._commit_s = commit_s
        self._lock = threading.RLock()
        self._sessions: dict[int, Session] = {}
        self._idle: dict[int, Idle] = {}
        self._publisher: Publisher | None = None
        # Batches that are not confirmed, oldest first, and where the sessions stood after each.
        self._sent: deque[tuple[Receipt, list[CommitPoint]]] = deque()
        self._commit: Commit | None = None
        self._committed_at = 0.0
        # Partitions whose last commit failed: without new rounds nobody else would try again.
        self._uncommitted: deque[int] = deque()
        self._returner = memory.Returner(time.monotonic, time.thread_time)
        # Replaced as a whole, never changed.
        self._held: dict[int, int] = {}
        self.lag = LogLag()
        self.open_anomalies = 0
        # Monotonic times of the last progress and of the last sign of life of the
        # thread that consumes; the watchdog reads them.
        self.moved_at = self.beat_at = time.monotonic()
        self._stopping = False

    def beat(self) -> None:
        """Note that the consuming thread runs."""
        self.beat_at = time.monotonic()
        self.lag.note_poll()

    def stop(self) -> None:
        """Let no long work go on; from any thread."""
        self._stopping = True

    def rebuilding(self) -> None:
        """Note that the consuming thread runs while partitions are rebuilt.

        Raises
        ------
        SessionLostError
            If the worker is to stop: nothing is lost with what was not begun.
        """
        self.beat()
        self._check_stop()

    def waiting(self) -> None:
        """Note that a machine waits for earlier windows; no thread counts as stalled meanwhile.

        Raises SessionLostError if the worker is to stop.
        """
        self.moved_at = self.beat_at = time.monotonic()
        self._check_stop()

    def _check_stop(self) -> None:
        if self._stopping:
            raise SessionLostError("the worker is to stop")

    def open(self, publisher: Publisher, commit: Commit) -> None:
        """Begin with no partitions, a fresh publisher, and a way to commit."""
        with self._lock:
            self._drop_all()
            self._idle.clear()
            memory.collect_rarely()
            memory.return_free()
            self._publisher, self._commit = publisher, commit

    def take_over(self, sessions: Iterable[Session]) -> None:
        """Hold these partitions from now on.

        Where nothing was committed yet, the place is committed before anything
        is published: from then on there is always a checkpoint to restart from.
        """
        with self._lock:
            new = list(sessions)
            self._sessions.update({s.partition: s for s in new})
            for session in new:
                encoder = window_bytes(self._codec, session.machine)
                session.machine.window_sink = partial(self._publish_windows, session, encoder)
            self._idle.update({s.partition: Idle(since=time.monotonic()) for s in new})
            memory.collect_rarely()
            self._commit_now(new, wait=True)
            self._moved()

    def release(self, partitions: Iterable[int], *, commit: bool) -> None:
        """Let partitions go; what they published is confirmed and committed before.

        With `commit` False they are another's already: nothing is committed. What was sent is
        confirmed or given up all the same: this process may be the next owner, too, and reads
        what is there.

        Raises
        ------
        SessionLostError
            If an output is not confirmed; the partitions are let go nevertheless.
        """
        numbers = list(partitions)
        if not commit:
            self._let_nobody_wait(numbers)
        with self._lock:
            gone = self._given_up(numbers)
            self._moved()
            try:
                if gone:
                    self._settle()
                if commit and gone:
                    self._commit_now(gone, wait=True)
            finally:
                self._drop_points({session.partition for session in gone})
            if gone and not self._stopping:
                gone.clear()
                memory.collect_rarely()

    def close(self) -> None:
        """Drop everything and give up what is not confirmed."""
        with self._lock:
            if self._publisher is not None:
                self._publisher.abandon()
            with suppress(SessionLostError):
                self.release(list(self._sessions), commit=False)
            self._sent.clear()
            self._publisher = self._commit = None

    def partitions(self) -> dict[int, int]:
        """Return the partitions held, with the next offset of each.

        Takes no lock: the watchdog asks while the thread that holds it may hang.
        """
        return self._held

    def process(self, batch: Batch) -> None:
        """Take a batch through the machines; return when those before it are confirmed.

        Raises
        ------
        SessionLostError
            If an output is not confirmed or messages are missing.
        """
        with self._lock:
            try:
                self._process(batch)
            except BaseException:
                # Machines may be ahead of what is published: nothing of theirs is committed.
                self._drop_all()
                raise

    def commit_failed(self, partitions: Iterable[int]) -> None:
        """Commit these again at the next opportunity; takes no lock, from the client's callback."""
        self._uncommitted.extend(partitions)

    def commit_due(self) -> None:
        """Commit what is confirmed, when it is time."""
        now = time.monotonic()
        while self._uncommitted:
            session = self._sessions.get(self._uncommitted.popleft())
            if session is not None:
                session.committed = UNKNOWN_OFFSET
        if now - self._committed_at >= self._commit_s:
            self._commit_now(self._sessions.values(), wait=False)

    def tick(self, log_ends: LogEnds) -> None:
        """Do what the wall clock asks for: commits, and marks of idle partitions.

        Raises
        ------
        SessionLostError
            If partitions hold much memory of 5-tuples that are gone: rebuilt they do not.
        """
        with self._lock:
            if self._publisher is None:
                return
            self._settle()
            self.commit_due()
            now = time.monotonic()
            for session in self._sessions.values():
                self._mark_idle(session, now, log_ends)
            # Every now and then; partitions that a flood made large see to it themselves.
            self._returner.observe_count(0)
            roomy = sorted(s.partition for s in self._sessions.values() if s.machine.roomy)
            if roomy:
                raise SessionLostError(
                    f"partitions {roomy} are rebuilt: most of their 5-tuples are gone"
                )

    def _process(self, batch: Batch) -> None:
        current = {p for p, e in batch.epochs.items() if self._is_current(p, e)}
        for partition in current:
            if batch.starts[partition] != self._sessions[partition].next_offset:
                raise SessionLostError(
                    f"partition {partition}: batch begins at {batch.starts[partition]}, "
                    f"expected {self._sessions[partition].next_offset}"
                )
        for partition in sorted(current):
            self._take(self._sessions[partition], batch.messages[partition])
            self._give_up_logged(self._sessions[partition])
        if current:
            points = [c for p in current if (c := self._sessions[p].commit_point()) is not None]
            self._sent.append((self._open_publisher().receipt(), points))
            self._settle(leave=UNCONFIRMED)
            self._metrics.add("batches")
            for session in self._sessions.values():
                self._metrics.move_from(session.machine.tally)
            self._moved()
            self.commit_due()

    def _settle(self, leave: int = 0) -> None:
        """Wait until outputs are confirmed, of all batches but so many of the last ones."""
        publisher = self._open_publisher()
        if not leave:
            # What the clock alone had to say, too.
            self._sent.append((publisher.receipt(), []))
        while self._sent and (len(self._sent) > leave or not self._sent[0][0].open):
            receipt, points = self._sent[0]
            publisher.wait(receipt)
            self._sent.popleft()
            for point in points:
                point.settle()

    def _drop_points(self, partitions: set[int]) -> None:
        """Forget where these stood: a commit point would keep the machine in memory."""
        self._sent = deque(
            (receipt, [p for p in points if p.session.partition not in partitions])
            for receipt, points in self._sent
        )

    def _let_nobody_wait(self, partitions: Iterable[int]) -> None:
        """End a machine's waiting for windows; takes no lock, which the machine has meanwhile.

        When they come it would go on, and write beside the new owner.
        """
        for session in filter(None, map(self._sessions.get, partitions)):
            session.give_up()

    def _given_up(self, partitions: Iterable[int]) -> list[Session]:
        gone = [s for p in partitions if (s := self._sessions.pop(p, None)) is not None]
        for session in gone:
            session.give_up()
            self._idle.pop(session.partition, None)
            self.lag.forget(ROUNDS, session.partition)
            self._metrics.move_from(session.machine.tally)
        return gone

    def _drop_all(self) -> None:
        for session in self._sessions.values():
            session.give_up()
            self.lag.forget(ROUNDS, session.partition)
        self._sessions.clear()
        self._sent.clear()

    def _moved(self) -> None:
        self._held = {p: s.next_offset for p, s in sorted(self._sessions.items())}
        self.open_anomalies = sum(s.machine.open_anomalies for s in self._sessions.values())
        self.moved_at = time.monotonic()

    def _take(self, session: Session, messages: list[Message]) -> None:
        """Process messages of a partition."""
        for processed in session.feed.process(messages):
            for output in processed.outputs:
                self._publish(session, output)
            if processed.refused is not None:
                self._refuse(processed.refused)
        session.next_offset = int(messages[-1].offset() or 0) + 1
        self.lag.note_record(ROUNDS, session.partition, messages[-1].timestamp()[1])

    def _give_up_logged(self, session: Session) -> None:
        gone = session.give_up_logged()
        if gone:
            self._log.warning(
                "outputs.not_made_again",
                partition=session.partition,
                count=gone,
                hint="other settings or another version wrote them; they stay",
            )

    def _publish(self, session: Session, output: Output) -> None:
        if session.logged and session.is_published(output):
            self._metrics.add("already_published")
            return
        self._open_publisher().send(
            self._settings.topic(output.topic.name),
            self._codec.encode(output.topic, output.record),
            partition=session.partition,
            key=output.key.encode(),
            timestamp_ms=output.at_ms,
            confirmed=session.confirmed(output.topic),
        )

    def _publish_windows(
        self, session: Session, encoder: WindowBytes, windows: WindowBatch
    ) -> None:
        if session.logged:
            # Those that a predecessor published are recognised one by one.
            for record in windows.records():
                self._publish(session, window_output(record, windows.closed_ms))
            return
        for part in windows.parts(WINDOWS_AT_ONCE):
            keys, values = encoder.encode(part)
            self._open_publisher().send_all(
                self._settings.topic(topics.PROBE_WINDOW.name),
                keys,
                values,
                partition=session.partition,
                timestamp_ms=windows.closed_ms,
                confirmed=session.confirmed(topics.PROBE_WINDOW),
            )

    def _refuse(self, refused: Refused[Message]) -> None:
        """Send a message to the dead letters."""
        message, error = refused.message, refused.error
        self._metrics.add(refused.counter)
        self._log.debug("round.refused", why=refused.counter, reason=str(error))
        letter = dead_letter_of(error, message, process=PROCESS)
        self._open_publisher().send(
            dead_letter_topic(self._settings.topic(topics.PROBE_ROUND.name)),
            letter.value,
            # Dead letters have their own partitions; any will do.
            partition=-1,
            key=letter.key,
            headers=letter.headers,
        )

    def _mark_idle(self, session: Session, now: float, log_ends: LogEnds) -> None:
        """Say that a partition is idle, when it is time."""
        progress_at = session.machine.progress_at
        at_end = 0 <= log_ends.get(session.partition, -1) <= session.next_offset
        if at_end:
            self.lag.note_end(ROUNDS, session.partition)
        if not self._idle[session.partition].due(progress_at, now, at_end=at_end):
            return
        mark = progress(
            self._settings.cluster, session.partition, AnomalyState.IDLE, progress_at or 0
        )
        output = anomaly_output(mark)
        self._open_publisher().send(
            self._settings.topic(output.topic.name),
            self._codec.encode(output.topic, output.record),
            partition=session.partition,
            key=output.key.encode(),
            # A partition that never had input has no time; 1970 would be deleted at once.
            timestamp_ms=output.at_ms or int(time.time() * 1000),
        )

    def _is_current(self, partition: int, epoch: int) -> bool:
        session = self._sessions.get(partition)
        return session is not None and session.epoch == epoch

    def _open_publisher(self) -> Publisher:
        if self._publisher is None:
            raise SessionLostError("the worker holds no producer")
        return self._publisher

    def _commit_now(self, sessions: Iterable[Session], *, wait: bool) -> None:
        due = [s for s in sessions if s.committed != s.settled.offset]
        self._committed_at = time.monotonic()
        if not due or self._commit is None:
            return
        topic = self._settings.topic(topics.PROBE_ROUND.name)
        self._commit(
            [
                TopicPartition(topic, s.partition, s.settled.offset, s.settled.metadata())
                for s in due
            ],
            wait,
        )
        self._metrics.add("commits")
        for session in due:
            session.committed = session.settled.offset
