"""What the labels of recorded faults say, and which faults are recorded."""

import pytest

from ops.lab.fault_kinds import KINDS, NETNS_LAB
from ops.lab.faults import check_fault
from ops.lab.kind import lab_kind
from ops.lab.suite.cases import Case
from ops.lab.suite.places import placed, places
from ops.lab.suite.record import labelled
from ops.lab.suite.recorded import RECORDED
from schemas.units import SECOND_NS

SHAPE = lab_kind(NETNS_LAB).suite
CASES = [case for cases in RECORDED.values() for case in cases]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_case_can_be_put_in_at_each_place_and_its_truth_is_right(case: Case) -> None:
    """The right answers are among those that the lab knows; what is benign is a confounder."""
    assert KINDS[case.kind].benign is case.excused
    for names in places(SHAPE):
        here = placed(case, names)
        spec = check_fault(here.kind, here.target, here.params, SHAPE, NETNS_LAB)
        assert spec.layer is here.layer
        assert set(here.component_ids) & {*spec.component_ids, spec.target}


def test_names_are_unique_and_the_job_ends_last() -> None:
    """With the job all probes end: nothing can be seen after it."""
    assert len({case.name for case in CASES}) == len(CASES)
    assert [case.kind for case in CASES].index("task-end") == len(CASES) - 1


def test_a_label_has_the_right_names_first_and_seconds_of_its_own_recording() -> None:
    """A confounder has no kind of verdict that would be right."""
    silent = next(case for case in CASES if case.name == "silent port")
    label = labelled(silent, 20 * SECOND_NS, 40_250 * SECOND_NS // 1_000, 1.234)
    assert (label.from_s, label.to_s, label.load, label.hard) == (20.0, 40.25, 1.23, True)
    assert (label.kind, label.also_kinds[:1]) == ("connectivity", ("rnic_unreachable",))
    assert (label.components, label.also_right) == (
        ("link:leaf:p1-0--rnic:h3/r0",), ("rnic:h3/r0",),
    )  # fmt: skip
    burst = next(case for case in CASES if case.kind == "cross-traffic")
    label = labelled(burst, 0, SECOND_NS, 0.0)
    assert (label.kind, label.also_kinds, label.hard) == ("cross-traffic", (), False)
