"""The localizer's loop: Kafka in, effective times, the core, transactions out.

One process leads; the others stand by: they read the same inputs, and follow what the leader has
decided and published. So one that takes over has nothing to rebuild.
"""

import time
from collections import Counter
from itertools import groupby
from typing import Any, Final

from confluent_kafka import Message

from localizer.config import LocalizerConfig
from localizer.core import Core
from localizer.edge.batches import NetworkReader
from localizer.edge.counts import Counts
from localizer.edge.decoding import decoded
from localizer.edge.exposed import Exposed
from localizer.edge.history import History
from localizer.edge.outbox import PROCESS, Outbox, fault_records
from localizer.edge.reader import LOG_INPUTS, STATE_INPUTS, Reader, StalledError
from localizer.inference import search
from localizer.merge import Barrier, Merge
from schemas import topics
from schemas.codec import Codec, DecodeError
from schemas.enums import FaultLifecycle
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.leadership import Leadership
from schemas.process import memory
from schemas.process.ending import ending
from schemas.process.eventlog import EventLog
from schemas.process.health import Health
from schemas.process.refusals import RefusalLog
from schemas.records import FaultEvent, Heartbeat
from schemas.topics import Topic
from schemas.units import MS_NS, SECOND_NS

REMEMBER_S: Final = 1.0
METRICS_S: Final = 10.0
# How often a standby asks how far the leader is; the leader says it as often.
FOLLOW_S: Final = 1.0
# Coverage is counted over all ping lists; of so many tasks below the share the names are logged.
COVERAGE_S: Final = 60.0
COVERAGE_SHOWN: Final = 8
EVENTS: Final = {
    FaultLifecycle.OPEN: "fault.opened",
    FaultLifecycle.UPDATED: "fault.updated",
    FaultLifecycle.RESOLVED: "fault.resolved",
}


