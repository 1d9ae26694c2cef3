"""The agent: one thread with one loop that calls the other parts when they are due.

The loop reads its sockets before it decides that a probe has timed out. So a process that was not
scheduled for a while does not report replies as lost that wait in its sockets.
"""

import contextlib
import gc
import os
import socket
from typing import TYPE_CHECKING, Final

from probers.clock import Clock, Instant, IntervalTimer
from probers.config.settings import AgentConfig
from probers.health.supervision import Supervision
from probers.host.sampling import Batch, Sampler, Source, Ticks
from probers.host.state_watch import build_state_watch
from probers.lists.consumer import TopicReader
from probers.lists.follower import PingListFollower
from probers.lists.inbox import READ_ANEW_NS, Inbox
from probers.lists.registration import Registration, RegistrationState
from probers.packet import Packets
from probers.probing.rnic import Change, Rnic
from probers.probing.rounds import Round
from probers.probing.scheduler import ProbeScheduler
from probers.publish.publisher import Publisher
from probers.reporting.heartbeat import HeartbeatBuilder
from probers.reporting.reports import Reporter, VitalSigns, not_ready_reasons
from probers.transports.base import ProbeSettings, Transport
from probers.transports.datagrams import native
from probers.transports.waiting import Waiter
from schemas import topics
from schemas.codec import Codec
from schemas.kafka.connection import KafkaSettings
from schemas.process.eventlog import EventLog
from schemas.process.memory import return_free
from schemas.version import VERSION

if TYPE_CHECKING:
    from probers.overlay.watch import OverlayWatch

# How often Kafka is served; a new ping list or registration waits this long at most. Records leave
# at once, whenever that is.
KAFKA_EVERY_NS: Final = 250 * 10**6
# What is due within this time is done while the process is awake anyway. Half of the shortest
# interval: so most timers meet a slot of probes, and do not wake the process by themselves.
SLACK_NS: Final = KAFKA_EVERY_NS // 2
LOOK_EVERY_NS: Final = 10**9
# Freed memory is returned to the system this often: messages that wait while the broker is away
# are allocated between short-lived objects.
RETURN_MEMORY_EVERY_NS: Final = 10 * 10**9
# Longest sleep, whatever the parts ask for.
MAX_SLEEP_NS: Final = 10**9
# How long acknowledgements are waited for at the end: a container that has to stop does not wait
# longer for a broker that is away.
FLUSH_NS: Final = 3 * 10**9


