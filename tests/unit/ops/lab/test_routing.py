"""Where packets go: ECMP, overlay tables, the whole walk."""

from collections import Counter
from itertools import combinations

import pytest

from ops.lab.overlay import Missing, Overlay
from ops.lab.routing import MAX_STEPS, Router, flow_hash
from ops.lab.shape import EndpointSpec, LabShape


def endpoint(shape: LabShape, endpoint_id: str) -> EndpointSpec:
    """Return an endpoint by its id."""
    return next(e for e in shape.endpoints if e.endpoint_id == endpoint_id)


@pytest.fixture
def shape() -> LabShape:
    """Give the default lab."""
    return LabShape()


def test_within_a_pod_a_rail_stays_below_its_leaf(shape: LabShape) -> None:
    """The way is virtual switch, RNIC, leaf, RNIC, virtual switch, endpoint."""
    walk = Router(shape, Overlay(shape)).walk(shape.endpoints[1], endpoint(shape, "job1-w1/r1"), 0)
    assert walk.nodes == (
        "vsw:h0", "rnic:h0/r1", "leaf:p0-0", "rnic:h1/r1", "vsw:h1", "job1-w1/r1",
    )  # fmt: skip
    assert walk.missing is None


def test_across_pods_the_hash_chooses_the_spine(shape: LabShape) -> None:
    """The way is leaf, spine, leaf; hash modulo the number of spines is the choice."""
    router = Router(shape, Overlay(shape))
    src, dst = shape.endpoints[0], endpoint(shape, "job1-w3/r0")
    for spine in (0, 1):
        assert router.walk(src, dst, 2 * 17 + spine).nodes == (
            "vsw:h0", "rnic:h0/r0", "leaf:p0-0", f"spine:{spine}", "leaf:p1-0", "rnic:h3/r0",
            "vsw:h3", "job1-w3/r0",
        )  # fmt: skip


def test_in_the_host_the_virtual_switch_delivers(shape: LabShape) -> None:
    """Two containers' endpoints on one host need no RNIC."""
    walk = Router(shape, Overlay(shape)).walk(shape.endpoints[0], shape.endpoints[3], 0)
    assert walk.nodes == ("vsw:h0", "job1-w0/r3")


def test_to_another_rail_the_destination_chooses_the_rnic(shape: LabShape) -> None:
    """Traffic leaves by the RNIC of the rail on which it must arrive."""
    walk = Router(shape, Overlay(shape)).walk(shape.endpoints[0], endpoint(shape, "job1-w1/r3"), 0)
    assert walk.nodes[1:4] == ("rnic:h0/r3", "leaf:p0-1", "rnic:h1/r3")


@pytest.mark.parametrize("spines", [1, 2, 3])
def test_every_pair_arrives_and_replies_take_the_same_links(spines: int) -> None:
    """For any shape, the walk of the reply is the walk of the request turned round."""
    shape = LabShape(hosts=5, rails=3, pods=3, leaves=2, spines=spines)
    router = Router(shape, Overlay(shape))
    for a, b in combinations(shape.endpoints, 2):
        there, back = router.walk(a, b, 7).nodes, router.walk(b, a, 7).nodes
        assert there[-1] == b.endpoint_id
        assert back[-1] == a.endpoint_id
        if a.rail == b.rail:
            assert there[-2::-1] == back[:-1]


def test_the_hash_is_balanced_over_entropy() -> None:
    """Of 4,000 consecutive flows of a pair, each of 4 next hops gets a quarter, within 5 sigma."""
    src, dst = b"\x7f\0\0\x01\x50\x00", b"\x7f\0\0\x01\x50\x01"
    counts = Counter(flow_hash(src, dst, e.to_bytes(2)) % 4 for e in range(4_000))
    sigma = (4_000 * 0.25 * 0.75) ** 0.5
    assert all(abs(counts[i] - 1_000) < 5 * sigma for i in range(4))


