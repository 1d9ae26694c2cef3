"""Gathers from the agent's parts what a heartbeat tells, and what is missing to be ready."""

from collections.abc import Collection

from probers.clock import Instant
from probers.host.rnic import Rnic
from probers.lists.follower import PingListFollower
from probers.lists.inbox import Inbox
from probers.lists.registration import Registration, Standing
from probers.publish.heartbeat import Absence, ClockWatch, CountWatch, Delays, Vitals
from probers.publish.publisher import Publisher


class VitalSigns:
    """The watches that remember between heartbeats, and the gathering."""

    def __init__(self, started: Instant) -> None:
        self.clock = ClockWatch(started)
        self.absence = Absence()
        self.delays = Delays()
        self._drops = CountWatch("records dropped")
        self._forged = CountWatch("packets not sealed with a key of ours")

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
        """Return what the next heartbeat tells, the reasons of a bad state among it."""
        packets = [rnic.counts() for rnic in rnics]
        reasons = [
            registration.conflict(now),
            self.absence.reason(now),
            self._drops.reason(publisher.counts.dropped.total(), now),
            self._forged.reason(sum(p.forged for p in packets), now),
            self.clock.reason(now),
            inbox.counts.refusal and f"ping list refused: {inbox.counts.refusal.value}",
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
            reasons=[reason for reason in reasons if reason],
        )


def missing(
    registration: Registration, publisher: Publisher, rnics: Collection[Rnic], *, leaving: bool
) -> list[str]:
    """Return what keeps the agent from doing what it is for; nothing: it is ready.

    What only makes it worse than it could be is the heartbeat's to tell: a restart helps no
    clock that was set, and no RNIC whose link is down beside one that is up.
    """
    standing = registration.standing
    reasons = {
        "leaving": leaving,
        "broker away": publisher.broker_away(),
        "another agent with this id started later": standing is Standing.YIELDED,
        "ping list and registrations are not read yet": standing is Standing.READING,
        "not registered yet": standing is Standing.REGISTERED and not registration.registered,
        "no RNIC can probe": not any(rnic.open for rnic in rnics),
    }
    return [reason for reason, holds in reasons.items() if holds]