class Service:
    """Runs the core between the topics until told to stop."""

    def __init__(self, settings: KafkaSettings, codec: Codec, config: LocalizerConfig) -> None:
        self._settings = settings
        self._codec = codec
        self._config = config
        self._log = EventLog(PROCESS)
        self._counts = Counts(
            (topic.name for topic in (*STATE_INPUTS, *LOG_INPUTS)), config.max_agents
        )
        self.exposed = Exposed(self._counts)
        self.health = Health(lambda: self._counts.lag.polled_s, self._waits_for)
        self._merge = Merge()
        self._batches = NetworkReader(codec, settings.cluster)
        self._barrier: Barrier | None = None
        # Up to when a standby may follow: the leader has decided it.
        self._followed_ns: int | None = None
        self._stopping = False
        self._ready = False
        self._refusals = RefusalLog(self._log)
        self._next_coverage = 0.0
        self._without_way: frozenset[tuple[str, str]] = frozenset()
        self._returner = memory.Returner(time.monotonic, time.thread_time)

    def stop(self) -> None:
        """Ask the loop to end; safe in a signal handler."""
        self._stopping = True

    def run(self) -> None:
        """Run until `stop`.

        Raises
        ------
        BrokerError, FatalProducerError, StalledError
            When this process cannot go on, but another one might.
        """
        memory.collect_on_demand()
        self._batches.warm()
        search.warm()
        reader = Reader(self._settings, self._counts.lag)
        history: History[FaultEvent] = History(self._settings, self._codec, topics.FAULT_EVENT)
        outbox = Outbox(self._settings, self._codec, self._log, PROCESS, fault_records)
        leadership: Leadership | None = None
        try:
            decided_ns = reader.assign(round(self._config.lookback_s * SECOND_NS))
            anomalies = self._settings.topic(topics.ANOMALY.name)
            self._merge.wait_for(p for name, p in reader.read if name == anomalies)
            leadership = Leadership(
                self._settings, PROCESS, topics.FAULT_EVENT, self._log, fence=outbox.start
            )
            core = self._core(decided_ns, history)
            self._log.info("localizer.reading", partitions=len(reader.read), decided_ns=decided_ns)
            self._loop(reader, outbox, core, leadership, history)
        finally:
            with ending():
                outbox.letters.close()
                if leadership is not None:
                    leadership.close()
                reader.close()
                history.close()
            self._log.info("localizer.stopped", **self._totals())

    def _core(self, decided_ns: int | None, history: History[FaultEvent]) -> Core:
        events = history.read()
        if history.undecodable:
            self._log.error("history.undecodable", records=history.undecodable)
        self._counts.restore_faults(events)
        config = self._config.core(self._settings.cluster)
        if decided_ns is None:
            return Core(config, events)
        begin_ns = decided_ns - round(self._config.lookback_s * SECOND_NS)
        return Core(config, events, begin_ns=begin_ns, decided_ns=decided_ns)

    def _loop(
        self,
        reader: Reader,
        outbox: Outbox[FaultEvent],
        core: Core,
        leadership: Leadership,
        history: History[FaultEvent],
    ) -> None:
        start_ends = reader.ends()
        next_follow = next_remember = next_metrics = time.monotonic()
        stalled_since = time.monotonic()
        has_led = False
        while not self._stopping:
            messages = reader.poll()
            leads = leadership.poll()
            if leads and not has_led:
                # Whoever led before is fenced, and publishes nothing after this.
                self._follow(reader, core, history, leads=True)
            elif not has_led and time.monotonic() >= next_follow:
                next_follow = time.monotonic() + FOLLOW_S
                self._follow(reader, core, history, leads=False)
            has_led |= leads
            self._counts.leads = leads
            self._take_all([(reader.topic(message), message) for message in messages], core, outbox)
            if leads:
                outbox.letters.write()
            elif leadership.settled:
                outbox.letters.discard()
            if self._advance(reader, core, outbox, leads=leads) or messages:
                stalled_since = time.monotonic()
            if not self._ready and start_ends is not None and leadership.settled:
                self._note_ready(Barrier(0, start_ends).passed(reader.read))
            now = time.monotonic()
            self._returner.observe_count(core.count)
            if now >= next_remember and leads and self._counts.decided_ns is not None:
                next_remember = now + REMEMBER_S
                leadership.remember(reader.position(self._counts.decided_ns))
            if now >= next_metrics:
                next_metrics = now + METRICS_S
                start_ends = start_ends or reader.ends()
                self._metrics(core)
            if now - stalled_since > self._config.stall_s:
                stalled_since = now
                self._check_stall(reader)
        if leadership.leads and self._counts.decided_ns is not None:
            leadership.remember(reader.position(self._counts.decided_ns))

    def _follow(
        self, reader: Reader, core: Core, history: History[FaultEvent], *, leads: bool
    ) -> None:
        """Take over what another process has decided: how far it was, then what it published."""
        decided_ns = reader.decided_ns()
        if decided_ns is None and not leads:
            return
        self._followed_ns = decided_ns
        events = history.read()
        core.follow(events, decided_ns or 0)
        self._counts.restore_faults(events)

    def _waits_for(self) -> str | None:
        return None if self._ready else "reading the topics to where they ended at the start"

    def _note_ready(self, caught_up: bool) -> None:
        if caught_up:
            self._ready = True
            memory.leave_out_present()
            self._log.info("localizer.ready", records=self._counts.records.total())

    def _check_stall(self, reader: Reader) -> None:
        ends = reader.ends()
        if ends is not None and not Barrier(0, ends).passed(reader.read):
            raise StalledError(
                f"nothing read for {self._config.stall_s:.0f} s though there are records"
            )

    def _advance(
        self, reader: Reader, core: Core, outbox: Outbox[FaultEvent], *, leads: bool
    ) -> bool:
        """Decide what can be decided, a standby what the leader has; say whether time went on."""
        watermark_ns = self._merge.watermark_ns
        if not leads and watermark_ns is not None:
            followed_ns = self._followed_ns
            watermark_ns = None if followed_ns is None else min(watermark_ns, followed_ns)
        if (
            self._barrier is None
            and watermark_ns is not None
            and watermark_ns > (self._counts.decided_ns or 0)
        ):
            ends = reader.ends()
            self._barrier = None if ends is None else Barrier(watermark_ns, ends)
        barrier = self._barrier
        if barrier is None or not barrier.passed(reader.read):
            return False
        if not leads and barrier.watermark_ns > (self._followed_ns or 0):
            # Of a lead that was lost: it is decided if this process leads again.
            return False
        self._barrier = None
        began_s = time.perf_counter()
        events = core.advance(barrier.watermark_ns)
        self._counts.decisions.observe(time.perf_counter() - began_s)
        for _, together in groupby(events, key=lambda event: event.event_at):
            self._publish(list(together), outbox)
        self._counts.decided_ns = barrier.watermark_ns
        memory.collect_if_due()
        return True

    def _publish(self, events: list[FaultEvent], outbox: Outbox[FaultEvent]) -> None:
        outbox.publish(events)
        for event in events:
            self._counts.note_transition(event)
            self._log.info(
                EVENTS[event.state],
                fault_id=event.fault_id,
                seq=event.seq,
                component_id=event.component_id,
                fault_kind=event.fault_kind,
                decided=event.decided,
                confidence=round(event.confidence, 3),
            )

    def _take_all(
        self, messages: list[tuple[Topic, Message]], core: Core, outbox: Outbox[FaultEvent]
    ) -> None:
        """Take messages in their order; those of a topic of which there are many read together."""
        found = self._batches.read_batches(messages)
        for topic, message in found.others:
            self._take(message, topic, core, outbox, found.read.get(id(message)))
        # After the registrations of agents and endpoints.
        if found.heartbeats is not None:
            self._counts.note_heartbeats(found.heartbeats)
            core.feed_heartbeats(found.heartbeats)
        if found.traces is not None:
            self._counts.records[topics.PATH_TRACE.name] += len(found.traces)
            core.feed_traces(found.traces)

    def _take(
        self, message: Message, topic: Topic, core: Core, outbox: Outbox[FaultEvent], read: Any
    ) -> None:
        """Take a message; `read` is its record where it has been read already, else None."""
        self._counts.records[topic.name] += 1
        partition, offset = int(message.partition() or 0), int(message.offset() or 0)
        try:
            name, record = decoded(self._settings, self._codec, topic, message, read)
        except DecodeError as error:
            self._counts.dead_letters[topic.name] += 1
            self._log.warning("record.refused", place=str(error)[:300])
            outbox.letters.put(error, message)
            return
        if isinstance(record, Heartbeat):
            self._counts.agents.observe_heartbeat(record)
            self._counts.heard_s = message.timestamp()[1] / 1e3
        for event in self._merge.accept_record(
            topic.name,
            name,
            record,
            partition=partition,
            offset=offset,
            timestamp_ms=message.timestamp()[1],
        ):
            core.feed(event)

    def _log_coverage(self, core: Core) -> None:
        """Log how much of what should be probed is, and the tasks of which too little is."""
        found = self._counts.note_coverage(core)
        self._log.info(
            "localizer.coverage",
            expected=found.every.expected,
            probed=round(found.every.seen),
            share=round(found.every.share, 4),
            tasks=found.tasks,
            tasks_below=len(found.below),
            below=found.below[:COVERAGE_SHOWN],
        )

    def _log_without_way(self, core: Core) -> None:
        """Log pairs that should not be on ping lists, once for as long as they are."""
        # Of those that no longer stand there nothing is kept: there may be ever new ones.
        new, self._without_way = core.without_way - self._without_way, core.without_way
        if new:
            self._log.warning(
                "localizer.pairs_without_way",
                pairs=len(new),
                some=[f"{src}>{dst}" for src, dst in sorted(new)[:COVERAGE_SHOWN]],
                reason="no flow table ever had an entry for them, and no probe got through",
            )

    def _totals(self) -> dict[str, int]:
        """Return what the log says of records and transitions."""
        states = Counter[str]()
        for transition, count in self._counts.transitions.items():
            states[EVENTS[transition.state]] += count
        return {
            "records": self._counts.records.total(),
            "dead_letters": self._counts.dead_letters.total(),
            **states,
        }

    def _metrics(self, core: Core) -> None:
        if time.monotonic() >= self._next_coverage:
            self._next_coverage = time.monotonic() + COVERAGE_S
            self._log_coverage(core)
        self._refusals.observe_counts(core.refused | {"unmarked": self._merge.refused})
        self._log_without_way(core)
        decided_ns = self._counts.decided_ns
        behind_ms = None if decided_ns is None else (time.time_ns() - decided_ns) // MS_NS
        self._counts.note_status(core, self._merge.refused)
        self._log.info(
            "localizer.metrics",
            **self._totals(),
            behind_ms=behind_ms,
            waiting=core.pending,
            late=core.late,
            unknown_addresses=core.sources.paths.unknown_addresses,
            refused_components=core.intake.refused,
            agents=len(core.sources.liveness),
            beyond_bounds=sum(core.refused.values()) + self._merge.refused,
            pairs_without_way=len(core.without_way),
        )
