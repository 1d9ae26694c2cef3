"""Records that agents write, and the ping list that they follow.

The `.avsc` files are the truth and hold doc and unit of every field; a test
holds these classes to them. Times (`*_at`) are integer microseconds since the
epoch, durations (`*_ns`) integer nanoseconds.
"""

from schemas.enums import (
    AgentState,
    ClockSource,
    PingListPhase,
    ProbeStatus,
    ProbingState,
    TargetOrigin,
    TraceCause,
    Transport,
)
from schemas.records.base import record


@record
class ProbeResult:
    """One probe and what became of it."""

    src: str
    dst: str
    flow: int
    sent_offset_ns: int
    transport: Transport
    status: ProbeStatus
    rtt_ns: int | None = None
    prober_delay_ns: int | None = None
    responder_delay_ns: int | None = None
    clock: ClockSource


@record
class ProbeRound:
    """One agent's probing round: a header and one result per probe sent."""

    cluster: str
    agent_id: str
    host_id: str
    incarnation: int
    round_seq: int
    started_at: int
    interval_ns: int
    pinglist_version: int | None = None
    producer_version: str | None = None
    results: tuple[ProbeResult, ...]


@record
class CounterSample:
    """One RNIC at one tick."""

    endpoint_id: str
    rail: int
    tick_offset_ns: int
    read_delay_ns: int | None = None
    tx_bytes: int | None = None
    rx_bytes: int | None = None
    counter_bits: int
    missing_reason: str | None = None


@record
class CounterBatch:
    """Byte counters of an agent's RNICs, sampled by all hosts on the same wall-clock tick."""

    cluster: str
    agent_id: str
    host_id: str
    started_at: int
    tick_ns: int
    producer_version: str | None = None
    samples: tuple[CounterSample, ...]


@record
class TraceHop:
    """One hop."""

    ttl: int
    address: str | None = None
    rtt_ns: int | None = None


@record
class PathTrace:
    """The hops that one 5-tuple takes."""

    cluster: str
    path_id: str
    src: str
    dst: str
    flow: int
    agent_id: str
    traced_at: int
    cause: TraceCause
    complete: bool
    incomplete_reason: str | None = None
    producer_version: str | None = None
    hops: tuple[TraceHop, ...]


@record
class Heartbeat:
    """An agent's sign of life and what it counted."""

    cluster: str
    agent_id: str
    host_id: str
    incarnation: int
    seq: int
    sent_at: int
    interval_ns: int
    state: AgentState
    state_reason: str | None = None
    pinglist_version: int | None = None
    endpoints: int
    targets_active: int
    targets_waiting: int
    rounds_sent: int
    results_sent: int
    rounds_dropped: int
    replies_duplicate: int
    replies_late: int
    replies_foreign: int
    packets_malformed: int
    records_undecodable: int
    broker_away: bool
    host_delay_ns: int | None = None
    probing: ProbingState = ProbingState.UNKNOWN
    probing_reason: str | None = None
    displaced_by: int | None = None
    flows_active: int | None = None
    lists_refused: int = 0
    list_refusal: str | None = None
    registrations_refused: int = 0
    clock_offset_ns: int | None = None
    clock_error_ns: int | None = None
    clock_offset_reason: str | None = None
    packets_filtered: int | None = None
    producer_version: str | None = None


@record
class PingTarget:
    """One ordered pair to probe."""

    src: str
    dst: str
    task_id: str
    origin: TargetOrigin
    flows: int


@record
class PingList:
    """Whom an agent probes."""

    cluster: str
    agent_id: str
    version: int
    updated_at: int
    phase: PingListPhase
    producer_version: str | None = None
    targets: tuple[PingTarget, ...]
