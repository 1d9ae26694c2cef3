"""The core over a simulated lab: each fault gets its component, layer and kind, and resolves."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from schemas.enums import FaultLifecycle
from schemas.records import FaultEvent
from schemas.units import MS_NS, SECOND_NS
from tests.unit.localizer.simlab import SimLab

LINK = "link:leaf:p0-0--spine:0"
RNIC_LINK = "link:leaf:p0-0--rnic:h0/r0"
Change = Callable[[SimLab], None]


def link(name: str, loss: float = 0.0, delay: int = 0) -> tuple[Change, Change]:
    """Return what breaks and heals a link."""

    def broken(lab: SimLab) -> None:
        lab.effects.links[name] = (loss, delay)

    def healed(lab: SimLab) -> None:
        del lab.effects.links[name]

    return broken, healed


def off(name: str) -> tuple[Change, Change]:
    """Return what switches a node off and on."""
    return (lambda lab: lab.effects.off.add(name)), (lambda lab: lab.effects.off.discard(name))


def route_hole(node: str, endpoint: str) -> tuple[Change, Change]:
    """Return what makes a switch drop everything to an endpoint, and undoes it."""
    return (
        lambda lab: lab.effects.holes.add((node, endpoint)),
        lambda lab: lab.effects.holes.discard((node, endpoint)),
    )


def dead(agent: str) -> tuple[Change, Change]:
    """Return what kills an agent and starts it again."""
    return (
        lambda lab: lab.effects.dead.add(agent),
        lambda lab: lab.effects.dead.discard(agent),
    )


def hole(node: str, dst: str, *, loop: bool = False) -> tuple[Change, Change]:
    """Return what takes an entry out of a flow table, or makes a loop, and undoes it."""

    def broken(lab: SimLab) -> None:
        change = lab.overlay.loop(node, dst) if loop else lab.overlay.hole(node, dst)
        lab.publish_tables(lab.overlay.apply("f", change))

    def healed(lab: SimLab) -> None:
        lab.publish_tables(lab.overlay.undo("f"))

    return broken, healed


@dataclass(frozen=True)
class Case:
    """A fault, what must be said of it, and by when (event time since it began)."""

    change: tuple[Change, Change]
    component: str
    layer: str
    kind: str
    within_s: float
    warm_s: float = 6
    lasts_s: float = 8
    after_s: float = 12


CASES = {
    "link cut": Case(link(LINK, 1.0), LINK, "UNDERLAY", "connectivity", 2),
    "cable of an RNIC": Case(
        link(RNIC_LINK, 1.0), RNIC_LINK, "UNDERLAY", "connectivity", 3, lasts_s=10
    ),
    "spine off": Case(off("spine:1"), "spine:1", "UNDERLAY", "switch_down", 2),
    "leaf off": Case(off("leaf:p1-0"), "leaf:p1-0", "UNDERLAY", "switch_down", 2),
    "blackhole route": Case(
        route_hole("spine:1", "job1-w3/r2"), "spine:1", "UNDERLAY", "connectivity", 3
    ),
    "flow-table hole": Case(
        hole("vsw:h1", "job1-w0/r0"), "vsw:h1", "OVERLAY", "flow_missing", 3
    ),
    "flow-table loop": Case(
        hole("rnic:h0/r0", "job1-w1/r0", loop=True), "vsw:h0", "OVERLAY", "flow_loop", 3
    ),
    "agent killed": Case(dead("agent-h2"), "agent-h2", "HOST", "agent_dead", 6),
    "10 % loss": Case(
        link(LINK, 0.1), LINK, "UNDERLAY", "packet_loss", 24, lasts_s=24, after_s=48
    ),
    "+5 ms": Case(
        link(LINK, delay=5 * MS_NS), LINK, "UNDERLAY", "high_latency", 30,
        warm_s=62, lasts_s=26, after_s=30,
    ),
}  # fmt: skip


def run(case: Case, seed: int) -> tuple[list[FaultEvent], int]:
    """Return the transitions, and when the fault began (ns)."""
    lab = SimLab(seed=seed)
    lab.run(case.warm_s)
    began = lab.now
    case.change[0](lab)
    lab.run(case.lasts_s)
    case.change[1](lab)
    lab.run(case.after_s)
    return lab.verdicts(), began


@pytest.mark.parametrize("name", CASES)
def test_the_right_component_and_nothing_else(name: str) -> None:
    """One fault, in time, rightly named and decided; resolved after the heal."""
    case = CASES[name]
    events, began = run(case, seed=3)
    assert {e.fault_id for e in events} == {events[0].fault_id}
    assert events[0].state is FaultLifecycle.OPEN
    settled = [e for e in events if e.event_at <= events[0].event_at + 4_000_000][-1]
    assert (settled.component_id, settled.layer.value) == (case.component, case.layer)
    assert settled.fault_kind == case.kind
    assert settled.decided
    assert (events[0].event_at * 1000 - began) / SECOND_NS <= case.within_s
    assert events[-1].state is FaultLifecycle.RESOLVED
    assert [e.seq for e in events] == list(range(1, len(events) + 1))
    assert events[0].tasks == ("job1",)


@pytest.mark.parametrize("seed", range(1, 5))
def test_loss_at_an_rnic_or_its_only_cable_is_told_though_it_is_not_known_which(seed: int) -> None:
    """More losses could not tell; traces may, later, and the fault is the same one then."""
    case = Case(link(RNIC_LINK, 0.1), RNIC_LINK, "UNDERLAY", "packet_loss", 8, lasts_s=40)
    events, began = run(case, seed)
    assert {e.fault_id for e in events} == {events[0].fault_id}
    assert events[0].fault_kind == case.kind
    assert case.component in (c.component_id for c in events[0].candidates)
    assert (events[0].event_at * 1000 - began) / SECOND_NS <= case.within_s


@pytest.mark.parametrize(("share", "seed"), [(0.5, 3), (0.5, 6), (0.5, 9), (0.7, 1), (0.7, 4)])
def test_of_much_that_is_lost_at_an_rnic_nothing_is_said_of_its_switch(
    share: float, seed: int
) -> None:
    """Some 5-tuples are cut off by chance, and some of their traces pass by chance."""
    events, _ = run(Case(link(RNIC_LINK, share), RNIC_LINK, "UNDERLAY", "", 8), seed)
    assert {e.fault_id for e in events} == {events[0].fault_id}
    assert {e.component_id for e in events} <= {RNIC_LINK, "rnic:h0/r0"}


def test_two_faults_at_once_are_two_faults() -> None:
    """A dead link and a flow-table hole elsewhere, in both layers at the same time."""
    lab = SimLab(seed=4)
    lab.run(6)
    for change, _ in (link(LINK, 1.0), hole("vsw:h3", "job1-w2/r3")):
        change(lab)
    lab.run(8)
    opened = [e for e in lab.verdicts() if e.state is FaultLifecycle.OPEN]
    assert {e.component_id for e in opened} == {LINK, "vsw:h3"}


def test_two_dead_links_are_two_faults() -> None:
    """Of different leaves and spines, cut in the same instant."""
    lab = SimLab(seed=4)
    lab.run(6)
    names = {LINK, "link:leaf:p1-1--spine:1"}
    for name in names:
        link(name, 1.0)[0](lab)
    lab.run(8)
    last = {e.fault_id: e for e in lab.verdicts()}
    assert {e.component_id for e in last.values()} == names
    assert all(e.decided for e in last.values())


@pytest.mark.parametrize("seed", range(1, 5))
@pytest.mark.parametrize(
    ("leaf", "cable"), [("leaf:p1-0", RNIC_LINK), ("leaf:p0-0", "link:leaf:p1-0--rnic:h3/r1")]
)
def test_a_switch_and_the_cable_of_an_rnic_elsewhere_are_two_faults(
    leaf: str, cable: str, seed: int
) -> None:
    """Though one leaf in good order is on the way of all that is cut off."""
    lab = SimLab(seed=seed)
    lab.run(6)
    for change, _ in (off(leaf), link(cable, 1.0)):
        change(lab)
    lab.run(14)
    assert {e.component_id for e in lab.verdicts()} == {leaf, cable}


def test_a_second_fault_while_the_first_is_open() -> None:
    """A link is dead; half a minute later a spine goes too: a fault of its own."""
    lab = SimLab(seed=2)
    lab.run(6)
    link(RNIC_LINK, 1.0)[0](lab)
    lab.run(31)
    off("spine:1")[0](lab)
    lab.run(8)
    last = {e.fault_id: e for e in lab.verdicts()}
    assert {e.component_id for e in last.values()} == {RNIC_LINK, "spine:1"}
