"""Traces."""

from collections.abc import Callable

import pytest

from arena.sealed.cluster import Cluster
from arena.sealed.plan import Effect, Plan, Where
from arena.sealed.schedule import steady
from arena.sealed.truth import geometry
from schemas.enums import TraceCause
from schemas.records import PathTrace
from tests.unit.arena.sealed.small import bonded, cluster_where, in_overlay, single, world_of


def traces_of(cluster: Cluster, plan: Plan, duration_s: int = 40) -> list[PathTrace]:
    """Return all traces of a world."""
    records = world_of(cluster, plan, duration_s).records()
    return [timed.record for timed in records if timed.topic == "path.trace.v1"]


@pytest.mark.parametrize("wanted", [in_overlay, bonded, single])
def test_every_5_tuple_is_traced_once_along_its_path(wanted: Callable[[Cluster], bool]) -> None:
    """Hops name the switches of the path in order, then the target."""
    cluster = cluster_where(wanted)
    fabric, geo = cluster.fabric, geometry(cluster, Plan(), 0.0, 1.0)
    owner = {}
    for node in range(fabric.rnics, len(fabric.nodes)):
        owner[cluster.loopback_address(node)] = node
    for dlink in range(fabric.dlinks):
        owner[cluster.interface_address(dlink)] = fabric.head(dlink)
    of_flow = {
        (cluster.sites[f.src].name, cluster.sites[f.dst].name, f.index): i
        for i, f in enumerate(cluster.flows)
    }
    traces = traces_of(cluster, Plan())
    assert {trace.cause for trace in traces} == {TraceCause.DISCOVERY}
    assert sorted(of_flow[t.src, t.dst, t.flow] for t in traces) == list(geo.probed)
    for trace in traces:
        index = of_flow[trace.src, trace.dst, trace.flow]
        assert trace.complete
        routers = [fabric.head(dlink) for dlink in geo.forward[index][:-1]]
        assert [hop.ttl for hop in trace.hops] == list(range(1, len(routers) + 2))
        for hop, node in zip(trace.hops, routers, strict=False):
            assert hop.address is None or owner[hop.address] == node
        assert trace.hops[-1].address == cluster.sites[cluster.flows[index].dst].address


def test_a_trace_breaks_off_where_the_path_does() -> None:
    """Routers in front of a cut answer, those behind it do not, and the reason is there."""
    cluster = cluster_where(single)
    geo = geometry(cluster, Plan(), 0.0, 1.0)
    hops = next(hops for hops in geo.forward.values() if len(hops) >= 4)
    cut = hops[1]
    where = Where(dlinks=frozenset({cut}))
    plan = Plan(effects=[Effect(where=where, schedule=steady(12.0, 1e9), loss=1.0)])
    probes, replies = geo.hit(where)
    lossy = [t for t in traces_of(cluster, plan) if t.cause is TraceCause.LOSS]
    broken = [t for t in lossy if any(h.address for h in t.hops) and len(t.hops) > 1]
    assert lossy
    assert probes
    for trace in lossy:
        assert not trace.complete
        assert trace.incomplete_reason
    assert any(t.hops[0].address and not any(h.address for h in t.hops[1:]) for t in broken)
    assert len({(t.src, t.dst, t.flow) for t in lossy}) == len(probes | replies)
