"""A second fault inside the reach of a first, and what a first leaves behind."""

from dataclasses import replace

import pytest

from arena.faults.effects import Effect
from arena.run import run_world
from arena.simulation.world import World
from arena.world.cluster import Cluster, JobPlan
from arena.world.fabric import Fabric, FabricShape
from schemas.enums import FaultLifecycle
from schemas.units import SECOND_NS
from tests.unit.arena.worlds import at
from tests.unit.localizer.made import START
from tests.unit.localizer.verdict.test_lifecycle import Life, claim, keys


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("first", ["spine:0", "link:leaf:s1-r0--spine:0"])
def test_a_switch_and_its_cable_are_two_faults(first: str, seed: int) -> None:
    """A black hole for some 5-tuples at a spine; a cable of it is cut, before or after."""
    shape = FabricShape(hosts=8, rails=2, segment_hosts=2, spines=2, tors=1)
    job = JobPlan(task_id="a", first_host=0, hosts=8)
    on = Cluster(Fabric(shape), (job,), targets=4, flows=4)
    hole, cut = "spine:0", "link:leaf:s1-r0--spine:0"
    begins = {name: at(25 if name == first else 50) for name in (hole, cut)}
    number = on.number_of
    effects = (
        Effect(component=number[hole], begin_ns=begins[hole], end_ns=at(80), loss=1.0, share=0.4),
        Effect(component=number[cut], begin_ns=begins[cut], end_ns=at(80), loss=1.0),
    )
    events = run_world(World(name="c", seed=seed, cluster=on, seconds=95, effects=effects)).events
    last = {e.fault_id: e for e in events}
    assert [e.component_id for e in last.values()] == [first, *({hole, cut} - {first})]
    assert {e.state for e in last.values()} == {FaultLifecycle.RESOLVED}


def test_a_fault_that_let_5_tuples_pass_for_long_does_not_get_them() -> None:
    """What becomes bad in the first ten seconds is its own; later the rest is not, by itself."""
    life = Life()
    life.step(claim(flows=keys(4)))
    life.step(claim(flows=keys(6)), seconds=5)
    life.step(claim(flows=keys(6)), seconds=20)
    (incident,) = life.lifecycle.open_faults()
    assert incident.first == keys(6)
    early, late = START + 3 * SECOND_NS, START + 25 * SECOND_NS
    (old,), (new,) = keys(1), keys(1, first=50)
    assert incident.let_pass(new, late)
    assert not incident.let_pass(new, early)
    assert not incident.let_pass(old, late)


@pytest.mark.parametrize("kind", ["packet_loss", "port_flapping"])
def test_what_comes_and_goes_may_show_itself_late_anywhere(kind: str) -> None:
    """Partial loss strikes by chance, and each flap other 5-tuples: nothing was let pass."""
    life = Life()
    life.step(claim(kind=kind))
    life.step(claim(kind=kind), seconds=20)
    (incident,) = life.lifecycle.open_faults()
    (new,) = keys(1, first=50)
    assert not incident.let_pass(new, START + 25 * SECOND_NS)


def test_few_5_tuples_that_a_resolved_fault_left_behind_open_nothing() -> None:
    """A prober with a wrong clock clears late; what begins after the resolve is news."""
    life = Life()
    life.step(claim("switch", keys(12)))
    for _ in range(5):
        life.step()
    assert not life.lifecycle.open_faults()
    left = replace(claim("link", keys(1)), onset_ns=START)
    assert life.step(left) == []
    (news,) = life.step(replace(left, onset_ns=life.now))
    assert news.component_id == "link"


def test_a_fault_that_comes_back_may_hit_other_5_tuples() -> None:
    """Half a spine's routes were lost, then all of them: that it let pass is long ago."""
    life = Life()
    life.step(claim(flows=keys(4)))
    life.step(seconds=12)
    for _ in range(5):
        life.step()
    assert not life.lifecycle.open_faults()
    (back,) = life.step(claim(flows=keys(3)))
    assert back.flaps == 1
    (incident,) = life.lifecycle.open_faults()
    assert incident.first == keys(3)
    (other,) = keys(1, first=50)
    assert not incident.let_pass(other, life.now)
    assert incident.let_pass(other, life.now + 11 * SECOND_NS)
