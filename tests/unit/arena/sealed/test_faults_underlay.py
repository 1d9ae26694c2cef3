"""Hard faults of the underlay: what they cut, and nothing else."""

import numpy as np
import pytest

from arena.sealed import faults_underlay as underlay
from arena.sealed.draft import LEAST_LOST
from tests.unit.arena.sealed.small import (
    BEGIN_S,
    END_S,
    Build,
    draft_with,
    hit_by,
    measured,
)

BUILDS = [
    underlay.port_down,
    underlay.silent_port,
    underlay.rnic_port_down,
    underlay.bond_error,
    underlay.switch_down,
    underlay.rnic_unreachable,
    underlay.device_gone,
    underlay.gid_change,
    underlay.acl_error,
    underlay.missing_route,
    underlay.pfc_deadlock,
    underlay.port_flapping,
]


@pytest.mark.parametrize("build", BUILDS, ids=lambda build: build.__name__)
def test_a_cut_hits_its_5_tuples_while_it_lasts(build: Build) -> None:
    """Each affected 5-tuple loses probes, no other does, and none before or after."""
    draft = draft_with(build)
    (_, _, affected) = draft.affected[0]
    hit = hit_by(draft)
    outside = np.array([i not in hit for i in range(len(draft.cluster.flows))])
    during, _ = measured(draft, BEGIN_S + 0.05, END_S, count=600)
    assert affected
    assert affected <= hit
    assert (during[sorted(affected)] > 0.0).all()
    assert during[outside].sum() == 0.0
    assert measured(draft, 0.0, BEGIN_S)[0].sum() == 0.0
    assert measured(draft, END_S + 1.0, END_S + 30.0)[0].sum() == 0.0
    # What is lost at one probe a second is enough to be found.
    assert during.sum() * (END_S - BEGIN_S) >= 0.5 * LEAST_LOST


def test_a_parallel_cable_is_as_right_as_the_faulty_one() -> None:
    """No record says to which of them a hop's address belongs."""
    draft = draft_with(underlay.silent_port)
    fabric = draft.cluster.fabric
    named = draft.injected[0].components
    for index, cable in enumerate(fabric.cables):
        if cable.name in named:
            assert {fabric.cables[other].name for other in fabric.parallel(index)} <= named


def test_routing_goes_round_a_healed_cut() -> None:
    """In the second half of the fault nothing is lost any more."""
    for seed_build in range(20):
        draft = draft_with(underlay.switch_down if seed_build % 2 else underlay.port_down)
        if draft.plan.reroutes:
            half_s = (BEGIN_S + END_S) / 2.0
            assert measured(draft, half_s, END_S)[0].sum() == 0.0
            return
    pytest.skip("no healed cut was drawn")


@pytest.mark.parametrize(
    ("build", "attribute"),
    [
        (underlay.port_down, "port_state"),
        (underlay.device_gone, "device"),
        (underlay.gid_change, "gid_table"),
        (underlay.bond_error, "bond"),
        (underlay.acl_error, "acl_denied_per_s"),
        (underlay.pfc_deadlock, "pause_frames_per_s"),
        (underlay.port_flapping, "link_flaps"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_the_state_that_names_a_fault_is_published(build: Build, attribute: str) -> None:
    """Of a component that is a right answer, while the fault lasts."""
    draft = draft_with(build)
    named = [s for s in draft.plan.states if s.attribute == attribute]
    assert named
    assert any(steps.component in draft.injected[0].components for steps in named)
    assert any(steps.value(END_S - 5.0) is not None for steps in named)
    assert all(steps.value(BEGIN_S - 1.0) is None for steps in named)
