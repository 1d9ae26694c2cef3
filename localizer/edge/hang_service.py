"""The hang watcher's loop: records of collectives in, hangs out, in transactions.

One process leads; the others stand by: they read the same inputs, and follow what the leader
publishes. What is known of a job is rebuilt from the log at a start; which hangs are open, their
topic says.
"""

import time
from typing import Any, Final

from confluent_kafka import Message

from localizer.collectives.hang_watch import GRID_NS, HangWatch, event_time
from localizer.config import HANGS_SECTION, HangsConfig
from localizer.edge.batches import collective_reader
from localizer.edge.decoding import decoded
from localizer.edge.hang_counts import HangCounts
from localizer.edge.history import History
from localizer.edge.outbox import HANGS, Outbox, hang_records
from localizer.edge.reader import Inputs, Reader, StalledError
from localizer.merge import Barrier
from schemas import topics
from schemas.codec import Codec, DecodeError
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.leadership import Leadership
from schemas.process import memory
from schemas.process.ending import ending
from schemas.process.eventlog import EventLog
from schemas.process.health import Health
from schemas.records import Hang
from schemas.records.batches import BatchError
from schemas.topics import Topic
from schemas.units import MS_NS, SECOND_NS

INPUTS: Final = Inputs(
    role=HANGS_SECTION,
    states=(topics.COLLECTIVE_COMM,),
    logs=(topics.COLLECTIVE_OP, topics.COLLECTIVE_FLOW),
    marks=topics.COLLECTIVE_OP,
    # Columns of more operations do not fit into a core's cache.
    batch=200,
)
# How often a decision is due; the grid of event time is as fine.
DECIDE_S: Final = GRID_NS / SECOND_NS
FOLLOW_S: Final = 1.0
METRICS_S: Final = 10.0
SHOWN_JOBS: Final = 8


