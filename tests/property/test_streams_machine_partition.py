"""Invariants of windows and of the partition's machine, whatever comes."""

import contextlib
from collections import Counter
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.enums import AnomalyState
from schemas.records import Anomaly, PathWindow
from schemas.units import SECOND_NS
from streams.columns.quantities import PERCENTS
from streams.config import REFRESH_STEP_NS, DetectionConfig
from streams.core.clock import MAX_GAP_NS, ClockState, max_open_ns
from streams.core.machine import PartitionMachine
from streams.core.outputs import Output
from streams.core.partition import RefusedRoundError
from tests.unit.streams.worlds import (
    START_S,
    Datum,
    Fault,
    World,
    as_bytes,
    machine,
    result,
    round_datum,
    windows_of,
)

BASE_NS = 1_700_000_000 * SECOND_NS
CONFIG = DetectionConfig(window_ns=5 * SECOND_NS, lateness_ns=3 * SECOND_NS)

results = st.lists(
    st.builds(
        result,
        src=st.just("a"),
        dst=st.sampled_from(["b", "c"]),
        flow=st.integers(0, 2),
        offset_ns=st.integers(0, 2000).map(lambda ms: ms * 1_000_000),
        rtt_ns=st.none() | st.integers(0, 10**9),
    ),
    max_size=6,
)


@st.composite
def logs(draw: st.DrawFn) -> list[Datum]:
    """Draw rounds of two agents: steps ahead and back, repeats, a lying clock."""
    log: list[Datum] = []
    at_ns = BASE_NS
    for seq in range(draw(st.integers(1, 40))):
        at_ns += draw(st.integers(-3, 4)) * SECOND_NS
        if draw(st.integers(0, 12)) == 0:
            at_ns += draw(st.sampled_from([-100, 45, 100])) * SECOND_NS
        agent = draw(st.sampled_from(["agent-1", "agent-2"]))
        # No two probes of a 5-tuple leave at the same nanosecond.
        drawn = {(r["dst"], r["flow"], r["sent_offset_ns"]): r for r in draw(results)}
        apart = [{**r, "sent_offset_ns": r["sent_offset_ns"] + seq} for r in drawn.values()]
        log.append(round_datum(apart, at_ns, seq, agent=agent))
        if draw(st.integers(0, 5)) == 0:
            log.append(log[draw(st.integers(0, len(log) - 1))])
    return log


def take(m: PartitionMachine, log: list[Datum]) -> list[Output]:
    """Process a log without counting what is refused."""
    outputs: list[Output] = []
    for offset, datum in enumerate(log):
        with contextlib.suppress(RefusedRoundError):
            outputs += m.process(datum, offset)
    return outputs


def flush(m: PartitionMachine) -> list[Output]:
    """Close all windows by another's rounds without results, until they have been open too long."""
    begin_ns = m.clock.arrival_ns or BASE_NS
    steps = (max_open_ns(CONFIG) + REFRESH_STEP_NS) // MAX_GAP_NS + 2
    ends = [
        round_datum([], begin_ns + step * MAX_GAP_NS, 10**6 + step, agent="end")
        for step in range(1, steps)
    ]
    return take(m, ends)


def entry_ns(m: PartitionMachine, datum: Datum) -> int:
    """Return from when on results of a round, the next one, belong to windows."""
    number = m.agents.table.find(datum["agent_id"])
    if number is not None:
        return int(m.agents.table["entry_ns"][number])
    started_ns = datum["started_at"] * 1000
    reach_ns = started_ns + max((r["sent_offset_ns"] for r in datum["results"]), default=0)
    behind = max(m.clock.arrival_ns or 0, reach_ns) - started_ns > max_open_ns(CONFIG)
    first_open: int = (started_ns - CONFIG.lateness_ns) // CONFIG.window_ns
    if behind:
        first_open = started_ns // CONFIG.window_ns + 1
    return first_open * CONFIG.window_ns


@settings(max_examples=60)
@given(log=logs())
def test_every_accepted_result_is_in_exactly_one_window_or_late(log: list[Datum]) -> None:
    """Conservation: results = in windows + late; and no window is told twice."""
    m = machine(CONFIG)
    outputs = take(m, log) + flush(m)
    windows = windows_of(outputs)
    assert m.counts["results"] == sum(w.sent for w in windows) + m.counts["late"]
    assert all(w.sent == w.ok + w.lost for w in windows)
    keys = Counter((w.agent_id, w.path_id, w.flow, w.window_start_at) for w in windows)
    assert set(keys.values()) <= {1}
    told = [o.identity for o in outputs]
    assert len(set(told)) == len(told)


@settings(max_examples=40)
@given(log=logs())
def test_time_never_goes_back(log: list[Datum]) -> None:
    """Arrival, active time, windows and progress marks only rise; nothing closes too early."""
    m = machine(CONFIG)
    mark, last = 0, ClockState(0)
    opened: dict[str, tuple[int, int]] = {}
    for offset, datum in enumerate(log):
        outputs = m.process(datum, offset)
        assert m.clock.active_ns >= last.active_ns
        assert m.clock.arrival_ns is not None
        assert last.arrival_ns is not None
        assert m.clock.arrival_ns >= last.arrival_ns
        last = m.clock
        for agent in ("agent-1", "agent-2"):
            number = m.agents.table.find(agent)
            if number is None:
                opened.pop(agent, None)
                continue
            first_open = int(m.agents.table["first_open"][number])
            before, since_ns = opened.get(agent, (first_open, last.active_ns))
            assert first_open >= before
            if first_open > before:
                end_ns = first_open * CONFIG.window_ns
                by_clock = end_ns <= m.agents.table["latest_ns"][number] - CONFIG.lateness_ns
                assert by_clock or last.active_ns - since_ns >= max_open_ns(CONFIG)
            if first_open > before or agent not in opened:
                opened[agent] = first_open, last.active_ns
        for output in outputs:
            record = output.record
            if isinstance(record, PathWindow):
                number = m.agents.table.find(record.agent_id)
                if number is not None:
                    assert record.window_end_at * 1000 <= int(
                        m.agents.table["first_open"][number] * CONFIG.window_ns
                    )
            elif isinstance(record, Anomaly) and record.kind == "PROGRESS":
                assert record.event_at > mark
                assert record.state is AnomalyState.ONGOING
                mark = record.event_at


