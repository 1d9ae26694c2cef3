"""The inference against jobs with known truth."""

import random
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from ops.lab.shape import LabShape
from ops.lab.workload import Workload as LabWorkload
from schemas.units import SECOND_NS
from skeleton_job.job import Job, Rnic
from skeleton_job.layout.skeleton import (
    DEFAULT_MIN_CONFIDENCE,
    FLAT,
    IDLE,
    ONE_HOST,
    TOO_SHORT,
    UNSEEN,
    infer,
)
from skeleton_job.series.rates import RateMatrix, rows_of
from skeleton_job.tasks.skeletons import to_record
from tests.unit.skeleton_job.inference import TABLE, matrix_of, measure
from tests.unit.skeleton_job.traffic import Layout, Workload

CLEAN = (
    Layout(),
    Layout(seconds=40),
    Layout(dp=8, pp=1, rails=8),
    Layout(dp=4, pp=4, rails=8, missing=0.05),
    Layout(dp=4, pp=4, rails=8, tp_rnics=4, order="replica"),
    Layout(dp=2, pp=4, rails=4, noise=0.05, order="replica"),
    Layout(dp=4, pp=3, rails=4, jitter=0.03),
    Layout(dp=3, pp=3, rails=4, order="replica", resets=2),
    Layout(dp=2, pp=4, bits=34, missing=0.02),
    Layout(dp=8, pp=2, idle_hosts=2),
    Layout(dp=1, pp=4, rails=8),
    Layout(dp=16, pp=1, rails=4),
    Layout(dp=4, pp=2, period_s=10, tick_ns=SECOND_NS, seconds=300),
    Layout(dp=4, pp=2, microbatches=12, gradient_bytes=3e8),
)


@pytest.mark.parametrize("layout", CLEAN, ids=str)
def test_clean_jobs_are_found(layout: Layout) -> None:
    """On clean counters the degrees, stages and all communicating pairs are right, and sure."""
    result = measure(layout)
    TABLE.append(result)
    assert result.degrees
    assert result.stages
    assert result.recall >= 0.99
    assert result.ratio <= 3.0
    assert result.found.confidence >= DEFAULT_MIN_CONFIDENCE
    assert result.found.tp == layout.width


def random_layout(rng: random.Random) -> Layout:
    """Draw a job, clean or bad."""
    dp, pp = rng.choice([(1, 4), (2, 1), (2, 2), (2, 3), (2, 4), (4, 1), (4, 2), (3, 2), (8, 1)])
    return Layout(
        dp=dp,
        pp=pp,
        rails=rng.choice([1, 2, 4]),
        order=rng.choice(["stage", "replica"]),
        idle_hosts=rng.choice([0, 0, 1]),
        microbatches=rng.choice([2, 4, 8]),
        period_s=rng.choice([1, 1.5, 2, 3]),
        seconds=rng.choice([15, 30, 40]),
        gradient_bytes=rng.choice([1e8, 3e8, 1.5e9]),
        jitter=rng.choice([0, 0.01, 0.03, 0.06]),
        missing=rng.choice([0, 0.02, 0.1]),
        noise=rng.choice([0.01, 0.05, 0.2, 0.5, 1.0]),
        bits=rng.choice([64, 34]),
        seed=rng.randrange(10**6),
    )


@pytest.mark.slow
def test_confidence_means_what_it_says() -> None:
    """Of the inferences with at least confidence c, at least the share c has both degrees right."""
    rng = random.Random(20261121)
    results = [measure(random_layout(rng)) for _ in range(60)]
    for bound in (0.5, 0.7, 0.8):
        sure = [r for r in results if r.found.confidence >= bound]
        assert len(sure) >= 15
        assert np.mean([r.degrees for r in sure]) >= bound
    unsure = [r.degrees for r in results if r.found.confidence < 0.5]
    sure_enough = [r.degrees for r in results if r.found.confidence >= 0.7]
    assert np.mean(unsure) < np.mean(sure_enough)
    sure_recall = [r.recall for r in results if r.found.confidence >= 0.7]
    assert np.mean(sure_recall) >= 0.95


def test_a_short_window_is_not_believed() -> None:
    """Seven iterations show a clear layout as twenty do; four say next to nothing."""
    found = [measure(Layout(seconds=s)).found.confidence for s in (40, 15, 9)]
    assert min(found[:2]) > 0.8
    assert found[2] < 0.5


def constant(job: Job, rate: float, n_bins: int = 400) -> RateMatrix:
    """Return a matrix of steady rates, with a little white noise."""
    rng = np.random.default_rng(1)
    shape = (len(job.rnics), n_bins)
    return RateMatrix(
        endpoints=tuple(r.endpoint_id for r in job.ordered),
        start_ns=0,
        bin_ns=SECOND_NS // 10,
        tx=rate * (1 + 0.05 * rng.standard_normal(shape)),
        rx=rate * (1 + 0.05 * rng.standard_normal(shape)),
        missing=np.zeros(shape, dtype=np.bool_),
        reasons=(None,) * len(job.rnics),
    )