class HangService:
    """Runs the watch between the topics until told to stop."""

    def __init__(self, settings: KafkaSettings, codec: Codec, config: HangsConfig) -> None:
        self._settings = settings
        self._codec = codec
        self._config = config
        self._log = EventLog(HANGS)
        self._batches = collective_reader(codec)
        self.counts = HangCounts(topic.name for topic in (*INPUTS.states, *INPUTS.logs))
        self.health = Health(lambda: self.counts.lag.polled_s, self._waits_for)
        # When the newest record that was read reached the broker.
        self._newest_ns = 0
        # Since when nothing came (s, monotonic), though the broker was there.
        self._quiet_s = time.monotonic()
        self._barrier: Barrier | None = None
        self._stopping = False
        self._ready = False

    def stop(self) -> None:
        """Ask the loop to end; safe in a signal handler."""
        self._stopping = True

    def _waits_for(self) -> str | None:
        return None if self._ready else "reading the topics to where they ended at the start"

    def run(self) -> None:
        """Run until `stop`.

        Raises
        ------
        BrokerError, FatalProducerError, StalledError
            When this process cannot go on, but another one might.
        """
        memory.collect_on_demand()
        self._batches.warm()
        reader = Reader(self._settings, self.counts.lag, INPUTS)
        history: History[Hang] = History(self._settings, self._codec, topics.COLLECTIVE_HANG)
        outbox: Outbox[Hang] = Outbox(self._settings, self._codec, self._log, HANGS, hang_records)
        leadership: Leadership | None = None
        try:
            decided_ns = reader.assign(round(self._config.lookback_s * SECOND_NS))
            leadership = Leadership(
                self._settings, HANGS, topics.COLLECTIVE_HANG, self._log, fence=outbox.start
            )
            watch = HangWatch(self._settings.cluster, history.read())
            self._log.info("hangs.reading", partitions=len(reader.read), decided_ns=decided_ns)
            self._loop(reader, outbox, watch, leadership, history)
        finally:
            with ending():
                outbox.letters.close()
                if leadership is not None:
                    leadership.close()
                reader.close()
                history.close()
            self._log.info("hangs.stopped", records=self.counts.records.total())

    def _loop(
        self,
        reader: Reader,
        outbox: Outbox[Hang],
        watch: HangWatch,
        leadership: Leadership,
        history: History[Hang],
    ) -> None:
        next_follow = next_decide = next_metrics = moved_s = time.monotonic()
        has_led = False
        while not self._stopping:
            messages = reader.poll()
            leads = leadership.poll()
            if (leads and not has_led) or (not leads and time.monotonic() >= next_follow):
                # Whoever led before is fenced, and publishes nothing after this.
                next_follow = time.monotonic() + FOLLOW_S
                watch.follow(history.read())
            has_led |= leads
            self.counts.leads = leads
            told = [(reader.topic(message), message) for message in messages]
            read = self._batches.read(told)
            for topic, message in told:
                self._take(message, topic, watch, outbox, read.get(id(message)))
            if leads:
                outbox.letters.write()
            elif leadership.settled:
                outbox.letters.discard()
            now = time.monotonic()
            if now >= next_decide and self._advance(reader, watch, outbox, leads=leads):
                next_decide = now + DECIDE_S
                if leads and self.counts.decided_ns is not None:
                    leadership.remember(reader.position(self.counts.decided_ns))
            if now >= next_metrics:
                next_metrics = now + METRICS_S
                self._metrics(watch)
            if messages or self._barrier is None:
                moved_s = now
            elif now - moved_s > self._config.stall_s:
                raise StalledError(
                    f"nothing read for {self._config.stall_s:.0f} s though there are records"
                )

    def _advance(
        self, reader: Reader, watch: HangWatch, outbox: Outbox[Hang], *, leads: bool
    ) -> bool:
        """Decide once all is read that was there when a decision became due; say whether."""
        if self._barrier is None:
            ends = reader.ends()
            self._barrier = None if ends is None else Barrier(0, ends)
            if ends is None:
                # Whose records wait for the broker, too, is not silent.
                self._quiet_s = time.monotonic()
        if self._barrier is None or not self._barrier.passed(reader.read):
            return False
        self._barrier = None
        if not self._ready:
            self._ready = True
            self._log.info("hangs.ready", records=self.counts.records.total())
        quiet_ns = round((time.monotonic() - self._quiet_s) * SECOND_NS)
        now_ns = event_time(self._newest_ns, watch.latest_told_ns, quiet_ns)
        if not leads:
            watch.forget(now_ns)
            return True
        began_s = time.perf_counter()
        found = watch.advance(now_ns)
        while watch.failures:
            task_id, error = watch.failures.pop()
            self._log.error("hangs.analysis_failed", task_id=task_id, error=error)
        self.counts.analyses.observe(time.perf_counter() - began_s)
        if found:
            outbox.publish(found)
        for hang in found:
            self.counts.note_transition(hang)
            self._log.info(
                f"hang.{hang.state.lower()}", hang_id=hang.hang_id, seq=hang.seq,
                task_id=hang.task_id, hang_class=hang.hang_class, certainty=hang.certainty,
                ranks=list(hang.ranks[:8]), waited_s=round(hang.waited_ns / SECOND_NS, 1),
                delay_s=round(self.counts.delay_s(hang), 2),
            )  # fmt: skip
        self.counts.decided_ns = watch.now_ns
        memory.collect_if_due()
        return True

    def _take(
        self, message: Message, topic: Topic, watch: HangWatch, outbox: Outbox[Hang], read: Any
    ) -> None:
        """Take a message; `read` is its record where it has been read already, else None."""
        self.counts.records[topic.name] += 1
        self._quiet_s = time.monotonic()
        arrived_ns = int(message.timestamp()[1]) * MS_NS
        try:
            name, record = decoded(self._settings, self._codec, topic, message, read)
            try:
                watch.feed(name, record, arrived_ns)
            except BatchError as error:
                # A process that ended here would read the record again, and end again.
                raise DecodeError(
                    str(error), topic=self._settings.topic(topic.name),
                    partition=message.partition(), offset=message.offset(),
                ) from error  # fmt: skip
        except DecodeError as error:
            self.counts.dead_letters[topic.name] += 1
            self._log.warning("record.refused", place=str(error)[:300])
            outbox.letters.put(error, message)
            return
        self._newest_ns = max(self._newest_ns, arrived_ns)

    def _metrics(self, watch: HangWatch) -> None:
        self.counts.note_status(watch)
        self._log.info(
            "hangs.metrics",
            records=self.counts.records.total(),
            dead_letters=self.counts.dead_letters.total(),
            jobs=self.counts.jobs,
            ranks=self.counts.ranks,
            open=self.counts.open,
            beyond_bounds=self.counts.refused,
            held=self.counts.held,
        )
        now_ns = watch.now_ns or 0
        aside = watch.set_aside(now_ns)
        if aside or self.counts.trimmed:
            self._log.warning(
                "hangs.no_room", held=watch.held, most=watch.most_held,
                trimmed=self.counts.trimmed, set_aside=aside[:SHOWN_JOBS],
            )  # fmt: skip
        mixed = [text for job in watch.jobs.values() if (text := job.mixed(now_ns)) is not None]
        if mixed:
            self._log.warning("hangs.two_jobs", jobs=len(mixed), first=mixed[0][:300])
