"""A cable that loses a small share of all packets: found, named, and resolved."""

import pytest

from schemas.enums import AnomalyKind, FaultLifecycle
from schemas.records import Anomaly
from schemas.units import US_NS
from tests.unit.localizer.simlab import SimLab

LINK = "link:leaf:p0-0--spine:0"
# What crosses the one crosses the other, too: only traces can tell them apart, and losses so rare
# are in no trace.
EITHER = {LINK, "link:leaf:p1-0--spine:0"}


def lab_with_leak(share: float, *, seed: int, leak_s: int, after_s: int = 0) -> SimLab:
    """Run a lab whose cable loses a share of the packets for a while."""
    lab = SimLab(seed=seed)
    lab.run(30)
    if share:
        lab.effects.links[LINK] = (share, 0)
    lab.run(leak_s)
    lab.effects.links.clear()
    lab.run(after_s)
    return lab


def opened(lab: SimLab) -> list[tuple[str, str]]:
    """Return components and kinds of the faults that were opened."""
    return [
        (e.component_id, e.fault_kind) for e in lab.verdicts() if e.state is FaultLifecycle.OPEN
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_weak_leak_is_found(seed: int) -> None:
    """One packet in a hundred: too few for the test of any 5-tuple."""
    lab = lab_with_leak(0.01, seed=seed, leak_s=240)
    (fault,) = [e for e in lab.verdicts() if e.state is FaultLifecycle.OPEN]
    assert fault.fault_kind == "packet_loss"
    assert {candidate.component_id for candidate in fault.candidates[:2]} == EITHER
    assert not fault.decided


def test_a_leak_that_ends_is_resolved() -> None:
    """When no loss followed for several usual gaps."""
    lab = lab_with_leak(0.02, seed=4, leak_s=200, after_s=200)
    states = [e.state for e in lab.verdicts()]
    assert states[0] is FaultLifecycle.OPEN
    assert states[-1] is FaultLifecycle.RESOLVED
    assert states.count(FaultLifecycle.OPEN) == 1


@pytest.mark.slow
def test_a_leak_that_comes_back_is_the_same_fault_by_losses_of_its_own() -> None:
    """Losses are pooled for ten minutes: those before the heal do not make it come back."""
    lab = lab_with_leak(0.05, seed=6, leak_s=120, after_s=250)
    again_us = lab.now // US_NS
    lab.effects.links[LINK] = (0.05, 0)
    lab.run(120)
    found = lab.verdicts()
    healed = [e for e in found if e.event_at < again_us]
    assert [e.state for e in healed].count(FaultLifecycle.OPEN) == 1
    assert healed[-1].state is FaultLifecycle.RESOLVED
    back = found[len(healed)]
    assert (back.fault_id, back.state) == (healed[-1].fault_id, FaultLifecycle.UPDATED)
    assert (back.fault_kind, back.flaps) == ("packet_loss", 1)


def test_usual_losses_are_no_leak() -> None:
    """A healthy network that loses one packet in two thousand everywhere."""
    lab = SimLab(seed=5)
    lab.effects.noise = 5e-4
    lab.run(300)
    strays = [
        r.record
        for r in lab.log
        if isinstance(r.record, Anomaly) and r.record.kind is AnomalyKind.STRAY_LOSS
    ]
    assert strays
    assert opened(lab) == []
