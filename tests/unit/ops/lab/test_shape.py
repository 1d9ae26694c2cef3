"""Names and numbers of a lab's parts."""

import pytest

from arena.world.topology import link_id
from ops.lab.shape import LabShape, ShapeError


def test_the_default_lab_is_the_promised_one() -> None:
    """4 hosts of 4 RNICs, 2 pods with 2 leaves, 2 spines; every leaf joined to every spine."""
    shape = LabShape()
    assert len(shape.endpoints) == 16
    assert shape.leaf_ids() == ["leaf:p0-0", "leaf:p0-1", "leaf:p1-0", "leaf:p1-1"]
    assert shape.spine_ids() == ["spine:0", "spine:1"]
    ids = [link.link_id for link in shape.links]
    assert len(ids) == len(set(ids)) == 16 + 4 * 2
    assert "link:leaf:p1-0--spine:1" in ids
    assert "link:leaf:p0-1--rnic:h1/r2" in ids
    assert len(set(shape.node_ids())) == 4 + 16 + 4 + 2


def test_endpoints_are_named_by_container_and_rail() -> None:
    """An endpoint's neighbours in the host follow from its host and rail."""
    e = LabShape().endpoints[6]
    assert (e.endpoint_id, e.container_id, e.agent_id) == ("job1-w1/r2", "job1-w1", "agent-h1")
    assert (e.host_id, e.vswitch_id, e.rnic_id) == ("host:h1", "vsw:h1", "rnic:h1/r2")


SPLITS = [(hosts, pods) for hosts in range(1, 9) for pods in range(1, min(hosts, 4) + 1)]


@pytest.mark.parametrize(("hosts", "pods"), SPLITS)
def test_hosts_are_split_evenly_over_the_pods(hosts: int, pods: int) -> None:
    """No pod has two hosts more than another, and none is empty."""
    shape = LabShape(hosts=hosts, pods=pods)
    sizes = [sum(shape.pod_of(h) == pod for h in range(hosts)) for pod in range(pods)]
    assert max(sizes) - min(sizes) <= 1
    assert sum(sizes) == hosts


def test_rnics_of_a_rail_share_a_leaf_in_their_pod() -> None:
    """The rails are split over the leaves in order."""
    shape = LabShape(hosts=4, rails=8, leaves=2)
    assert {shape.leaf_of(0, rail) for rail in range(4)} == {"leaf:p0-0"}
    assert {shape.leaf_of(1, rail) for rail in range(4, 8)} == {"leaf:p0-1"}


def test_a_link_has_one_id_whichever_end_comes_first() -> None:
    """Ends are put in order."""
    assert link_id("spine:0", "leaf:p0-0") == link_id("leaf:p0-0", "spine:0")


def test_every_wrong_number_is_named_at_once() -> None:
    """A user who got three numbers wrong learns all three."""
    with pytest.raises(ShapeError) as caught:
        LabShape(hosts=0, rails=9, spines=0, task_id="a b")
    text = str(caught.value)
    assert all(part in text for part in ("hosts=0", "rails=9", "spines=0", "task_id"))
