"""One fault soon after another: what is left of the first says nothing of the second."""

from collections.abc import Callable

import pytest

from ops.lab.shape import LabShape
from schemas.enums import FaultLifecycle
from schemas.records import FaultEvent
from tests.unit.localizer.simlab import SimLab

# Two RNICs below a leaf: what leads to one of them is half of all that the leaf forwards.
SHAPE = LabShape(hosts=4, rails=2, pods=2, leaves=2, spines=2)
UPLINK = "link:leaf:p0-0--spine:0"
SIDE = "link:leaf:p0-1--spine:0"
CABLE = "link:leaf:p1-0--rnic:h3/r0"
BESIDE = "link:leaf:p1-0--rnic:h2/r0"
# The first is resolved by then, and brief cuts are remembered still.
BETWEEN_S = 11


def cut(name: str) -> Callable[[SimLab], None]:
    """Return what cuts a cable."""
    return lambda lab: lab.effects.links.update({name: (1.0, 0)})


def lose(name: str, share: float) -> Callable[[SimLab], None]:
    """Return what lets a cable lose a share of what crosses it."""
    return lambda lab: lab.effects.links.update({name: (share, 0)})


def die(lab: SimLab) -> None:
    """Kill the agent of the third host."""
    lab.effects.dead.add("agent-h2")


def heal(lab: SimLab) -> None:
    """Let all be well."""
    lab.effects.links.clear()
    lab.effects.dead.clear()


def second(lab: SimLab, change: Callable[[SimLab], None], lasts_s: float) -> list[FaultEvent]:
    """Heal what is broken, wait, break something else; return what is said of that."""
    heal(lab)
    lab.run(BETWEEN_S)
    began_us = lab.now // 1000
    change(lab)
    lab.run(lasts_s)
    return [e for e in lab.verdicts() if e.event_at >= began_us]


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("first", [cut(UPLINK), cut(BESIDE)], ids=["uplink", "beside"])
def test_a_cable_of_one_host_is_not_taken_for_its_leaf(
    first: Callable[[SimLab], None], seed: int
) -> None:
    """Though 5-tuples through that leaf were cut off by another fault a moment before."""
    lab = SimLab(SHAPE, seed=seed)
    lab.run(12)
    first(lab)
    lab.run(4)
    events = second(lab, cut(CABLE), 5)
    assert {e.component_id for e in events} == {CABLE}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_a_dead_agent_did_not_answer_is_no_loss_of_the_network(seed: int) -> None:
    """It is back for a while when a cable begins to lose packets: that cable is named."""
    lab = SimLab(SHAPE, seed=seed)
    lab.run(12)
    die(lab)
    lab.run(4)
    events = second(lab, lose(UPLINK, 0.2), 16)
    assert {e.component_id for e in events} == {UPLINK}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 4, 5])
def test_traces_of_a_fault_that_is_over_do_not_move_the_next_one(seed: int) -> None:
    """A cable of the spine loses some probes, another is cut meanwhile; the first loses again.

    The loss test looks back a minute, so the anomaly of the second time begins with the first.
    """
    lab = SimLab(SHAPE, seed=seed)
    lab.run(12)
    lose(UPLINK, 0.4)(lab)
    lab.run(2)
    heal(lab)
    lab.run(24)
    cut(SIDE)(lab)
    lab.run(5)
    events = second(lab, lose(UPLINK, 0.25), 14)
    said = {e.component_id for e in events if e.state is not FaultLifecycle.RESOLVED}
    assert said == {UPLINK}
