"""Records of a cluster of any size, for the figures of the operator's page."""

from collections.abc import Iterator
from typing import Any, Final

from schemas import topics as t
from schemas.enums import (
    AgentState,
    AnomalyKind,
    AnomalyState,
    FaultLifecycle,
    Layer,
    PingListPhase,
    ProbingState,
    TargetOrigin,
    TraceCause,
    Transport,
)
from schemas.ids import path_id
from schemas.records import (
    Anomaly,
    Candidate,
    CounterBatch,
    CounterSample,
    Endpoint,
    FaultEvent,
    Heartbeat,
    PathTrace,
    PathWindow,
    PingList,
    PingTarget,
    Task,
    TaskEndpoint,
    TraceHop,
)
from schemas.topics import Topic
from schemas.units import US_PER_MS

CLUSTER: Final = "bench"
RAILS: Final = 8
# Targets of an RNIC in a skeleton, and 5-tuples to each.
TARGETS: Final = 3
FLOWS: Final = 2
HOSTS_OF_A_JOB: Final = 512

Told = tuple[Topic, str, Any]  # topic, key, record


def endpoint_name(host: int, rail: int) -> str:
    """Return the id of an endpoint."""
    return f"w{host}/r{rail}"


def agent_name(host: int) -> str:
    """Return the id of an agent."""
    return f"agent-h{host}"


def standing(hosts: int, at_ms: int) -> Iterator[Told]:
    """Yield jobs, registrations and ping lists."""
    at = at_ms * US_PER_MS
    for first in range(0, hosts, HOSTS_OF_A_JOB):
        own = range(first, min(hosts, first + HOSTS_OF_A_JOB))
        name = f"job-{first // HOSTS_OF_A_JOB}"
        endpoints = tuple(
            TaskEndpoint(
                endpoint_id=endpoint_name(host, rail), container_id=f"w{host}", host_id=f"h{host}",
                agent_id=agent_name(host), rail=rail,
            )
            for host in own
            for rail in range(RAILS)
        )  # fmt: skip
        yield (
            t.TASK,
            name,
            Task(cluster=CLUSTER, task_id=name, submitted_at=at, endpoints=endpoints),
        )
    for host in range(hosts):
        for rail in range(RAILS):
            name = endpoint_name(host, rail)
            yield t.ENDPOINT, name, _endpoint(host, rail, at)
        yield t.PINGLIST, agent_name(host), _pinglist(host, hosts, at)


def _endpoint(host: int, rail: int, at: int) -> Endpoint:
    return Endpoint(
        cluster=CLUSTER, endpoint_id=endpoint_name(host, rail), agent_id=agent_name(host),
        container_id=f"w{host}", host_id=f"h{host}", task_id=f"job-{host // HOSTS_OF_A_JOB}",
        rail=rail, transport=Transport.RDMA_UD, address="fe80::1", port=1, qkey=1, incarnation=1,
        registered_at=at,
    )  # fmt: skip


def _pinglist(host: int, hosts: int, at: int) -> PingList:
    targets = tuple(
        PingTarget(
            src=endpoint_name(host, rail), dst=endpoint_name((host + step) % hosts, rail),
            task_id=f"job-{host // HOSTS_OF_A_JOB}", origin=TargetOrigin.SKELETON, flows=FLOWS,
        )
        for rail in range(RAILS)
        for step in range(1, TARGETS + 1)
    )  # fmt: skip
    return PingList(
        cluster=CLUSTER, agent_id=agent_name(host), version=1, updated_at=at,
        phase=PingListPhase.RUNTIME, targets=targets,
    )  # fmt: skip


def heartbeat(host: int, at_ms: int) -> Heartbeat:
    """Return a heartbeat of an agent that is well."""
    return Heartbeat(
        cluster=CLUSTER, agent_id=agent_name(host), host_id=f"h{host}", incarnation=1,
        seq=at_ms // 1_000, sent_at=at_ms * US_PER_MS, interval_ns=10**9,
        state=AgentState.RUNNING, endpoints=RAILS, targets_active=RAILS * TARGETS,
        targets_waiting=0, rounds_sent=at_ms // 1_000, results_sent=at_ms, rounds_dropped=0,
        replies_duplicate=0, replies_late=0, replies_foreign=0, packets_malformed=0,
        records_undecodable=0, broker_away=False, host_delay_ns=20_000,
        probing=ProbingState.PROBING, flows_active=RAILS * TARGETS * FLOWS, clock_offset_ns=10_000,
        clock_error_ns=20_000, producer_version="0.1.0",
    )  # fmt: skip


