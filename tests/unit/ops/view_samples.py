"""Records of a small cluster with a fault, for tests of the operator's view."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ops.log.decoding import SeenRecord
from ops.log.entry import Entry
from ops.recording.manifest import Manifest
from ops.recording.writer import RecordingWriter
from schemas import topics as t
from schemas.codec import Codec
from schemas.enums import (
    AgentState,
    AnomalyKind,
    AnomalyState,
    ComponentKind,
    FaultLifecycle,
    Layer,
    NoteAction,
    PingListPhase,
    ProbingState,
    TargetOrigin,
    TraceCause,
    Transport,
)
from schemas.ids import path_id, state_id
from schemas.records import (
    Anomaly,
    Candidate,
    Component,
    ComponentState,
    CounterBatch,
    CounterSample,
    Endpoint,
    FaultEvent,
    FaultState,
    Heartbeat,
    IncidentNote,
    PathTrace,
    PathWindow,
    PingList,
    PingTarget,
    Skeleton,
    SkeletonMember,
    SkeletonPair,
    Task,
    TaskEndpoint,
    TraceHop,
)
from schemas.topics import Topic
from tests.unit.ops.recording_samples import START_MS

LINK = "link:leaf:0--spine:1"
US = 1_000


def fault(seq: int = 1, at_ms: int = START_MS, **change: Any) -> FaultEvent:
    """Return a transition of a fault of a link."""
    event = FaultEvent(
        cluster="c",
        fault_id="f-1",
        seq=seq,
        state=FaultLifecycle.OPEN if seq == 1 else FaultLifecycle.UPDATED,
        event_at=at_ms * US,
        onset_at=(START_MS - 4_000) * US,
        opened_at=START_MS * US,
        layer=Layer.UNDERLAY,
        component_kind="LINK",
        component_id=LINK,
        decided=True,
        fault_kind="connectivity",
        severity="critical",
        confidence=0.97,
        summary=f"{LINK}: nothing gets through",
        bad_paths=4,
        good_paths=12,
        unexplained_paths=0,
        flaps=0,
        tasks=("job-1",),
        candidates=(Candidate(component_id=LINK, score=0.97),),
        evidence=("4 bad 5-tuples cross it and 0 good ones",),
    )
    return replace(event, **change)


def resolved(seq: int, at_ms: int, **change: Any) -> FaultEvent:
    """Return the last transition of the fault."""
    return fault(seq, at_ms, state=FaultLifecycle.RESOLVED, resolved_at=at_ms * US, **change)


def state_of(event: FaultEvent) -> FaultState:
    """Return the state that goes with a transition."""
    return FaultState(**{name: getattr(event, name) for name in FaultEvent.__slots__})  # type: ignore[attr-defined]


def heartbeat(agent: str = "agent-h0", at_ms: int = START_MS, **change: Any) -> Heartbeat:
    """Return a heartbeat."""
    beat = Heartbeat(
        cluster="c", agent_id=agent, host_id=agent.removeprefix("agent-"), incarnation=1, seq=5,
        sent_at=at_ms * US, interval_ns=10**9, state=AgentState.RUNNING, endpoints=1,
        targets_active=1, targets_waiting=0, rounds_sent=9, results_sent=99, rounds_dropped=0,
        replies_duplicate=0, replies_late=0, replies_foreign=0, packets_malformed=0,
        records_undecodable=0, broker_away=False, host_delay_ns=40_000,
        probing=ProbingState.PROBING, flows_active=4, clock_offset_ns=120_000,
        clock_error_ns=80_000, producer_version="0.1.0",
    )  # fmt: skip
    return replace(beat, **change)


def endpoint(host: str) -> Endpoint:
    """Return the registration of a host's endpoint."""
    return Endpoint(
        cluster="c", endpoint_id=f"{host}/r0", agent_id=f"agent-{host}", container_id=f"c-{host}",
        host_id=host, task_id="job-1", rail=0, transport=Transport.UDP, address="127.0.0.1",
        port=1, incarnation=1, registered_at=START_MS * US,
    )  # fmt: skip


def pinglist(host: str, *others: str) -> PingList:
    """Return the list of a host's agent."""
    return PingList(
        cluster="c", agent_id=f"agent-{host}", version=3, updated_at=START_MS * US,
        phase=PingListPhase.RUNTIME,
        targets=tuple(
            PingTarget(src=f"{host}/r0", dst=f"{other}/r0", task_id="job-1",
                       origin=TargetOrigin.SKELETON, flows=4)
            for other in others
        ),
    )  # fmt: skip


def window(src: str, dst: str, flow: int, end_ms: int, lost: int = 0) -> PathWindow:
    """Return the window of a 5-tuple."""
    return PathWindow(
        cluster="c", path_id=path_id(f"{src}/r0", f"{dst}/r0"), src=f"{src}/r0", dst=f"{dst}/r0",
        flow=flow, agent_id=f"agent-{src}", transport=Transport.UDP,
        window_start_at=(end_ms - 30_000) * US, window_end_at=end_ms * US, sent=30,
        ok=30 - lost, lost=lost, duplicate_results=0, p50_ns=16_000, p99_ns=21_000,
    )  # fmt: skip


