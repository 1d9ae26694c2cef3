"""What is around a fault."""

import pytest

from ops.bench.operator.watched import BEGIN_US, WatchedCluster
from ops.view import neighbourhood as n
from ops.view.cluster import ClusterView
from ops.view.neighbourhood import Neighbourhood, Place, neighbourhood

LEAF, SPINE, RNIC = "leaf:s0-r3", "spine:2", "rnic:h5/r1"
LINK = "link:leaf:s0-r0--spine:2"
NOW_MS = BEGIN_US // 1_000 + 20_000


def around(
    component: str,
    kind: str,
    candidates: dict[str, float] | None = None,
    *,
    sick: str | None = None,
    segments: int = 4,
) -> Neighbourhood:
    """Return the neighbourhood of a fault in a cluster of which some 5-tuples are traced."""
    cluster, view = WatchedCluster(segments), ClusterView()
    for seen in cluster.setup():
        view.apply(seen)
    for flow in range(0, cluster.world.paths, 7):
        view.apply(cluster.seen(cluster.world.trace(flow, BEGIN_US * 1_000)))
    for seen in cluster.symptoms(sick or component, BEGIN_US):
        view.apply(seen)
    view.apply(cluster.fault(component, kind, BEGIN_US + 10**6, candidates))
    (history,) = view.faults.open()
    return neighbourhood(view, history, NOW_MS)


def names(found: Neighbourhood, place: Place) -> set[str]:
    """Return the keys of the nodes of a row."""
    return {key for key, node in found.nodes.items() if node.place is place}


def test_a_leaf_with_its_rnics_and_pods_at_the_other_ends() -> None:
    """Spines that all are crossed alike are one node."""
    found = around(LEAF, "SWITCH")
    assert names(found, Place.SPINE) == {"others of spine"}
    assert names(found, Place.LEAF) == {LEAF, "pod leaf:s1", "pod leaf:s2", "pod leaf:s3"}
    assert names(found, Place.ENDS) == {f"ends of {LEAF}"}
    assert len(found.nodes[f"ends of {LEAF}"].members) == 16
    assert [key for key, node in found.nodes.items() if node.suspect] == [LEAF]
    (suspect,) = found.suspects
    assert (suspect.accused, suspect.score) == (True, 0.97)
    assert suspect.bad == sum(c.bad for c in found.crossings) > 0
    assert suspect.good == len(found.crossings) - suspect.bad > 0
    up = next(e for e in found.edges if {e.a, e.b} == {LEAF, "others of spine"})
    assert (len(up.links), up.bad, up.good) == (8, suspect.bad, suspect.good)


def test_a_spine_with_the_pods_below_it() -> None:
    """All pods, each as one node."""
    found = around(SPINE, "SWITCH")
    assert set(found.nodes) == {SPINE, *(f"pod leaf:s{pod}" for pod in range(4))}
    assert {edge.a if edge.b == SPINE else edge.b for edge in found.edges} == {
        f"pod leaf:s{pod}" for pod in range(4)
    }
    assert all(edge.bad and edge.good for edge in found.edges)


def test_a_link_and_its_alternatives() -> None:
    """Both ends are shown by themselves; candidates by likelihood, with what crosses them."""
    found = around(LINK, "LINK", {SPINE: 0.3, LINK: 0.6, "leaf:s0-r0": 0.1})
    assert [(s.name, s.score) for s in found.suspects] == [
        (LINK, 0.6), (SPINE, 0.3), ("leaf:s0-r0", 0.1),
    ]  # fmt: skip
    (own,) = (e for e in found.edges if LINK in e.links)
    assert {own.a, own.b} == {"leaf:s0-r0", SPINE}
    by_name = {s.name: s for s in found.suspects}
    assert (own.bad, own.good) == (by_name[LINK].bad, by_name[LINK].good)
    # What crosses the link crosses its ends.
    assert by_name[SPINE].bad >= by_name[LINK].bad
    assert by_name[SPINE].good > by_name[LINK].good


@pytest.mark.parametrize(("component", "kind"), [(RNIC, "RNIC"), ("host:h5", "HOST")])
def test_an_rnic_or_host_below_its_leaf(component: str, kind: str) -> None:
    """It stands for itself, its leaf is shown, and the other ends are pods."""
    found = around(component, kind, sick=RNIC)
    assert names(found, Place.ENDS) == {component}
    assert "leaf:s0-r1" in names(found, Place.LEAF)
    assert found.nodes[component].suspect
    assert found.suspects[0].bad > 0


def test_a_component_that_nobody_knows() -> None:
    """Shown alone, without paths."""
    found = around("nobody", "SWITCH", sick=LEAF)
    assert set(found.nodes) == {"nobody"}
    assert (found.edges, found.crossings) == ((), ())
    assert (found.suspects[0].bad, found.suspects[0].good) == (0, 0)


def test_too_many_nodes_are_no_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """But stay in the table."""
    monkeypatch.setattr(n, "MAX_NODES", 4)
    found = around(SPINE, "SWITCH")
    assert not found.drawn
    assert len(found.nodes) == 5


def test_most_pods_are_one_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those with most bad 5-tuples are shown by themselves."""
    monkeypatch.setattr(n, "PODS", 2)
    found = around(SPINE, "SWITCH")
    assert len(names(found, Place.LEAF)) == 3
    assert len(found.nodes["other pods"].members) == 2


def test_edges_count_each_crossing_once() -> None:
    """All 5-tuples through a leaf go up once and down to an RNIC once."""
    found = around(LEAF, "SWITCH")
    for bad in (True, False):
        through = sum(c.bad is bad for c in found.crossings)
        for edge in found.edges:
            if LEAF in (edge.a, edge.b):
                assert (edge.bad if bad else edge.good) == through
