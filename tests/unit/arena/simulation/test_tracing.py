"""Verdicts where agents trace a few of the 5-tuples that a spine cuts, not all."""

import pytest

from arena.run import Outcome, run_world
from arena.simulation.world import Simulation, World
from arena.world.cluster import Cluster, JobPlan
from arena.world.fabric import Fabric, FabricShape
from localizer.config import CoreConfig
from schemas import topics
from schemas.enums import FaultLifecycle, TraceCause
from schemas.trace_budget import LEAST
from tests.unit.arena.worlds import at, loss

pytestmark = pytest.mark.slow

DEAD_S = 60
# An agent's 5-tuples are 48, of which a quarter crosses each spine.
SHAPE = FabricShape(hosts=32, rails=4, segment_hosts=4, spines=4)
SPINE = "spine:1"


def the_world(
    budget: int | None,
    seed: int,
    *,
    later_s: float = 80.0,
    seconds: int = 150,
    also: str | None = None,
) -> World:
    """Return a world in which a spine dies between the begins of two jobs.

    Parameters
    ----------
    also
        What is dead from the begin of the second job on.
    """
    jobs = (
        JobPlan(task_id="before", first_host=0, hosts=16),
        JobPlan(task_id="while", first_host=16, hosts=16, begin_s=later_s),
    )
    cluster = Cluster(Fabric(SHAPE), jobs, targets=4, flows=3)
    return World(
        name="w", seed=seed, cluster=cluster, seconds=seconds, trace_budget=budget,
        effects=(
            loss(cluster, SPINE, begin_s=DEAD_S),
            *(() if also is None else (loss(cluster, also, begin_s=later_s),)),
        ),
    )  # fmt: skip


def traces_of_losses(world: World) -> int:
    """Return how many traces agents make because of losses."""
    return sum(
        rec.topic == topics.PATH_TRACE.name and rec.record.cause is TraceCause.LOSS
        for second in Simulation(world).run()
        for rec in second.records
    )


def named(outcome: Outcome) -> dict[str, bool]:
    """Return by component of each fault that was opened whether it is decided."""
    return {event.component_id: event.decided for event in outcome.events}


def run(world: World) -> Outcome:
    """Run a world in which somebody follows the job from its begin."""
    return run_world(world, core=CoreConfig(cluster=world.name))


@pytest.mark.parametrize("budget", [None, LEAST])
def test_a_dead_spine_is_named_as_soon_and_nothing_else(budget: int | None) -> None:
    """With the least budget as with none: of each agent's dozen 5-tuples a third is traced."""
    world = the_world(budget, 331, seconds=76)
    outcome = run(world)
    opened = [e for e in outcome.events if e.state is FaultLifecycle.OPEN]
    assert [e.component_id for e in opened] == [SPINE]
    assert opened[0].event_at * 1000 - at(DEAD_S) < 5e9


def test_the_budget_bounds_the_traces() -> None:
    """Each agent begins so many, and as many again in ten seconds."""
    seconds = 12
    every, few = (
        traces_of_losses(the_world(budget, 331, later_s=999.0, seconds=DEAD_S + seconds))
        for budget in (None, LEAST)
    )
    agents = 16
    assert few <= agents * LEAST * (1 + seconds / 10) < every


@pytest.mark.parametrize("seed", [338, 350])
@pytest.mark.parametrize("budget", [None, LEAST])
def test_a_job_that_begins_while_a_spine_is_dead_blames_nobody_else(
    budget: int | None, seed: int
) -> None:
    """Its 5-tuples through the spine never had a whole trace; a minute later they count."""
    assert named(run(the_world(budget, seed))) == {SPINE: True}


def test_what_else_is_dead_at_that_job_is_named_beside_the_spine() -> None:
    """A virtual switch of a host of the new job: traces to it get as far as its leaf."""
    assert named(run(the_world(LEAST, 338, also="vswitch:h20"))) == {
        SPINE: True, "vswitch:h20": True,
    }  # fmt: skip


def test_a_budget_that_nobody_reaches_changes_nothing() -> None:
    """Record by record."""
    few, many = (
        [second.records for second in Simulation(the_world(budget, 353, seconds=66)).run()]
        for budget in (None, 10_000)
    )
    assert few == many
