"""The index of what is probed: which changes make it anew, and which do not."""

import pytest

from localizer.facts.index_cache import IndexCache
from localizer.facts.roster import Roster
from localizer.network.paths import PathBook
from localizer.network.topology import Topology
from schemas.enums import ComponentKind
from tests.unit.localizer.made import component, endpoint, pinglist, small_fabric, trace


class Followed:
    """A pair that is probed in both directions and traced, in the index."""

    def __init__(self) -> None:
        self.topology: Topology = small_fabric()
        self.roster, self.paths = Roster(), PathBook(self.topology)
        self.cache = IndexCache(self.roster, self.paths, self.topology)
        for a, b in (("e0", "e1"), ("e1", "e0")):
            self.roster.set_endpoint(a, endpoint(a, f"a{a[1]}"))
            self.roster.set_pinglist(f"a{a[1]}", pinglist(f"a{a[1]}", [(a, b)]))
            self.paths.add_trace(trace(f"l{a[1]} s0 l{b[1]} {b}", ends=(a, b)))


@pytest.mark.parametrize("parent", ["r0", "r1"])
def test_an_endpoint_that_comes_goes_or_moves_leaves_the_index(parent: str) -> None:
    """Whether somebody probes it or not; only its own paths are others."""
    found = Followed()
    index = found.cache.refresh()
    there = index.crossed(("e0", "e1", 0))
    found.topology.set_component(component("e9", ComponentKind.ENDPOINT, parent=parent))
    found.topology.remove_component("e9")
    assert found.cache.refresh() is index
    assert index.crossed(("e0", "e1", 0)) is there
    found.topology.set_component(component("e0", ComponentKind.ENDPOINT, parent="h0"))
    assert found.cache.refresh() is index
    assert "r0" not in index.crossed(("e0", "e1", 0))


def test_another_fabric_makes_the_index_anew() -> None:
    """A switch less, or an endpoint with an address that a hop answered with."""
    found = Followed()
    index = found.cache.refresh()
    found.topology.set_component(component("e9", ComponentKind.ENDPOINT, addresses=("@s0",)))
    second = found.cache.refresh()
    assert second is not index
    found.topology.remove_component("s0")
    assert found.cache.refresh() is not second


def test_a_registration_that_says_nothing_new_is_none() -> None:
    """Also when it is repeated by another record; one with another agent is new."""
    found = Followed()
    found.cache.refresh()
    version = found.roster.version
    found.roster.set_endpoint("e0", endpoint("e0", "a0"))
    assert found.roster.version == version
    found.roster.set_endpoint("e0", endpoint("e0", "a7"))
    index = found.cache.refresh()
    assert found.roster.version == version + 1
    assert "a7" in index.responders
