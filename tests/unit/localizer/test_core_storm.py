"""Much at once, in small: a spine that dies is one verdict, not one for each path."""

import gc
from typing import Final

import pytest

from localizer.facts import sampling
from ops.bench.scale.localizer import Run, run_storm
from schemas.enums import FaultLifecycle
from schemas.records import FaultEvent
from tests.unit.localizer.simlab import SimLab


@pytest.fixture(scope="module")
def storm() -> Run:
    """Return what comes of a spine's death in a fabric of 20,480 5-tuples."""
    try:
        return run_storm(10, 3)
    finally:
        # Other tests want the collector as it was.
        gc.unfreeze()
        gc.enable()


def test_a_spine_that_dies_is_one_verdict_and_no_page_for_each_path(storm: Run) -> None:
    """More than two thousand 5-tuples are cut off at one time: the spine, and nothing else."""
    assert storm.anomalies > 2_000
    assert [names[0] for names in storm.opened.values()] == ["spine:0"]
    assert storm.transitions <= 3


def test_the_first_verdict_of_a_storm_is_not_put_off(storm: Run) -> None:
    """It comes with the decision that first knows of it, and later ones are fewer."""
    assert storm.out_s <= storm.steps_s[0] + 1e-9


# A small fault is told once the large one accounts for the others.
ANOTHER_DECISION_US: Final = 2_000_000


def cut(lab: SimLab, name: str) -> None:
    """Let a cable lose everything."""
    lab.effects.links[name] = (1.0, 0)


def final(lab: SimLab) -> dict[str, FaultEvent]:
    """Return the last event of each fault by its component."""
    return {event.component_id: event for event in lab.verdicts()}


def test_a_sample_tells_the_fault_and_how_many_it_hits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer are looked at; what is said of all that are bad stays the same."""
    lab = SimLab(seed=4)
    lab.run(6)
    lab.effects.off.add("spine:1")
    lab.run(8)
    (whole,) = final(lab).values()
    monkeypatch.setattr(sampling, "MOST", whole.bad_paths // 4)
    (sampled,) = final(lab).values()
    assert (sampled.component_id, sampled.fault_kind) == ("spine:1", whole.fault_kind)
    assert abs(sampled.bad_paths - whole.bad_paths) <= 0.1 * whole.bad_paths
    assert sampled.tasks == whole.tasks
    assert sampled.decided


def test_a_small_fault_in_the_storm_of_a_large_one_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both begin at once; that of an RNIC hits a tenth of what the spine's does."""
    lab = SimLab(seed=4)
    lab.run(6)
    lab.effects.off.add("spine:1")
    cut(lab, "link:leaf:p0-0--rnic:h0/r0")
    lab.run(12)
    whole = final(lab)
    monkeypatch.setattr(sampling, "MOST", 64)
    sampled = final(lab)
    assert sampled.keys() == whole.keys()
    for name, event in sampled.items():
        assert event.state is not FaultLifecycle.RESOLVED
        assert abs(event.opened_at - whole[name].opened_at) <= ANOTHER_DECISION_US


def test_a_storm_that_ends_is_resolved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not looked at keeps no fault open, and opens none."""
    lab = SimLab(seed=4)
    lab.run(6)
    lab.effects.off.add("spine:1")
    lab.run(8)
    lab.effects.off.clear()
    lab.run(20)
    monkeypatch.setattr(sampling, "MOST", 16)
    told = [(event.state, event.component_id) for event in lab.verdicts()]
    assert {component for _, component in told} == {"spine:1"}
    assert [state for state, _ in told if state is not FaultLifecycle.UPDATED] == [
        FaultLifecycle.OPEN,
        FaultLifecycle.RESOLVED,
    ]