class Agent:
    """Everything of an agent but its signals and its command line."""

    def __init__(
        self, config: AgentConfig, settings: KafkaSettings, codec: Codec, clock: Clock
    ) -> None:
        started = clock.now()
        log = EventLog("agent")
        self._config = config
        self._clock = clock
        self._log = log
        self._stopping = False
        self._wake, self._waking = socket.socketpair()
        self._wake.setblocking(False)
        self._waking.setblocking(False)
        self._waiter = Waiter()
        self._waiter.watch(self._waking.fileno(), None)
        self._polled: dict[Transport, int] = {}
        probes = ProbeSettings(
            probe_bytes=config.probe_bytes,
            packets=Packets(config.probe_keys),
            flows=config.flows,
        )
        self._rnics = {r.endpoint_id: Rnic(r, clock, probes=probes, log=log) for r in config.rnics}
        self._publisher = Publisher(
            settings, codec, clock, client_id=config.id, queue_bytes=config.queue_bytes, log=log
        )
        self._follower = PingListFollower(
            cluster=settings.cluster,
            agent_id=config.id,
            endpoints=frozenset(self._rnics),
            max_flows=config.flows,
        )
        self._registration = Registration(
            agent_id=config.id, cluster=settings.cluster, started=started
        )
        self._reporter = Reporter(config, settings.cluster, self._registration, self._publisher)
        self._overlay = _overlay_watch(config, settings.cluster, log)
        self._reader = TopicReader(
            settings,
            clock,
            (topics.PINGLIST, topics.TARGET),
            others=(topics.ENDPOINT,),
            client_id=config.id,
            log=log,
        )
        self._inbox = Inbox(
            agent_id=config.id,
            reader=self._reader,
            codec=codec,
            clock=clock,
            follower=self._follower,
            registration=self._registration,
            dead_letters=self._publisher,
            log=log,
            observer=self._overlay,
        )
        self._vitals = VitalSigns(started)
        self._probing = ProbeScheduler(
            config,
            clock,
            self._rnics,
            publish_round=self._round_done,
            publish_trace=lambda trace: self._reporter.trace(trace, clock.now()),
            delay=self._vitals.delays.add,
        )
        self._heart = HeartbeatBuilder(
            cluster=settings.cluster,
            agent_id=config.id,
            host_id=config.host_id,
            interval_ns=config.heartbeat_ns,
        )
        counters = {
            r.endpoint_id: Source(r.config.rail, r.counters)
            for r in self._rnics.values()
            if r.counters is not None
        }
        self._sampler = Sampler.of(config.counters_tick_ns, counters)
        rdma = {
            r.endpoint_id: r.answering_transport
            for r in self._rnics.values()
            if r.config.rdma is not None
        }
        self._watch = build_state_watch(config, started, SLACK_NS, rdma)
        self._supervision = Supervision(config.id, config.health, os.environ, started, SLACK_NS)
        self._registration_state = RegistrationState.READING
        # When timers and probing were due, as of the last sleep.
        self._due_ns = (started.monotonic_ns, started.monotonic_ns)
        self._kafka_due = IntervalTimer(KAFKA_EVERY_NS, started.monotonic_ns, SLACK_NS)
        self._look_due = IntervalTimer(LOOK_EVERY_NS, started.monotonic_ns, SLACK_NS)
        self._heartbeat_due = IntervalTimer(config.heartbeat_ns, started.monotonic_ns, SLACK_NS)
        # Waits until the process is awake for something else.
        self._return_memory_due = IntervalTimer(RETURN_MEMORY_EVERY_NS, started.monotonic_ns)

    def run(self) -> None:
        """Work until `stop`, then leave in order."""
        self._log.info(
            "agent.started",
            agent_id=self._config.id,
            version=VERSION,
            rnics=len(self._rnics),
            interval_ms=self._config.interval_ns // 10**6,
            packets_by="Python" if native is None else "C",
        )
        # Objects built at the start stay: the collector need not visit them again.
        gc.collect()
        gc.freeze()
        return_free()
        self._supervision.started()
        while not self._stopping:
            self._sleep()
            self._work()
        self._leave()

    def stop(self) -> None:
        """Ask the loop to end; may be called from a signal handler."""
        self._stopping = True
        with contextlib.suppress(OSError):  # closed already, or enough wake-ups wait
            self._wake.send(b"!")

    def close(self) -> None:
        """Close sockets, files and clients."""
        for rnic in self._rnics.values():
            rnic.close()
        if self._overlay is not None:
            self._overlay.close()
        self._supervision.close()
        self._reader.close()
        self._waiter.close()
        self._wake.close()
        self._waking.close()

    def _sleep(self) -> None:
        """Wait until something is due or a packet arrives, and read the packets."""
        now = self._clock.now()
        ticks = self._sampler.ticks() if self._sampler and self._waiter.samples else None
        self._due_ns = (
            self._timers_due_ns(now, sampled=ticks is not None),
            self._probing_due_ns(now),
        )
        self._read_sockets(min(max(0, min(self._due_ns) - now.monotonic_ns), MAX_SLEEP_NS), ticks)

    def _read_sockets(self, wait_ns: int, ticks: Ticks | None = None) -> None:
        ready, taken = self._waiter.wait(wait_ns, ticks)
        if None in ready:
            self._waking.recv(64)
        transports = [transport for transport in ready if transport is not None]
        if transports:
            self._probing.poll(transports)
        if taken and self._sampler is not None:
            self._report_counters(self._sampler.take(taken, self._clock.now))

    def _report_counters(self, batches: list[Batch]) -> None:
        if self._registration.probing:
            for batch in batches:
                self._reporter.counters(batch, self._config.counters_tick_ns or 0)

    def _timers_due_ns(self, now: Instant, *, sampled: bool) -> int:
        """Return when the next timer is due; where the waiter samples, not that of the counters."""
        timers = (self._kafka_due, self._look_due, self._heartbeat_due, self._watch)
        due_ns = min(timer.due_ns for timer in timers)
        if self._sampler is None or sampled:
            return due_ns
        return min(due_ns, self._sampler.due_ns(now))

    def _probing_due_ns(self, now: Instant) -> int:
        due_ns = self._probing.due_ns(now)
        return now.monotonic_ns + MAX_SLEEP_NS if due_ns is None else due_ns

    def _work(self) -> None:
        """Do what was due before the last sleep; probing first, since it has to be punctual.

        Work that new packets cause waits for the next turn, which begins at once: so each part is
        asked once in each turn.
        """
        now = self._clock.now()
        timers_ns, probing_ns = self._due_ns
        if probing_ns <= now.monotonic_ns:
            self._probing.run()
            self._poll_new_transports()
        if self._sampler is not None and self._sampler.due_ns(now) <= now.monotonic_ns:
            self._report_counters(self._sampler.tick(self._clock.now))
        # With that much slack, what is almost due is done while the process is awake.
        if timers_ns > now.monotonic_ns + SLACK_NS:
            return
        if self._look_due.expired(now.monotonic_ns):
            self._look(now)
            self._poll_new_transports()
        if self._watch.expired(now.monotonic_ns) and self._registration.probing:
            self._reporter.states(self._watch.look(now), now)
        if self._kafka_due.expired(now.monotonic_ns):
            self._serve_kafka(now)
            self._supervision.serve(now, self._missing)
        if self._heartbeat_due.expired(now.monotonic_ns):
            self._beat(now)
        if self._return_memory_due.expired(now.monotonic_ns):
            return_free()

    def _round_done(self, done: Round) -> None:
        self._reporter.round(done)
        if self._overlay is not None:
            self._overlay.probed(done.results(), self._clock.now())

    def _serve_kafka(self, now: Instant) -> None:
        self._publisher.poll()
        ahead_ns = self._publisher.clock_offset.latest_ns(now)
        if ahead_ns is not None:
            self._registration.observe_clock(ahead_ns)
        self._inbox.poll()
        registration = self._registration
        for endpoint_id in self._publisher.take_stored_endpoints():
            registration.stored(endpoint_id)
        self._reporter.announce(registration.due(now), now)
        flows = self._follower.flows() if registration.probing else ()
        follower = self._follower
        self._probing.follow(flows, follower.version, now, trace_budget=follower.trace_budget)
        if self._overlay is not None and registration.probing:
            self._serve_overlay(self._overlay, now)
        if registration.state is not self._registration_state:
            self._registration_changed(registration.state, now)
        absence = self._vitals.absence
        if absence.look(now, away=self._publisher.broker_away()):
            say = self._log.warning if absence.away else self._log.info
            say(
                "broker.away" if absence.away else "broker.back",
                waiting=self._publisher.waiting,
                rounds_dropped=self._publisher.counts.rounds_dropped,
            )
            if not absence.away and absence.lasted_ns >= READ_ANEW_NS:
                self._inbox.read_anew()

    def _serve_overlay(self, overlay: "OverlayWatch", now: Instant) -> None:
        """Read the overlay tables when it is time, and publish what has changed."""
        for entries, captured in overlay.poll(self._follower.flows(), now):
            self._reporter.overlay(entries, captured)
        self._reporter.states(overlay.take_reports(), now)

    def _registration_changed(self, state: RegistrationState, now: Instant) -> None:
        if state is RegistrationState.YIELDED:
            self._log.error(
                "agent.yielded",
                agent_id=self._config.id,
                reason="another agent with this id started later",
                hint="give one of them another id, or stop it",
            )
            self._beat(now)
        elif self._registration_state is RegistrationState.YIELDED:
            self._log.warning("agent.resumed", agent_id=self._config.id)
        self._registration_state = state

    def _look(self, now: Instant) -> None:
        for rnic in self._rnics.values():
            change = rnic.look(now)
            if change in (Change.MOVED, Change.LEFT):
                self._close_rnic(rnic, change)
            if change is Change.MOVED:
                change = rnic.look(now)
            if change is Change.CAME:
                self._present(rnic, now)
        stepped_ns = self._vitals.clock.look(now)
        if stepped_ns is not None:
            self._log.warning("clock.set", by_s=round(stepped_ns / 1e9, 3))

    def _present(self, rnic: Rnic, now: Instant) -> None:
        responder = rnic.responder
        self._registration.present(self._reporter.endpoint(rnic.config, responder, now))
        self._log.info(
            "rnic.open",
            endpoint_id=rnic.endpoint_id,
            transport=responder.kind.value,
            address=f"{responder.address}:{responder.port}",
        )

    def _close_rnic(self, rnic: Rnic, change: Change) -> None:
        """Close an RNIC that moves or has left.

        Only one that has left is unregistered: peers of one that moves go on probing it.
        """
        if change is Change.LEFT:
            self._registration.absent(rnic.endpoint_id)
        self._probing.forget(rnic.transports)
        for transport in rnic.transports:
            descriptor = self._polled.pop(transport, None)
            if descriptor is not None:
                self._waiter.forget(descriptor)
        rnic.close()
        self._log.warning(
            "rnic.left" if change is Change.LEFT else "rnic.moved", endpoint_id=rnic.endpoint_id
        )

    def _beat(self, now: Instant, *, leaving: bool = False) -> None:
        if leaving and self._registration_state is RegistrationState.YIELDED:
            return  # the other agent with this id goes on
        vitals = self._vitals.gather(
            now=now,
            rnics=list(self._rnics.values()),
            follower=self._follower,
            registration=self._registration,
            publisher=self._publisher,
            inbox=self._inbox,
            overloaded=self._probing.plan.overloaded,
            overlay=None if self._overlay is None else self._overlay.trouble,
        )
        incarnation = self._registration.incarnation
        heartbeat = self._heart.build(vitals, incarnation=incarnation, now=now, leaving=leaving)
        self._reporter.heartbeat(heartbeat, now)
        self._supervision.beaten(heartbeat)

    def _missing(self) -> list[str]:
        return not_ready_reasons(
            self._registration, self._publisher, self._rnics.values(), leaving=self._stopping
        )

    def _poll_new_transports(self) -> None:
        for rnic in self._rnics.values():
            for transport in rnic.transports:
                if transport not in self._polled:
                    self._polled[transport] = transport.fileno()
                    self._waiter.watch(transport.fileno(), transport)

    def _leave(self) -> None:
        """Unregister, answer probes a little longer, and wait for acknowledgements."""
        now = self._clock.now()
        self._log.info("agent.leaving", agent_id=self._config.id)
        self._supervision.leaving()
        self._probing.finish()
        if self._overlay is not None and self._overlay.published and self._registration.probing:
            # Nobody renews the tables from now on; without a tombstone they would accuse for ever.
            self._reporter.overlay(None, now)
        self._reporter.announce(self._registration.leave(), now)
        self._beat(now, leaving=True)
        end_ns = now.monotonic_ns + max(self._config.linger_ns, 1)
        # Peers go on probing until they have read the tombstones. They are answered, so that
        # leaving does not look like a fault.
        while (now := self._clock.now()).monotonic_ns < end_ns:
            self._publisher.poll()
            self._supervision.serve(now, self._missing)
            self._read_sockets(min(end_ns - now.monotonic_ns, KAFKA_EVERY_NS // 2))
            self._probing.run()
        missing = self._publisher.close(FLUSH_NS)
        self._log.info("agent.left", agent_id=self._config.id, unacknowledged=missing)


def _overlay_watch(config: AgentConfig, cluster: str, log: EventLog) -> "OverlayWatch | None":
    """Return what reads the host's overlay tables; without settings for it, nothing is loaded."""
    if config.overlay is None:
        return None
    from probers.overlay.watch import OverlayWatch  # noqa: PLC0415 - loaded only where wanted

    return OverlayWatch(config.overlay, host_id=config.host_id, cluster=cluster, log=log)
