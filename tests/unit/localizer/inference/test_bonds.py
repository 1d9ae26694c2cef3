"""A bonded RNIC or one of its cables: by the numbers of lost probes, and in whole worlds."""

from collections.abc import Sequence
from dataclasses import replace
from math import exp, factorial, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.faults.effects import Effect
from arena.run import run_world
from arena.simulation.world import World
from arena.world.cluster import Cluster, JobPlan
from arena.world.fabric import Fabric, FabricShape
from localizer.inference.bonds import BY_CHANCE, MEANS, Bonds, bond_likelihoods
from localizer.inference.causes import Cause, Reason
from localizer.inference.good_flows import GoodFlows
from localizer.network.flow_index import FlowIndex
from tests.unit.arena.worlds import at
from tests.unit.localizer.made import link, small_fabric

COUNTS = st.integers(2, 4).flatmap(
    lambda width: st.lists(
        st.lists(st.integers(0, 9), min_size=width, max_size=width), min_size=2, max_size=4
    )
)


def chance(lost: int, mean: float, most: int) -> float:
    """Return how likely so many packets are lost; `most` stands for that many or more."""
    mean += BY_CHANCE
    exact = [exp(-mean) * mean**k / factorial(k) for k in range(most + 1)]
    return max(1 - sum(exact[:-1]), exact[-1]) if lost == most else exact[lost]


def naive(counts: Sequence[Sequence[int]]) -> list[float]:
    """Return what `bond_likelihoods` does, one 5-tuple after the other."""
    cables, most = len(counts), len(counts[0]) - 1
    found = []
    for suspect in (None, *range(cables)):
        best = -np.inf
        for mean in MEANS.tolist():
            total = 0.0
            for cable, row in enumerate(counts):
                for lost, flows in enumerate(row):
                    once, twice, none = (chance(lost, m, most) for m in (mean, 2 * mean, 0.0))
                    if suspect is None:
                        likely = twice
                    elif suspect == cable:
                        likely = twice / cables + once * (1 - 1 / cables)
                    else:
                        likely = once / cables + none * (1 - 1 / cables)
                    total += flows * log(likely)
            best = max(best, total)
        found.append(best)
    return found


@given(counts=COUNTS)
def test_likelihoods_are_those_of_each_5_tuple(counts: list[list[int]]) -> None:
    """Also where nothing was lost, and where a cable has no 5-tuples."""
    found = bond_likelihoods(np.array(counts, np.int64))
    assert found == pytest.approx(naive(counts), rel=1e-9, abs=1e-9)


@given(counts=COUNTS, data=st.data())
def test_the_order_of_cables_says_nothing(counts: list[list[int]], data: st.DataObject) -> None:
    """Each keeps its likelihood."""
    order = data.draw(st.permutations(range(len(counts))))
    found = bond_likelihoods(np.array(counts, np.int64))
    moved = bond_likelihoods(np.array([counts[place] for place in order], np.int64))
    assert moved[0] == pytest.approx(found[0])
    assert moved[1:] == pytest.approx(found[1:][list(order)])


def test_what_is_believed_of_a_bond_is_shared_out_among_its_members() -> None:
    """The whole stays, also where a member was no rival; others keep theirs."""
    fabric, index = small_fabric(), FlowIndex()
    fabric.set_component(link("l1", "r0"))
    for number in range(8):
        index.set_flow(("e0", "e1", number), ("r0", "l0--r0", "l0"), "a", None)
        index.set_flow(("e0", "e1", 8 + number), ("r0", "l1--r0", "l1"), "a", None)
    # Of the one cable's all lose probes, of the other's half: as many as replies come by the first.
    lost = {("e0", "e1", number): 3 for number in range(12)}
    bonds = Bonds(
        topology=fabric, good=GoodFlows.of(index, [], []), bad=[],
        log_prior={"r0": -7.0, "l0--r0": -7.0, "l1--r0": -7.0, "l0": -7.0},
        strays=lambda: lost,
    )  # fmt: skip
    rnic, leaf, cable, other = (
        Cause.of(Reason.COMPONENT, name) for name in ("r0", "l0", "l0--r0", "l1--r0")
    )
    shared = bonds.share_out([(rnic, 0.7), (leaf, 0.2), (Cause.of(Reason.GLOBAL), 0.1)])
    assert [cause for cause, _ in shared][:2] == [cable, leaf]
    assert sum(dict(shared)[member] for member in (rnic, cable, other)) == pytest.approx(0.7)
    assert dict(shared)[leaf] == 0.2
    assert bonds.share_out([(leaf, 0.2)]) == ((leaf, 0.2),)
    # What crosses another fault says nothing, and what has been told for long stays.
    for known in (
        replace(bonds, known=frozenset({"l0"})), replace(bonds, settled=frozenset({"r0"})),
    ):  # fmt: skip
        assert known.share_out([(rnic, 0.7), (leaf, 0.2)]) == ((rnic, 0.7), (leaf, 0.2))
    assert bonds.share_out([(rnic, 0.7)], {"l1"}) == ((rnic, 0.7),)
    assert bonds.share_out([(rnic, 0.7)], {"l1--r0"})[0][0] == cable
    alone = replace(bonds, log_prior={"r0": -7.0, "l0--r0": -7.0})
    assert {cause for cause, _ in alone.share_out([(cable, 1.0)])} == {cable, rnic}


@pytest.mark.parametrize("loss", [0.02, 0.3, 1.0])
@pytest.mark.parametrize("cable", [False, True])
def test_a_bonded_rnic_and_its_cables_are_told_apart(loss: float, *, cable: bool) -> None:
    """Half of the 5-tuples of the other cable lose replies at the one that is sick."""
    shape = FabricShape(hosts=8, rails=2, segment_hosts=4, spines=2, tors=2)
    job = JobPlan(task_id="a", first_host=0, hosts=8)
    cluster = Cluster(Fabric(shape), (job,), targets=6, flows=4, symmetric=False)
    sick = "link:leaf:s0-r0b--rnic:h2/r0" if cable else "rnic:h2/r0"
    effect = Effect(component=cluster.number_of[sick], begin_ns=at(60), end_ns=at(180), loss=loss)
    world = World(name="bond", seed=3, cluster=cluster, seconds=300, effects=(effect,))
    events = run_world(world).events
    assert {event.fault_id for event in events} == {events[0].fault_id}
    assert (events[-1].component_id, events[-1].decided) == (sick, True)


def test_a_cable_that_is_cut_beside_a_leaking_leaf_is_told() -> None:
    """All 5-tuples of its RNIC are bad then: those of the other cable because of the leaf."""
    shape = FabricShape(hosts=8, rails=2, segment_hosts=4, spines=2, tors=2)
    job = JobPlan(task_id="a", first_host=0, hosts=8)
    cluster = Cluster(Fabric(shape), (job,), targets=6, flows=4, symmetric=False)
    number, cable = cluster.number_of, "link:leaf:s0-r0a--rnic:h2/r0"
    effects = (
        Effect(component=number["leaf:s0-r0b"], begin_ns=at(60), end_ns=at(240), loss=0.05),
        Effect(component=number[cable], begin_ns=at(130), end_ns=at(240), loss=1.0),
    )
    world = World(name="both", seed=3, cluster=cluster, seconds=300, effects=effects)
    # A leak may be told as one of the leaf's cables at first.
    told = {event.fault_id: event.component_id for event in run_world(world).events}
    assert sorted(told.values()) == ["leaf:s0-r0b", cable]