def test_four_flows_of_a_pair_mostly_cover_two_spines() -> None:
    """The chance that four flows miss one of two spines is 1 in 8, not more."""
    missed = 0
    for port in range(1_000):
        src, dst = b"\x7f\0\0\x01" + port.to_bytes(2), b"\x7f\0\0\x01\x60\x00"
        spines = {flow_hash(src, dst, (49_152 + flow).to_bytes(2)) % 2 for flow in range(4)}
        missed += len(spines) == 1
    assert missed < 1_000 * 0.125 + 5 * (1_000 * 0.125 * 0.875) ** 0.5


def test_a_hole_ends_the_walk_where_it_is(shape: LabShape) -> None:
    """Only the pair whose entry is gone suffers; undoing brings it back."""
    overlay = Overlay(shape)
    router = Router(shape, overlay)
    src, dst = shape.endpoints[0], endpoint(shape, "job1-w1/r0")
    assert overlay.apply("f1", overlay.hole("rnic:h0/r0", dst.endpoint_id)) == {0}
    walk = router.walk(src, dst, 0)
    assert (walk.nodes, walk.missing) == (("vsw:h0", "rnic:h0/r0"), Missing.HOLE)
    assert router.walk(src, endpoint(shape, "job1-w2/r0"), 0).missing is None
    assert overlay.undo("f1") == {0}
    assert router.walk(src, dst, 0).missing is None


def test_a_loop_never_arrives(shape: LabShape) -> None:
    """Virtual switch and RNIC pass the packet to each other until its ttl ends it."""
    overlay = Overlay(shape)
    dst = endpoint(shape, "job1-w1/r0")
    overlay.apply("f1", overlay.loop("rnic:h0/r0", dst.endpoint_id))
    walk = Router(shape, overlay).walk(shape.endpoints[0], dst, 0)
    assert len(walk.nodes) == MAX_STEPS
    assert set(walk.nodes) == {"vsw:h0", "rnic:h0/r0"}


def test_overlapping_changes_are_undone_one_by_one(shape: LabShape) -> None:
    """A hole in a loop's entry wins; when it heals the loop is back, then the plain table."""
    overlay = Overlay(shape)
    dst = "job1-w1/r0"
    plain = overlay.next_hop("rnic:h0/r0", dst)
    overlay.apply("loop", overlay.loop("vsw:h0", dst))
    overlay.apply("hole", overlay.hole("rnic:h0/r0", dst))
    assert overlay.next_hop("rnic:h0/r0", dst) is Missing.HOLE
    overlay.undo("hole")
    assert overlay.next_hop("rnic:h0/r0", dst) == "vsw:h0"
    overlay.undo("loop")
    assert overlay.next_hop("rnic:h0/r0", dst) == plain


def test_published_tables_replay_to_the_same_walk(shape: LabShape) -> None:
    """Following the published entries of all hosts leads from endpoint to endpoint."""
    overlay = Overlay(shape)
    table = {
        (entry.node, entry.dst): entry.next_hop
        for host in range(shape.hosts)
        for entry in overlay.table(host, cluster="c", captured_at=1).entries
    }
    for src in shape.endpoints:
        for dst in shape.endpoints:
            if src is dst:
                continue
            node: str | None = src.endpoint_id
            chain = []
            while node is not None and node != dst.endpoint_id:
                chain.append(node)
                node = table.get((node, dst.endpoint_id))
            assert node == dst.endpoint_id
            assert len(chain) == (2 if src.host == dst.host else 5)


def test_a_table_names_its_host_and_lacks_what_was_removed(shape: LabShape) -> None:
    """A removed entry is absent; RNICs and switches say that they forward in hardware."""
    overlay = Overlay(shape)
    before = overlay.table(1, cluster="c", captured_at=5)
    overlay.apply("f1", overlay.hole("vsw:h1", "job1-w1/r0"))
    after = overlay.table(1, cluster="c", captured_at=6)
    gone = set(before.entries) - set(after.entries)
    assert [(e.node, e.dst) for e in gone] == [("vsw:h1", "job1-w1/r0")]
    assert (after.host_id, after.captured_at) == ("host:h1", 6)
    assert {e.offloaded for e in after.entries if e.node.startswith("job1")} == {None}
    assert {e.offloaded for e in after.entries if not e.node.startswith("job1")} == {True}
