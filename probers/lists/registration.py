"""Registers the agent's endpoints, and decides which of two agents with one id continues. Pure.

Of two agents with one id, **the one that started later continues and the other yields**: a
restart is by far the most frequent reason, and the new process is the one that somebody wanted.
"Later" means a larger incarnation. An agent chooses its incarnation after it has read the topic
to its end, larger than any seen under its id, so that a clock set back between two starts does
not reverse the rule. The two cannot take turns: only the one with the larger incarnation writes
registrations, and the one that yielded writes nothing until a tombstone says that the other has
left.
"""

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from probers.clock import Instant
from schemas.records import Endpoint

# A registration that is not seen on the topic after this time is sent again: it may
# have been dropped while the broker was away.
CONFIRM_NS: Final = 30 * 10**9
# Least time between two registrations of an endpoint that answer those of another agent.
REASSERT_NS: Final = 5 * 10**9
# How long after a foreign registration the heartbeat still mentions it.
CONFLICT_SHOWN_NS: Final = 60 * 10**9
# No agent starts so long after its registration has arrived, whatever its clock: such a record must
# not silence an agent.
MAX_INCARNATION_AHEAD_NS: Final = 3_600 * 10**9


# Registrations are dated by the broker's clock if the own one is further off than this: with a time
# in the future nobody accepts them, and nobody would probe the agent.
CLOCK_TOLERANCE_NS: Final = 10**9


class RegistrationState(Enum):
    """What the agent may do, from its registrations on the topic."""

    # Reading what is registered; answers probes, writes nothing.
    READING = auto()
    REGISTERED = auto()
    # Another agent with this id started later.
    YIELDED = auto()


@dataclass(slots=True)
class _Own:
    """One of the own endpoints, and what has become of its registration."""

    endpoint: Endpoint
    present: bool = False
    # Whether the broker has taken the latest registration; whether it was read since.
    stored: bool = False
    seen: bool = False
    sent_ns: int | None = None
    due_ns: int = 0


@dataclass(frozen=True, slots=True)
class Announcement:
    """What to write to endpoint.v1; `endpoint` None is a tombstone."""

    endpoint_id: str
    endpoint: Endpoint | None