def anomaly(
    src: str = "h0", dst: str = "h1", flow: int = 0, *, at_ms: int = START_MS, **change: Any
) -> Anomaly:
    """Return the onset of lost connectivity."""
    record = Anomaly(
        cluster="c", anomaly_id=f"a-{src}-{dst}-{flow}", kind=AnomalyKind.CONNECTIVITY,
        state=AnomalyState.ONSET, path_id=path_id(f"{src}/r0", f"{dst}/r0"), src=f"{src}/r0",
        dst=f"{dst}/r0", flow=flow, agent_id=f"agent-{src}", event_at=at_ms * US,
        onset_at=at_ms * US, detector="connectivity", value=3.0, threshold=3.0, unit="probes",
        sent=3, lost=3,
    )  # fmt: skip
    return replace(record, **change)


def progress(at_ms: int) -> Anomaly:
    """Return a progress mark."""
    return anomaly(
        at_ms=at_ms, kind=AnomalyKind.PROGRESS, anomaly_id="", path_id="", src="", dst=""
    )


def trace(src: str, dst: str, flow: int, *hops: str, at_ms: int = START_MS) -> PathTrace:
    """Return the hops of a 5-tuple."""
    return PathTrace(
        cluster="c", path_id=path_id(f"{src}/r0", f"{dst}/r0"), src=f"{src}/r0", dst=f"{dst}/r0",
        flow=flow, agent_id=f"agent-{src}", traced_at=at_ms * US, cause=TraceCause.LOSS,
        complete=True,
        hops=tuple(TraceHop(ttl=i + 1, address=a, rtt_ns=9_000) for i, a in enumerate(hops)),
    )  # fmt: skip


def state(
    component: str = "rnic:h0/r0", attribute: str = "port_state", text: str = "down",
    at_ms: int = START_MS,
) -> ComponentState:  # fmt: skip
    """Return what a reader says of a component."""
    return ComponentState(
        cluster="c", state_id=state_id(component, attribute), component_id=component,
        attribute=attribute, text=text, changed_at=at_ms * US, observed_at=at_ms * US,
        source="agent-h0",
    )  # fmt: skip


def component(name: str, a: str | None = None, b: str | None = None, *addresses: str) -> Component:
    """Return a link or a switch."""
    return Component(
        cluster="c", component_id=name, kind=ComponentKind.LINK if a else ComponentKind.SWITCH,
        layer=Layer.UNDERLAY, a=a, b=b, updated_at=START_MS * US, addresses=addresses,
    )  # fmt: skip


def task() -> Task:
    """Return the job of the hosts."""
    return Task(
        cluster="c", task_id="job-1", submitted_at=(START_MS - 3_600_000) * US,
        endpoints=tuple(
            TaskEndpoint(endpoint_id=f"{h}/r0", container_id=f"c-{h}", host_id=h,
                         agent_id=f"agent-{h}", rail=0)
            for h in ("h0", "h1")
        ),
    )  # fmt: skip


def skeleton() -> Skeleton:
    """Return the skeleton of the job."""
    return Skeleton(
        cluster="c", task_id="job-1", version=2, window_start_at=(START_MS - 900_000) * US,
        window_end_at=(START_MS - 60_000) * US, confidence=0.9,
        reason="bursts of 24 windows agree", period_ns=2 * 10**9, dp=1, pp=2, tp=1,
        members=(SkeletonMember(endpoint_id="h0/r0", group=0, stage=0),
                 SkeletonMember(endpoint_id="h1/r0", group=1, stage=1)),
        pairs=(SkeletonPair(a="h0/r0", b="h1/r0"),),
    )  # fmt: skip


def note(action: NoteAction, text: str, at_ms: int, cause: str | None = None) -> IncidentNote:
    """Return what somebody wrote about the fault."""
    return IncidentNote(
        cluster="c", fault_id="f-1", note_id=f"n-{at_ms}", action=action, noted_at=at_ms * US,
        author="ada", text=text, cause=cause,
    )  # fmt: skip


def small_cluster(at_ms: int = START_MS) -> list[tuple[Topic, Any]]:
    """Return the records of two hosts that probe each other, all well at that time."""
    records: list[tuple[Topic, Any]] = [(t.TASK, task())]
    records += [
        (t.TOPOLOGY, component("leaf:0", None, None, "10.0.0.1")),
        (t.TOPOLOGY, component("spine:1", None, None, "10.0.0.2")),
        (t.TOPOLOGY, component(LINK, "leaf:0", "spine:1")),
    ]
    for host, other in (("h0", "h1"), ("h1", "h0")):
        records += [
            (t.ENDPOINT, endpoint(host)),
            (t.PINGLIST, pinglist(host, other)),
            (t.HEARTBEAT, heartbeat(f"agent-{host}", at_ms)),
        ]
        records += [(t.PROBE_WINDOW, window(host, other, flow, at_ms)) for flow in range(4)]
    return [*records, (t.ANOMALY, progress(at_ms - 1_500))]


