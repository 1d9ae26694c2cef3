"""What else happens while a storm goes on: another fault in it is told as if there were none."""

from functools import cache
from typing import Final

import pytest

from arena.world.topology import link_id
from localizer.facts import sampling
from ops.lab.routing import flow_hash
from ops.lab.shape import EndpointSpec, LabShape
from schemas.records import FaultEvent
from tests.unit.localizer.simlab import SimLab, Way

# A fabric in which a spine's death makes some 120 5-tuples bad, and how many of these are looked
# at.
SHAPE: Final = LabShape(hosts=8, rails=4, pods=2, leaves=2, spines=4)
FEW: Final = 16
RNIC_LINK: Final = "link:leaf:p0-0--rnic:h0/r0"
# Decisions come a quarter of a second apart or two.
NEXT_DECISION_US: Final = 500_000


def told(lab: SimLab) -> list[tuple[str, str, str, bool, int, int]]:
    """Return what is said of each fault, and when."""
    return [line(event) for event in lab.verdicts()]


def line(event: FaultEvent) -> tuple[str, str, str, bool, int, int]:
    """Return what one transition says."""
    return (
        event.state.name,
        event.component_id,
        event.fault_kind,
        event.decided,
        event.bad_paths,
        event.event_at,
    )


class Asymmetric(SimLab):
    """A lab whose replies take another way: as many 5-tuples as a cut hits lose only these."""

    def _find_way(self, src: EndpointSpec, dst: EndpointSpec, flow: int) -> Way:
        way = super()._find_way(src, dst, flow)
        a, b = dst.endpoint_id.encode(), src.endpoint_id.encode()
        reply = self.router.walk(dst, src, flow_hash(a, b, a + bytes([flow]))).nodes
        return Way(way.nodes, way.links, reply, tuple(map(link_id, reply, reply[1:])), way.returns)


@cache
def beside_a_storm(cable: str, *, asymmetric: bool) -> SimLab:
    """Return a lab in which a cable is cut, and healed, while a spine is dead."""
    lab = (Asymmetric if asymmetric else SimLab)(SHAPE, seed=4)
    lab.run(6)
    lab.effects.off.add("spine:1")
    lab.run(6)
    lab.effects.links[cable] = (1.0, 0)
    lab.run(10)
    lab.effects.links.clear()
    lab.run(8)
    lab.effects.off.clear()
    lab.run(15)
    return lab


@pytest.mark.parametrize("asymmetric", [False, True])
@pytest.mark.parametrize("cable", [RNIC_LINK, "link:leaf:p0-0--spine:0"])
def test_a_fault_in_a_storm_is_told_and_resolved_as_without_a_sample(
    asymmetric: bool, cable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the storm had made bad before is not counted to it, and does not keep it open."""
    whole = told(beside_a_storm(cable, asymmetric=asymmetric))
    monkeypatch.setattr(sampling, "MOST", FEW)
    sampled = told(beside_a_storm(cable, asymmetric=asymmetric))
    assert cable in {component for _, component, *_ in whole}
    assert [one[:5] for one in sampled] == [one[:5] for one in whole]
    for one, other in zip(sampled, whole, strict=True):
        assert abs(one[5] - other[5]) <= NEXT_DECISION_US


@cache
def storm_of_the_overlay() -> SimLab:
    """Return a lab in which a virtual switch loses its table, and a cable is cut meanwhile."""
    lab = SimLab(SHAPE, seed=4)
    lab.run(6)
    lab.publish_tables(lab.overlay.apply("f", lab.overlay.hole("vsw:h1", None)))
    lab.run(6)
    lab.effects.links["link:leaf:p0-0--rnic:h3/r0"] = (1.0, 0)
    lab.run(10)
    lab.effects.links.clear()
    lab.run(8)
    lab.publish_tables(lab.overlay.undo("f"))
    lab.run(20)
    return lab


def test_a_table_that_is_gone_is_one_fault_of_all_that_it_cuts_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is not looked at is neither another fault, nor left over once the table is back."""
    whole = storm_of_the_overlay().verdicts()
    monkeypatch.setattr(sampling, "MOST", FEW)
    sampled = storm_of_the_overlay().verdicts()
    table = [line(event) for event in whole if event.component_id == "vsw:h1"]
    assert [line(event) for event in sampled if event.component_id == "vsw:h1"] == table
    told_of = {event.component_id: event for event in sampled}
    assert told_of.keys() == {event.component_id for event in whole}
    assert max(event.unexplained_paths for event in sampled) == 0
    (cable,) = {e.opened_at for e in whole if e.component_id != "vsw:h1"}
    assert told_of["link:leaf:p0-0--rnic:h3/r0"].opened_at - cable <= NEXT_DECISION_US


def test_an_agent_that_answers_nothing_is_told_with_all_that_it_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However few of these are looked at."""
    lab = SimLab(SHAPE, seed=4)
    lab.run(6)
    lab.effects.deaf.add("agent-h2")
    lab.run(12)
    (whole,) = lab.verdicts()
    monkeypatch.setattr(sampling, "MOST", FEW)
    (sampled,) = lab.verdicts()
    assert (sampled.component_id, sampled.fault_kind) == ("agent-h2", whole.fault_kind)
    assert sampled.bad_paths == whole.bad_paths
    assert sampled.unexplained_paths == 0
