"""The state machine of a partition: what it tells, when, and in which order."""

import pytest

from schemas.enums import AnomalyKind, AnomalyState
from schemas.records import Anomaly, PathWindow
from schemas.units import SECOND_NS
from streams.config import REFRESH_STEP_NS, DetectionConfig
from streams.core.anchors import agents_horizon_ns, retire_ns
from streams.core.clock import closing_delay_ns
from streams.core.machine import PartitionMachine
from streams.core.outputs import PROGRESS_KEY, Output
from streams.core.partition import RefusedRoundError
from tests.unit.streams.worlds import (
    IDENTITY,
    START_S,
    Fault,
    World,
    anomalies_of,
    as_bytes,
    machine,
    result,
    round_datum,
    run,
    windows_of,
)

T = START_S * SECOND_NS
US = 1_000_000
BOTH = frozenset({(0, 0), (0, 1)})


def seconds(anomaly: Anomaly) -> tuple[float, float]:
    """Return onset and event time of an anomaly in seconds of the world."""
    return anomaly.onset_at / US - START_S, anomaly.event_at / US - START_S


def test_window_record_says_what_was_sent() -> None:
    """Counts, statistics and identity of a window are those of its results."""
    rtts = [10, 20, 30, None]
    results = [result("a", "b", 2, i, rtt, host_ns=5) for i, rtt in enumerate(rtts)]
    m = machine()
    outputs = run(m, [round_datum(results, T), round_datum([], T + 40 * SECOND_NS, 1)])
    (window,) = windows_of(outputs)
    assert (window.path_id, window.src, window.dst, window.flow) == ("a>b", "a", "b", 2)
    assert (window.sent, window.ok, window.lost, window.duplicate_results) == (4, 3, 1, 0)
    assert (window.p25_ns, window.p50_ns, window.p75_ns, window.p99_ns) == (10, 20, 30, 30)
    assert (window.min_ns, window.mean_ns, window.max_ns, window.std_ns) == (10, 20, 30, 8)
    assert (window.host_delay_p50_ns, window.responder_delay_p50_ns) == (5, 20_000)
    assert (window.window_start_at, window.window_end_at) == (T // 1000, T // 1000 + 30 * US)
    (output,) = [o for o in outputs if isinstance(o.record, PathWindow)]
    assert output.key == "a>b"
    # The grid point of the arrival that closed it.
    assert output.at_ms == (T + 40 * SECOND_NS) // 10**6


def test_window_without_answers_has_nulls() -> None:
    """No answer: statistics are null, not 0."""
    log = [round_datum([result("a", "b", 0, 0, None)], T), round_datum([], T + 40 * SECOND_NS, 1)]
    (window,) = windows_of(run(machine(), log))
    assert (window.sent, window.ok, window.lost) == (1, 0, 1)
    assert window.p50_ns is None
    assert window.max_ns is None


def test_windows_need_not_be_published_to_be_judged() -> None:
    """Without them the other outputs are the same."""
    slow = Fault(240, 330, BOTH, delay_ns=5_000_000)
    world = World(seed=4, targets=1, faults=[slow, Fault(340, 360, BOTH, loss=1.0)])
    log = list(world.rounds(420))
    every = run(machine(), log)
    silent = PartitionMachine(DetectionConfig(), IDENTITY, publish_windows=False)
    told = run(silent, log)
    assert any(a.kind is AnomalyKind.LATENCY for a in anomalies_of(told))
    assert as_bytes(told) == as_bytes([o for o in every if isinstance(o.record, Anomaly)])


def test_window_waits_for_the_allowed_lateness() -> None:
    """A window closes when the largest start of a round is the agent's delay beyond its end."""
    m = machine()
    log = [round_datum([result("a", "b", 0, 0, 9)], T)]
    config = DetectionConfig()
    end_ns = T + config.window_ns + closing_delay_ns(config, str(log[0]["agent_id"]))
    log += [
        round_datum([], at_ns, n)
        for n, at_ns in enumerate((T + 30 * SECOND_NS, end_ns - SECOND_NS), 1)
    ]
    assert windows_of(run(m, log)) == []
    assert len(windows_of(run(m, [round_datum([], end_ns + SECOND_NS, 3)]))) == 1


def test_duplicate_round_counts_beside() -> None:
    """The same round again changes the duplicate count only."""
    first = round_datum([result("a", "b", 0, 0, 9)], T)
    m = machine()
    (window,) = windows_of(run(m, [first, first, first, round_datum([], T + 40 * SECOND_NS, 1)]))
    assert (window.sent, window.duplicate_results) == (1, 2)
    assert m.counts["duplicate"] == 2


def test_two_agents_with_one_id_are_told_apart() -> None:
    """Another incarnation with the same round number is no duplicate."""
    log = [
        round_datum([result("a", "b", 0, 0, 9)], T, 5, incarnation=1),
        round_datum([result("a", "b", 0, 0, 9)], T, 5, incarnation=2),
        round_datum([], T + 40 * SECOND_NS, 6),
    ]
    (window,) = windows_of(run(machine(), log))
    assert (window.sent, window.duplicate_results) == (2, 0)


def test_late_results_are_counted_and_leave_no_trace() -> None:
    """Results of a closed window are late: no window has them."""
    m = machine()
    run(m, [round_datum([], T + 100 * SECOND_NS, 1)])
    late = round_datum([result("a", "b", 0, i, 9) for i in range(4)], T, 0, incarnation=3)
    later = round_datum([], T + 200 * SECOND_NS, 2)
    assert windows_of(run(m, [late, later])) == []
    assert m.counts["late"] == 4


def test_a_cut_is_seen_by_an_agent_whose_clock_went_back() -> None:
    """Its windows are closed; losses count as they arrive."""
    m = machine()
    for second in range(60):
        back_ns = 3600 * SECOND_NS if second >= 30 else 0
        rtt = None if second >= 40 else 1_000_000
        at_ns = T + second * SECOND_NS
        datum = round_datum([result("a", "b", 0, 0, rtt)], at_ns - back_ns, second)
        found = anomalies_of(m.process(datum, second, at_ns), "CONNECTIVITY", "ONSET")
        assert bool(found) == (second == 42)
        if found:
            assert found[0].onset_at * 1000 == T + (40 - 3600) * SECOND_NS


def test_agents_and_flows_beyond_the_limits_are_refused() -> None:
    """Those that are known go on; what leaves makes room."""
    m = machine(DetectionConfig(max_agents=2, max_flows=3))

    def take(agent: str, second: int, *targets: str) -> None:
        results = [result("a", target, 0, n, 9) for n, target in enumerate(targets)]
        m.process(round_datum(results, T + second * SECOND_NS, second, agent=agent), second)

    take("one", 0, "b", "c")
    take("two", 1, "b")
    with pytest.raises(RefusedRoundError, match="max_agents=2") as caught:
        take("three", 2, "b")
    assert caught.value.counter == "beyond_limits"
    with pytest.raises(RefusedRoundError, match="max_flows=3"):
        take("one", 3, "b", "c", "d")
    take("one", 4, "b", "c")
    for second in range(5, 400, 5):
        take("one", second, "b")
    assert (len(m.agents), len(m.recent.flows)) == (1, 1)
    take("three", 400, "b", "c")


@pytest.mark.parametrize(
    ("change", "counter"),
    [
        ({"cluster": "elsewhere"}, "foreign"),
        ({"started_at": -1}, "invalid"),
    ],
)
def test_bad_rounds_are_refused_and_change_nothing(change: dict[str, object], counter: str) -> None:
    """A refused round is named by its counter; what follows is as if it had not come."""
    world = list(World().rounds(80))
    untouched, m = machine(), machine()
    head = run(m, world[:40])
    with pytest.raises(RefusedRoundError) as caught:
        m.process({**world[40], **change}, 40)
    assert caught.value.counter == counter
    assert as_bytes(head + run(m, world[40:])) == as_bytes(run(untouched, world))


def test_cut_is_told_in_the_round_that_shows_it() -> None:
    """Three losses in a row: ONSET at once; counts tell a cut from chance; CLEARED after three."""
    world = World(targets=1, flows=2, faults=[Fault(20, 33, frozenset({(0, 0)}), loss=1.0)])
    m = machine()
    by_round = [(s, m.process(d, s)) for s, d in enumerate(world.rounds(60))]
    told = [(s, a) for s, outputs in by_round for a in anomalies_of(outputs, "CONNECTIVITY")]
    second, onset = told[0]
    assert (second, onset.state, onset.flow) == (20, "ONSET", 0)
    assert seconds(onset) == (20.0, 20.5)
    assert (onset.sent, onset.lost) == (12, 3)
    ongoing = [a for s, a in told if s == 30]
    assert [a.state for a in ongoing] == ["ONGOING"]
    assert ongoing[0].lost == ongoing[0].sent
    second, cleared = told[-1]
    assert (second, cleared.state) == (35, "CLEARED")
    # A cut is not a rate of loss.
    assert not [a for _, o in by_round for a in anomalies_of(o, "LOSS")]


def test_loss_is_told_and_cleared() -> None:
    """20 % loss on two of four flows: LOSS on those only, cleared 40 clean probes after."""
    world = World(seed=3, targets=1, faults=[Fault(20, 60, BOTH, loss=0.2)])
    rounds = list(world.rounds(140))
    outputs = run(machine(), rounds)
    onsets = anomalies_of(outputs, "LOSS", "ONSET")
    assert {a.flow for a in onsets} == {0, 1}
    for onset in onsets:
        at_onset, at_event = seconds(onset)
        assert 20 <= at_onset <= at_event <= 45
        assert onset.unit == "ratio"
        assert onset.value is not None
        assert onset.threshold is not None
        assert onset.lost >= 1
    cleared = {a.flow: seconds(a)[1] for a in anomalies_of(outputs, "LOSS", "CLEARED")}
    assert set(cleared) == {0, 1}
    for flow, at in cleared.items():
        lost = [
            second
            for second, datum in enumerate(rounds)
            for r in datum["results"]
            if r["flow"] == flow and r["status"] != "OK"
        ]
        assert 40 <= at - max(lost) <= 42


def test_latency_is_told_and_cleared() -> None:
    """+5 ms from window 12 to 15: ONSET with that window, CLEARED with the first normal one."""
    world = World(
        targets=1, flows=2, faults=[Fault(360, 480, frozenset({(0, 0)}), delay_ns=5 * US)]
    )
    outputs = run(machine(), list(world.rounds(600)))
    (onset,) = anomalies_of(outputs, "LATENCY", "ONSET")
    assert seconds(onset) == (360, 390)
    assert onset.flow == 0
    assert onset.value is not None
    assert onset.reference is not None
    assert onset.value - onset.reference == pytest.approx(5e6, rel=0.1)
    assert onset.baseline_p50_ns == pytest.approx(1.5e6, rel=0.1)
    (cleared,) = anomalies_of(outputs, "LATENCY", "CLEARED")
    assert seconds(cleared) == (360, 510)


def test_lasting_latency_becomes_normal() -> None:
    """After the longest time an anomaly may last, the new level is the reference."""
    config = DetectionConfig(latency_max_ns=120 * SECOND_NS)
    world = World(
        targets=1, flows=1, faults=[Fault(360, 9999, frozenset({(0, 0)}), delay_ns=5 * US)]
    )
    outputs = run(machine(config), list(world.rounds(900)))
    (cleared,) = anomalies_of(outputs, "LATENCY", "CLEARED")
    assert seconds(cleared) == (360, 480)
    assert len(anomalies_of(outputs, "LATENCY", "ONSET")) == 1


def test_slow_trend_is_told() -> None:
    """With one-minute blocks: a block 2 ms slower opens LATENCY_TREND, the fourth clears it."""
    config = DetectionConfig(
        window_ns=5 * SECOND_NS, trend_ns=60 * SECOND_NS, lookback_windows=5,
        effect_ns=3 * US,
    )  # fmt: skip
    world = World(
        targets=1, flows=1, median_ns=5e6, sigma=0.05,
        faults=[Fault(120, 9999, frozenset({(0, 0)}), delay_ns=2 * US)],
    )  # fmt: skip
    outputs = run(machine(config), list(world.rounds(500)))
    (onset,) = anomalies_of(outputs, "LATENCY_TREND", "ONSET")
    assert seconds(onset) == (120, 180)
    assert onset.value == pytest.approx(7e6, rel=0.02)
    assert onset.reference == pytest.approx(5e6, rel=0.02)
    (cleared,) = anomalies_of(outputs, "LATENCY_TREND", "CLEARED")
    assert seconds(cleared) == (120, 360)


def test_silence_clears_what_is_open() -> None:
    """A 5-tuple that is no longer probed has its anomaly cleared, without a value."""
    lossy = [round_datum([result("a", "b", 0, i, None) for i in range(3)], T)]
    others = [
        round_datum([result("c", "d", 0, 0, 9)], T + s * SECOND_NS, s, agent="agent-2")
        for s in range(1, 60)
    ]
    m = machine()
    outputs = run(m, lossy + others)
    states = [(a.state.value, seconds(a)[1]) for a in anomalies_of(outputs, "CONNECTIVITY")]
    # The present by its own agent's clock, which was heard 2 ns after the round began.
    assert states[-1][0] == "CLEARED"
    assert states[-1][1] == pytest.approx(35.0, abs=1e-6)
    assert [s for s, _ in states[1:-1]] == ["ONGOING"] * 6
    (cleared,) = anomalies_of(outputs, "CONNECTIVITY", "CLEARED")
    assert cleared.value is None
    assert m.open_anomalies == 0


def test_progress_is_on_the_grid_and_last_in_its_round() -> None:
    """A round that passes a quarter of a second ends with a mark; marks only rise."""
    m = machine()
    marks: list[int] = []
    for offset, datum in enumerate(World(targets=1, flows=2, sigma=1.0).rounds(100)):
        outputs = m.process(datum, offset)
        kinds = [o.key == PROGRESS_KEY for o in outputs]
        assert kinds[:-1] == [False] * (len(kinds) - 1)
        assert kinds[-1]
        mark = outputs[-1].record
        assert isinstance(mark, Anomaly)
        assert (mark.kind, mark.state) == (AnomalyKind.PROGRESS, AnomalyState.ONGOING)
        assert mark.event_at % 250_000 == 0
        assert mark.event_at == m.progress_at
        marks.append(mark.event_at)
    assert marks == sorted(set(marks))


def test_identities_are_unique() -> None:
    """No two outputs of a troubled hour have one identity."""
    world = World(
        seed=5, base_loss=0.05,
        faults=[Fault(100, 200, BOTH, loss=0.5), Fault(300, 400, BOTH, delay_ns=5 * US)],
    )  # fmt: skip
    outputs: list[Output] = run(machine(), list(world.rounds(1000)))
    identities = [o.identity for o in outputs]
    assert len(set(identities)) == len(identities)
    assert len(anomalies_of(outputs)) > 300


def test_state_is_bounded() -> None:
    """5-tuples that come and go leave nothing behind."""
    m = machine()
    for second in range(600):
        results = [result("a", f"b{second}", f, f, None if f else 9) for f in range(2)]
        run(m, [round_datum(results, T + second * SECOND_NS, second)])
    assert len(m.recent.flows) <= 2 * (retire_ns(m.config) + REFRESH_STEP_NS) // SECOND_NS
    assert len(m.seen) <= 600
    assert len(m.windows._open) <= 2
    assert all(len(detector) < 2 * 400 for detector in m.detection.detectors)


def test_a_flood_that_is_gone_leaves_room_only_until_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And it is not said before a restart's look-back is past the flood."""
    monkeypatch.setattr("streams.core.machine.FEW_ROWS", 100)
    m = machine()
    flood = [result("a", f"b{n}", 0, n, 9) for n in range(500)]
    run(m, [round_datum(flood, T, 0)])
    roomy_s = None
    for second in range(1, 700):
        m.process(round_datum([result("a", "b", 0, 0, 9)], T + second * SECOND_NS, second), second)
        if m.roomy:
            roomy_s = second
            break
    assert roomy_s is not None
    assert m.lookback.offset > 0
    retired_s = (retire_ns(m.config) + 2 * REFRESH_STEP_NS) // SECOND_NS
    assert agents_horizon_ns(m.config) // SECOND_NS < roomy_s
    assert roomy_s <= retired_s + (agents_horizon_ns(m.config) + 3 * REFRESH_STEP_NS) // SECOND_NS


def test_a_window_that_a_slow_clock_keeps_open_keeps_its_five_tuples() -> None:
    """A host's clock runs at half its speed, then nearly stands: what was probed is in its window.

    The second window has its first results long before the first one is closed.
    """
    m = machine()
    outputs: list[Output] = []
    for second in range(3 * retire_ns(DetectionConfig()) // SECOND_NS):
        clock_s = min(second / 2, 50 + second / 1_000)
        flows = (0, 1) if 60 <= second < 64 else (0,)
        results = [result("a", "b", flow, 0, 10) for flow in flows]
        datum = round_datum(results, T + int(clock_s * SECOND_NS), second)
        outputs += m.process(datum, second, arrival_ns=T + second * SECOND_NS)
    (once,) = [window for window in windows_of(outputs) if window.flow == 1]
    assert (once.sent, once.window_start_at) == (4, T // 1000 + 30 * US)
    assert m.recent.flows.find(("agent-h0", "a", "b", 1)) is None
