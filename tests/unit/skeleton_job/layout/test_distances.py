"""Peers of an endpoint along its rail: bounded, symmetric, and covering the likely layouts."""

from collections import Counter
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from skeleton_job.job import Rnic
from skeleton_job.layout.distances import DEFAULT_MAX_PEERS, covering_distances, ring_pairs


def ring(n: int) -> list[Rnic]:
    """Return the RNICs of a rail, one on each host."""
    return [Rnic(f"w{i}/r0", f"w{i}", f"h{i}", 0) for i in range(n)]


def places(n: int, max_peers: int = DEFAULT_MAX_PEERS) -> set[tuple[int, int]]:
    """Return the listed pairs as numbers of hosts."""
    at = {r.endpoint_id: i for i, r in enumerate(ring(n))}
    listed = ring_pairs(ring(n), covering_distances(n, max_peers))
    return {(min(at[a], at[b]), max(at[a], at[b])) for a, b in listed}


@settings(max_examples=50)
@given(n=st.integers(1, 300), max_peers=st.integers(2, 40))
def test_nobody_has_more_peers_than_the_bound(n: int, max_peers: int) -> None:
    """Every endpoint has as many, and as many as there may be."""
    distances = covering_distances(n, max_peers)
    assert len(set(distances)) == len(distances)
    assert all(1 <= d <= n // 2 for d in distances)
    peers = Counter(end for pair in places(n, max_peers) for end in pair)
    assert len(peers) == (n if n > 1 else 0)
    assert len(set(peers.values())) <= 1
    most = max(peers.values(), default=0)
    assert most <= max_peers
    if n - 1 <= max_peers:
        assert most == n - 1
    else:
        assert most >= max_peers - 2


@given(degrees=st.lists(st.sampled_from([2, 3, 4, 5, 8]), min_size=1, max_size=3))
def test_each_axis_of_a_likely_layout_has_a_peer(degrees: list[int]) -> None:
    """Whatever axes are nested in the hosts: each host has a neighbour along each of them."""
    n = int(np.prod(degrees))
    # More divisors than distances: only the likely ones have room.
    assume(n <= 256 and sum(n % d == 0 for d in range(1, n // 2 + 1)) <= DEFAULT_MAX_PEERS // 2)
    listed = places(n)
    grid = np.arange(n).reshape(degrees)
    for axis in range(len(degrees)):
        rows = np.moveaxis(grid, axis, -1).reshape(-1, degrees[axis])
        for row in rows.tolist():
            for a, b in pairwise(row):
                assert (a, b) in listed


@pytest.mark.parametrize(
    ("hosts", "per_leaf", "uplinks"), [(128, 32, 16), (127, 16, 16), (64, 8, 8)]
)
def test_every_uplink_is_crossed_by_several_flows(hosts: int, per_leaf: int, uplinks: int) -> None:
    """Hosts stand in leaves in the platform's order, and ECMP takes any uplink for a 5-tuple."""
    choose = np.random.default_rng(0)
    crossed: Counter[tuple[int, int]] = Counter()
    for a, b in places(hosts):
        if a // per_leaf != b // per_leaf:
            for leaf in (a // per_leaf, b // per_leaf):
                # Four 5-tuples each way.
                crossed.update((leaf, int(u)) for u in choose.integers(0, uplinks, 8))
    leaves = -(-hosts // per_leaf)
    assert len(crossed) == leaves * uplinks
    assert min(crossed.values()) >= 4


def test_small_rails_are_meshed_and_large_ones_are_not() -> None:
    """All pairs of a lab or a small job; of a rail of 1,024 hosts one in seventy."""
    assert places(17) == set(combinations(range(17), 2))
    assert len(places(1024)) < 8 * 1024 < 1024 * 1023 / 2 / 60
    with pytest.raises(ValueError, match="max_peers=1: at least 2"):
        covering_distances(9, 1)
