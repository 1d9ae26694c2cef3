"""The graph of components."""

from dataclasses import replace
from itertools import permutations

import pytest

from localizer.network.topology import Topology, TopologyError
from schemas.enums import ComponentKind
from tests.unit.localizer.made import component, link, small_fabric


def test_links_are_found_by_their_ends_in_either_order() -> None:
    """A link joins its two ends, whoever asks from where."""
    topology = small_fabric()
    assert topology.link_between("s0", "l0") == topology.link_between("l0", "s0") == "l0--s0"
    assert topology.link_between("l0", "l1") is None
    assert topology.neighbours("l0") == ["r0", "s0"]
    assert topology.links_at("r0") == ["l0--r0"]


def test_cables_of_one_rnic_are_bonded() -> None:
    """Those to switches, of which parallel ones are one; no other component has a bond."""
    topology = small_fabric()
    assert topology.bond_at("r0") == topology.bond_at("l0") == topology.bond_at("nobody") == ()
    topology.set_component(link("r0", "v0"))
    topology.set_component(link("l0b", "r0"))
    topology.set_component(replace(link("l0", "r0"), component_id="l0--r0#2"))
    assert topology.bond_at("r0") == ()
    topology.set_component(component("l0b", ComponentKind.SWITCH))
    assert topology.bond_at("r0") == ("l0--r0", "l0b--r0")


def test_parents_lead_from_an_endpoint_to_its_host() -> None:
    """The RNIC holds the endpoint, the host the RNIC; a loop in the records ends."""
    topology = small_fabric()
    assert topology.parents("e0") == ["r0", "h0"]
    assert topology.host_of("e0") == "h0"
    topology.set_component(component("x", ComponentKind.HOST, parent="y"))
    topology.set_component(component("y", ComponentKind.HOST, parent="x"))
    assert topology.parents("x") == ["y"]


def test_only_a_real_change_is_a_new_version() -> None:
    """A repeated record changes nothing; another address does, and the old one is forgotten."""
    topology = small_fabric()
    before = topology.version
    assert not topology.set_component(component("s0", ComponentKind.SWITCH, updated_at=5))
    assert topology.version == before
    assert topology.set_component(component("s0", ComponentKind.SWITCH, addresses=("new",)))
    assert topology.version > before
    assert topology.at_address("new") == "s0"
    assert topology.at_address("@s0") is None


def test_a_removed_link_joins_nothing() -> None:
    """After removal neither the link nor its neighbourhood is there; twice is no fault."""
    topology = small_fabric()
    topology.remove_component("l0--s0")
    topology.remove_component("l0--s0")
    assert topology.link_between("l0", "s0") is None
    assert topology.neighbours("l0") == ["r0"]
    assert "l0--s0" not in topology


@pytest.mark.parametrize("order", [*permutations(("l0--s0", "l0--s0#2", "l0--s0#3"))])
def test_of_parallel_links_the_first_stands_for_all(order: tuple[str, ...]) -> None:
    """In whatever order they become known, and if one of them is removed."""
    topology = small_fabric()
    topology.remove_component("l0--s0")
    for name, (a, b) in zip(order, (("l0", "s0"), ("s0", "l0"), ("l0", "s0")), strict=True):
        topology.set_component(component(name, ComponentKind.LINK, a=a, b=b, addresses=()))
    assert topology.link_between("l0", "s0") == topology.link_between("s0", "l0") == "l0--s0"
    assert {topology.crossed_as(name) for name in order} == {"l0--s0"}
    assert topology.parallels("l0--s0#2") == ["l0--s0", "l0--s0#3"]
    assert topology.parallels("l1--s0") == topology.parallels("s0") == []
    assert topology.crossed_as("s0") == "s0"
    topology.remove_component("l0--s0")
    assert topology.link_between("l0", "s0") == topology.link_between("s0", "l0") == "l0--s0#2"


@pytest.mark.parametrize(("a", "b"), [(None, "x"), ("x", None), ("x", "x")])
def test_a_link_that_joins_nothing_is_refused(a: str | None, b: str | None) -> None:
    """A link needs two different ends; the graph stays as it was."""
    topology = Topology()
    with pytest.raises(TopologyError, match="joins"):
        topology.set_component(component("bad", ComponentKind.LINK, a=a, b=b, addresses=()))
    assert len(topology) == 0


def test_an_address_that_moved_belongs_to_the_new_component() -> None:
    """Removing the old owner does not take the address from the new one."""
    topology = Topology()
    topology.set_component(component("old", ComponentKind.SWITCH, addresses=("ip",)))
    topology.set_component(component("new", ComponentKind.SWITCH, addresses=("ip",)))
    topology.remove_component("old")
    assert topology.at_address("ip") == "new"
    topology.set_component(link("old", "new"))
    assert topology.children("nobody", ComponentKind.RNIC) == []
