"""Which 5-tuples belong to a component that is slow again and again."""

from localizer.facts.anomalies import Symptom
from localizer.verdict.slow_moments import _Moments
from schemas.enums import AnomalyKind


def symptom() -> Symptom:
    """Return one with a rise of 4 µs."""
    return Symptom(
        kind=AnomalyKind.BRIEF_LATENCY, agent_id="a", onset_ns=0, onset_at=0, seen_ns=0, last_ns=0,
        sent=12, lost=0, rtt_ns=14_000, baseline_ns=10_000, host_delay_ns=None,
    )  # fmt: skip


def test_what_is_late_by_chance_does_not_stay() -> None:
    """Of five moments one 5-tuple shows in three, one in one; a third is late in between only."""
    known = _Moments(log_chance=dict.fromkeys((1, 5, 9, 13, 17), -20.0))
    often, once, between = [("e0", "e1", flow) for flow in range(3)]
    for number in (1, 9, 17):
        known.note({often: symptom()}, number)
    known.note({once: symptom()}, 5)
    for number in (2, 6, 10):
        known.note({between: symptom()}, number)
    assert set(known.recurring()) == {often}
    assert known.events == 5
