"""Suites, scores and baselines of skeletons, and the floor that the inference keeps."""

import json
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.skeletons import __main__ as entry
from arena.skeletons.baselines import BASELINES, published, rail_mesh
from arena.skeletons.calibration import calibrate, table_of
from arena.skeletons.reliability import reliability
from arena.skeletons.report import measure, summary, table
from arena.skeletons.scoring import JobScore, coverage, list_of, mean, score_capture, score_job
from arena.skeletons.suites import FIRST_SEED, MAX_SEEDS, Case, case, cases
from arena.workload.capture import Capture, CaptureSpec, capture
from arena.workload.spec import Dirt, JobSpec
from skeleton_job.layout.confidence import BIAS, WEIGHTS, calibrated
from skeleton_job.offline.meta import Meta, parse_meta
from skeleton_job.offline.table import infer_table

CLEAN = Dirt(clock_s=0.01, noise=0.005)
PLAIN = CaptureSpec(jobs=(JobSpec(dp=4, pp=2, period_s=4.0),), idle_hosts=1, dirt=CLEAN)


def perfect(made: Capture) -> dict[str, Any]:
    """Return the document that says the truth."""
    return {
        "ping_list": [[*a, *b] for j in made.truth.jobs for a, b in j.pairs],
        "tasks": [
            {
                "rnics": j.rnics, "dp": j.spec.dp, "pp": j.spec.pp, "tp": j.spec.tp,
                "ep": j.spec.ep, "cp": j.spec.cp, "confidence": 1.0,
                "stages": [sorted(s) for s in j.stages],
            }
            for j in made.truth.jobs
        ],
    }  # fmt: skip


def test_the_truth_scores_full_marks_and_nothing_scores_none() -> None:
    """Both ends of every figure."""
    made = capture(PLAIN)
    (score,), claims = score_capture(perfect(made), made.truth, index_true=True)
    assert set(score.figures.values()) == {1.0}
    assert claims == 0
    (empty,), _ = score_capture({"ping_list": [], "tasks": []}, made.truth, index_true=True)
    assert set(empty.figures.values()) == {0.0}


def test_hidden_order_counts_any_peer_of_the_group_but_no_other() -> None:
    """Where no trace is left a peer of the gradient group covers, a stranger does not."""
    made = capture(PLAIN)
    (job,) = made.truth.jobs
    group = sorted(job.groups["dp"][0])
    far = frozenset({(group[0], group[2])})
    assert coverage(far, job.pairs, job.groups)[group[0], "dp"]
    assert not coverage(far, job.pairs, job.groups)[group[1], "dp"]
    stranger = sorted(job.groups["dp"][1])
    assert not any(coverage(frozenset({(group[0], stranger[1])}), job.pairs, job.groups).values())
    assert score_job(None, far, job, index_true=False).figures["found"] > 0


def test_a_task_seen_on_idle_rnics_is_a_false_claim() -> None:
    """Idle hosts must yield no skeleton."""
    made = capture(PLAIN)
    document = perfect(made)
    document["tasks"].append({**document["tasks"][0], "rnics": sorted(made.truth.idle)})
    assert score_capture(document, made.truth, index_true=True)[1] == 1


def test_means_have_intervals_and_say_when_there_is_nothing() -> None:
    """Captures are drawn as a whole; the interval holds the mean."""
    got = mean([[1.0, 0.0], [1.0], []])
    assert got.value == pytest.approx(2 / 3)
    assert got.low is not None
    assert got.high is not None
    assert got.low <= 2 / 3 <= got.high
    assert mean([[], []]).value is None


def test_suites_share_no_seed_and_refuse_wrong_numbers() -> None:
    """Seeds of a suite end where those of the next begin."""
    begins = sorted((first, first + MAX_SEEDS[suite]) for suite, first in FIRST_SEED.items())
    assert all(end <= begin for (_, end), (begin, _) in pairwise(begins))
    assert case(FIRST_SEED["small"]).axes["family"] == "small"
    assert case(FIRST_SEED["dev"]).axes["family"] != "small"
    assert case(5) == case(5)
    assert cases("test", 2)[1].seed == FIRST_SEED["test"] + 1
    for suite, count in (("x", 1), ("dev", 0), ("dev", 1001)):
        with pytest.raises(ValueError, match=r"suite=|seeds="):
            cases(suite, count)


