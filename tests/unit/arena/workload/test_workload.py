"""Simulated jobs: layouts, schedules, transfers, counters, and that all of them add up."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.workload.capture import CaptureSpec, capture
from arena.workload.collectives import all_to_all, ring, tree, tree_parent
from arena.workload.counters import Curve, Reading, counter, curves
from arena.workload.layout import Layout
from arena.workload.schedule import BACKWARD, FORWARD, Op, needs, order_of, run
from arena.workload.spec import SCHEDULES, Dirt, JobSpec, SpecError
from arena.workload.transfers import OUTSIDE, Transfers, transfers_of
from skeleton_job.offline.meta import parse_meta
from skeleton_job.offline.table import read_counters


def job(**degrees: Any) -> JobSpec | None:
    """Return a job, None where it does not fit its hosts."""
    try:
        return JobSpec(**degrees, microbatches=4 * degrees["pp"], storage_bytes_per_s=1e6)
    except SpecError:
        return None


jobs = st.builds(
    job,
    dp=st.sampled_from([1, 2, 4, 8]),
    pp=st.sampled_from([1, 2, 4]),
    tp=st.sampled_from([1, 2, 4, 8]),
    cp=st.sampled_from([1, 2]),
    ep=st.sampled_from([1, 2, 4]),
    schedule=st.sampled_from(SCHEDULES),
    order=st.sampled_from(["tp-cp-dp-pp", "tp-cp-pp-dp"]),
    pxn=st.booleans(),
    nics_per_host=st.sampled_from([4, 8]),
).filter(lambda x: x is not None)


@settings(max_examples=20)
@given(spec=jobs, seed=st.integers(0, 10**6))
def test_counters_hold_the_bytes_of_the_transfers(spec: JobSpec, seed: int) -> None:
    """To the byte, on every lane, in both directions; what is sent inside is received inside."""
    src, dst, begin_s, end_s, size = transfers_of(spec, 8.0, np.random.default_rng(seed)).rows()
    lanes = Layout(spec).lanes
    for lane_of in (src, dst):
        for lane, curve in enumerate(curves(lane_of, begin_s, end_s, size, lanes)):
            total = int(size[lane_of == lane].sum())
            assert int(curve(np.array([1e6]))[0]) == total
            assert np.all(np.diff(curve.total) >= 0)
    inside = (src != OUTSIDE) & (dst != OUTSIDE)
    hosts = Layout(spec).host
    assert np.all(hosts(src[inside]) != hosts(dst[inside]))
    assert np.all(end_s > begin_s)


def naive_total(rows: list[tuple[float, float, int]], at_s: float) -> float:
    """Return the bytes through until a time, transfer by transfer."""
    return sum(n * min(max((at_s - a) / (b - a), 0.0), 1.0) for a, b, n in rows)


@given(
    rows=st.lists(
        st.tuples(st.floats(0, 10), st.floats(0.01, 3), st.integers(1, 10**9)), min_size=1,
        max_size=12,
    ),
    at_s=st.floats(-1, 14),
)  # fmt: skip
def test_a_curve_is_the_sum_of_its_transfers(
    rows: list[tuple[float, float, int]], at_s: float
) -> None:
    """The fast curve against its slow twin."""
    made = [(a, a + length, n) for a, length, n in rows]
    begin, end, size = (np.array(x) for x in zip(*made, strict=True))
    (curve,) = curves(np.zeros(len(made), np.int64), begin, end, size, 1)
    total = float(size.sum())
    found = float(curve(np.array([at_s]))[0])
    assert found == pytest.approx(naive_total(made, at_s), abs=1e-6 * total + 1)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("pp", [1, 2, 4])
def test_schedules_run_each_operation_once_after_what_it_needs(schedule: str, pp: int) -> None:
    """Nothing waits for itself, and stages do one thing at a time."""
    spec = JobSpec(dp=2, pp=pp, schedule=schedule, microbatches=8)
    timing = run(spec, lambda _: np.full((1, 1), 1.0), 0.1)
    for stage in range(pp):
        order = order_of(spec, stage)
        assert len(order) == len(set(order))
        kinds = [op.kind for op in order]
        assert kinds.count(FORWARD) == kinds.count(BACKWARD) == 8 * spec.stage_chunks
        ends = [float(timing.end_s[op][0, 0]) for op in order]
        assert ends == sorted(ends)
    for op, begin in timing.begin_s.items():
        first = needs(spec, op)
        if first is not None:
            assert begin[0, 0] >= timing.end_s[first][0, 0]


def test_gradients_come_last_stage_first_and_forwards_the_other_way() -> None:
    """The order that the inference looks for is there."""
    spec = JobSpec(dp=2, pp=4, microbatches=8)
    timing = run(spec, lambda _: np.full((1, 1), 1.0), 0.1)
    done = [float(timing.last_s(s)[0, 0]) for s in range(4)]
    onset = [float(timing.begin_s[Op(FORWARD, s, 0, 0)][0, 0]) for s in range(4)]
    assert done == sorted(done, reverse=True)
    assert onset == sorted(onset)


def test_ranks_stand_as_megatron_numbers_them() -> None:
    """Tensor groups side by side, then contexts, then replicas, then stages."""
    spec = JobSpec(dp=2, pp=2, tp=4, cp=2)
    assert Layout(spec).lane_of.ravel().tolist() == list(range(8))
    inner = JobSpec(dp=2, pp=2, tp=8, order="tp-cp-pp-dp")
    assert Layout(inner).lane_of[:, :, 0].tolist() == [[0, 2], [1, 3]]


def test_pxn_keeps_transfers_on_their_rails_and_its_absence_does_not() -> None:
    """Without it a ring enters a host at another NIC than it leaves."""
    for pxn in (True, False):
        layout = Layout(JobSpec(dp=8, pp=1, tp=4, pxn=pxn))
        edges = ring(layout, layout.lane_of.ravel().tolist())
        assert all((a % 2 == b % 2) is pxn for a, b, _ in edges)
    crossed = Layout(JobSpec(dp=8, pp=1, tp=1, ep=8, gpus_per_host=4, nics_per_host=4, pxn=False))
    pairs = {(a % 4, b % 4) for a, b, _ in all_to_all(crossed, list(range(8)))}
    assert len(pairs) == 16


@given(size=st.integers(1, 70))
def test_trees_reach_everybody_once(size: int) -> None:
    """One root, every other rank below it."""
    for rank in range(size):
        steps = 0
        at: int | None = rank
        while (up := tree_parent(at or 0, size)) is not None:
            at, steps = up, steps + 1
            assert steps <= size
        assert at == 0
    layout = Layout(JobSpec(dp=max(2, size), pp=1))
    assert len(tree(layout, list(range(max(2, size))), double=False)) == 2 * (max(2, size) - 1)


def test_wrong_jobs_name_all_their_faults() -> None:
    """Value and rule of each."""
    with pytest.raises(SpecError, match=r"dp=0: at least 1; .*schedule='x': one of 1f1b"):
        JobSpec(dp=0, schedule="x")
    with pytest.raises(SpecError, match="ep=3: must divide dp=4"):
        JobSpec(dp=4, ep=3)


def test_counters_wrap_stand_still_and_never_lose_bytes() -> None:
    """Modulo their width, a counter's last reading is what was sent."""
    curve = Curve(np.array([0.0, 50.0]), np.array([0.0, 1e11]))
    time = np.arange(0, 60, 0.1)
    reading = Reading(np.round(time * 1e9).astype(np.int64), time, np.ones(time.size, bool))
    dirt = Dirt(bits=34, stale=0.4, noise=0.0)
    value = counter(curve, reading, dirt, 1e9, np.random.default_rng(3))
    assert int(value.max()) < 2**34
    moved = np.diff(value.astype(object)) % 2**34
    assert abs(int(moved.sum()) - 10**11) <= 1
    assert 0.3 < float(np.mean(moved[:450] == 0)) < 0.5


