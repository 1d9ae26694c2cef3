"""The heartbeat: state of the agent, why it is degraded, and its counts. Pure."""

from dataclasses import dataclass, field
from typing import Final

from probers.clock import Instant
from schemas.enums import AgentState, ProbingState
from schemas.records import Heartbeat
from schemas.version import VERSION

# A clock that is slewed gains or loses 0.5 ms in a second; what jumps by more than
# this was set.
STEP_NS: Final = 50 * 10**6
# How long heartbeats mention something that has happened once.
SHOWN_NS: Final = 60 * 10**9
# Delays kept for one interval's percentile: a rate of 4,096 probes per heartbeat is
# beyond what an agent is for.
MAX_DELAYS: Final = 4_096
PERCENTILE: Final = 95
# Packets dropped by the kernel that a heartbeat mentions, and the least time they are counted over.
FLOOD_HZ: Final = 1_000
LEAST_INTERVAL_S: Final = 0.1


def _shown(at_ns: int, now: Instant) -> bool:
    """Return whether heartbeats still mention what happened at that time."""
    return now.monotonic_ns - at_ns <= SHOWN_NS


class ClockWatch:
    """Notices that the wall clock was set."""

    def __init__(self, started: Instant) -> None:
        self._offset_ns = started.offset_ns
        self._stepped: tuple[int, int] | None = None
        self.steps = 0

    def look(self, now: Instant) -> int | None:
        """Return by how much the clock was set since the last look, ns; None: it was not."""
        moved_ns = now.offset_ns - self._offset_ns
        # Always from the last look: drift may add up over days.
        self._offset_ns = now.offset_ns
        if abs(moved_ns) <= STEP_NS:
            return None
        self.steps += 1
        self._stepped = (now.monotonic_ns, moved_ns)
        return moved_ns

    def reason(self, now: Instant) -> str | None:
        """Return the reason that the heartbeat mentions; None: none."""
        if self._stepped is None or not _shown(self._stepped[0], now):
            return None
        return f"clock set by {self._stepped[1] / 1e9:+.3f} s"