def test_the_mesh_of_rails_holds_all_pairs_of_a_rail() -> None:
    """A clean rail-aligned job loses none, at its price."""
    made = capture(PLAIN)
    (job,) = made.truth.jobs
    listed = list_of(rail_mesh(made))
    assert set(job.pairs) <= listed
    assert len(listed) == 8 * 8 * 7 // 2


@pytest.mark.parametrize(
    ("spec", "axis"),
    [
        (PLAIN, "known"),
        (CaptureSpec(jobs=(JobSpec(dp=8, pp=1, period_s=5.0),), dirt=CLEAN), "data parallel"),
        (
            CaptureSpec(
                jobs=(JobSpec(dp=4, pp=2, period_s=6.0),
                      JobSpec(name="b", dp=4, pp=1, period_s=6.06, begins_s=7.0)),
                dirt=CLEAN, tasks_known=False, seconds=200.0, idle_hosts=2,
            ),
            "two unknown jobs of nearly one period",
        ),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)  # fmt: skip
def test_clean_captures_are_inferred_whole(spec: CaptureSpec, axis: str) -> None:
    """The floor: pairs, degrees and stages of jobs whose counters show them."""
    assert axis
    made = capture(spec)
    scores, claims = score_capture(BASELINES["ours"](made), made.truth, index_true=True)
    assert claims == 0
    for score in scores:
        assert score.figures["found"] >= 0.99
        assert score.figures["length"] <= 3.0
        assert score.figures["dp+pp"] == 1.0
        assert score.figures.get("order", 1.0) == 1.0
        # Published figures are beaten or met, never undercut.
        assert score.confidence >= 0.7


def test_idle_hosts_have_no_skeleton() -> None:
    """Counters that carry housekeeping only: no task, no pair."""
    made = capture(CaptureSpec(jobs=(), idle_hosts=4, seconds=60.0, tasks_known=False))
    found = BASELINES["ours"](made)
    assert (found["ping_list"], found["tasks"]) == ([], [])


def test_the_published_pipeline_runs_and_lists_pairs_inside_groups() -> None:
    """It names degrees whose product is the number of RNICs."""
    made = capture(PLAIN)
    document = published(made)
    (task,) = document["tasks"]
    assert task["dp"] * task["pp"] * task["tp"] == len(task["rnics"])
    assert document["ping_list"]


def test_the_report_has_all_axes_and_the_entry_prints_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As text and as JSON; wrong flags end with the usage."""
    outcome = measure(case(11), ["ours"])
    found = summary([outcome])
    assert {"all", "schedule", "size", "rate", "dirt", "calibration"} <= set(found)
    assert "idle" in table(found)
    monkeypatch.setattr("sys.argv", ["x", "--seed", "11", "--methods", "ours", "--json"])
    assert entry.main() == 0
    assert json.loads(capsys.readouterr().out)["all"]
    monkeypatch.setattr("sys.argv", ["x", "--seeds", "0"])
    with pytest.raises(SystemExit):
        entry.main()


@pytest.mark.parametrize(("tp", "megabytes"), [(4, 20), (2, 150)])
def test_a_ring_through_hosts_is_no_pipeline(tp: int, megabytes: int) -> None:
    """Replicas that share a host: it is entered at one block and left at another."""
    job = JobSpec(dp=32 // tp, pp=2, tp=tp, pxn=False, pipeline_bytes=megabytes * 10**6)
    spec = CaptureSpec(jobs=(job,), dirt=CLEAN, seconds=120.0)
    (score,) = measure(Case("ring", 0, spec, {}), ("ours",)).scores["ours"]
    assert (score.figures["dp"], score.figures["pp"], score.figures["order"]) == (1.0, 1.0, 1.0)


def test_traffic_without_iterations_is_listed_but_no_job() -> None:
    """Somebody trains there: the basic list, and no task; next to nothing is not listed."""
    rng = np.random.default_rng(1)
    time_ns = np.arange(0, 120 * 10**9, 10**8)
    tables = []
    for host in range(6):
        rate = 5e8 if host < 4 else 1e6
        moved = np.cumsum(rng.gamma(4.0, rate / 40, time_ns.size)).astype(np.uint64)
        tables.append(
            pl.DataFrame(
                {"time_ns": time_ns, "host": [f"h{host}"] * time_ns.size, "rail": 0,
                 "tx_bytes": moved, "rx_bytes": moved}
            )
        )  # fmt: skip
    document = infer_table(pl.concat(tables), Meta())
    assert document["tasks"] == []
    assert list_of(document) == {
        ((f"h{a}", 0), (f"h{b}", 0)) for a in range(4) for b in range(a + 1, 4)
    }


def test_calibration_finds_the_weights_that_made_the_outcomes() -> None:
    """A logistic regression: known weights come back, and left-out confidence is honest."""
    rng = np.random.default_rng(2)
    signs = rng.normal(size=(4_000, 2))
    chance = 1 / (1 + np.exp(-(0.5 + 1.5 * signs[:, 0])))
    right = rng.random(4_000) < chance
    captures = [
        [JobScore({"dp+pp": float(ok)}, 0.0, {"a": float(a), "b": float(b)})]
        for ok, (a, b) in zip(right, signs, strict=True)
    ]
    found = calibrate(table_of(captures))
    assert found.bias == pytest.approx(0.5, abs=0.15)
    assert found.weights == pytest.approx({"a": 1.5, "b": 0.0}, abs=0.15)
    assert found.left_out.brier < 0.85 * found.left_out.base
    for said, jobs, share in found.left_out.bins:
        assert jobs > 100
        assert share == pytest.approx(said, abs=0.06)
    with pytest.raises(ValueError, match="no job was inferred"):
        table_of([])


@given(st.lists(st.tuples(st.sampled_from([0.1, 0.4, 0.6, 0.97]), st.booleans()), min_size=1))
def test_reliability_agrees_with_a_loop(jobs: list[tuple[float, bool]]) -> None:
    """Brier score, and the area under the curve by all pairs; ties count half."""
    said, right = (np.array(column, dtype=np.float64) for column in zip(*jobs, strict=True))
    found = reliability(said, right)
    assert found.brier == pytest.approx(np.mean([(s - r) ** 2 for s, r in jobs]))
    assert sum(count for _, count, _ in found.bins) == len(jobs)
    pairs = [0.5 * (a == b) + (a > b) for a, ok in jobs if ok for b, other in jobs if not other]
    assert found.auc == (pytest.approx(np.mean(pairs)) if pairs else None)


def test_the_weights_in_use_are_those_that_the_command_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the digit and in the same order, from the signs that are kept."""
    monkeypatch.setattr("sys.argv", ["x", "--calibrate"])
    assert entry.main() == 0
    found = json.loads(capsys.readouterr().out)
    assert found["bias"] == BIAS
    assert list(found["weights"].items()) == list(WEIGHTS.items())


def test_the_weights_in_use_are_of_the_signs_there_are() -> None:
    """Each sign of an inference has its weight, and none is left over."""
    (score,) = measure(Case("plain", 0, PLAIN, {}), ("ours",)).scores["ours"]
    assert set(score.signs) == set(WEIGHTS)
    assert score.confidence <= calibrated(score.signs) + 0.001


@pytest.mark.parametrize("index", ["true", "none"])
@pytest.mark.parametrize("pp", [1, 4])
def test_roles_in_two_trees_are_no_stages(pp: int, index: str) -> None:
    """Of four hosts two have twice the others' share of the sum: in halves, as stages are."""
    job = JobSpec(dp=4, pp=pp, period_s=4.0, collective="double-tree", schedule="1f1b")
    spec = CaptureSpec(jobs=(job,), seconds=120.0, hz=10.0, dirt=CLEAN, index=index, seed=5)
    made = capture(spec)
    (task,) = infer_table(made.table, parse_meta(made.meta))["tasks"]
    assert (task["dp"], task["pp"]) == (4, pp)
