"""The fold of records into what an operator looks at."""

from dataclasses import replace

from ops.log.decoding import decode
from ops.view.cluster import ClusterView
from schemas import topics as t
from schemas.codec import Codec
from schemas.enums import AgentState, AnomalyKind, AnomalyState
from tests.unit.ops.recording_samples import START_MS, round_entry
from tests.unit.ops.view_samples import (
    Log,
    anomaly,
    endpoint,
    entry,
    fault,
    heartbeat,
    small_cluster,
    state,
    window,
)


def test_every_topic_is_folded() -> None:
    """States by key, windows and heartbeats by agent, faults by id."""
    view, log = ClusterView(), Log()
    for seen in log.all([*small_cluster(), (t.FAULT_EVENT, fault())]):
        view.apply(seen)
    assert set(view.agents) == {"agent-h0", "agent-h1"}
    assert set(view.endpoints) == {"h0/r0", "h1/r0"}
    assert (len(view.pinglists), len(view.tasks), len(view.topology)) == (2, 1, 3)
    assert view.windows["agent-h0"].last is not None
    assert view.windows["agent-h0"].last.flows == 4
    assert view.progress[0].event_ms == START_MS - 1_500
    assert [h.last.fault_id for h in view.faults.open()] == ["f-1"]
    assert view.positions[t.PROBE_WINDOW.name, 0] == 8
    assert view.latest_ms == START_MS


def test_a_record_that_is_read_again_changes_nothing() -> None:
    """As after a reconnect: positions say what was folded."""
    view, log = ClusterView(), Log()
    seen = list(log.all(small_cluster()))
    for one in [*seen, *seen]:
        view.apply(one)
    assert view.records.total() == len(seen)
    assert view.windows["agent-h0"].counts[0].flows == 4


def test_a_tombstone_removes_what_it_names() -> None:
    """And what cannot be decoded is counted, removing nothing."""
    view, log = ClusterView(), Log()
    view.apply(log.seen(t.ENDPOINT, endpoint("h0")))
    view.apply(log.seen(t.ENDPOINT, endpoint("h1")))
    view.apply(log.seen(t.ENDPOINT, None, key="h0/r0"))
    garbage = replace(entry(t.ENDPOINT, endpoint("h1"), offset=3), value=b"garbage")
    view.apply(decode(t.ENDPOINT, garbage, Codec()))
    assert set(view.endpoints) == {"h1/r0"}
    assert view.refused == {t.ENDPOINT.name: 1}


def test_what_speaks_under_the_key_of_another_is_refused() -> None:
    """Its state must not pass for the other's."""
    foreign = replace(entry(t.HEARTBEAT, heartbeat("agent-h0")), key=b"agent-h1")
    seen = decode(t.HEARTBEAT, foreign, Codec())
    assert seen.record is None
    assert "'agent-h1'" in str(seen.refused)


def test_rounds_are_noted_not_decoded() -> None:
    """Their number is too large, and no page shows them one by one."""
    view = ClusterView()
    view.apply(decode(t.PROBE_ROUND, round_entry(2, at_ms=START_MS), Codec()))
    assert view.rounds_ms == {2: START_MS}


def test_an_anomaly_lasts_from_onset_to_end() -> None:
    """Its worst record stays; single losses are for the localizer to pool."""
    view, log = ClusterView(), Log()
    onset = anomaly(value=3.0)
    later = anomaly(at_ms=START_MS + 5_000, state=AnomalyState.ONGOING, value=9.0, sent=9, lost=9)
    # Each record has an id of its own.
    later = replace(later, onset_at=onset.onset_at, anomaly_id="b")
    end = replace(
        later,
        state=AnomalyState.CLEARED,
        event_at=later.event_at + 10**6,
        value=0.0,
        anomaly_id="c",
    )
    stray = anomaly(anomaly_id="s", kind=AnomalyKind.STRAY_LOSS)
    for record in (onset, later, end, stray):
        view.apply(log.seen(t.ANOMALY, record))
    (span,) = view.anomalies.values()
    assert (span.onset_at, span.cleared_at) == (onset.onset_at, end.event_at)
    assert span.worst.lost == 9


def test_changes_of_states_are_kept_with_what_they_mean() -> None:
    """A word that changes, or a number that goes out of order; not each reading."""
    view, log = ClusterView(), Log()
    for number, text in enumerate(("up", "up", "down", "down", "up")):
        record = state(text=text, at_ms=START_MS + number * 1_000)
        view.apply(log.seen(t.COMPONENT_STATE, record))
    rate = state(attribute="crc_errors_per_s")
    for number, value in enumerate((0.0, 0.5, 7.0, 9.0, 0.1)):
        record = replace(
            rate, text=None, number=value, changed_at=(START_MS + number * 1_000) * 1_000
        )
        view.apply(log.seen(t.COMPONENT_STATE, record))
    found = sorted((c.attribute, c.before, c.after, c.disorder) for c in view.changes.values())
    assert found == [
        ("crc_errors_per_s", "0.5", "7", "crc_error"),
        ("crc_errors_per_s", "9", "0.1", None),
        ("port_state", "down", "up", None),
        ("port_state", "up", "down", "port_down"),
    ]


def test_an_agent_tells_silence_drops_and_twins() -> None:
    """By the broker's clock alone; counters are compared over a minute."""
    view, log = ClusterView(), Log()
    for second in range(0, 60, 5):
        beat = heartbeat(at_ms=START_MS, rounds_dropped=second // 10)
        view.apply(log.seen(t.HEARTBEAT, beat, at_ms=START_MS + second * 1_000))
    agent = view.agents["agent-h0"]
    assert agent.lately("rounds_dropped") == 5
    assert agent.silent_ms(START_MS + 59_000) is None
    assert agent.silent_ms(START_MS + 70_000) == 15_000
    assert not agent.twin(START_MS + 60_000)
    older = heartbeat(incarnation=0)
    view.apply(log.seen(t.HEARTBEAT, older, at_ms=START_MS + 60_000))
    assert view.agents["agent-h0"].twin(START_MS + 61_000)
    leaving = heartbeat(state=AgentState.LEAVING)
    view.apply(log.seen(t.HEARTBEAT, leaving, at_ms=START_MS + 61_000))
    assert view.agents["agent-h0"].silent_ms(START_MS + 999_000) is None


def test_only_a_whole_window_counts() -> None:
    """The one that is being closed is not compared with ping lists."""
    view, log = ClusterView(), Log()
    for flow in range(4):
        view.apply(log.seen(t.PROBE_WINDOW, window("h0", "h1", flow, START_MS)))
    view.apply(log.seen(t.PROBE_WINDOW, window("h0", "h1", 0, START_MS + 30_000, lost=3)))
    last = view.windows["agent-h0"].last
    assert last is not None
    assert (last.flows, last.end_at) == (4, START_MS * 1_000)
