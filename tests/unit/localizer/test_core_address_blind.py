"""A switch that drops some 5-tuples and no others, where few cross it."""

import pytest

from arena.run import run_world
from arena.simulation.world import World
from arena.world.cluster import Cluster, JobPlan
from arena.world.fabric import Fabric, FabricShape
from schemas.enums import FaultLifecycle
from tests.unit.arena.worlds import at, loss

SHAPE = FabricShape(hosts=8, rails=2, segment_hosts=4, spines=4)


@pytest.mark.parametrize("share", [0.42, 0.47])
@pytest.mark.parametrize("spine", ["spine:0", "spine:1"])
def test_it_is_told_and_not_its_cables(spine: str, share: float) -> None:
    """Half a dozen 5-tuples cross it, over the same two cables; what is lost is lost for good."""
    on = Cluster(Fabric(SHAPE), (JobPlan(task_id="a", first_host=0, hosts=8),))
    world = World(
        name="c", seed=1, cluster=on, seconds=70,
        effects=(loss(on, spine, begin_s=30, share=share),),
    )  # fmt: skip
    events = run_world(world).events
    assert {event.component_id for event in events} == {spine}


@pytest.mark.parametrize("seed", [1, 2])
def test_a_cable_that_is_cut_is_told_at_once(seed: int) -> None:
    """Nothing crosses it any more, and nobody waits for more."""
    on = Cluster(Fabric(SHAPE), (JobPlan(task_id="a", first_host=0, hosts=8),))
    cable = "link:leaf:s0-r0--spine:1"
    effect = loss(on, cable, begin_s=30, end_ns=at(50))
    events = run_world(World(name="c", seed=seed, cluster=on, seconds=70, effects=(effect,))).events
    opened = events[0]
    assert opened.state is FaultLifecycle.OPEN
    assert cable in {candidate.component_id for candidate in opened.candidates}
    assert opened.event_at * 1_000 - at(30) < 5_000_000_000
