"""What holds for every skeleton and every list, whatever the counters say."""

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.enums import TargetOrigin
from schemas.records import Skeleton, SkeletonMember, SkeletonPair
from schemas.units import SECOND_NS
from skeleton_job.job import Job, Rnic
from skeleton_job.layout.skeleton import Inference, infer
from skeleton_job.lists.pinglists import ListConfig, TaskTargets, merge_targets, task_targets
from skeleton_job.series.rates import MAX_RATE_BYTES_PER_S, RateMatrix
from skeleton_job.series.unwrapping import increments
from tests.unit.skeleton_job.records import task_record
from tests.unit.skeleton_job.traffic import Layout, Workload

CONFIG = ListConfig()

layouts = st.builds(
    Layout,
    dp=st.sampled_from([1, 2, 3, 4]),
    pp=st.sampled_from([1, 2, 3]),
    rails=st.sampled_from([1, 2, 4]),
    idle_hosts=st.integers(0, 1),
    microbatches=st.sampled_from([2, 4]),
    seconds=st.sampled_from([12.0, 24.0]),
    jitter=st.sampled_from([0.0, 0.02]),
    missing=st.sampled_from([0.0, 0.1]),
    noise=st.sampled_from([0.01, 0.3, 2.0]),
    resets=st.integers(0, 1),
    order=st.sampled_from(["stage", "replica"]),
    seed=st.integers(0, 10**6),
).filter(lambda x: x.dp * x.pp > 1)


def rates(workload: Workload) -> RateMatrix:
    """Return the rates of a generated job."""
    from tests.unit.skeleton_job.inference import matrix_of

    return matrix_of(workload.frame(), workload.job, workload.start_ns, workload.layout.seconds)


def check_rules(job: Job, found: Inference) -> None:
    """Hold an inference to the rules that every skeleton keeps."""
    assert 0.0 <= found.confidence <= 1.0
    ids = {r.endpoint_id: r for r in job.rnics}
    for a, b in found.pairs:
        assert a < b
        assert ids[a].host != ids[b].host
    placed = [r.endpoint_id for group in found.groups for r in group]
    assert len(placed) == len(set(placed))
    assert not set(placed) & set(found.idle)
    for group in found.groups:
        assert len({r.host for r in group}) == len(group)
    if found.confidence >= 0.5:
        assert found.dp is not None
        assert {len(group) for group in found.groups} == {found.dp}
        assert len(placed) % found.dp == 0
        assert found.pp is not None
        assert len(found.groups) == found.pp * found.width


@settings(max_examples=25)
@given(layout=layouts)
def test_every_skeleton_keeps_the_rules(layout: Layout) -> None:
    """Equal groups, a size that divides, no two RNICs of a host in one; at any noise."""
    workload = Workload(layout)
    check_rules(workload.job, infer(workload.job, rates(workload)))


@settings(max_examples=25)
@given(
    hosts=st.integers(1, 6),
    rails=st.integers(1, 3),
    bins=st.integers(1, 120),
    holes=st.floats(0, 1),
    seed=st.integers(0, 10**6),
)
def test_garbage_gives_rules_too(
    hosts: int, rails: int, bins: int, holes: float, seed: int
) -> None:
    """Random rates, flat, missing, huge, never raise and never break the rules."""
    rng = np.random.default_rng(seed)
    job = Job(
        task_id="j",
        rnics=tuple(
            Rnic(f"w{h}/r{r}", f"w{h}", f"h{h}", r) for h in range(hosts) for r in range(rails)
        ),
    )
    shape = (hosts * rails, bins)
    missing = rng.random(shape) < holes
    tx, rx = (np.where(missing, 0.0, rng.choice([0.0, 1.0, 1e6, 1e11], shape)) for _ in range(2))
    matrix = RateMatrix(
        endpoints=tuple(r.endpoint_id for r in job.rnics),
        start_ns=0,
        bin_ns=SECOND_NS // 10,
        tx=tx,
        rx=rx,
        missing=missing,
        reasons=tuple(None if m.mean() < 0.5 else "gone" for m in missing),
    )
    check_rules(job, infer(job, matrix))