def window(host: int, hosts: int, number: int, end_ms: int) -> PathWindow:
    """Return a window of a host's n-th 5-tuple."""
    rail, rest = divmod(number, TARGETS * FLOWS)
    src = endpoint_name(host, rail % RAILS)
    dst = endpoint_name((host + 1 + rest // FLOWS) % hosts, rail % RAILS)
    return PathWindow(
        cluster=CLUSTER, path_id=path_id(src, dst), src=src, dst=dst, flow=rest % FLOWS,
        agent_id=agent_name(host), transport=Transport.RDMA_UD,
        window_start_at=(end_ms - 30_000) * US_PER_MS, window_end_at=end_ms * US_PER_MS,
        sent=30, ok=30, lost=0, duplicate_results=0, p25_ns=15_000, p50_ns=16_000, p75_ns=17_000,
        p90_ns=18_000, p99_ns=21_000, min_ns=14_000, mean_ns=16_000, std_ns=900, max_ns=22_000,
    )  # fmt: skip


def progress(partition: int, at_ms: int) -> Anomaly:
    """Return a progress mark; its key names the partition."""
    return Anomaly(
        cluster=CLUSTER, anomaly_id=f"p-{partition}-{at_ms}", kind=AnomalyKind.PROGRESS,
        state=AnomalyState.ONGOING, path_id="", src="", dst="", flow=0, agent_id="",
        event_at=at_ms * US_PER_MS, onset_at=at_ms * US_PER_MS, detector="", sent=0, lost=0,
    )  # fmt: skip


def anomaly(host: int, hosts: int, at_ms: int, state: AnomalyState, onset_ms: int) -> Anomaly:
    """Return a record of lost connectivity from a host to the next."""
    src, dst = endpoint_name(host, 0), endpoint_name((host + 1) % hosts, 0)
    return Anomaly(
        cluster=CLUSTER, anomaly_id=f"{host}-{at_ms}", kind=AnomalyKind.CONNECTIVITY, state=state,
        path_id=path_id(src, dst), src=src, dst=dst, flow=0, agent_id=agent_name(host),
        event_at=at_ms * US_PER_MS, onset_at=onset_ms * US_PER_MS, detector="connectivity",
        value=9.0, threshold=3.0, unit="probes", sent=9, lost=9,
    )  # fmt: skip


def trace(host: int, hosts: int, at_ms: int) -> PathTrace:
    """Return a trace that ends at the second hop."""
    src, dst = endpoint_name(host, 0), endpoint_name((host + 1) % hosts, 0)
    hops = tuple(
        TraceHop(ttl=n + 1, address=f"10.0.{host % 250}.{n}", rtt_ns=9_000) for n in (0, 1)
    )
    return PathTrace(
        cluster=CLUSTER, path_id=path_id(src, dst), src=src, dst=dst, flow=0,
        agent_id=agent_name(host), traced_at=at_ms * US_PER_MS, cause=TraceCause.LOSS,
        complete=False, incomplete_reason="no answer after hop 2", hops=hops,
    )  # fmt: skip


def counters(host: int, at_ms: int) -> CounterBatch:
    """Return a second of a host's counters at 10 Hz: each RNIC sends 100 MB/s and receives 90."""
    at_s = at_ms // 1_000
    return CounterBatch(
        cluster=CLUSTER, agent_id=agent_name(host), host_id=f"h{host}",
        started_at=at_s * 10**6, tick_ns=10**8,
        samples=tuple(
            CounterSample(
                endpoint_id=endpoint_name(host, rail), rail=rail, tick_offset_ns=tick * 10**8,
                read_delay_ns=120_000, tx_bytes=(at_s * 10 + tick) * 10**7,
                rx_bytes=(at_s * 10 + tick) * 9 * 10**6, counter_bits=64,
            )
            for tick in range(10)
            for rail in range(RAILS)
        ),
    )  # fmt: skip


def fault(number: int, at_ms: int, *, seq: int = 1, name: str | None = None) -> FaultEvent:
    """Return a transition of the n-th fault; `name` stands in each text that a writer chooses."""
    component = f"h{number}" if name is None else name
    return FaultEvent(
        cluster=CLUSTER if name is None else name, fault_id=f"f-{number}", seq=seq,
        state=FaultLifecycle.OPEN if seq == 1 else FaultLifecycle.UPDATED,
        event_at=at_ms * US_PER_MS, onset_at=(at_ms - 1_000) * US_PER_MS,
        opened_at=at_ms * US_PER_MS, layer=Layer.UNDERLAY,
        component_kind="HOST" if name is None else name, component_id=component, decided=True,
        fault_kind="connectivity" if name is None else name,
        severity="critical" if name is None else name, confidence=0.9,
        summary=f"{component}: nothing gets through", bad_paths=8, good_paths=40,
        unexplained_paths=0, flaps=0, tasks=("job-0",),
        candidates=(Candidate(component_id=component, score=0.9),),
        evidence=("8 5-tuples through it are cut off", f"of {component}"),
    )  # fmt: skip
