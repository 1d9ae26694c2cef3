"""Invariants of windows and of the partition's machine, whatever comes."""

import contextlib
from collections import Counter
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.enums import AnomalyState
from schemas.records import Anomaly, PathWindow
from schemas.units import SECOND_NS
from streams.columns.quantities import PERCENTS
from streams.config import DetectionConfig
from streams.core.machine import PartitionMachine
from streams.core.outputs import Output
from streams.core.partition import RefusedRoundError
from tests.unit.streams.worlds import Datum, machine, result, round_datum, windows_of

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
    """Close all windows by rounds without results."""
    watermark_ns = m.clock.watermark_ns or BASE_NS
    ends = [
        round_datum([], watermark_ns + step * 30 * SECOND_NS, 10**6 + step, agent="end")
        for step in range(1, 4)
    ]
    return take(m, ends)


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


@settings(max_examples=60)
@given(log=logs())
def test_time_never_goes_back(log: list[Datum]) -> None:
    """Watermark, closed windows and progress marks only rise; nothing closes too early."""
    m = machine(CONFIG)
    before, closed, mark = 0, 0, 0
    for offset, datum in enumerate(log):
        try:
            outputs = m.process(datum, offset)
        except RefusedRoundError:
            outputs = []
        watermark_ns = m.clock.watermark_ns or 0
        assert watermark_ns >= before
        assert m.closed_ns >= closed
        before, closed = watermark_ns, m.closed_ns
        for output in outputs:
            record = output.record
            if isinstance(record, PathWindow):
                assert record.window_end_at * 1000 <= watermark_ns - CONFIG.lateness_ns
            elif isinstance(record, Anomaly) and record.kind == "PROGRESS":
                assert record.event_at > mark
                assert record.state is AnomalyState.ONGOING
                mark = record.event_at


@settings(max_examples=50)
@given(log=logs())
def test_streaming_equals_batch(log: list[Datum]) -> None:
    """Each window's statistics are those numpy gives for its results all at once."""
    m = machine(CONFIG)
    accepted: dict[tuple[str, str, int, int], list[Datum]] = {}
    outputs: list[Output] = []
    seen: set[tuple[Any, ...]] = set()
    for offset, datum in enumerate(log):
        closed_ns = m.closed_ns
        try:
            outputs += m.process(datum, offset)
        except RefusedRoundError:
            continue
        identity = (datum["agent_id"], datum["round_seq"], datum["started_at"])
        if identity in seen:
            continue
        seen.add(identity)
        for r in datum["results"]:
            sent_ns = datum["started_at"] * 1000 + r["sent_offset_ns"]
            if sent_ns >= closed_ns:
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
    """Rounds of several agents that swap places within the lateness give the same windows."""
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
    assert first == second