@settings(max_examples=30)
@given(log=logs())
def test_streaming_equals_batch(log: list[Datum]) -> None:
    """Each window's statistics are those numpy gives for its results all at once."""
    m = machine(CONFIG)
    accepted: dict[tuple[str, str, int, int], list[Datum]] = {}
    outputs: list[Output] = []
    seen: set[tuple[Any, ...]] = set()
    for offset, datum in enumerate(log):
        from_ns = entry_ns(m, datum)
        outputs += m.process(datum, offset)
        identity = (datum["agent_id"], datum["round_seq"], datum["started_at"])
        if identity in seen:
            continue
        seen.add(identity)
        for r in datum["results"]:
            sent_ns = datum["started_at"] * 1000 + r["sent_offset_ns"]
            if sent_ns >= from_ns:
                key = (datum["agent_id"], r["dst"], r["flow"], sent_ns // CONFIG.window_ns)
                accepted.setdefault(key, []).append(r)
    outputs += flush(m)
    windows = windows_of(outputs)
    assert len(windows) == len(accepted)
    for w in windows:
        index = w.window_start_at * 1000 // CONFIG.window_ns
        batch = accepted[w.agent_id, w.dst, w.flow, index]
        rtt = np.array([r["rtt_ns"] for r in batch if r["rtt_ns"] is not None])
        assert (w.sent, w.ok) == (len(batch), len(rtt))
        if len(rtt) == 0:
            assert w.p50_ns is None
            continue
        for percent in PERCENTS:
            twin = np.percentile(rtt, percent, method="inverted_cdf")
            assert getattr(w, f"p{percent}_ns") == twin
        assert (w.min_ns, w.max_ns) == (rtt.min(), rtt.max())
        assert w.mean_ns is not None
        assert w.std_ns is not None
        assert abs(w.mean_ns - rtt.mean()) <= 0.5
        assert abs(w.std_ns - rtt.std()) <= 1


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1))
def test_order_within_the_lateness_does_not_matter(seed: int) -> None:
    """Rounds that swap places with others of their agent give the same windows."""
    rng = np.random.default_rng(seed)
    log = [
        round_datum(
            [
                result("a", "b", flow, int(rng.integers(0, SECOND_NS)), int(rng.integers(1, 10**7)))
                for flow in range(2)
            ],
            BASE_NS + second * SECOND_NS,
            second,
            agent=f"agent-{agent}",
        )
        for second in range(30)
        for agent in range(2)
    ]
    # A round moves by less than 3 s against any other.
    order = np.argsort([i / 2 + rng.uniform(0, 1.4) for i in range(len(log))], kind="stable")
    straight, swapped = machine(CONFIG), machine(CONFIG)
    first = windows_of(take(straight, log) + flush(straight))
    second = windows_of(take(swapped, [log[i] for i in order]) + flush(swapped))
    assert swapped.counts["late"] == 0
    # Agents close their windows one before the other.
    key = attrgetter("window_start_at", "agent_id", "path_id", "flow")
    assert sorted(first, key=key) == sorted(second, key=key)


CLOCKS = st.one_of(
    st.sampled_from([10, 40, 59, -3600, -86_400]).map(lambda s: [s * SECOND_NS]),
    st.lists(st.integers(-4_000, 59).map(lambda s: s * SECOND_NS), min_size=2, max_size=5),
)


@settings(max_examples=8)
@given(seed=st.integers(0, 2**32 - 1), offsets_ns=CLOCKS, pause_s=st.sampled_from([0, 8, 300]))
def test_no_agents_clock_changes_what_others_get(
    seed: int, offsets_ns: list[int], pause_s: int
) -> None:
    """Windows and anomalies of the others are byte for byte those beside an agent that is right."""
    faults = [Fault(20, 60, frozenset({(0, 0)}), loss=1.0),
              Fault(70, 140, frozenset({(1, 0)}), delay_ns=9_000_000)]  # fmt: skip
    rounds: list[tuple[int, Datum]] = []
    for n in range(2):
        world = World(seed=seed % 1000 + n, agent=f"agent-{n}", flows=1, faults=faults)
        for second, datum in enumerate(world.rounds(150)):
            paused_s = pause_s if second > 90 else 0
            arrival_ns = (START_S + second + 1 + paused_s) * SECOND_NS + n * 300_000_000
            rounds.append((arrival_ns, datum))
    rounds.sort(key=itemgetter(0))

    def told(clock_ns: list[int]) -> list[tuple[Any, ...]]:
        m, outputs = machine(CONFIG), []
        for offset, (arrival_ns, datum) in enumerate(rounds):
            off_ns = 0
            if datum["agent_id"] == "agent-1":
                off_ns = clock_ns[datum["round_seq"] * len(clock_ns) // 150]
            dated = {**datum, "started_at": datum["started_at"] + off_ns // 1000}
            outputs += m.process(dated, offset, arrival_ns)
        return as_bytes([o for o in outputs if getattr(o.record, "agent_id", "") == "agent-0"])

    right = told([0])
    assert right
    assert told(offsets_ns) == right