JOB = Workload(Layout()).job


@pytest.mark.parametrize(
    ("matrix", "reason"),
    [
        (constant(JOB, 1e9), FLAT),
        (constant(JOB, 1e3), IDLE),
        (constant(JOB, 0.0), IDLE),
        (constant(JOB, 1e9, n_bins=12), TOO_SHORT),
        (replace(constant(JOB, 1e9), reasons=("none",) * len(JOB.rnics)), UNSEEN),
    ],
    ids=["flat", "idle", "silent", "short", "unseen"],
)
def test_where_nothing_shows_nothing_is_claimed(matrix: RateMatrix, reason: str) -> None:
    """No iterations, no skeleton: confidence 0 and the reason, but no degree and no pair."""
    found = infer(JOB, matrix)
    assert (found.confidence, found.reason, found.dp) == (0.0, reason, None)
    assert not found.pairs


def test_a_repeating_burst_seen_too_few_times_is_called_short() -> None:
    """Not flat: the operator shall lengthen the window."""
    found = measure(Layout(seconds=9)).found
    assert (found.confidence, found.reason) == (0.0, TOO_SHORT)


def test_one_host_has_no_skeleton() -> None:
    """A job inside one host sends nothing over the network."""
    job = Job(task_id="j", rnics=tuple(Rnic(f"w0/r{r}", "w0", "h0", r) for r in range(4)))
    assert infer(job, constant(job, 1e9)).reason == ONE_HOST


def test_a_host_that_lacks_a_rail_has_its_place_still() -> None:
    """Its GPUs use the RNICs that it has."""
    workload = Workload(Layout(dp=4, pp=2, rails=4))
    job = replace(workload.job, rnics=workload.job.rnics[1:])
    found = infer(job, matrix_of(workload.frame(), job, workload.start_ns, 50))
    assert (found.dp, found.pp) == (4, 2)
    assert {r for stage in found.stages() for r in stage} == set(job.rnics)


def test_a_host_with_half_as_many_rnics_has_twice_as_much_on_each() -> None:
    """Two GPUs share an RNIC: it moves the bytes of both, and has both their peers."""
    workload = Workload(Layout(dp=4, pp=2, rails=4))
    whole = matrix_of(workload.frame(), workload.job, workload.start_ns, 50)
    host = workload.job.hosts[2]
    mine = [r for r in workload.job.ordered if r.host == host]
    job = replace(workload.job, rnics=tuple(r for r in workload.job.ordered if r not in mine[2:]))
    row = {endpoint: at for at, endpoint in enumerate(whole.endpoints)}
    sums = rows_of(whole, [r.endpoint_id for r in job.ordered])
    for at, one, other in ((0, 0, 1), (1, 2, 3)):
        to = sums.endpoints.index(mine[at].endpoint_id)
        both = [row[mine[one].endpoint_id], row[mine[other].endpoint_id]]
        sums.tx[to], sums.rx[to] = whole.tx[both].sum(axis=0), whole.rx[both].sum(axis=0)
    found = infer(job, sums)
    assert (found.dp, found.pp) == (4, 2)
    peers = {b if a == mine[1].endpoint_id else a for a, b in found.pairs
             if mine[1].endpoint_id in (a, b)}  # fmt: skip
    assert {peer.rpartition("/")[2] for peer in peers} >= {"r2", "r3"}


def test_a_host_without_counters_takes_the_place_that_is_left() -> None:
    """A dead agent does not hide its host's position when only one is free."""
    workload = Workload(Layout(dp=4, pp=2))
    frame = workload.frame().filter(~workload_host("job1-w3"))
    found = infer(workload.job, matrix_of(frame, workload.job, workload.start_ns, 50))
    assert (found.dp, found.pp) == (4, 2)
    assert found.confidence >= 0.7
    assert workload.truth.pairs <= found.pairs


def test_hosts_without_counters_that_fit_several_places_make_it_unsure() -> None:
    """Two unseen hosts of two stages: no placement is claimed."""
    workload = Workload(Layout(dp=4, pp=2))
    frame = workload.frame().filter(~workload_host("job1-w3") & ~workload_host("job1-w4"))
    found = infer(workload.job, matrix_of(frame, workload.job, workload.start_ns, 50))
    assert found.confidence < 0.5
    assert "fit several positions" in (found.reason or "")


def workload_host(container: str) -> pl.Expr:
    """Return whether a reading is of that container."""
    return pl.col("endpoint_id").str.starts_with(f"{container}/")


def test_idle_hosts_are_members_without_a_group() -> None:
    """Spare hosts take no part; RNICs of which nothing is known are no members at all."""
    workload = Workload(Layout(dp=2, pp=2, idle_hosts=1))
    found = infer(workload.job, matrix_of(workload.frame(), workload.job, workload.start_ns, 50))
    record = to_record(found, workload.job, cluster="lab", version=3, window_ns=(1000, 2000))
    groups = {m.endpoint_id: m.group for m in record.members}
    assert {e for e, g in groups.items() if g is None} == {f"job1-w4/r{r}" for r in range(4)}
    assert len(groups) == 20
    assert (record.version, record.window_start_at, record.window_end_at) == (3, 1, 2)