class Registration:
    """The own endpoints on `endpoint.v1`."""

    def __init__(self, *, agent_id: str, cluster: str, started: Instant) -> None:
        self._agent_id = agent_id
        self._cluster = cluster
        self._own: dict[str, _Own] = {}
        self._tombstones: list[Announcement] = []
        # Registered under our id by a predecessor that did not say goodbye.
        self._stale: set[str] = set()
        self._largest_seen = 0
        self._conflict_ns: int | None = None
        # How far the own wall clock is ahead of the broker's, as far as that matters.
        self._clock_ahead_ns = 0
        self._started_ns = started.realtime_ns
        self.state = RegistrationState.READING
        self.incarnation = started.realtime_ns
        # Incarnation of the agent that this one has yielded to; None: to none.
        self.displaced_by: int | None = None
        # Registrations of others under our id, since the start.
        self.conflicts = 0
        # Of these, with an incarnation that no agent can have.
        self.refused = 0
        self._refused_ns: int | None = None

    @property
    def registered(self) -> bool:
        """Whether all present endpoints are on the topic: read there, or taken by the broker.

        The agent reads them as copies of the skeleton job, and does not depend on one that leads.
        """
        return self.state is RegistrationState.REGISTERED and all(
            own.seen or own.stored for own in self._own.values() if own.present
        )

    @property
    def probing(self) -> bool:
        """Whether the agent is to probe and to publish."""
        return self.state is RegistrationState.REGISTERED

    def conflict(self, now: Instant) -> str | None:
        """Return what the heartbeat says about another agent with this id; None: there is none."""
        if self.state is RegistrationState.YIELDED:
            return "another agent with this id started later: this one has yielded"
        if (
            self._refused_ns is not None
            and now.monotonic_ns - self._refused_ns <= CONFLICT_SHOWN_NS
        ):
            return f"{self.refused} registrations under this id refused: they start in the future"
        if self._conflict_ns is None or now.monotonic_ns - self._conflict_ns > CONFLICT_SHOWN_NS:
            return None
        return "another agent with this id registers too"

    def present(self, endpoint: Endpoint) -> None:
        """Register the endpoint of an RNIC that answers, now or again."""
        self._own[endpoint.endpoint_id] = _Own(endpoint, present=True)

    def stored(self, endpoint_id: str) -> None:
        """Note that the broker has taken a registration."""
        own = self._own.get(endpoint_id)
        if own is not None and own.sent_ns is not None:
            own.stored = True

    def absent(self, endpoint_id: str) -> None:
        """Unregister the endpoint of an RNIC that is gone."""
        own = self._own.get(endpoint_id)
        if own is not None and own.present:
            own.present = False
            if own.sent_ns is not None and self.probing:
                self._tombstones.append(Announcement(endpoint_id, None))

    def observe_clock(self, ahead_ns: int) -> None:
        """Take notice of how far the own wall clock is ahead of the broker's."""
        if abs(ahead_ns - self._clock_ahead_ns) <= CLOCK_TOLERANCE_NS:
            return
        self._clock_ahead_ns = ahead_ns if abs(ahead_ns) > CLOCK_TOLERANCE_NS else 0
        if self.probing and not any(own.seen for own in self._own.values()):
            self.incarnation = self._chosen_incarnation()

    def read_to_end(self) -> None:
        """Choose the incarnation; to be called when the topic has been read to its end."""
        if self.state is RegistrationState.READING:
            self.incarnation = self._chosen_incarnation()
            self.state = RegistrationState.REGISTERED
            # What it answered for and we do not is gone: peers must not go on
            # probing it, and take its silence for a fault.
            self._tombstones.extend(
                Announcement(endpoint_id, None) for endpoint_id in sorted(self._stale)
            )
            self._stale.clear()

    def concerns(self, endpoint_id: str, endpoint: Endpoint | None) -> bool:
        """Whether a registration, or a tombstone, is of an own endpoint or under the own id."""
        ours = endpoint is not None and endpoint.agent_id == self._agent_id
        return ours or endpoint_id in self._own

    def forgotten(self, now: Instant) -> None:
        """Register again; to be called when the topic has lost its records."""
        for own in self._own.values():
            self._reassert(own, now)

    def seen(self, endpoint: Endpoint, now: Instant, *, arrived_ns: int | None = None) -> None:
        """Process a registration, if it is under the own id or of an own endpoint.

        `arrived_ns` is when the broker appended it, nanoseconds since the epoch; None: unknown.
        """
        if not self.concerns(endpoint.endpoint_id, endpoint) or endpoint.cluster != self._cluster:
            return
        own = self._own.get(endpoint.endpoint_id)
        latest_ns = now.realtime_ns - self._clock_ahead_ns if arrived_ns is None else arrived_ns
        if not 0 <= endpoint.incarnation - 1 < latest_ns + MAX_INCARNATION_AHEAD_NS:
            self._refuse(own, now)
            return
        if endpoint.incarnation == self.incarnation and self.state is not RegistrationState.READING:
            if own is not None:
                own.seen = True
            return
        self._largest_seen = max(self._largest_seen, endpoint.incarnation)
        if self.state is RegistrationState.READING:
            if own is None:
                self._stale.add(endpoint.endpoint_id)
            return
        self.conflicts += 1
        self._conflict_ns = now.monotonic_ns
        if endpoint.incarnation > self.incarnation:
            self.state = RegistrationState.YIELDED
            self.displaced_by = endpoint.incarnation
        elif own is not None:
            self._reassert(own, now)

    def unreadable(self, endpoint_id: str, now: Instant) -> None:
        """Process a record that could not be decoded; in place of an own one it hides that."""
        own = self._own.get(endpoint_id)
        if own is not None:
            self._refuse(own, now)

    def left(self, endpoint_id: str, now: Instant) -> None:
        """Process a tombstone; one of an own endpoint is from the other agent with this id."""
        self._stale.discard(endpoint_id)
        own = self._own.get(endpoint_id)
        if own is None or not own.present or self.state is RegistrationState.READING:
            return
        if self.state is RegistrationState.YIELDED:
            self.state = RegistrationState.REGISTERED
            self.displaced_by = None
            self.incarnation = max(self.incarnation, self._largest_seen) + 1
            for each in self._own.values():
                each.seen = each.stored = False
                each.due_ns = now.monotonic_ns
        elif own.sent_ns is not None:
            # Of one that left after we came; or our own, of an RNIC that is back.
            self._reassert(own, now)

    def due(self, now: Instant) -> list[Announcement]:
        """Return what to write now."""
        announcements, self._tombstones = self._tombstones, []
        if not self.probing:
            return announcements
        for own in self._own.values():
            if not own.present or own.seen or now.monotonic_ns < own.due_ns:
                continue
            own.sent_ns = now.monotonic_ns
            own.due_ns = now.monotonic_ns + CONFIRM_NS
            registered_at = (now.realtime_ns - self._clock_ahead_ns) // 1000
            own.endpoint = replace(
                own.endpoint, incarnation=self.incarnation, registered_at=registered_at
            )
            announcements.append(Announcement(own.endpoint.endpoint_id, own.endpoint))
        return announcements

    def leave(self) -> list[Announcement]:
        """Return the tombstones of an agent that leaves; none if another agent took over."""
        if not self.probing:
            return []
        return [
            Announcement(endpoint_id, None)
            for endpoint_id, own in self._own.items()
            if own.present and own.sent_ns is not None
        ]

    def _chosen_incarnation(self) -> int:
        return max(self._started_ns - self._clock_ahead_ns, self._largest_seen + 1)

    def _refuse(self, own: _Own | None, now: Instant) -> None:
        """Count an implausible registration; peers that have read it are told ours again."""
        self.refused += 1
        self._refused_ns = now.monotonic_ns
        if own is not None and self.state is RegistrationState.REGISTERED:
            self._reassert(own, now)

    def _reassert(self, own: _Own, now: Instant) -> None:
        own.seen = own.stored = False
        earliest_ns = 0 if own.sent_ns is None else own.sent_ns + REASSERT_NS
        own.due_ns = max(now.monotonic_ns, earliest_ns)
