"""Records that the stream worker writes.

The `.avsc` files are the truth and hold doc and unit of every field; a test
holds these classes to them. Times (`*_at`) are integer microseconds since the
epoch, durations (`*_ns`) integer nanoseconds.
"""

from schemas.enums import AnomalyKind, AnomalyState, Transport
from schemas.records.base import record


@record
class PathWindow:
    """Statistics of one 5-tuple of a path over one event-time window."""

    cluster: str
    path_id: str
    src: str
    dst: str
    flow: int
    agent_id: str
    transport: Transport
    window_start_at: int
    window_end_at: int
    sent: int
    ok: int
    lost: int
    duplicate_results: int
    p25_ns: int | None = None
    p50_ns: int | None = None
    p75_ns: int | None = None
    p90_ns: int | None = None
    p99_ns: int | None = None
    min_ns: int | None = None
    mean_ns: int | None = None
    std_ns: int | None = None
    max_ns: int | None = None
    host_delay_p50_ns: int | None = None
    responder_delay_p50_ns: int | None = None
    producer_version: str | None = None


@record
class Anomaly:
    """What a detector saw on one 5-tuple of a path."""

    cluster: str
    anomaly_id: str
    kind: AnomalyKind
    state: AnomalyState
    path_id: str
    src: str
    dst: str
    flow: int
    agent_id: str
    event_at: int
    onset_at: int
    detector: str
    value: float | None = None
    reference: float | None = None
    threshold: float | None = None
    unit: str | None = None
    sent: int
    lost: int
    rtt_p50_ns: int | None = None
    baseline_p50_ns: int | None = None
    host_delay_ns: int | None = None
    producer_version: str | None = None
    prober_late: int | None = None
    prober_answers: int | None = None
    responder_late: int | None = None
    responder_answers: int | None = None
    host_delay_baseline_ns: int | None = None