def counters(host: str, second: int, tx_bytes: int, rx_bytes: int) -> CounterBatch:
    """Return ten samples of a second in which an RNIC moved so many bytes, as in each before."""
    return CounterBatch(
        cluster="c", agent_id=f"agent-{host}", host_id=host,
        started_at=(START_MS + second * 1_000) * US, tick_ns=10**8,
        samples=tuple(
            CounterSample(
                endpoint_id=f"{host}/r0", rail=0, tick_offset_ns=tick * 10**8, read_delay_ns=0,
                tx_bytes=(10 * second + tick) * tx_bytes // 10,
                rx_bytes=(10 * second + tick) * rx_bytes // 10, counter_bits=64,
            )
            for tick in range(10)
        ),
    )  # fmt: skip


def key_of(topic: Topic, record: Any) -> str:
    """Return the key of a record; that of a progress mark says its partition."""
    return getattr(record, topic.key_field) or "progress-0"


def entry(topic: Topic, record: Any, *, offset: int = 0, at_ms: int = START_MS) -> Entry:
    """Return a record as Kafka holds it, in partition 0."""
    return Entry(
        partition=0, offset=offset, timestamp_ms=at_ms, key=key_of(topic, record).encode(),
        value=Codec().encode(topic, record),
    )  # fmt: skip


class Log:
    """Gives records their offsets, as topics of one partition do."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def seen(
        self, topic: Topic, record: Any, *, at_ms: int = START_MS, key: str = ""
    ) -> SeenRecord:
        """Return the next record of a topic; None is a tombstone of that key."""
        offset = self._next.get(topic.name, 0)
        self._next[topic.name] = offset + 1
        return SeenRecord(
            topic=topic, partition=0, offset=offset, timestamp_ms=at_ms,
            key=key or key_of(topic, record), record=record,
        )  # fmt: skip

    def all(self, records: list[tuple[Topic, Any]], at_ms: int = START_MS) -> Iterator[SeenRecord]:
        """Yield records as seen."""
        for topic, record in records:
            yield self.seen(topic, record, at_ms=at_ms)


def record_all(folder: Path, records: Iterable[SeenRecord]) -> Path:
    """Write records as a recording; they are in one partition of each topic."""
    manifest = Manifest(cluster="c", recorded_at="", from_ms=None, to_ms=None)
    writer = RecordingWriter(folder, manifest, Codec())
    for topic in t.TOPICS:
        writer.add_topic(topic, 1)
    for one in records:
        value = None if one.record is None else Codec().encode(one.topic, one.record)
        writer.write_entry(
            one.topic,
            Entry(partition=0, offset=one.offset, timestamp_ms=one.timestamp_ms,
                  key=one.key.encode(), value=value),
        )  # fmt: skip
    writer.close(complete=True)
    return folder


def story() -> list[SeenRecord]:
    """Return the records of a fault from onset to end, in the order in which they were written."""
    log = Log()
    seen = list(log.all(small_cluster()))
    for second in range(1, 30):
        at_ms = START_MS + second * 1_000
        told: list[tuple[Any, Any]] = [
            (t.HEARTBEAT, heartbeat(at_ms=at_ms, rounds_dropped=second)),
            (t.ANOMALY, progress(at_ms - 1_500)),
        ]
        if second == 5:
            told += [
                (t.ANOMALY, anomaly(at_ms=at_ms)),
                (
                    t.PATH_TRACE,
                    trace("h0", "h1", 0, "10.0.0.1", "10.0.0.2", "127.0.0.1", at_ms=at_ms),
                ),
                (t.COMPONENT_STATE, state(text="up", at_ms=at_ms - 5_000)),
                (t.COMPONENT_STATE, state(at_ms=at_ms)),
            ]
        if second in (6, 7, 9):
            seq = {6: 1, 7: 2, 9: 3}[second]
            unsure = (Candidate(component_id=LINK, score=0.6),
                      Candidate(component_id="leaf:0", score=0.4))  # fmt: skip
            event = (
                fault(seq, at_ms)
                if seq > 1
                else fault(seq, at_ms, decided=False, confidence=0.6, candidates=unsure,
                           fault_kind="packet_loss", severity="error", bad_paths=1)
            )  # fmt: skip
            told += [(t.FAULT_EVENT, event), (t.FAULT_STATE, state_of(event))]
        if second == 12:
            told += [(t.INCIDENT_NOTE, note(NoteAction.ACKNOWLEDGE, "on my way", at_ms))]
        if second == 20:
            end = anomaly(at_ms=at_ms, state=AnomalyState.CLEARED)
            told += [(t.ANOMALY, replace(end, onset_at=(START_MS + 5_000) * 1_000))]
        if second == 25:
            event = resolved(4, at_ms)
            told += [(t.FAULT_EVENT, event), (t.FAULT_STATE, state_of(event))]
        if second == 28:
            told += [(t.PROBE_WINDOW, window("h0", "h1", f, at_ms, lost=9)) for f in range(4)]
        seen += [log.seen(topic, record, at_ms=at_ms) for topic, record in told]
    return seen