class CountWatch:
    """Notices that a count has grown, and mentions it for a minute."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._count = 0
        self._at_ns: int | None = None

    def reason(self, count: int, now: Instant) -> str | None:
        """Return what the heartbeat says, given the number since the start."""
        if count > self._count:
            self._count, self._at_ns = count, now.monotonic_ns
        if self._at_ns is None or not _shown(self._at_ns, now):
            return None
        return f"{count} {self._what}"


class FloodWatch:
    """Notices that the kernel drops many packets of strangers."""

    def __init__(self, started: Instant) -> None:
        self._count = 0
        self._at_ns = started.monotonic_ns

    def reason(self, count: int, now: Instant) -> str | None:
        """Return what the heartbeat says, given the number dropped since the start."""
        passed_s = max(LEAST_INTERVAL_S, (now.monotonic_ns - self._at_ns) / 1e9)
        rate_hz = (count - self._count) / passed_s
        self._count, self._at_ns = count, now.monotonic_ns
        return f"a flood: {rate_hz:,.0f} packets/s dropped" if rate_hz >= FLOOD_HZ else None


class BrokerAbsence:
    """How long the broker was away; heartbeats mention it for a minute after its return.

    While the broker is away only the latest heartbeat waits. Without this memory, the one that says
    "broker away" would be replaced at the moment of the return, and nobody would see it.
    """

    def __init__(self) -> None:
        self._since_ns: int | None = None
        self._ended: tuple[int, int] | None = None

    @property
    def away(self) -> bool:
        """Whether it was away when last looked at."""
        return self._since_ns is not None

    @property
    def lasted_ns(self) -> int:
        """How long the last absence lasted that is still remembered, nanoseconds; 0: none."""
        return 0 if self._ended is None else self._ended[1]

    def look(self, now: Instant, *, away: bool) -> bool:
        """Note whether it is away now; return whether that is new."""
        if away is self.away:
            return False
        if self._since_ns is not None:
            absence_ns = now.monotonic_ns - self._since_ns
            # A broker that returns may be away again for a moment: the longest absence is kept.
            if self._shown_absence_ns(now) <= absence_ns:
                self._ended = (now.monotonic_ns, absence_ns)
        self._since_ns = now.monotonic_ns if away else None
        return True

    def reason(self, now: Instant) -> str | None:
        """Return what the heartbeat says."""
        if self.away:
            return "broker away"
        absence_ns = self._shown_absence_ns(now)
        return f"broker was away for {absence_ns / 1e9:.1f} s" if absence_ns else None

    def _shown_absence_ns(self, now: Instant) -> int:
        """Return the absence that is still mentioned, nanoseconds; 0: none."""
        if self._ended is None or not _shown(self._ended[0], now):
            return 0
        return self._ended[1]


class Delays:
    """The prober's own delays since the last heartbeat."""

    def __init__(self) -> None:
        self._delays_ns: list[int] = []

    def add(self, delay_ns: int) -> None:
        """Add one delay, nanoseconds."""
        if len(self._delays_ns) < MAX_DELAYS:
            self._delays_ns.append(delay_ns)

    def take_percentile_ns(self) -> int | None:
        """Return the 95th percentile (nearest rank) and begin anew; None: no probe was answered.

        >>> delays = Delays()
        >>> for delay_ns in range(1, 101):
        ...     delays.add(delay_ns)
        >>> delays.take_percentile_ns(), delays.take_percentile_ns()
        (95, None)
        """
        delays, self._delays_ns = sorted(self._delays_ns), []
        if not delays:
            return None
        return delays[-(-len(delays) * PERCENTILE // 100) - 1]


@dataclass(slots=True, kw_only=True)
class Vitals:
    """The contents of a heartbeat, gathered from the agent's parts."""

    endpoints: int
    targets_active: int
    targets_waiting: int
    pinglist_version: int | None
    rounds_sent: int
    results_sent: int
    rounds_dropped: int
    replies_duplicate: int
    replies_late: int
    replies_foreign: int
    packets_malformed: int
    records_undecodable: int
    broker_away: bool
    host_delay_ns: int | None
    registered: bool
    probing: ProbingState
    probing_reason: str | None
    displaced_by: int | None
    flows_active: int
    lists_refused: int
    list_refusal: str | None
    registrations_refused: int
    clock_offset_ns: int | None
    clock_error_ns: int | None
    clock_offset_reason: str | None
    packets_filtered: int | None
    reasons: list[str] = field(default_factory=list)


class HeartbeatBuilder:
    """Numbers the heartbeats and decides the state."""

    def __init__(self, *, cluster: str, agent_id: str, host_id: str, interval_ns: int) -> None:
        self._cluster = cluster
        self._agent_id = agent_id
        self._host_id = host_id
        self._interval_ns = interval_ns
        self._seq = 0

    def build(
        self, vitals: Vitals, *, incarnation: int, now: Instant, leaving: bool = False
    ) -> Heartbeat:
        """Return the next heartbeat."""
        reason = None
        if leaving:
            state = AgentState.LEAVING
        elif vitals.reasons:
            state, reason = AgentState.DEGRADED, "; ".join(vitals.reasons)
        else:
            state = AgentState.RUNNING if vitals.registered else AgentState.STARTING
        heartbeat = Heartbeat(
            cluster=self._cluster,
            agent_id=self._agent_id,
            host_id=self._host_id,
            incarnation=incarnation,
            seq=self._seq,
            sent_at=now.epoch_us,
            interval_ns=self._interval_ns,
            state=state,
            state_reason=reason,
            pinglist_version=vitals.pinglist_version,
            endpoints=vitals.endpoints,
            targets_active=vitals.targets_active,
            targets_waiting=vitals.targets_waiting,
            rounds_sent=vitals.rounds_sent,
            results_sent=vitals.results_sent,
            rounds_dropped=vitals.rounds_dropped,
            replies_duplicate=vitals.replies_duplicate,
            replies_late=vitals.replies_late,
            replies_foreign=vitals.replies_foreign,
            packets_malformed=vitals.packets_malformed,
            records_undecodable=vitals.records_undecodable,
            broker_away=vitals.broker_away,
            host_delay_ns=vitals.host_delay_ns,
            probing=vitals.probing,
            probing_reason=vitals.probing_reason,
            displaced_by=vitals.displaced_by,
            flows_active=vitals.flows_active,
            lists_refused=vitals.lists_refused,
            list_refusal=vitals.list_refusal,
            registrations_refused=vitals.registrations_refused,
            clock_offset_ns=vitals.clock_offset_ns,
            clock_error_ns=vitals.clock_error_ns,
            clock_offset_reason=vitals.clock_offset_reason,
            packets_filtered=vitals.packets_filtered,
            producer_version=VERSION,
        )
        self._seq += 1
        return heartbeat
