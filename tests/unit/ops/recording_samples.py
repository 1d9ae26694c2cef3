"""Entries and records for the tests of recordings."""

from dataclasses import replace

from ops.log.entry import Entry
from schemas.codec import Codec
from schemas.enums import AnomalyKind, AnomalyState, ClockSource, ProbeStatus, Transport
from schemas.records import Anomaly, ProbeResult, ProbeRound
from schemas.topics import ANOMALY, PROBE_ROUND

# 2026-01-01T00:00:00Z
START_MS = 1_767_225_600_000


def probe_round(
    agent_id: str = "agent-h0", *, at_ms: int = START_MS, seq: int = 0, results: int = 2
) -> ProbeRound:
    """Return a round; its last probe, of 100 ms later, is lost."""
    return ProbeRound(
        cluster="default",
        agent_id=agent_id,
        host_id="h0",
        incarnation=1,
        round_seq=seq,
        started_at=at_ms * 1000,
        interval_ns=10**9,
        results=tuple(
            ProbeResult(
                src="c0/r0",
                dst=f"c{i + 1}/r0",
                flow=0,
                sent_offset_ns=i * 100_000_000 // max(1, results - 1),
                transport=Transport.UDP,
                status=ProbeStatus.TIMEOUT if i == results - 1 else ProbeStatus.OK,
                rtt_ns=None if i == results - 1 else 16_183,
                clock=ClockSource.KERNEL,
            )
            for i in range(results)
        ),
    )


def round_entry(
    partition: int = 0, offset: int = 0, *, at_ms: int = START_MS, agent_id: str = "agent-h0"
) -> Entry:
    """Return a round as Kafka holds it."""
    record = probe_round(agent_id, at_ms=at_ms, seq=offset)
    return Entry(
        partition=partition,
        offset=offset,
        timestamp_ms=at_ms,
        key=agent_id.encode(),
        value=Codec().encode(PROBE_ROUND, record),
        headers=(("producer_version", b"0.1.0"),),
    )


def anomaly(kind: AnomalyKind, value: float | None = None) -> Entry:
    """Return an anomaly as Kafka holds it."""
    record = Anomaly(
        cluster="c",
        anomaly_id="1",
        kind=kind,
        state=AnomalyState.ONGOING,
        path_id="a>b",
        src="a",
        dst="b",
        flow=0,
        agent_id="x",
        event_at=START_MS * 1000,
        onset_at=START_MS * 1000,
        detector="lof",
        value=value,
        sent=3,
        lost=0,
    )
    return replace(round_entry(), value=Codec().encode(ANOMALY, record), key=b"a>b")
