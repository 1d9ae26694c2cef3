"""Jobs told apart by their beat, groups in lock step, and how layouts compete."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.columns.arrays import Floats
from schemas.units import SECOND_NS
from skeleton_job.job import Job, Rnic
from skeleton_job.layout.description import Evidence, description
from skeleton_job.layout.layouts import MAX_FREE, choose, regular_layouts
from skeleton_job.layout.pairs import group_pairs
from skeleton_job.rhythm.clusters import divisors
from skeleton_job.rhythm.coherence import coherence, coherent_labels, split
from skeleton_job.rhythm.lockstep import host_width
from skeleton_job.series.rates import RateMatrix, rows_of

BINS = 3000


def beat(period: float, seed: int, phase: float = 0.0, n_bins: int = BINS) -> Floats:
    """Return rates of bursts whose distances wander by a per cent."""
    rng = np.random.default_rng(seed)
    starts = np.cumsum(period * (1 + 0.01 * rng.standard_normal(int(n_bins / period) + 2))) + phase
    edges = np.arange(n_bins + 1, dtype=np.float64)
    total = np.zeros(edges.size)
    for start in starts:
        total += np.clip(edges - start, 0, 0.15 * period)
    rates: Floats = 1e9 * np.diff(total)
    return rates


def matrix_of_rows(rows: Floats) -> tuple[Job, RateMatrix]:
    """Return a job of one RNIC a host with these rates, both ways."""
    job = Job(
        task_id="all",
        rnics=tuple(Rnic(f"h{i}/r0", f"h{i}", f"h{i}", 0) for i in range(len(rows))),
        gpus=8 * len(rows),
    )
    matrix = RateMatrix(
        endpoints=tuple(r.endpoint_id for r in job.rnics),
        start_ns=0,
        bin_ns=SECOND_NS // 10,
        tx=rows,
        rx=rows.copy(),
        missing=np.zeros(rows.shape, dtype=np.bool_),
        reasons=(None,) * len(rows),
    )
    return job, matrix


def test_jobs_of_nearly_one_period_are_told_apart_by_their_drift() -> None:
    """Iterations of 6.0 and 6.09 s, any phase inside a job; idle hosts are in none."""
    rows = [beat(60, 1, phase=p) for p in (0, 10, 25, 0)] + [beat(60.9, 2, phase=p) for p in (0, 9)]
    noise = np.random.default_rng(3).random((6, BINS)) * 1e7
    job, matrix = matrix_of_rows(np.vstack([np.array(rows) + noise, np.zeros((2, BINS))]))
    found = split(job, matrix)
    assert [sorted(r.host for r in j.rnics) for j in found] == [
        ["h0", "h1", "h2", "h3"],
        ["h4", "h5"],
    ]
    assert [j.gpus for j in found] == [32, 16]
    assert [j.task_id for j in found] == ["all", "all.1"]


def test_one_job_and_no_traffic_stay_whole() -> None:
    """Nothing is split that beats together, and nothing that does not beat."""
    one, matrix = matrix_of_rows(np.array([beat(60, 1, phase=p) for p in (0, 10, 20)]))
    assert split(one, matrix) == [one]
    idle, silent = matrix_of_rows(np.zeros((3, BINS)))
    assert split(idle, silent) == [idle]


def test_coherence_is_symmetric_and_sees_no_phase() -> None:
    """1 with itself and with a shifted copy, well below with another job."""
    rows = np.array([beat(50, 1), beat(50, 1, phase=17.0), beat(51, 2)])
    found = coherence(rows)
    assert found == pytest.approx(found.T)
    assert np.diag(found) == pytest.approx(1.0)
    assert found[0, 1] > 0.85
    assert found[0, 2] < 0.66
    assert len(set(coherent_labels(found).tolist())) == 2


@given(n=st.integers(1, 48))
def test_regular_layouts_are_equal_and_each_once(n: int) -> None:
    """Every class has as many blocks, and no two layouts are the same split."""
    seen = set()
    for k, q in regular_layouts(n):
        labels = np.arange(n) // q % k
        assert set(np.bincount(labels).tolist()) == {n // k}
        seen.add(tuple(labels.tolist()))
    assert len(seen) == len(regular_layouts(n))
    assert {k for k, _ in regular_layouts(n)} == set(divisors(n))


@settings(max_examples=16)
@given(n=st.sampled_from([4, 6, 8, 12]), seed=st.integers(0, 10**6), scale=st.floats(0.1, 100))
def test_choices_keep_the_rules_and_need_no_unit(n: int, seed: int, scale: float) -> None:
    """Equal classes, no two of a host in one; ten times the bytes give the same choice."""
    rng = np.random.default_rng(seed)
    profiles = np.abs(rng.standard_normal((n, 48)))
    hosts = np.repeat(np.arange(n // 2), 2)
    known = np.ones(n, dtype=np.bool_)
    one = choose(Evidence(profiles, known, hosts, 0.3, 0.5))
    other = choose(Evidence(profiles * scale, known, hosts, 0.3 * scale, 0.5))
    assert one.labels.tolist() == other.labels.tolist()
    assert set(np.bincount(one.labels).tolist()) == {n // one.count}
    for host in range(n // 2):
        assert one.labels[2 * host] != one.labels[2 * host + 1]


def test_the_names_of_classes_do_not_change_a_description() -> None:
    """Labels permuted, blocks permuted: the same length."""
    rng = np.random.default_rng(4)
    profiles = rng.standard_normal((8, 48))
    labels = np.array([0, 1, 0, 1, 2, 3, 2, 3])
    known = np.ones(8, dtype=np.bool_)
    base = description(Evidence(profiles, known, np.arange(8), 0.3, 0.5), labels, uneven=False)
    order = rng.permutation(8)
    mixed = Evidence(profiles[order], known, np.arange(8), 0.3, 0.5)
    assert description(mixed, 3 - labels[order], uneven=False) == pytest.approx(base)


def test_replicas_in_a_host_are_told_from_one_tensor_group() -> None:
    """By each sample; in the mean they are alike."""
    rng = np.random.default_rng(5)
    for width in (2, 4, 8):
        kinds = np.array([beat(40, 10 + i) for i in range(4 * 8 // width)])
        rows = np.repeat(kinds, width, axis=0) + 1e7 * rng.random((32, BINS))
        _, matrix = matrix_of_rows(rows)
        table = np.arange(32).reshape(4, 8)
        assert host_width(matrix, table, np.ones((4, 8), np.bool_), period_bins=40.0).width == width


def test_rings_through_hosts_with_several_members_change_rails() -> None:
    """On each member's rail, and from a host's last member to the next one's first."""
    group = [Rnic(f"h{h}/r{r}", f"h{h}", f"h{h}", r) for h in range(3) for r in (0, 4)]
    pairs = group_pairs(group)
    assert ("h0/r0", "h1/r0") in pairs
    assert ("h0/r4", "h1/r0") in pairs
    assert len(pairs) == 9