def test_an_unsure_inference_makes_a_record_without_a_guess() -> None:
    """Below the threshold a record holds the reason, but neither degrees nor pairs."""
    found = measure(Layout(seconds=12)).found
    assert found.dp is not None
    record = to_record(found, JOB, cluster="lab", version=1, window_ns=(0, 1))
    assert (record.dp, record.members, record.pairs) == (None, (), ())
    assert record.reason == found.reason
    assert record.reason is not None


def test_large_groups_say_that_the_ring_is_not_visible() -> None:
    """Above four members peers are chosen, and the reason says how."""
    assert "ring order" in (measure(Layout(dp=8, pp=1)).found.reason or "")


def test_gpus_give_the_tensor_degree() -> None:
    """Two GPUs share an RNIC: the degree counts GPUs."""
    workload = Workload(Layout())
    job = replace(workload.job, gpus=32)
    found = infer(job, matrix_of(workload.frame(), job, workload.start_ns, 50))
    assert found.tp == 8


def test_the_traffic_overrules_the_platform_order() -> None:
    """Chains follow the replicas' own delays where the order of the hosts says otherwise."""
    workload = Workload(Layout(dp=3, pp=2, rails=4, microbatches=6, seconds=60))
    names = {f"job1-w{i}": f"job1-w{j}" for i, j in enumerate((0, 1, 2, 5, 3, 4))}

    def renamed(endpoint: str) -> str:
        container, rail = endpoint.split("/")
        return f"{names[container]}/{rail}"

    frame = workload.frame()
    frame = frame.with_columns(pl.col("endpoint_id").map_elements(renamed, return_dtype=pl.String))
    found = infer(workload.job, matrix_of(frame, workload.job, workload.start_ns, 60))
    truth = {tuple(sorted((renamed(a), renamed(b)))) for a, b in workload.truth.pairs}
    assert truth <= found.pairs


@pytest.mark.parametrize(
    ("shape", "stages"), [(LabShape(), None), (LabShape(hosts=6, rails=2), 3)], ids=["2x2", "2x3"]
)
def test_the_labs_job_is_found_in_half_a_minute(shape: LabShape, stages: int | None) -> None:
    """The demonstration's job, sampled at 10 Hz for 30 s, is found whole."""
    lab = LabWorkload(shape=shape, stages=stages)
    ticks = np.arange(300, dtype=np.int64) * (SECOND_NS // 10)
    totals = [lab.totals(int(t) + 7 * SECOND_NS) for t in ticks]
    frame = pl.DataFrame(
        [
            {
                "time_ns": int(t) + 1_300_000,
                "endpoint_id": endpoint,
                "tx_bytes": tx,
                "rx_bytes": rx,
                "bits": 64,
            }
            for t, total in zip(ticks, totals, strict=True)
            for endpoint, (tx, rx) in total.items()
        ],
        schema_overrides={"tx_bytes": pl.UInt64, "rx_bytes": pl.UInt64},
    )
    job = Job(
        task_id="job1",
        rnics=tuple(
            Rnic(e.endpoint_id, e.container_id, e.host_id, e.rail) for e in shape.endpoints
        ),
    )
    found = infer(job, matrix_of(frame, job, 0, 30))
    truth = lab.truth()
    assert (found.dp, found.pp, found.tp) == (truth["dp"], truth["pp"], truth["tp"])
    assert found.confidence >= 0.8
    # The lab's schedule does not go round; interleaved ones do, and that is hedged.
    closing = {
        tuple(sorted((c[0].endpoint_id, c[-1].endpoint_id))) for c in found.chains if len(c) > 2
    }
    assert found.pairs == set(lab.pairs()) | closing
    assert abs((found.period_ns or 0) - lab.period_ns) < lab.period_ns // 50
    record = to_record(found, job, cluster="lab", version=1, window_ns=(0, 1))
    placed = {m.endpoint_id: (m.group, m.stage) for m in record.members}
    assert placed == {m["endpoint_id"]: (m["group"], m["stage"]) for m in truth["members"]}


def test_where_traffic_overrules_the_platform_both_answers_are_probed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of two replicas one window in ten joins the wrong ones; their true pairs stay listed."""
    layout = Layout(dp=2, pp=2)
    right = measure(layout)
    assert right.recall == 1.0
    monkeypatch.setattr(
        "skeleton_job.layout.pipelines.match_chains", lambda *_: (np.array([1, 0], np.int64), True)
    )
    wrong = measure(layout)
    assert set(wrong.found.chains) != set(right.found.chains)
    assert set(right.found.pairs) < set(wrong.found.pairs)
