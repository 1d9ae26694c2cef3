"""Makes records of the contract from what the agent's parts measure, and queues them.

It also gathers the contents of heartbeats, and the reasons why an agent is not ready.
"""

from collections.abc import Collection

from probers.clock import Instant
from probers.config.rnics import RnicConfig
from probers.config.settings import AgentConfig
from probers.host.sampling import Batch
from probers.host.states import StateReport
from probers.lists.follower import PingListFollower
from probers.lists.inbox import Inbox
from probers.lists.registration import Announcement, Registration, RegistrationState
from probers.probing.rnic import Rnic
from probers.probing.rounds import Round
from probers.probing.trace import FinishedTrace
from probers.publish.publisher import Publisher
from probers.reporting.heartbeat import (
    BrokerAbsence,
    ClockWatch,
    CountWatch,
    Delays,
    FloodWatch,
    Vitals,
)
from probers.transports.base import Transport
from probers.transports.sockets import LINUX
from schemas import topics
from schemas.enums import ProbingState
from schemas.ids import state_id
from schemas.records import (
    ComponentState,
    CounterBatch,
    Endpoint,
    FlowEntry,
    FlowTable,
    Heartbeat,
    PathTrace,
    ProbeRound,
)
from schemas.version import VERSION


class VitalSigns:
    """Gathers the contents of heartbeats, with the watches that remember between them."""

    def __init__(self, started: Instant) -> None:
        self.clock = ClockWatch(started)
        self.absence = BrokerAbsence()
        self.delays = Delays()
        self._drops = CountWatch("records dropped")
        self._forged = CountWatch("packets not sealed with a key of ours")
        self._flood = FloodWatch(started)

    def gather(
        self,
        *,
        now: Instant,
        rnics: list[Rnic],
        follower: PingListFollower,
        registration: Registration,
        publisher: Publisher,
        inbox: Inbox,
        overloaded: bool,
        overlay: str | None = None,
    ) -> Vitals:
        """Return the contents of the next heartbeat, with the reasons if the agent is degraded."""
        packets = [rnic.counts() for rnic in rnics]
        filtered = sum(p.filtered for p in packets)
        probing, probing_reason = probing_state(registration, follower)
        offset = publisher.clock_offset.estimate(now)
        refusal = inbox.counts.refusal and inbox.counts.refusal.value
        reasons = [
            registration.conflict(now),
            self.absence.reason(now),
            self._drops.reason(publisher.counts.dropped.total(), now),
            self._forged.reason(sum(p.forged for p in packets), now),
            self.clock.reason(now),
            self._flood.reason(filtered, now),
            refusal and f"ping list refused: {refusal}",
            "more targets than the rate allows" if overloaded else None,
            overlay and f"overlay tables: {overlay}",
            *(rnic.trouble for rnic in rnics),
        ]
        return Vitals(
            endpoints=sum(rnic.open for rnic in rnics),
            targets_active=follower.targets_active,
            targets_waiting=follower.targets_waiting,
            pinglist_version=follower.version,
            rounds_sent=publisher.counts.rounds_sent,
            results_sent=publisher.counts.results_sent,
            rounds_dropped=publisher.counts.rounds_dropped,
            replies_duplicate=sum(p.duplicate for p in packets),
            replies_late=sum(p.late for p in packets),
            replies_foreign=sum(p.foreign for p in packets),
            packets_malformed=sum(p.malformed + p.forged for p in packets),
            records_undecodable=inbox.counts.undecodable,
            broker_away=self.absence.away,
            host_delay_ns=self.delays.take_percentile_ns(),
            registered=registration.registered,
            probing=probing,
            probing_reason=probing_reason,
            displaced_by=registration.displaced_by,
            flows_active=len(follower.flows()) if registration.probing else 0,
            lists_refused=follower.lists_refused,
            list_refusal=refusal,
            registrations_refused=registration.refused,
            clock_offset_ns=offset.offset_ns,
            clock_error_ns=offset.error_ns,
            clock_offset_reason=offset.reason,
            packets_filtered=filtered if LINUX else None,
            reasons=[reason for reason in reasons if reason],
        )


def probing_state(
    registration: Registration, follower: PingListFollower
) -> tuple[ProbingState, str | None]:
    """Return whether the agent probes, and if not, why."""
    if registration.state is RegistrationState.YIELDED:
        incarnation = registration.displaced_by
        return ProbingState.DISPLACED, f"yielded to the agent with incarnation {incarnation}"
    if registration.state is RegistrationState.READING:
        return ProbingState.STARTING, "ping lists and registrations are not read yet"
    if follower.version is None:
        return ProbingState.NO_LIST, "no ping list for this agent"
    if not follower.targets_active + follower.targets_waiting:
        listed = follower.targets_listed
        why = f"none of its {listed} targets can be probed" if listed else "it has no targets"
        return ProbingState.EMPTY_LIST, f"ping list version {follower.version}: {why}"
    if not follower.targets_active:
        return ProbingState.WAITING, f"none of {follower.targets_waiting} targets has registered"
    return ProbingState.PROBING, None


