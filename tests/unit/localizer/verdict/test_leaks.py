"""A leak that is over goes on explaining the replies that it lost."""

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from arena.run import run_world
from arena.simulation.world import World
from arena.world.cluster import Cluster, JobPlan
from arena.world.fabric import Fabric, FabricShape
from localizer.facts.roster import Roster
from localizer.facts.stray_losses import StrayLoss
from localizer.inference import evidence
from localizer.inference.loss_both_ways import Returning
from localizer.inference.observations import ResolvedFaults
from localizer.inference.pooled_loss import Leak
from localizer.network.directions import Directions, direction
from localizer.network.flow_index import FlowIndex
from localizer.network.paths import PathBook
from localizer.network.replies import ReplyWays
from localizer.network.topology import Topology
from localizer.verdict import leaks
from localizer.verdict.incident import Incident
from schemas.enums import AnomalyKind, AnomalyState, ComponentKind
from schemas.units import SECOND_NS, ns_to_us
from tests.unit.arena.worlds import loss
from tests.unit.localizer.made import START, anomaly, component, link
from tests.unit.localizer.sources import sources

# What each target's 5-tuples cross, and their replies.
CROSSED = {"e1": ("open",), "e2": ("beside",), "e3": ("elsewhere",)}
REPLIES = {"e1": "open", "e2": "open", "e3": "elsewhere"}


def test_replies_that_a_leak_lost_are_no_second_leak_when_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Components that its probes do not cross seem to leak with it, and its losses end first."""
    known = sources(Topology())
    known = replace(
        known,
        paths=cast(
            PathBook,
            SimpleNamespace(components=lambda key, *_: CROSSED[key[1]]),
        ),
        roster=cast(Roster, SimpleNamespace(agent_of=lambda _: "b", has_left=lambda _: False)),
    )
    last_s = {"e1": 20, "e2": 24, "e3": 24}
    for target, until_s in last_s.items():
        for at in range(START, START + until_s * SECOND_NS, 2 * SECOND_NS):
            record = anomaly(
                AnomalyKind.STRAY_LOSS, AnomalyState.ONSET, at=at, onset=at, ends=("e0", target)
            )
            known.strays.observe_loss(record, at)
    found = {c: Leak(component=c, since_ns=START, log_chance=-1.0) for (c,) in CROSSED.values()}
    monkeypatch.setattr(leaks.Leaks, "_find", lambda *_: dict(found))
    fault = SimpleNamespace(
        components=frozenset({"open"}), event=SimpleNamespace(onset_at=ns_to_us(START))
    )
    tested = leaks.Leaks(known)
    ways = SimpleNamespace(shares=lambda _, dst: {REPLIES[dst]: 0.5})

    def test_at(second: int) -> frozenset[str]:
        tested.observe_time(
            START + second * SECOND_NS,
            cast(Directions, SimpleNamespace(replies=ways)),
            cast(ResolvedFaults, SimpleNamespace(until_ns=lambda *_: 0)),
            [cast(Incident, fault)],
        )
        return tested.components

    assert test_at(25) == {"open", "beside", "elsewhere"}
    found.clear()
    over_s = 18 + leaks.LEAST_QUIET_NS // SECOND_NS + 1
    assert test_at(over_s) == frozenset()
    assert {loss.key[1] for loss in known.strays.losses()} == {"e1", "e3"}


@pytest.mark.parametrize(
    ("side", "late", "counts"),
    [("prober", 4, False), ("responder", 4, False), ("responder", 2, True), ("prober", 0, True)],
)
def test_what_a_starved_host_loses_is_no_leak_and_no_chance(
    side: str, late: int, *, counts: bool
) -> None:
    """Of forty answers four came late from the host where the probe was lost; two are too few."""
    known = sources(Topology())
    known = replace(
        known,
        paths=cast(PathBook, SimpleNamespace(components=lambda *_: ("cable",))),
        roster=cast(Roster, SimpleNamespace(agent_of=lambda _: "b", has_left=lambda _: False)),
    )
    more: dict[str, Any] = {f"{side}_late": late, f"{side}_answers": 40}
    record = anomaly(AnomalyKind.STRAY_LOSS, at=START, onset=START, **more)
    known.strays.observe_loss(record, START)
    assert bool(leaks.Leaks(known)._crossed(START)) is counts


def test_where_nothing_tells_the_direction_of_replies_half_of_them_cross_it() -> None:
    """Above the third tier: of the 5-tuples that come back, and of those that go there."""
    fabric, names = Topology(), ("r0", "l0", "a0", "s0", "c", "s1", "a1", "l1", "r1")
    for name in names:
        kind = ComponentKind.RNIC if name.startswith("r") else ComponentKind.SWITCH
        fabric.set_component(component(name, kind))
    for pair in pairwise(names):
        fabric.set_component(link(*pair))
    for n in (0, 1):
        fabric.set_component(component(f"e{n}", ComponentKind.ENDPOINT, parent=f"r{n}"))
    up = tuple(part for pair in pairwise(names) for part in (pair[0], "--".join(sorted(pair))))
    ways = {("e0", "e1", 0): up, ("e1", "e0", 0): up[::-1]}
    index = FlowIndex()
    for key, crossed in ways.items():
        index.set_flow(key, crossed, "a", "b")
    places = Directions(index, fabric, ReplyWays(fabric, index))
    for crossed in ways.values():
        places.crossed(crossed)
    beside = leaks._Beside([], places)
    # Every reply crosses the cable, in one direction or the other.
    assert beside.returning(direction("c--s0", "s0")) == Returning(1.0, 0.5)
    # Beside the leaf all that come back cross it in the one, and no other.
    assert beside.returning(direction("a0--l0", "l0")) == Returning(1.0, 1.0)


def test_what_explains_most_losses_leaks_rather_than_what_is_surest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All are sure where packets are lost all the time; the others lose replies of its 5-tuples."""
    index = FlowIndex()
    crossed = []
    for number, name in enumerate(("leaking", "surest")):
        key = (f"e{number}", "e9", 0)
        index.set_flow(key, (name,), "a", "b")
        lost = cast(StrayLoss, SimpleNamespace(key=key, lost_ns=START, sent=60))
        crossed.append(leaks._Crossing(lost, (name,), ("a", "b")))
    chances = {"leaking": (-1.0, 9.0), "surest": (-9.0, 1.0)}
    found = {
        name: Leak(component=name, since_ns=START, log_chance=chance, gain=gain)
        for name, (chance, gain) in chances.items()
    }
    answers = iter((found, {}))
    monkeypatch.setattr(leaks, "find_leaks", lambda *_, **__: next(answers))
    places = SimpleNamespace(
        index=index, cable=lambda place: place, count=index.count, place_count=lambda: 2,
        crossed=lambda components: components, returned=lambda *_: {},
    )  # fmt: skip
    tested = leaks.Leaks(sources(Topology()))
    assert list(tested._find(START, crossed, cast(Directions, places), [])) == ["leaking"]


def test_a_leak_needs_no_chance_of_another_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is lost beside open faults has excluded them, so their nearness counts for nothing."""
    monkeypatch.setattr(evidence, "_chance_of_another", lambda *_: -1_000.0)
    on = Cluster(
        Fabric(FabricShape(hosts=8, rails=2, segment_hosts=2, spines=2)),
        (JobPlan(task_id="a", first_host=0, hosts=8),),
        flows=4,
    )
    leak = loss(on, "spine:0", rate=0.01, begin_s=60)
    found = run_world(World(name="c", seed=2, cluster=on, seconds=150, effects=(leak,)))
    assert {event.component_id for event in found.events} == {"spine:0"}
