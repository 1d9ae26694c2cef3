"""What holds for every packet, shape and 5-tuple of the lab's fabric."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from ops.lab.overlay import Overlay
from ops.lab.routing import Router, flow_hash
from ops.lab.shape import LabShape, ShapeError
from ops.lab.workload import Workload
from probers.transports.encap import EncapType
from schemas.units import MS_NS
from tests.lab_mesh import thread_mesh

ADDRESS = st.binary(min_size=6, max_size=6)
SHAPES: st.SearchStrategy[dict[str, int]] = st.builds(
    dict,
    hosts=st.integers(1, 6),
    rails=st.integers(1, 3),
    pods=st.integers(1, 3),
    leaves=st.integers(1, 2),
    spines=st.integers(1, 3),
)


def shape_of(numbers: dict[str, int]) -> LabShape | None:
    """Return the shape, None where the numbers make none."""
    try:
        return LabShape(**numbers)  # type: ignore[arg-type]
    except ShapeError:
        return None


@given(ADDRESS, ADDRESS, st.binary(min_size=2, max_size=2))
def test_the_hash_is_symmetric(src: bytes, dst: bytes, entropy: bytes) -> None:
    """A reply hashes as its request does."""
    assert flow_hash(src, dst, entropy) == flow_hash(dst, src, entropy)


@settings(max_examples=15)
@given(st.data())
def test_each_packet_arrives_exactly_once(data: st.DataObject) -> None:
    """Without faults, every probe is answered once, whatever pairs and flows; none is made up."""
    shape = LabShape(hosts=3, rails=2, pods=2, leaves=1, spines=2)
    ids = [e.endpoint_id for e in shape.endpoints]
    probes = data.draw(
        st.lists(
            st.tuples(st.sampled_from(ids), st.sampled_from(ids), st.integers(0, 9)), max_size=40
        )
    )
    with thread_mesh(shape) as lab:
        numbers = [lab.mesh.probe(a, b, flow=flow) for a, b, flow in probes if a != b]
        arrived = Counter((a.number, a.kind) for a in lab.mesh.run_until(len(numbers), timeout_s=5))
        # Nothing may follow: a doubled packet would be under way right behind.
        lab.mesh.run_until(len(numbers) + 1, timeout_s=0.01)
        assert arrived == Counter((n, EncapType.DATA) for n in numbers)
        assert len(lab.mesh.arrivals) == lab.mesh.questions == len(numbers)
        assert lab.mesh.malformed == 0
        assert not lab.fabric.dropped


@settings(max_examples=60)
@given(SHAPES, st.integers(0, 2**64 - 1))
def test_any_shape_delivers_and_replies_along_the_same_links(
    numbers: dict[str, int], hashed: int
) -> None:
    """Every pair is joined, in at most 8 steps; within a rail there and back are the same way."""
    shape = shape_of(numbers)
    if shape is None:
        return
    router = Router(shape, Overlay(shape))
    for src in shape.endpoints[:4]:
        for dst in shape.endpoints:
            if src is dst:
                continue
            there = router.walk(src, dst, hashed).nodes
            back = router.walk(dst, src, hashed).nodes
            assert there[-1] == dst.endpoint_id
            assert len(there) <= 8
            if src.rail == dst.rail:
                assert there[-2::-1] == back[:-1]


@settings(max_examples=60)
@given(st.sampled_from([1, 2, 3, 4, 6]), st.integers(0, 10**11), st.integers(0, 10**9))
def test_bytes_are_conserved_and_never_taken_back(stages: int, at_ns: int, more_ns: int) -> None:
    """Sent equals received over the whole job at any nanosecond, and both only grow."""
    job = Workload(
        shape=LabShape(hosts=12, rails=1, leaves=1), stages=stages, period_ns=700 * MS_NS
    )
    now, later = job.totals(at_ns), job.totals(at_ns + more_ns)
    assert sum(tx for tx, _ in now.values()) == sum(rx for _, rx in now.values())
    assert all(later[e][i] >= now[e][i] for e in now for i in (0, 1))
