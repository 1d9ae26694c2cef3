"""Where causes are put in, and when what is said of them is right."""

from ops.bench.collectives.causes import CAUSES, Said, judged, place
from ops.bench.collectives.collectives import figures
from ops.lab.fault_kinds import NETNS_LAB
from ops.lab.faults import check_fault
from ops.lab.kind import SUITE_SHAPE

STALL = next(cause for cause in CAUSES if cause.kind == "rank-stall")
CUT = next(cause for cause in CAUSES if cause.kind == "link-cut")


def test_each_cause_is_a_fault_of_the_lab_at_another_rank_each_time() -> None:
    """There are ten, and in eight turns each meets all eight ranks."""
    assert len(CAUSES) == 10
    for number, cause in enumerate(CAUSES):
        places = [place(cause, number, turn, SUITE_SHAPE) for turn in range(8)]
        assert {here.rank for here in places} == set(range(8))
        for here in places:
            spec = check_fault(cause.kind, here.target, cause.params, SUITE_SHAPE, NETNS_LAB)
            assert spec.component_ids[0] in here.components


def test_a_rank_is_right_by_name_and_alone() -> None:
    """The pipeline names a component, dumps a rank; a second word makes either wrong."""
    here = place(STALL, 2, 0, SUITE_SHAPE)
    live = Said("rank_never_launched", (0, 1), "job1|2")
    right = judged(STALL, here, [live], 3.0, live=True)
    assert right.class_right
    assert right.place_right
    assert not judged(STALL, here, [live, live], 3.0, live=True).class_right
    other = judged(STALL, here, [Said("rank_never_launched", (), "job1|3")], 3.0, live=True)
    assert other.class_right
    assert not other.place_right
    assert judged(STALL, here, [Said("never_launched", (2,))], 3.0, live=False).place_right
    assert not judged(STALL, here, [], None, live=False).class_right


def test_a_cable_is_right_by_either_end_of_it() -> None:
    """The RNIC may be named for its only cable; dumps are to name nobody."""
    here = place(CUT, 3, 0, SUITE_SHAPE)
    assert here.target == "link:leaf:p0-1--rnic:h1/r1"
    for component in (here.target, "rnic:h1/r1"):
        assert judged(CUT, here, [Said("connectivity", (), component)], 2.0, live=True).place_right
    assert judged(CUT, here, [Said("not_finished")], 2.0, live=False).place_right
    assert not judged(CUT, here, [Said("not_finished", (3,))], 2.0, live=False).place_right


def test_figures_count_what_was_never_said() -> None:
    """A cause without a word is wrong, and has no delay."""
    here = place(STALL, 2, 0, SUITE_SHAPE)
    said = judged(STALL, here, [Said("never_launched", (2,))], 4.0, live=False)
    silent = judged(STALL, here, [], None, live=False)
    rows = {row.figure: row for row in figures("dumps", [said, silent], [0, 2])}
    assert rows["dumps: class right"].value == 0.5
    assert rows["dumps: hang → verdict, p90"].value == 4.0
    assert rows["dumps: hang → verdict, median"].runs == 1
    assert rows["dumps: said of healthy stretches"].value == 2
    assert not rows["dumps: said of healthy stretches"].met