@settings(max_examples=12)
@given(layout=layouts, seed=st.integers(0, 10**6))
def test_the_order_of_endpoints_changes_nothing(layout: Layout, seed: int) -> None:
    """Rows and RNICs permuted: the same skeleton."""
    workload = Workload(layout)
    matrix = rates(workload)
    order = np.random.default_rng(seed).permutation(len(matrix.endpoints))
    mixed = RateMatrix(
        endpoints=tuple(matrix.endpoints[i] for i in order),
        start_ns=matrix.start_ns,
        bin_ns=matrix.bin_ns,
        tx=matrix.tx[order],
        rx=matrix.rx[order],
        missing=matrix.missing[order],
        reasons=tuple(matrix.reasons[i] for i in order),
    )
    job = workload.job
    other = Job(task_id=job.task_id, rnics=tuple(job.ordered[i] for i in order))
    one, two = infer(job, matrix), infer(other, mixed)
    assert (one.dp, one.pp, one.reason) == (two.dp, two.pp, two.reason)
    assert abs(one.confidence - two.confidence) < 0.01
    if one.confidence >= 0.7:
        assert one == two


@st.composite
def tasks_with_skeletons(draw: st.DrawFn) -> tuple[Job, Skeleton | None]:
    """Draw a job and a skeleton of it, sure or not, complete or not."""
    hosts, rails = draw(st.integers(1, 9)), draw(st.integers(1, 3))
    job = Job(
        task_id=draw(st.sampled_from(["a", "b"])),
        rnics=tuple(
            Rnic(f"w{h}/r{r}", f"w{h}", f"h{h}", r) for h in range(hosts) for r in range(rails)
        ),
    )
    if draw(st.booleans()):
        return job, None
    ids = [r.endpoint_id for r in job.rnics]
    known = draw(st.lists(st.sampled_from(ids), unique=True))
    ends = st.tuples(st.sampled_from(ids), st.sampled_from(ids)).filter(lambda p: p[0] < p[1])
    pairs = draw(st.lists(ends, unique=True, max_size=8)) if len(ids) > 1 else []
    return job, Skeleton(
        cluster="lab",
        task_id=job.task_id,
        version=1,
        window_start_at=0,
        window_end_at=1,
        confidence=draw(st.sampled_from([0.2, 0.9])),
        dp=draw(st.sampled_from([None, 2])),
        members=tuple(SkeletonMember(endpoint_id=e, group=0) for e in known),
        pairs=tuple(SkeletonPair(a=a, b=b) for a, b in pairs),
    )


@settings(max_examples=150)
@given(drawn=tasks_with_skeletons(), now_s=st.integers(0, 10**7), peers=st.integers(0, 3))
def test_lists_are_symmetric_bounded_and_stable(
    drawn: tuple[Job, Skeleton | None], now_s: int, peers: int
) -> None:
    """If a probes b, b probes a with the same flows; nobody itself; within a turn nothing moves."""
    job, skeleton = drawn
    config = ListConfig(explore_peers=peers)
    task = task_record(job)

    def made(at_ns: int) -> TaskTargets:
        return task_targets(task, skeleton, {}, now_ns=at_ns, config=config)

    share = made(now_s * SECOND_NS)
    assert share == made(now_s * SECOND_NS)
    start_ns = now_s * SECOND_NS // config.explore_rotate_ns * config.explore_rotate_ns
    assert share == made(start_ns)
    lists = {agent: merge_targets([share, share], agent) for agent in share.targets}
    found = {(t.src, t.dst): t for draft in lists.values() for t in draft.targets}
    assert len(found) == sum(len(draft.targets) for draft in lists.values())
    hosts = {r.endpoint_id: r.host for r in job.rnics}
    for (src, dst), target in found.items():
        back = found[dst, src]
        assert (back.origin, back.flows) == (target.origin, target.flows)
        assert src != dst
        assert target.flows >= 1
    explored = Counter(t.src for t in found.values() if t.origin is TargetOrigin.EXPLORE)
    assert all(n <= 2 * peers for n in explored.values())
    basic = [(t.src, t.dst) for t in found.values() if t.origin is TargetOrigin.BASIC]
    assert all(hosts[a] != hosts[b] for a, b in basic)
    if share.runtime and skeleton is not None:
        for pair in skeleton.pairs:
            assert found[pair.a, pair.b].origin is TargetOrigin.SKELETON


@given(
    steps=st.lists(st.integers(0, 2**32), min_size=1, max_size=40),
    start=st.integers(0, 2**34 - 1),
    bits=st.sampled_from([34, 64]),
)
def test_unwrapping_gives_back_every_byte(steps: list[int], start: int, bits: int) -> None:
    """Any start, any number of wraps: the bytes are those that moved."""
    total = np.cumsum([start, *steps])
    value = np.array([int(v) % 2**bits for v in total], dtype=np.uint64)
    times = np.arange(len(value), dtype=np.int64) * SECOND_NS
    moved, known = increments(times, value, bits, MAX_RATE_BYTES_PER_S)
    assert known.all()
    assert moved.tolist() == [float(s) for s in steps]