def test_rows_of_a_matrix_keep_their_order() -> None:
    """Rows in the order asked for; the matrix itself where that is all of it."""
    _, matrix = matrix_of_rows(np.arange(12.0).reshape(3, 4))
    assert rows_of(matrix, matrix.endpoints) is matrix
    assert rows_of(matrix, ["h2/r0", "h0/r0"]).tx[:, 0].tolist() == [8.0, 0.0]


def test_rnics_that_are_read_one_after_the_other_are_one_group_still() -> None:
    """The live job knows by how much; what is left of it must not split a host.

    Found in the lab: rails that were read some tens of microseconds later were taken for
    another tensor-parallel group, and the ping lists changed every half minute.
    """
    rng = np.random.default_rng(5)
    bins, rails, bin_ns = 300, 4, 10**8
    fine = np.repeat(rng.random(bins) < 0.3, 1000).astype(np.float64)
    cumulated = np.concatenate([[0.0], np.cumsum(fine)])
    at = np.arange(bins + 1) * 1000.0
    read = [np.interp(at + 0.6 * r, np.arange(cumulated.size), cumulated) for r in range(rails)]
    tx = np.diff(np.array(read), axis=1)

    def width() -> int:
        matrix = RateMatrix(
            endpoints=tuple(f"e{r}" for r in range(rails)), start_ns=0, bin_ns=bin_ns, tx=tx,
            rx=tx.copy(), missing=np.zeros(tx.shape, np.bool_), reasons=(None,) * rails,
        )  # fmt: skip
        known = np.ones((1, rails), np.bool_)
        return host_width(matrix, np.arange(rails)[None], known, period_bins=40.0).width

    assert width() == rails
    tx[2:] = np.roll(tx[2:], 1, axis=1)
    assert width() == 2


@pytest.mark.parametrize(("n", "searched"), [(12, True), (MAX_FREE + 2, False)])
def test_a_choice_says_if_layouts_were_left_out(n: int, searched: bool) -> None:
    """Of many blocks only layouts along the platform's order are compared."""
    profiles = np.abs(np.random.default_rng(1).standard_normal((n, 48)))
    found = choose(Evidence(profiles, np.ones(n, dtype=np.bool_), np.arange(n), 0.3, 0.5))
    assert found.searched is searched


