"""Rises of the last seconds: the runs that are compared, the rate by chance, when they end."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from schemas.enums import AnomalyKind, AnomalyState
from schemas.units import SECOND_NS
from streams.config import DetectionConfig
from streams.core.machine import PartitionMachine
from streams.detectors.brief_latency import (
    FEWEST,
    IN_A_ROW,
    LOWER,
    MIDDLE,
    RUN,
    SOME,
    STRAGGLERS,
    UNKNOWN,
    BriefLatencyDetector,
    highest_run,
    late_runs,
    later_than,
    lifted_whole,
    suspicious_rows,
)
from streams.detectors.recent import LATEST, RecentProbes
from streams.detectors.weak_latency import MIN_COMPARED
from tests.unit.streams.worlds import IDENTITY, START_S, Fault, World, anomalies_of, run


def recent_with(answers_ns: list[list[int]]) -> RecentProbes:
    """Return 5-tuples after these answers, the oldest first."""
    recent = RecentProbes()
    rows = recent.rows([("a", "a/r0", "b/r0", flow) for flow in range(len(answers_ns))])
    for row, values in zip(rows.tolist(), answers_ns, strict=True):
        for value in values:
            turn = recent.flows["turn"][row]
            recent.latest[turn, row] = value
            recent.flows["turn"][row] = (turn + 1) % LATEST
    return recent


@given(
    answers_ns=st.lists(
        st.lists(st.integers(0, 50), min_size=1, max_size=2 * LATEST), min_size=1, max_size=6
    ),
    bound_ns=st.integers(0, 50),
)
def test_a_late_run_is_found(answers_ns: list[list[int]], bound_ns: int) -> None:
    """As by trying all of them."""
    recent = recent_with(answers_ns)
    rows = np.arange(len(answers_ns))
    late = late_runs(recent, rows, np.full(len(rows), bound_ns))
    for row, values in enumerate(answers_ns):
        last = ([-1] * LATEST + values)[-LATEST:]
        tried = [sorted(last[first : first + RUN]) for first in range(LATEST - RUN + 1)]
        # The second least of eight is their lower quartile by nearest rank.
        best = max(one[1] for one in tried)
        above = sum(one > bound_ns for one in last)
        assert later_than(recent, rows[row : row + 1], np.array([bound_ns])).tolist() == [above]
        assert late[row] == (best > bound_ns)
        found = highest_run(np.array(last, np.int32)).tolist()
        assert found in tried
        assert found[1] == best


@given(
    answers_ns=st.lists(
        st.lists(st.integers(0, 9), min_size=LATEST - 1, max_size=2 * LATEST),
        min_size=1, max_size=6,
    ),
    bounds_ns=st.tuples(st.integers(0, 4), st.integers(0, 4)),
)  # fmt: skip
def test_what_left_the_lower_half_is_found(
    answers_ns: list[list[int]], bounds_ns: tuple[int, int]
) -> None:
    """As by counting; fewer than `LATEST` answers have not."""
    lower_ns, middle_ns = sorted(bounds_ns)
    recent = recent_with(answers_ns)
    rows = np.arange(len(answers_ns))
    lifted = lifted_whole(recent, rows, np.full(len(rows), middle_ns), np.full(len(rows), lower_ns))
    for row, values in enumerate(answers_ns):
        last = values[-LATEST:]
        below = sum(one <= middle_ns for one in last)
        assert lifted[row] == (len(last) == LATEST and min(last) > lower_ns and below <= 1)


@given(
    answers_ns=st.lists(
        st.lists(st.integers(0, 50), min_size=1, max_size=2 * LATEST), min_size=1, max_size=150
    ),
    bounds_ns=st.lists(st.integers(0, 50), min_size=4, max_size=4),
)
def test_the_quick_test_finds_all_that_are_late(
    answers_ns: list[list[int]], bounds_ns: list[int]
) -> None:
    """By any of the tests, and few others; not those that are silent or of which none is known."""
    recent = recent_with(answers_ns)
    rows = np.arange(len(answers_ns))
    known = np.repeat(np.array(bounds_ns, np.int32)[:, None], recent.flows.capacity, axis=1)
    recent.flows["last_ns"][:] = 10
    found = suspicious_rows(recent, known, 9)
    bounds = [np.full(len(rows), bound_ns) for bound_ns in bounds_ns]
    some = later_than(recent, rows, bounds[SOME]) >= FEWEST
    lifted = lifted_whole(recent, rows, bounds[MIDDLE], bounds[LOWER])
    runs = late_runs(recent, rows, bounds[IN_A_ROW])
    assert set(np.flatnonzero(some | lifted | runs).tolist()) <= set(found.tolist())
    many = later_than(recent, rows, bounds[IN_A_ROW]) >= RUN - 1
    assert set(found.tolist()) <= set(np.flatnonzero(some | lifted | many).tolist())
    silent, unknown = rows % 3 == 0, rows % 3 == 1
    recent.flows["last_ns"][rows[silent]] = 9
    known[IN_A_ROW, rows[unknown]] = UNKNOWN
    left = found[found % 3 == 2]
    assert suspicious_rows(recent, known, 9).tolist() == left.tolist()


def test_chance_makes_no_more_than_stated() -> None:
    """Whatever is usual: of independent answers the quartile alone matters."""
    rng = np.random.default_rng(1)
    answers = rng.random((40_000, LATEST))
    runs = np.lib.stride_tricks.sliding_window_view(answers, RUN, axis=1)
    in_a_row = (np.sort(runs, axis=2)[:, :, 1] > 0.75).any(axis=1)
    lifted = (answers > 0.25).all(axis=1) & ((answers <= 0.5).sum(axis=1) <= 1)
    stated = BriefLatencyDetector.false_alarms(DetectionConfig()).rate
    for least, needed in STRAGGLERS:
        # So few windows, each with so few answers, as are allowed.
        greatest = np.median(rng.random((40_000, MIN_COMPARED, least)).max(axis=2), axis=1)
        some = (answers > greatest[:, None]).sum(axis=1) >= needed
        assert 0.7 * stated < (in_a_row | some | lifted).mean() < 1.1 * stated


def test_a_delay_of_seconds_begins_and_ends() -> None:
    """Within seconds of the first late answer, and of the last one."""
    seconds = 400
    fault = Fault(350, 365, frozenset({(0, 0)}), delay_ns=3_000_000)
    machine = PartitionMachine(DetectionConfig(), IDENTITY, detectors=(BriefLatencyDetector,))
    records = anomalies_of(run(machine, list(World(seed=3, faults=[fault]).rounds(seconds))))
    assert {record.kind for record in records} == {AnomalyKind.BRIEF_LATENCY}
    onset, *_, end = [r for r in records if (r.src, r.dst) == (records[0].src, records[0].dst)]
    assert (onset.state, end.state) == (AnomalyState.ONSET, AnomalyState.CLEARED)
    # The first few late answers lift the least of all by less.
    rises = [r.value - r.reference for r in records if r.value and r.reference]
    assert 2_000_000 < max(rises) < 4_000_000
    assert 0 <= onset.event_at - onset.onset_at <= 13_000_000
    assert end.event_at - onset.event_at <= 20_000_000


def test_a_delay_within_the_spread_of_round_trips_begins_and_ends() -> None:
    """Of what rises by its standard deviation few answers are above the usual upper quartile.

    All of them have left the lower edge.
    """
    small = Fault(350, 380, frozenset({(0, 0)}), delay_ns=500_000)
    machine = PartitionMachine(DetectionConfig(), IDENTITY, detectors=(BriefLatencyDetector,))
    world = World(seed=8, sigma=0.3, faults=[small])
    records = anomalies_of(run(machine, list(world.rounds(420))))
    mine = [r for r in records if r.onset_at > (START_S + 345) * 10**6]
    onset = next(r for r in mine if r.state is AnomalyState.ONSET and r.sent == LATEST)
    assert onset.threshold == onset.baseline_p50_ns
    assert onset.value is not None
    assert onset.reference is not None
    assert 300_000 < onset.value - onset.reference < 900_000
    assert onset.rtt_p50_ns is not None
    assert onset.value < onset.rtt_p50_ns
    assert mine[-1].state is AnomalyState.CLEARED
    assert mine[-1].event_at <= START_S * 10**6 + 400 * 10**6


def test_one_late_answer_in_four_begins_and_ends() -> None:
    """No two of them follow each other, and the median stays; when all are late it moves."""
    some = [Fault(at, at + 1, frozenset({(0, 0)}), delay_ns=9_000_000) for at in range(350, 390, 4)]
    all_late = Fault(390, 400, frozenset({(0, 0)}), delay_ns=9_000_000)
    machine = PartitionMachine(DetectionConfig(), IDENTITY, detectors=(BriefLatencyDetector,))
    world = World(seed=5, faults=[*some, all_late])
    records = anomalies_of(run(machine, list(world.rounds(440))))
    known = {(r.src, r.dst, r.flow) for r in records if r.onset_at > 350 * SECOND_NS // 1_000}
    assert len(known) == 1
    rises = [
        (one.value - one.reference, one.rtt_p50_ns - one.baseline_p50_ns)
        for one in records
        if one.state is not AnomalyState.CLEARED
        and one.value is not None
        and one.reference is not None
        and one.rtt_p50_ns is not None
        and one.baseline_p50_ns is not None
    ]
    assert rises[0][0] > 5_000_000
    assert rises[0][1] < 1_000_000
    assert max(median for _, median in rises) > 5_000_000
    assert records[-1].state is AnomalyState.CLEARED


def test_it_decides_on_the_grid_of_refreshes() -> None:
    """What was answered when is told to five seconds."""
    fault = Fault(350, 365, frozenset({(0, 0)}), delay_ns=3_000_000)
    machine = PartitionMachine(DetectionConfig(), IDENTITY, detectors=(BriefLatencyDetector,))
    records = anomalies_of(run(machine, list(World(seed=4, faults=[fault]).rounds(380))))
    assert records
    assert {record.event_at * 1_000 % (5 * SECOND_NS) for record in records} == {0}
