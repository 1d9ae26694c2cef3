"""The thin edge of the skeleton job: Kafka in, the core, Kafka out.

One process leads, the others stand by. Each reads the compacted topics whole, the
lists and skeletons of the leader among them, and the counters of the look-back. Who
begins to lead first reads what the one before it has published, so that a restart
changes nothing that has not changed.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
    cimpl,
)

from schemas.avro import MAX_VALUE_BYTES
from schemas.codec import Codec, DecodeError
from schemas.kafka.clients import (
    METADATA_TIMEOUT_S,
    ask_until_answered,
    ends_of,
    offsets_at,
    partitions_of,
    refusal_of,
)
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.errors import BrokerError
from schemas.kafka.leadership import Leadership
from schemas.kafka.options import batched_fetch, reader_options
from schemas.kafka.unreadable import reported_once, step_over
from schemas.process import memory
from schemas.process.ending import ending
from schemas.process.eventlog import EventLog
from schemas.process.refusals import RefusalLog
from schemas.records import PingList
from schemas.topics import (
    ENDPOINT,
    OVERLAY_FLOWS,
    PINGLIST,
    REGISTRATIONS_HEADER,
    RNIC_COUNTERS,
    SKELETON_TOPIC,
    TARGET,
    TASK,
    Topic,
)
from schemas.trace_budget import budget_header, budget_told
from skeleton_job.core import SkeletonCore
from skeleton_job.edge.counts import Counts
from skeleton_job.edge.inbox import hand_over, read
from skeleton_job.edge.inferring import Inferring, RunningInference, died
from skeleton_job.edge.outbox import Outbox
from skeleton_job.layout.skeleton import Inference
from skeleton_job.lists.routes import Routes
from skeleton_job.tasks.inference import DueInference, InferenceInput

Answer = TypeVar("Answer")

PROCESS: Final = "skeleton"
INPUTS: Final = (TASK, ENDPOINT, PINGLIST, TARGET, SKELETON_TOPIC, OVERLAY_FLOWS, RNIC_COUNTERS)
OWN: Final = (PINGLIST, TARGET, SKELETON_TOPIC)
POLL_S: Final = 0.05
BATCH: Final = 500
# A new container waits so much longer for its list, of the two seconds that it may.
FETCH_WAIT_MS: Final = 100
COUNTS_EVERY_S: Final = 60.0
# All jobs are looked at for it.
STATUS_EVERY_S: Final = 5.0
# A broker that gives nothing for so long while the topics are being read gives nothing any more.
START_S: Final = 60.0
# What is in the making when the service is told to end has this long to end: an inference of
# a large job takes two seconds.
LAST_ANSWERS_S: Final = 5.0


@dataclass(slots=True)
class Service:
    """Runs a core between topics until told to stop."""

    settings: KafkaSettings
    core: SkeletonCore
    codec: Codec
    look_back_ns: int
    workers: int = 1
    log: EventLog = field(default_factory=lambda: EventLog(PROCESS))
    counts: Counts = field(default_factory=lambda: Counts(topic.name for topic in INPUTS))
    _stopping: bool = False
    _caught_up: bool = False
    _ready: bool = False
    # Of this process's own words, from where on it needs not hear them; None: it has never led.
    _own_ends: dict[tuple[str, int], int] | None = None
    _read: dict[tuple[str, int], int] = field(default_factory=dict)
    # What the client complained of last.
    _trouble: str | None = None
    _behind: set[tuple[str, int]] = field(default_factory=set)
    _names: dict[str, Topic] = field(default_factory=dict)
    _hears_itself: bool = True
    _routes: Routes = field(default_factory=lambda: Routes(TARGET.partitions))
    _waiting: dict[str, DueInference] = field(default_factory=dict)
    _counts_logged: dict[str, int] = field(default_factory=dict)
    _returner: memory.Returner = field(
        default_factory=lambda: memory.Returner(time.monotonic, time.thread_time)
    )

    def stop(self) -> None:
        """Ask the loop to end; safe in a signal handler."""
        self._stopping = True

    def waits_for(self) -> str | None:
        """Return why it is not ready; None: it is. Any thread."""
        return None if self._ready else "reading the topics to their ends"

    def run(self) -> None:
        """Run until `stop`.

        Raises
        ------
        BrokerError
            If the broker cannot be reached at the start, lacks topics, refuses something, or does
            not give what is there.
        FatalProducerError
            If the producer has come to its end.
        """
        consumer = Consumer(
            reader_options(
                self.settings,
                defaults={
                    "fetch.message.max.bytes": MAX_VALUE_BYTES,
                    **batched_fetch(FETCH_WAIT_MS),
                },
            )
        )
        outbox = Outbox(self.settings, PROCESS, self.log)
        inferring = Inferring(self.workers)
        leadership: Leadership | None = None
        try:
            self._assign(consumer)
            leadership = Leadership(
                self.settings, PROCESS, SKELETON_TOPIC, self.log, fence=outbox.start
            )
            self._loop(consumer, outbox, inferring, leadership)
            if leadership.leads and self._own_words_read:
                self._take_answers(inferring, outbox, LAST_ANSWERS_S)
                outbox.write()
        finally:
            with ending():
                inferring.close()
                outbox.letters.close()
                if leadership is not None:
                    leadership.close()
                consumer.close()
            self._log_counts(outbox)
            self.log.info("skeleton.stopped", not_delivered=outbox.not_delivered)

    def _loop(
        self,
        consumer: Consumer,
        outbox: Outbox,
        inferring: Inferring,
        leadership: Leadership,
    ) -> None:
        heard_s = time.monotonic()
        next_counts_s = heard_s + COUNTS_EVERY_S
        next_status_s = 0.0
        refusals = RefusalLog(self.log)
        while not self._stopping:
            self.counts.lag.note_poll()
            for message in reported_once(cimpl, consumer.consume(BATCH, POLL_S)):
                self._take(consumer, message, outbox)
                if message.error() is None:
                    heard_s = time.monotonic()
            leads = self.counts.leads = leadership.poll()
            if leads and self._own_ends is None:
                # Whoever led before is fenced, and publishes nothing after this.
                self._own_ends = self._ends(consumer)
            if not self._caught_up and time.monotonic() - heard_s > START_S:
                raise BrokerError(self._why_not_ready())
            if self._caught_up and leadership.settled and not self._ready:
                self._ready = True
                self.log.info("skeleton.ready", bootstrap=self.settings.bootstrap)
            if leads and self._caught_up and self._own_words_read:
                self._hear_no_more(consumer)
                self._take_answers(inferring, outbox)
                self._infer(inferring)
                self._publish_lists(outbox)
                outbox.write()
            if leads:
                outbox.letters.write()
            elif leadership.settled:
                outbox.letters.discard()
            refusals.observe_counts(self.core.refused)
            self._returner.observe_count(self.core.count)
            if time.monotonic() >= next_status_s:
                next_status_s = time.monotonic() + STATUS_EVERY_S
                self.counts.note_status(self.core, outbox.not_delivered)
            if time.monotonic() >= next_counts_s:
                next_counts_s += COUNTS_EVERY_S
                self._log_counts(outbox)

    @property
    def _own_words_read(self) -> bool:
        """Whether this process leads, and has read what those before it have published."""
        ends = self._own_ends
        return ends is not None and all(self._read.get(p, 0) >= end for p, end in ends.items())

    def _ends(self, consumer: Consumer) -> dict[tuple[str, int], int]:
        """Return where the topics end now that this job writes."""
        own = [p for p in self._read if self._names[p[0]] in OWN]

        return self._patiently("ends of its topics", lambda: ends_of(consumer, own))

    def _hear_no_more(self, consumer: Consumer) -> None:
        """Read no longer what only this process writes now; who loses the lead ends.

        Each fetch names all partitions that are read, and a leader's own words would end each at
        once: with 640 partitions of them that was most of its work, and of the broker's.
        """
        if self._hears_itself:
            self._hears_itself = False
            own = [TopicPartition(*place) for place in self._read if self._names[place[0]] in OWN]
            consumer.incremental_unassign(own)

    def _why_not_ready(self) -> str:
        behind = ", ".join(sorted({topic for topic, _ in self._behind}))
        said = f"; the last error was: {self._trouble}" if self._trouble else ""
        return (
            f"not ready: {self.settings.bootstrap} has given nothing for {START_S:.0f} s, and "
            f"topics are not read to their ends: {behind}{said}"
        )

    def _assign(self, consumer: Consumer) -> None:
        self._names = {self.settings.topic(t.name): t for t in INPUTS}
        found = partitions_of(consumer, self.settings, INPUTS)
        begin_ms = max(0, time.time_ns() - self.look_back_ns) // 10**6
        self._routes = Routes(len(found[self.settings.topic(TARGET.name)]))
        counters = self.settings.topic(RNIC_COUNTERS.name)
        places = [(counters, p) for p in found.pop(counters)]
        recent = self._patiently(
            "offsets of the counters", lambda: offsets_at(consumer, places, begin_ms)
        )
        whole = [
            TopicPartition(name, p, OFFSET_BEGINNING)
            for name, partitions in found.items()
            for p in partitions
        ]
        self._behind = {(tp.topic, tp.partition) for tp in whole + recent}
        self._read = dict.fromkeys(self._behind, 0)
        consumer.assign(whole + recent)
        self.log.info("skeleton.reading", partitions=len(self._behind))

    def _patiently(self, what: str, ask: Callable[[], Answer]) -> Answer:
        """Ask until there is an answer: the leader of a new partition takes a moment."""
        try:
            return ask_until_answered(
                ask,
                patience_s=METADATA_TIMEOUT_S,
                retry_s=POLL_S,
                passing=None,
                stopping=lambda: self._stopping,
            )
        except KafkaException as error:
            raise BrokerError(f"{what}: {error.args[0].str()}") from error

    def _take(self, consumer: Consumer, message: Message, outbox: Outbox) -> None:
        error = message.error()
        if error is not None and not step_over(cimpl, consumer, self.settings, message):
            self._note(message, error)
            return
        topic = self._names[str(message.topic())]
        place = topic.name, int(message.partition() or 0)
        # Asked before this record counts as read: it may be the last of those before this process.
        published_here = topic in OWN and self._own_words_read
        self._read[str(message.topic()), place[1]] = int(message.offset() or 0) + 1
        self.counts.records[topic.name] += 1
        self.counts.lag.note_record(*place, message.timestamp()[1])
        if published_here:
            return
        if topic is TARGET:
            self._restore_copy(place[1], message)
            return
        try:
            name, record = read(topic, message, self.codec, cluster=self.settings.cluster)
        except DecodeError as poison:
            self.core.counts["poison"] += 1
            self.counts.dead_letters[topic.name] += 1
            self.log.warning("skeleton.poison", error=str(poison))
            outbox.letters.put(poison, message)
            key = message.key()
            if topic is PINGLIST and isinstance(key, bytes):
                # The agent sees garbage as its latest list: it needs a good one.
                self.core.apply_own_list(key.decode(errors="replace"), None)
            return
        if topic is PINGLIST:
            found = message.headers() or []
            headers = list(found.items()) if isinstance(found, dict) else found
            outdated = REGISTRATIONS_HEADER not in headers or budget_told(headers) is None
            self.core.apply_own_list(name, record, outdated=outdated)
            self._routes.set_targets(name, _targets(record))
            return
        hand_over(self.core, topic, name, record)
        if topic is ENDPOINT:
            value = message.value() if self.core.is_registered(name) else None
            self._routes.set_registration(name, record, value)

    def _restore_copy(self, partition: int, message: Message) -> None:
        """Note a copy of a registration; whatever is wrong with it, it is compared by its bytes."""
        key, value = message.key(), message.value()
        self._routes.restore(partition, (key or b"").decode(errors="replace"), value)

    def _note(self, message: Message, error: KafkaError) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            name, partition = str(message.topic()), int(message.partition() or 0)
            self._read[name, partition] = int(message.offset() or 0)
            self._behind.discard((name, partition))
            self.counts.lag.note_end(self._names[name].name, partition)
            self._caught_up |= not self._behind
            return
        access = refusal_of(self.settings, message)
        if access is not None:
            raise access
        self._trouble = error.str()
        self.core.counts["consumer_errors"] += 1
        self.log.warning("skeleton.consumer_error", error=error.str(), topic=message.topic())

    def _take_answers(self, inferring: Inferring, outbox: Outbox, timeout_s: float = 0.0) -> None:
        for running in inferring.finished(timeout_s):
            if died(running):
                # Perhaps of this job: it waits for its next window. The others are submitted again.
                lost = inferring.begin_anew()
                self._failed(running, "its worker died")
                self._waiting = {due.task_id: due for due in lost} | self._waiting
                return
            error = running.future.exception()
            self.counts.inferences.observe(time.monotonic() - running.begun_s)
            if error is None:
                self._apply_inference(running.inputs, running.future.result(), outbox)
            elif isinstance(error, (ValueError, ArithmeticError, LookupError)):
                # One job's strange counters must not end the service of all others.
                self._failed(running, repr(error))
            else:
                raise error

    def _failed(self, running: RunningInference, error: str) -> None:
        self.core.counts["inferences_failed"] += 1
        self.log.error("skeleton.inference_failed", task_id=running.due.task_id, error=error)

    def _infer(self, inferring: Inferring) -> None:
        for due in self.core.inferences_due():
            # Where inference is slower than its interval, the newest window counts.
            skipped = self._waiting.pop(due.task_id, None)
            self.core.counts["inferences_skipped"] += skipped is not None
            self._waiting[due.task_id] = due
        while self._waiting and inferring.has_room:
            # Only now are the readings taken out: those of all jobs at once would fill the memory.
            due = self._waiting.pop(next(iter(self._waiting)))
            inputs = self.core.inference_input(due)
            if inputs is None:
                continue
            try:
                inferring.submit(due, inputs)
            except BrokenExecutor:
                # Whoever died is told of with the answers.
                self._waiting = {due.task_id: due} | self._waiting
                return

    def _apply_inference(
        self, inputs: InferenceInput, inference: Inference, outbox: Outbox
    ) -> None:
        self.core.counts["inferences"] += 1
        task_id = inputs.job.task_id
        self.counts.inferred_ns[task_id] = inputs.window_ns[1]
        self.log.info(
            "skeleton.inferred",
            task_id=task_id,
            confidence=inference.confidence,
            dp=inference.dp,
            pp=inference.pp,
            tp=inference.tp,
            pairs=len(inference.pairs),
            reason=inference.reason,
        )
        record = self.core.apply_inference(inputs, inference)
        if record is not None:
            self.counts.skeletons_published += 1
            self.log.info("skeleton.published", task_id=task_id, version=record.version)
            outbox.send(
                SKELETON_TOPIC.name,
                task_id,
                self.codec.encode(SKELETON_TOPIC, record),
                timestamp_ms=record.window_end_at // 1000,
                failed=partial(self.core.skeleton_failed, task_id),
            )

    def _publish_lists(self, outbox: Outbox) -> None:
        now_ms = self.core.now_ns // 10**6
        for task_id in self.core.skeletons_gone():
            outbox.send(SKELETON_TOPIC.name, task_id, None, timestamp_ms=now_ms)
        due = list(self.core.lists_due())
        headers = REGISTRATIONS_HEADER, budget_header(self.core.agents)
        for agent_id, ping_list in due:
            outbox.send(
                PINGLIST.name,
                agent_id,
                None if ping_list is None else self.codec.encode(PINGLIST, ping_list),
                timestamp_ms=now_ms,
                failed=partial(self.core.list_failed, agent_id),
                headers=headers,
            )
            self._routes.set_targets(agent_id, _targets(ping_list))
            self.counts.lists_published += 1
            self.log.info(
                "pinglist.published",
                agent_id=agent_id,
                version=None if ping_list is None else ping_list.version,
                phase=None if ping_list is None else ping_list.phase,
                targets=0 if ping_list is None else len(ping_list.targets),
            )
        for copy in self._routes.due():
            outbox.send(
                TARGET.name,
                copy.endpoint_id,
                copy.value,
                timestamp_ms=now_ms,
                failed=partial(self._routes.failed, copy),
                partition=copy.partition,
            )
            self.counts.registrations_copied += 1

    def _log_counts(self, outbox: Outbox) -> None:
        self.core.counts["not_delivered"] = outbox.not_delivered
        counts = {name: n for name, n in sorted(self.core.counts.items()) if n}
        if counts != self._counts_logged:
            self._counts_logged = counts
            self.log.info("skeleton.counts", **counts)


def _targets(ping_list: PingList | None) -> Iterator[str]:
    """Yield the endpoints that a list names."""
    return (target.dst for target in (() if ping_list is None else ping_list.targets))
