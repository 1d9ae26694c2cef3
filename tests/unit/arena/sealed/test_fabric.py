"""Fabrics and routing."""

from itertools import pairwise

import pytest

from arena.sealed.cluster import Cluster, draw_cluster
from tests.unit.arena.sealed.small import rng_of

CLUSTERS = [draw_cluster(f"c{seed}", rng_of(seed, 9)) for seed in range(12)]


@pytest.mark.parametrize("cluster", CLUSTERS, ids=lambda c: c.name)
def test_paths_join_cables_end_to_end_and_cross_no_rnic(cluster: Cluster) -> None:
    """A path leaves the source, enters the destination, and only switches lie between."""
    fabric, routing = cluster.fabric, cluster.routing()
    for flow in cluster.flows:
        hops = routing.path(flow.src, flow.dst, flow.key)
        assert fabric.tail(hops[0]) == flow.src
        assert fabric.head(hops[-1]) == flow.dst
        for near, far in pairwise(hops):
            assert fabric.head(near) == fabric.tail(far) >= fabric.rnics


@pytest.mark.parametrize("cluster", CLUSTERS, ids=lambda c: c.name)
def test_a_withdrawn_cable_carries_nothing_and_comes_back(cluster: Cluster) -> None:
    """Routing goes round it, or has no route; restored, all paths are as before."""
    routing = cluster.routing()
    before = [routing.path(flow.src, flow.dst, flow.key) for flow in cluster.flows]
    cable = next(d >> 1 for d in before[0][1:-1] or before[0])
    routing.withdraw(cable)
    during = [routing.path(flow.src, flow.dst, flow.key) for flow in cluster.flows]
    assert all(dlink >> 1 != cable for hops in during for dlink in hops)
    routing.restore(cable)
    assert [routing.path(flow.src, flow.dst, flow.key) for flow in cluster.flows] == before


def test_a_resilient_hash_moves_only_what_crossed_the_cable() -> None:
    """Highest random weight keeps the choice of all others."""
    cluster = next(c for c in CLUSTERS if c.resilient and not c.shape.cores)
    routing = cluster.routing()
    before = [routing.path(flow.src, flow.dst, flow.key) for flow in cluster.flows]
    crossed = next(hops for hops in before if len(hops) == 4)
    routing.withdraw(crossed[1] >> 1)
    for flow, hops in zip(cluster.flows, before, strict=True):
        unhurt = all(dlink >> 1 != crossed[1] >> 1 for dlink in hops)
        # A spine that lost its way to one leaf is no choice any more for others of that leaf.
        gone = cluster.fabric.head(crossed[1])
        if unhurt and all(cluster.fabric.head(dlink) != gone for dlink in hops):
            assert routing.path(flow.src, flow.dst, flow.key) == hops


def test_ecmp_uses_every_cable_between_two_tiers() -> None:
    """Keys spread over all equal next hops, parallel cables included."""
    cluster = next(c for c in CLUSTERS if c.shape.parallel > 1)
    flow = next(f for f in cluster.flows if len(cluster.routing().path(f.src, f.dst, f.key)) > 2)
    routing = cluster.routing()
    used = {routing.path(flow.src, flow.dst, key)[1] for key in range(400)}
    assert len(used) >= cluster.shape.parallel * 2
