"""A cable that gets slower by too little for an alarm of any 5-tuple: found and resolved."""

import pytest

from schemas.enums import AnomalyKind, FaultLifecycle
from schemas.records import Anomaly
from tests.unit.localizer.simlab import SimLab

LINK = "link:leaf:p0-0--spine:0"
# What crosses the one crosses the other, too; traces may tell.
EITHER = {LINK, "link:leaf:p1-0--spine:0"}
# UDP's least effect is 1 ms.
RISE_NS = 400_000


def lab_with_rise(*, seed: int, slow_s: int, after_s: int = 0) -> SimLab:
    """Run a lab whose cable delays all packets for a while, after ten windows of look-back."""
    lab = SimLab(seed=seed)
    lab.run(150)
    lab.effects.links[LINK] = (0.0, RISE_NS)
    lab.run(slow_s)
    lab.effects.links.clear()
    lab.run(after_s)
    return lab


@pytest.mark.parametrize("seed", [1, 2])
def test_a_small_rise_is_found(seed: int) -> None:
    """No 5-tuple alarms alone."""
    lab = lab_with_rise(seed=seed, slow_s=90)
    kinds = {r.record.kind for r in lab.log if isinstance(r.record, Anomaly)}
    assert AnomalyKind.WEAK_LATENCY in kinds
    assert AnomalyKind.LATENCY not in kinds
    (fault,) = [e for e in lab.verdicts() if e.state is FaultLifecycle.OPEN]
    assert fault.fault_kind == "high_latency"
    assert fault.component_id in EITHER


def test_a_small_rise_that_ends_is_resolved() -> None:
    """Once the windows are as before."""
    lab = lab_with_rise(seed=3, slow_s=90, after_s=60)
    states = [e.state for e in lab.verdicts()]
    assert states[0] is FaultLifecycle.OPEN
    assert states[-1] is FaultLifecycle.RESOLVED
    assert states.count(FaultLifecycle.OPEN) == 1


def lab_with_pulses(*, seed: int, pulses: int) -> SimLab:
    """Run a lab whose cable delays all packets for nine seconds, again and again.

    They lie in two windows of ten seconds, about half of each.
    """
    lab = SimLab(seed=seed)
    lab.run(305)
    for _ in range(pulses):
        lab.effects.links[LINK] = (0.0, RISE_NS)
        lab.run(9)
        lab.effects.links.clear()
        lab.run(31)
    return lab


def test_a_delay_in_pulses_is_found_while_they_recur() -> None:
    """It is on for less than a quarter of the time; one fault, from the third pulse on."""
    lab = lab_with_pulses(seed=3, pulses=5)
    opened = [e for e in lab.verdicts() if e.state is FaultLifecycle.OPEN]
    assert [(e.component_id in EITHER, e.fault_kind) for e in opened] == [(True, "high_latency")]


def test_a_single_pulse_is_no_fault() -> None:
    """Something was slow for a moment, and is not any more."""
    assert not lab_with_pulses(seed=3, pulses=1).verdicts()
