"""The places that the suite moves its cases to, in labs of several shapes."""

from itertools import product

import pytest

from ops.lab.fault_kinds import NETNS_LAB, RXE_LAB
from ops.lab.faults import check_fault
from ops.lab.kind import LAB_KINDS, lab_kind
from ops.lab.shape import LabShape
from ops.lab.suite.cases import LINK, SUITE
from ops.lab.suite.places import placed, places
from ops.lab.suite.suite import NEXT_RUN

SHAPE = lab_kind(NETNS_LAB).suite
SHAPES = [
    SHAPE,
    lab_kind(RXE_LAB).suite,
    LabShape(),
    LabShape(hosts=3),
    LabShape(hosts=8, rails=4, pods=2, leaves=2, spines=3),
    LabShape(hosts=1, rails=1, pods=1, leaves=1, spines=1),
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s.hosts}x{s.rails}")
def test_a_place_is_the_same_plan_under_other_names(shape: LabShape) -> None:
    """Every component moves to one of its kind, no two to the same; cables keep their ends."""
    plan = {link.link_id: {link.a, link.b} for link in shape.links}
    found = places(shape)
    assert all(old == new for old, new in found[0].items())
    for names in found:
        assert sorted(names.values()) == sorted(names)
        assert all(plan[names[x]] == {names[end] for end in plan[x]} for x in plan)
        for e in shape.endpoints:
            moved = next(o for o in shape.endpoints if o.endpoint_id == names[e.endpoint_id])
            assert moved.rnic_id == names[e.rnic_id]
            assert shape.leaf_of(moved.host, moved.rail) == names[shape.leaf_of(e.host, e.rail)]


def test_every_case_can_be_put_in_at_every_place_and_its_answer_moves_along() -> None:
    """The right answer is among those of the lab's truth there."""
    for case, lab in product(SUITE, LAB_KINDS):
        if not case.in_lab(lab):
            continue
        shape = lab_kind(lab).suite
        for names in places(shape):
            here = placed(case, names)
            spec = check_fault(here.kind, here.target, here.params, shape, lab)
            assert set(here.component_ids) & set(spec.component_ids), here


def test_a_cable_has_a_minute_of_rest_and_in_sixteen_runs_each_case_is_everywhere() -> None:
    """Eight cases go by before one of the same kind meets the same cable."""
    found = places(SHAPE)
    cables = [placed(SUITE[0], names).target for names in found]
    assert SUITE[0].target == LINK
    assert len(found) == 16
    assert all(len(set((cables + cables)[i : i + 8])) == 8 for i in range(8))
    assert len({NEXT_RUN * turn % len(found) for turn in range(len(found))}) == len(found)
