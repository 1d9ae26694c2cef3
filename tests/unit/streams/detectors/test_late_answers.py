"""Late answers are counted by host, over whole seconds, and reported with losses."""

import numpy as np

from schemas.units import MS_NS, SECOND_NS
from streams.columns.rounds import round_columns
from streams.detectors.late_answers import LATE_NS, LATE_SPAN_S, LateAnswers, Side
from streams.detectors.recent import SLOTS, RecentProbes
from tests.unit.streams.worlds import (
    START_S,
    Datum,
    Fault,
    World,
    anomalies_of,
    machine,
    result,
    round_datum,
    run,
)

T_S = 1_000_000


def feed(recent: RecentProbes, second: int, results: list[Datum]) -> None:
    """Count the round that arrives in a second."""
    columns = round_columns(round_datum(results, (T_S + second) * SECOND_NS, second))
    rows = recent.rows(columns.keys)
    active_ns = (T_S + second) * SECOND_NS
    recent.advance(active_ns)
    recent.count_round(columns, rows, active_ns)


def probe(dst: str, *, prober_ns: int = 0, responder_ns: int = 0, lost: bool = False) -> Datum:
    """Return the result of a probe that its hosts held up for so long."""
    rtt_ns = None if lost else 1000
    return result("a", dst, 0, 0, rtt_ns, host_ns=prober_ns, responder_ns=responder_ns)


def test_counts_of_all_5_tuples_of_a_host() -> None:
    """An agent's own lateness shows on all its 5-tuples; a target's on those to it."""
    recent = RecentProbes()
    feed(recent, 0, [probe("b", prober_ns=LATE_NS), probe("c", responder_ns=LATE_NS)])
    feed(recent, 1, [probe("b", prober_ns=LATE_NS - 1), probe("c", lost=True)])
    feed(recent, 2, [])
    rows = {dst: recent.flows.find(("agent-h0", "a", dst, 0)) for dst in "bc"}
    assert rows["b"] is not None
    assert rows["c"] is not None
    for row in rows.values():
        assert row is not None
        assert recent.late_counts(row, Side.PROBER) == (1, 3)
    assert recent.late_counts(rows["b"], Side.RESPONDER) == (0, 0)
    assert recent.late_counts(rows["c"], Side.RESPONDER) == (1, 1)


def test_the_present_second_does_not_count_and_old_ones_go() -> None:
    """A count is the same all through a second."""
    recent = RecentProbes()
    feed(recent, 0, [probe("b", prober_ns=300 * MS_NS)])
    row = recent.flows.find(("agent-h0", "a", "b", 0))
    assert row is not None
    for second, expected in ((0, 0), (1, 1), (LATE_SPAN_S, 1), (LATE_SPAN_S + 1, 0)):
        recent.advance((T_S + second) * SECOND_NS)
        assert recent.late_counts(row, Side.PROBER)[0] == expected


def test_hosts_without_5_tuples_are_forgotten() -> None:
    """And whoever gets their numbers begins at 0."""
    recent = RecentProbes()
    feed(recent, 0, [probe("b", responder_ns=LATE_NS)])
    recent.advance((T_S + 1) * SECOND_NS)
    recent.retire((T_S + 1) * SECOND_NS, lambda rows: np.zeros(len(rows), np.bool_))
    assert len(recent.late_answers.hosts) == 0
    feed(recent, 1, [probe("c"), probe("d")])
    recent.advance((T_S + 2) * SECOND_NS)
    assert {recent.late_counts(int(row), side) for row in recent.flows.rows() for side in Side} == {
        (0, 0)
    }


def test_many_hosts() -> None:
    """The ring grows with them and keeps what it has."""
    late = LateAnswers(SLOTS)
    first = late.number(Side.PROBER, "agent")
    late.count(3, np.array([first, first]))
    numbers = [late.number(Side.RESPONDER, f"e{n}") for n in range(1000)]
    late.count(3, np.array(numbers[-1:]))
    assert (late.late([3], first), late.late([3], numbers[-1])) == (2, 1)
    assert late.number(Side.PROBER, "agent") == first


def test_losses_are_reported_with_late_answers() -> None:
    """Beside a target whose answers are never late."""
    fault = Fault(20, 60, frozenset({(0, 0), (0, 1)}), loss=0.3)
    for late in (0.0, 0.2):
        outputs = run(machine(), list(World(seed=5, late=late, faults=[fault]).rounds(50, START_S)))
        lossy = anomalies_of(outputs, "LOSS", "ONGOING")
        assert lossy
        for anomaly in lossy:
            counts = [
                (anomaly.prober_late, anomaly.prober_answers),
                (anomaly.responder_late, anomaly.responder_answers),
            ]
            if not late:
                assert counts == [(None, None)] * 2
                continue
            for late_answers, answers in counts:
                assert late_answers is not None
                assert answers is not None
                assert 0.1 < late_answers / answers < 0.3
        assert all(a.prober_late is None for a in anomalies_of(outputs, "LOSS", "CLEARED"))