def test_a_capture_is_the_same_each_time_and_can_be_read(tmp_path: Path) -> None:
    """Same spec, same bytes; the files are what `skeleton infer` takes."""
    spec = CaptureSpec(jobs=(JobSpec(dp=2, pp=2), JobSpec(name="b", dp=4, pp=1)), seconds=20.0,
                       idle_hosts=1, dirt=Dirt(lost=0.1, hole_s=3.0, resets=1))  # fmt: skip
    one, two = capture(spec), capture(spec)
    assert one.table.equals(two.table)
    assert one.meta == two.meta
    assert len(one.truth.idle) == 8
    assert not {p for j in one.truth.jobs for p in j.rnics} & one.truth.idle
    one.table.write_csv(tmp_path / "counters.csv")
    one.table.write_parquet(tmp_path / "counters.parquet")
    for path in tmp_path.iterdir():
        assert read_counters(path).height == one.table.height
    parse_meta(one.meta)


def test_transfers_of_one_lane_pair_make_one_true_pair() -> None:
    """Both directions are one unordered pair, with all its kinds."""
    made = Transfers()
    at = np.array([0.0])
    made.add("pp", (0, 1), begin_s=at, end_s=at, size=5)
    made.add("dp", (1, 0), begin_s=at, end_s=at, size=5)
    made.add("storage", (OUTSIDE, 1), begin_s=at, end_s=at, size=5)
    assert made.kinds == {(0, 1): {"pp", "dp"}}


def test_a_job_of_8192_gpus_is_laid_out() -> None:
    """1,024 hosts, each block at a place of its own."""
    spec = JobSpec(dp=64, pp=16, microbatches=32)
    assert spec.hosts == 1024
    assert np.unique(Layout(spec).lane_of).size == 1024
