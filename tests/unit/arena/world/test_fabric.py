"""Routes of the arena's fabric against its own cables, and ECMP against chance."""

from fnmatch import fnmatch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from arena.world.fabric import NOWHERE, Fabric, FabricError, FabricShape
from schemas.columns.arrays import Int64s
from schemas.enums import ComponentKind

shapes = st.builds(
    FabricShape,
    hosts=st.integers(1, 12),
    rails=st.integers(1, 4),
    segment_hosts=st.just(1),
    tors=st.integers(1, 2),
    tiers=st.integers(2, 3),
    spines=st.integers(1, 3),
    pod_segments=st.integers(1, 3),
    plane_cores=st.integers(1, 3),
)


def all_pairs(fabric: Fabric) -> tuple[Int64s, Int64s]:
    """Return every ordered pair of RNICs."""
    count = fabric.shape.rnics
    src, dst = np.divmod(np.arange(count * count), count)
    return src, dst


def crossed(row: Int64s) -> list[int]:
    """Return a path without its padding."""
    return [int(c) for c in row if c != NOWHERE]


@settings(max_examples=40)
@given(shapes, st.integers(0, 65_535))
def test_every_path_follows_cables_from_end_to_end(shape: FabricShape, entropy: int) -> None:
    """Node, cable, node, ...: each cable joins its neighbours, nothing is crossed twice."""
    fabric = Fabric(shape)
    src, dst = all_pairs(fabric)
    ways = fabric.paths(src, dst, np.full(len(src), entropy))
    first_cable = fabric.numbers(4).start
    for a, b, row in zip(src.tolist(), dst.tolist(), ways, strict=True):
        way = crossed(row)
        assert len(set(way)) == len(way)
        assert (way[0], way[-1]) == (a, b)
        assert list(row[len(way) :]) == [NOWHERE] * (len(row) - len(way))
        for left, cable, right in zip(way[::2], way[1::2], way[2::2], strict=False):
            assert sorted(fabric.ends[cable - first_cable].tolist()) == sorted((left, right))


@pytest.mark.parametrize(
    ("a", "b", "nodes"),
    [
        ("rnic:h0/r0", "rnic:h1/r0", ["leaf:s0-r0"]),
        ("rnic:h0/r0", "rnic:h2/r0", ["leaf:s0-r0", "agg:p0-*", "leaf:s1-r0"]),
        ("rnic:h0/r0", "rnic:h1/r1", ["leaf:s0-r0", "agg:p0-*", "leaf:s0-r1"]),
        ("rnic:h0/r0", "rnic:h4/r0",
         ["leaf:s0-r0", "agg:p0-*", "core:*", "agg:p1-*", "leaf:s2-r0"]),
    ],
)  # fmt: skip
def test_a_path_is_as_short_as_the_tiers_allow(a: str, b: str, nodes: list[str]) -> None:
    """One rail of a segment stays below its ToR, a pod below its aggregation switches."""
    fabric = Fabric(FabricShape(hosts=8, rails=2, segment_hosts=2, tiers=3, pod_segments=2))
    src, dst = (np.array([fabric.number_of[name]]) for name in (a, b))
    way = [fabric.names[n] for n in crossed(fabric.paths(src, dst, np.array([7]))[0])]
    inner = way[2:-2:2]
    assert len(inner) == len(nodes)
    assert all(fnmatch(n, pattern) for n, pattern in zip(inner, nodes, strict=True)), inner


def test_entropy_spreads_evenly_and_independently_of_the_tor() -> None:
    """A million 5-tuples: spines, and pairs of ToR and spine, are as chance has it."""
    fabric = Fabric(FabricShape(hosts=64, rails=1, segment_hosts=32, tors=2, spines=8))
    rng = np.random.default_rng(1)
    src, dst = rng.integers(0, 32, 200_000), rng.integers(32, 64, 200_000)
    ways = fabric.paths(src, dst, rng.integers(49_152, 65_536, 200_000))
    pairs = np.unique(ways[:, [2, 4, 6]], axis=0, return_counts=True)[1]
    assert len(pairs) == 2 * 8 * 2
    assert chisquare(pairs).pvalue > 1e-4


def test_one_flow_keeps_its_way_and_the_routes_are_the_same_everywhere() -> None:
    """The hash has no seed of the process: these numbers hold on every machine."""
    fabric = Fabric(FabricShape(hosts=16, rails=2, segment_hosts=4, tiers=3, plane_cores=4))
    src, dst = np.array([0, 0, 0]), np.array([31, 31, 31])
    ways = fabric.paths(src, dst, np.array([50_000, 50_001, 50_000]))
    assert (ways[0] == ways[2]).all()
    assert [fabric.names[n] for n in ways[0][[2, 4, 6, 8, 10]]] == [
        "leaf:s0-r0",
        "agg:p0-3",
        "core:3-1",
        "agg:p1-3",
        "leaf:s3-r1",
    ]


@pytest.mark.slow
def test_the_published_size_is_built_and_routed() -> None:
    """40,000 RNICs, three tiers, dual ToR: names are unique, every cable is crossed by somebody."""
    fabric = Fabric(
        FabricShape(
            hosts=5000, rails=8, segment_hosts=128, tors=2, tiers=3,
            spines=8, pod_segments=8, plane_cores=16,
        )
    )  # fmt: skip
    assert fabric.shape.rnics == 40_000
    assert len(set(fabric.names)) == len(fabric) == len(fabric.number_of)
    rng = np.random.default_rng(2)
    src = rng.integers(0, 40_000, 400_000)
    ways = fabric.paths(src, rng.permutation(src), rng.integers(0, 16_384, 400_000))
    seen = np.unique(ways[ways != NOWHERE])
    inner = np.isin(np.arange(len(fabric)), seen)
    assert inner[list(fabric.numbers(3))].all()


def test_the_records_name_what_there_is() -> None:
    """Hosts, RNICs below them, switches by tier, cables with both ends; all ids unique."""
    fabric = Fabric(FabricShape(hosts=4, rails=2, segment_hosts=2, tors=2, tiers=3))
    records = list(fabric.components("arena", 1))
    ids = [r.component_id for r in records]
    assert len(set(ids)) == len(ids) == 4 + len(fabric)
    addresses = [a for r in records for a in r.addresses]
    assert len(set(addresses)) == len(addresses)
    for record in records:
        if record.kind is ComponentKind.LINK:
            assert {record.a, record.b} <= set(ids)
        elif record.kind is ComponentKind.RNIC:
            assert record.parent in ids


def test_a_shape_that_cannot_be_says_why() -> None:
    """Every wrong parameter with its value and its bounds."""
    with pytest.raises(FabricError, match=r"rails=99: 1 to 16; tors=3: 1 to 2"):
        FabricShape(rails=99, tors=3)
    with pytest.raises(FabricError, match=r"400000 RNICs"):
        FabricShape(hosts=300_000, rails=8)