def not_ready_reasons(
    registration: Registration, publisher: Publisher, rnics: Collection[Rnic], *, leaving: bool
) -> list[str]:
    """Return why the agent is not ready to probe and publish; empty: it is ready.

    What degrades the agent but does not stop it is in the heartbeat only: a restart does not help
    when a clock was set, or when one RNIC of several has its link down.
    """
    state = registration.state
    reasons = {
        "leaving": leaving,
        "broker away": publisher.broker_away(),
        "another agent with this id started later": state is RegistrationState.YIELDED,
        "ping list and registrations are not read yet": state is RegistrationState.READING,
        "not registered yet": state is RegistrationState.REGISTERED and not registration.registered,
        "no RNIC can probe": not any(rnic.open for rnic in rnics),
    }
    return [reason for reason, holds in reasons.items() if holds]


class Reporter:
    """Builds records and queues them for Kafka."""

    def __init__(
        self, config: AgentConfig, cluster: str, registration: Registration, publisher: Publisher
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._registration = registration
        self._publisher = publisher

    def endpoint(self, rnic: RnicConfig, responder: Transport, now: Instant) -> Endpoint:
        """Return the registration of an RNIC that answers there."""
        return Endpoint(
            cluster=self._cluster,
            endpoint_id=rnic.endpoint_id,
            agent_id=self._config.id,
            container_id=self._config.container_id,
            host_id=self._config.host_id,
            task_id=self._config.task_id,
            rail=rnic.rail,
            transport=responder.kind,
            address=responder.address,
            port=responder.port,
            qkey=responder.qkey,
            incarnation=self._registration.incarnation,
            registered_at=now.epoch_us,
            producer_version=VERSION,
        )

    def announce(self, announcements: list[Announcement], now: Instant) -> None:
        """Queue registrations and tombstones."""
        for announcement in announcements:
            self._publisher.publish_state(
                topics.ENDPOINT, announcement.endpoint_id, announcement.endpoint, now.realtime_ns
            )

    def round(self, done: Round) -> None:
        """Queue a round."""
        self._publisher.publish_round(
            self._config.id,
            ProbeRound(
                cluster=self._cluster,
                agent_id=self._config.id,
                host_id=self._config.host_id,
                incarnation=self._registration.incarnation,
                round_seq=done.seq,
                started_at=done.started.epoch_us,
                interval_ns=self._config.interval_ns,
                pinglist_version=done.pinglist_version,
                producer_version=VERSION,
                results=done.results(),
            ),
            done.started.realtime_ns,
        )

    def trace(self, trace: FinishedTrace, now: Instant) -> None:
        """Queue a trace."""
        target = trace.target
        record = PathTrace(
            cluster=self._cluster,
            path_id=target.path_id,
            src=target.src,
            dst=target.dst,
            flow=target.flow,
            agent_id=self._config.id,
            traced_at=now.epoch_us,
            cause=trace.cause,
            complete=trace.complete,
            incomplete_reason=trace.incomplete_reason,
            producer_version=VERSION,
            hops=trace.hops,
        )
        self._publisher.publish(topics.PATH_TRACE, target.path_id, record, now.realtime_ns)

    def counters(self, batch: Batch, tick_ns: int) -> None:
        """Queue a second of counter samples."""
        record = CounterBatch(
            cluster=self._cluster,
            agent_id=self._config.id,
            host_id=self._config.host_id,
            started_at=batch.started_ns // 1000,
            tick_ns=tick_ns,
            producer_version=VERSION,
            samples=batch.samples,
        )
        self._publisher.publish(topics.RNIC_COUNTERS, self._config.id, record, batch.started_ns)

    def states(self, reports: list[StateReport], now: Instant) -> None:
        """Queue states of components, each in place of one that still waits."""
        for one in reports:
            key = state_id(one.component_id, one.attribute)
            record = ComponentState(
                cluster=self._cluster,
                state_id=key,
                component_id=one.component_id,
                attribute=one.attribute,
                text=one.value.text,
                number=one.value.number,
                missing_reason=one.value.missing_reason,
                changed_at=one.changed_us,
                observed_at=one.observed_us,
                source=self._config.id,
                producer_version=VERSION,
            )
            self._publisher.publish_state(topics.COMPONENT_STATE, key, record, now.realtime_ns)

    def overlay(self, entries: tuple[FlowEntry, ...] | None, captured: Instant) -> None:
        """Queue the host's overlay tables; None: a tombstone, since they are not known any more."""
        host_id = self._config.host_id
        table = (
            entries
            if entries is None
            else FlowTable(
                cluster=self._cluster,
                host_id=host_id,
                captured_at=captured.epoch_us,
                producer_version=VERSION,
                entries=entries,
            )
        )
        self._publisher.publish_state(topics.OVERLAY_FLOWS, host_id, table, captured.realtime_ns)

    def heartbeat(self, heartbeat: Heartbeat, now: Instant) -> None:
        """Queue a heartbeat in place of one that still waits."""
        self._publisher.publish_state(topics.HEARTBEAT, self._config.id, heartbeat, now.realtime_ns)
