"""Replies that take another way: what probes have passed, and what begins next door."""

from typing import Any

import pytest

from arena.faults.effects import Effect
from arena.run import run_world
from arena.simulation.world import World
from arena.world.cluster import Cluster, JobPlan
from arena.world.fabric import Fabric, FabricShape
from schemas.enums import FaultLifecycle
from tests.unit.arena.worlds import at, loss


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    ("sick", "tors"), [("leaf:s1-r0a", 2), ("link:leaf:s1-r0--spine:1", 1), ("spine:0", 1)]
)
def test_one_fault_is_told_though_replies_are_lost_elsewhere(
    sick: str, tors: int, seed: int
) -> None:
    """Half of the bad 5-tuples do not cross what is sick on their own way.

    ECMP chooses anew for replies, and bonded RNICs have two ToRs.
    """
    shape = FabricShape(hosts=8, rails=2, segment_hosts=2, spines=2, tors=tors)
    job = JobPlan(task_id="a", first_host=0, hosts=8)
    on = Cluster(Fabric(shape), (job,), targets=4, flows=4, symmetric=False)
    world = World(
        name="c", seed=seed, cluster=on, seconds=50,
        effects=(loss(on, sick, begin_s=25, end_ns=at(38)),),
    )  # fmt: skip
    _only(sick, world)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("what", [{"loss": 0.12}, {"delay_ns": 2_000_000}])
def test_what_replies_suffer_accuses_no_neighbour(what: dict[str, Any], seed: int) -> None:
    """A share that is lost, or a delay, on the way back: the other uplink is in order."""
    shape = FabricShape(hosts=8, rails=2, segment_hosts=2, spines=2, tors=1)
    job = JobPlan(task_id="a", first_host=0, hosts=8)
    on = Cluster(Fabric(shape), (job,), targets=4, flows=4, symmetric=False)
    sick = "link:leaf:s1-r0--spine:1"
    effect = Effect(component=on.number_of[sick], begin_ns=at(155), end_ns=at(235), **what)
    _only(sick, World(name="c", seed=seed, cluster=on, seconds=290, effects=(effect,)))


def _only(sick: str, world: World) -> None:
    """Run a world and expect one fault, of that component, that is resolved at the end."""
    events = run_world(world).events
    assert {(e.component_id, e.fault_id) for e in events if e.state is not FaultLifecycle.OPEN}
    assert {e.component_id for e in events} == {sick}
    assert len({e.fault_id for e in events}) == 1
    assert events[-1].state is FaultLifecycle.RESOLVED