@pytest.mark.parametrize("exchange", [True, False])
def test_net_flows_tell_stages_from_other_classes(exchange: bool) -> None:
    """Two clear classes of six blocks: stages send to each other, others differ in collectives."""
    rng = np.random.default_rng(8)
    stage = np.arange(12) // 6
    one, other = rng.random((2, 2, 24)) * 10
    tx, rx = (
        (np.stack([one[0], one[1]]), np.stack([one[1], one[0]])) if exchange else (other, other)
    )
    profiles = np.hstack([tx, rx])[stage] + 0.001 * rng.standard_normal((12, 48))
    found = choose(Evidence(profiles, np.ones(12, np.bool_), np.arange(12), 0.3, 0.5))
    assert found.count == 2
    assert found.margin > 10
    assert (found.flow_margin > 10) is exchange


def test_an_index_that_is_true_inside_hosts_only_settles_nothing() -> None:
    """Two blocks a host hold two stages of four; hosts of either half of the pipeline are mixed."""
    rng = np.random.default_rng(6)
    n_hosts, points = 32, 12
    upper = rng.permutation(np.repeat([0, 1], n_hosts // 2))
    stage = (2 * upper[:, None] + np.arange(2)).ravel()
    # Places in a host differ more than the halves of the pipeline do.
    place, half = rng.random((2, 2 * points)) * 20, rng.random((2, 2 * points)) * 10
    profiles = place[stage % 2] + half[stage // 2]
    profiles += 0.02 * rng.standard_normal(profiles.shape)
    hosts = np.repeat(np.arange(n_hosts), 2)
    found = choose(Evidence(profiles, np.ones(hosts.size, np.bool_), hosts, 0.3, 0.5))
    assert found.count == 4
    assert len({*zip(found.labels.tolist(), stage.tolist(), strict=True)}) == 4


@pytest.mark.parametrize(
    ("joints", "count"), [(((0, 1), (1, 2), (2, 3)), 4), (((0, 1), (2, 3)), 2)]
)
def test_stages_are_not_joined_as_replicas_are(
    joints: tuple[tuple[int, int], ...], count: int
) -> None:
    """Ends of a pipeline with short delays have little net flow together, and so has its middle.

    Two pipelines, each with gradient sums of its own times, are two replicas of two stages.
    """
    points, replicas = 48, 4
    at = np.arange(points)

    def bump(begin: float, length: float) -> Floats:
        out: Floats = np.exp(-(((at - begin) / length) ** 2))
        return out

    tx, rx = np.zeros((4, points)), np.zeros((4, points))
    for a, b in joints:
        there, back = bump(10 + 0.1 * a, 6.0), bump(24 - 0.1 * a, 6.0)
        tx[a] += there
        rx[b] += there
        tx[b] += back
        rx[a] += back
    sums = np.array([bump(34 + 2 * k, 2.0) * 5 for k in range(4)])
    tx, rx = tx + sums, rx + sums
    rng = np.random.default_rng(3)
    profiles = np.repeat(np.hstack([tx, rx]), replicas, axis=0)
    halves = [profiles + 0.005 * rng.standard_normal(profiles.shape) for _ in range(2)]
    mean, n = (halves[0] + halves[1]) / 2, len(profiles)
    found = choose(
        Evidence(mean, np.ones(n, np.bool_), np.arange(n), 0.3, 0.5, halves=(halves[0], halves[1]))
    )
    assert found.count == count


def test_blocks_along_paths_are_stages_of_one_pipeline_unless_they_are_alike() -> None:
    """Two paths of four blocks are replicas where they are alike."""
    rng = np.random.default_rng(7)
    points = 24
    flows = rng.random((6, points))
    flows[3:] = flows[:3] + 0.1 * rng.random((3, points))
    tx, rx = np.zeros((2, 8, points))
    for path in (0, 1):
        for at in range(3):
            tx[4 * path + at] = rx[4 * path + at + 1] = flows[3 * path + at]
    profiles, known = np.hstack([tx, rx]), np.ones(8, np.bool_)
    found = choose(Evidence(profiles, known, np.arange(8), 0.3, 0.5))
    assert found.count == 4
    # Nobody looks like anybody any more.
    flows[3:] = rng.random((3, points))
    for at in range(3):
        tx[4 + at] = rx[4 + at + 1] = flows[3 + at]
    found = choose(Evidence(np.hstack([tx, rx]), known, np.arange(8), 0.3, 0.5))
    assert found.count == 8
