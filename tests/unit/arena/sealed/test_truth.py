"""What counts as a right answer."""

from arena.sealed.plan import Plan, Where
from arena.sealed.truth import geometry
from tests.unit.arena.sealed.small import bonded, cluster_where, in_overlay, single


def test_an_rnic_with_one_cable_cannot_be_told_from_it() -> None:
    """The same 5-tuples cross both, and its VTEP; of two cables each has its own."""
    cluster = cluster_where(in_overlay)
    geo = geometry(cluster, Plan(), 0.0, 1.0)
    rnic = next(flow.src for flow in cluster.flows)
    out, into = geo.of_endpoints((rnic,))
    same = geo.same_as(out | into)
    assert {cluster.rnic_name(rnic), cluster.vtep_name(rnic)} <= same
    cables = {cluster.fabric.cables[c].name for c in cluster.fabric.cables_of(rnic)}
    assert (cables <= same) is (cluster.shape.homes == 1)
    two = cluster_where(bonded)
    geo = geometry(two, Plan(), 0.0, 1.0)
    out, into = geo.of_endpoints((two.flows[0].src,))
    cables = {two.fabric.cables[c].name for c in two.fabric.cables_of(two.flows[0].src)}
    assert not cables & geo.same_as(out | into)


def test_what_an_effect_hits_is_what_crosses_its_cables() -> None:
    """Probes by their forward path, replies by theirs."""
    cluster = cluster_where(single)
    geo = geometry(cluster, Plan(), 0.0, 1.0)
    for dlink in range(cluster.fabric.dlinks):
        probes, replies = geo.hit(Where(dlinks=frozenset({dlink})))
        assert probes == geo.crossing(dlink)
        assert replies == {i for i in geo.probed if dlink in geo.reply[i]}


def test_nothing_equals_what_nobody_crosses() -> None:
    """An empty set names no component."""
    cluster = cluster_where(single)
    assert geometry(cluster, Plan(), 0.0, 1.0).same_as(frozenset()) == frozenset()
