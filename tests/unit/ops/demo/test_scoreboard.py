"""The demo's numbers are a fold over the topics."""

from dataclasses import fields
from itertools import count
from typing import Any

from ops.demo.scoreboard import Scoreboard
from ops.log.watch import WatchedRecord
from schemas import records as rec
from schemas import topics
from schemas.enums import (
    AgentState,
    AnomalyKind,
    AnomalyState,
    ClockSource,
    PingListPhase,
    ProbeStatus,
    TargetOrigin,
    Transport,
)

OFFSETS = count()


def seen(topic: topics.Topic, record: Any, key: str = "k") -> WatchedRecord:
    """Return the next record as read from partition 0."""
    return WatchedRecord(topic.name, key, record, None, 0, next(OFFSETS), 0)


def probe_round(started_s: float, ok: int, lost: int) -> WatchedRecord:
    """Return a round with that many results."""
    statuses = [ProbeStatus.OK] * ok + [ProbeStatus.TIMEOUT] * lost
    results = tuple(
        rec.ProbeResult(
            src="a",
            dst="b",
            flow=i,
            sent_offset_ns=i,
            transport=Transport.UDP,
            status=status,
            clock=ClockSource.KERNEL,
        )
        for i, status in enumerate(statuses)
    )
    return seen(
        topics.PROBE_ROUND,
        rec.ProbeRound(
            cluster="c",
            agent_id="a",
            host_id="h",
            incarnation=1,
            round_seq=0,
            started_at=int(started_s * 1e6),
            interval_ns=10**9,
            results=results,
        ),
    )


def anomaly(flow: int, state: AnomalyState, kind: AnomalyKind = AnomalyKind.LOSS) -> WatchedRecord:
    """Return an anomaly of a flow."""
    return seen(
        topics.ANOMALY,
        rec.Anomaly(
            cluster="c",
            anomaly_id="i",
            kind=kind,
            state=state,
            path_id="a>b",
            src="a",
            dst="b",
            flow=flow,
            agent_id="a",
            event_at=7,
            onset_at=5,
            detector="loss_test",
            sent=1,
            lost=1,
        ),
    )


def test_rate_and_loss_are_those_of_the_last_two_seconds() -> None:
    """Older rounds leave the window by event time."""
    board = Scoreboard()
    for record in (probe_round(0, 100, 100), probe_round(10, 8, 2), probe_round(11, 10, 0)):
        board.count_record(record)
    assert board.probes == 220
    assert board.probes_per_s == 10.0
    assert board.loss_ratio == 0.1


def test_an_anomaly_is_open_until_cleared_and_counted_once() -> None:
    """ONGOING refreshes do not count again; progress marks are no anomalies."""
    board = Scoreboard()
    for state in (AnomalyState.ONSET, AnomalyState.ONGOING):
        board.count_record(anomaly(1, state))
    board.count_record(anomaly(2, AnomalyState.ONSET))
    board.count_record(anomaly(0, AnomalyState.ONGOING, AnomalyKind.PROGRESS))
    assert (board.anomalies, board.open_anomalies) == (2, 2)
    assert list(board.view.progress) == [0]
    board.count_record(anomaly(1, AnomalyState.CLEARED))
    (left,) = [one for one in board.view.anomalies.values() if one.cleared_at is None]
    assert (board.open_anomalies, left.worst.flow) == (1, 2)


def test_tombstones_remove_agents_and_lists() -> None:
    """What left is not counted any more."""
    board = Scoreboard()
    target = rec.PingTarget(src="a", dst="b", task_id="t", origin=TargetOrigin.BASIC, flows=4)
    lists = rec.PingList(
        cluster="c",
        agent_id="k",
        version=1,
        updated_at=0,
        phase=PingListPhase.RUNTIME,
        targets=(target,),
    )
    board.count_record(seen(topics.PINGLIST, lists))
    beat: dict[str, Any] = {f.name: 0 for f in fields(rec.Heartbeat) if f.type is int}
    beat["targets_active"] = 3
    board.count_record(
        seen(
            topics.HEARTBEAT,
            rec.Heartbeat(
                cluster="c",
                agent_id="k",
                host_id="h",
                state=AgentState.RUNNING,
                broker_away=False,
                **beat,
            ),
        )
    )
    assert (board.wanted_flows, board.runtime_lists) == (4, 1)
    assert (board.targets_active, board.running_agents) == (3, 1)
    board.count_record(seen(topics.PINGLIST, None))
    board.count_record(seen(topics.HEARTBEAT, None))
    assert (board.wanted_flows, board.targets_active) == (0, 0)
