"""The training job's bytes."""

import pytest

from ops.lab.counters import TICK_NS, next_tick_ns
from ops.lab.shape import LabShape
from ops.lab.workload import Burst, Workload, WorkloadError
from schemas.units import MS_NS


def test_the_default_job_is_two_replicas_of_two_stages() -> None:
    """Hosts 0 and 1 are replica 0, hosts 2 and 3 replica 1; TP is the host's RNICs."""
    job = Workload(shape=LabShape())
    truth = job.truth()
    assert (truth["tp"], truth["pp"], truth["dp"]) == (4, 2, 2)
    places = {m["endpoint_id"]: (m["replica"], m["stage"]) for m in truth["members"]}
    assert [places[f"job1-w{h}/r0"] for h in range(4)] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_the_pairs_are_neighbour_stages_and_replicas_of_a_rail() -> None:
    """Per rail: two pipeline pairs and two data-parallel pairs, never across rails."""
    pairs = Workload(shape=LabShape()).pairs()
    rail_0 = {pair: why for pair, why in pairs.items() if pair[0].endswith("/r0")}
    assert rail_0 == {
        ("job1-w0/r0", "job1-w1/r0"): "PP",
        ("job1-w2/r0", "job1-w3/r0"): "PP",
        ("job1-w0/r0", "job1-w2/r0"): "DP",
        ("job1-w1/r0", "job1-w3/r0"): "DP",
    }
    assert len(pairs) == 4 * 4
    assert all(a[-1] == b[-1] for a, b in pairs)


@pytest.mark.parametrize("stages", [1, 2, 3, 6])
@pytest.mark.parametrize("elapsed_ms", [0, 1, 333, 1_999, 2_000, 61_234])
def test_what_is_sent_is_received(stages: int, elapsed_ms: int) -> None:
    """At any time, bytes sent by all equal bytes received by all; and grow."""
    job = Workload(shape=LabShape(hosts=6, rails=2), stages=stages)
    totals = job.totals(elapsed_ms * MS_NS)
    assert sum(tx for tx, _ in totals.values()) == sum(rx for _, rx in totals.values())
    later = job.totals(elapsed_ms * MS_NS + 50 * MS_NS)
    assert all(later[e][0] >= tx and later[e][1] >= rx for e, (tx, rx) in totals.items())


def test_a_pair_receives_what_its_peer_sends() -> None:
    """With one replica only stages talk: what one has sent, the other has received, at any time."""
    job = Workload(shape=LabShape(hosts=2, rails=1, pods=1, leaves=1), stages=2)
    for elapsed_ms in range(0, 6_000, 37):
        (tx0, rx0), (tx1, rx1) = job.totals(elapsed_ms * MS_NS).values()
        assert (tx0, rx0) == (rx1, tx1)


def test_every_iteration_moves_the_same_bytes() -> None:
    """The increments of two whole periods are equal, from any phase on."""
    job = Workload(shape=LabShape())
    for phase_ms in (0, 123, 1_500):
        at = [job.totals((phase_ms + n * 2_000) * MS_NS) for n in range(3)]
        for endpoint in at[0]:
            first = at[1][endpoint][0] - at[0][endpoint][0]
            assert first == at[2][endpoint][0] - at[1][endpoint][0] > 0


def test_before_the_job_nothing_was_sent() -> None:
    """Elapsed times up to 0 give 0."""
    totals = Workload(shape=LabShape()).totals(-5)
    assert set(totals.values()) == {(0, 0)}


def test_the_last_stage_reduces_first() -> None:
    """Data-parallel bursts of stage 1 begin before those of stage 0, both within the period."""
    job = Workload(shape=LabShape())
    start = {t.src: t.bursts[0] for t in job.transfers if t.why == "DP"}
    assert start["job1-w1/r0"].start_ns < start["job1-w0/r0"].start_ns
    assert all(b.start_ns + b.duration_ns <= job.period_ns for b in start.values())


def test_earlier_stages_send_activations_first() -> None:
    """In the forward phase a micro-batch leaves stage 0 before stage 1; backward it is reversed."""
    job = Workload(shape=LabShape(hosts=3, rails=1, pods=1, leaves=1), stages=3)
    begin = {(t.src, t.dst): t.bursts[0].start_ns for t in job.transfers}
    w0, w1, w2 = (f"job1-w{h}/r0" for h in range(3))
    assert begin[w0, w1] < begin[w1, w2] < begin[w2, w1] < begin[w1, w0]


def test_a_burst_is_even() -> None:
    """Half of it is through after half of its time; outside its time nothing moves."""
    burst = Burst(start_ns=100, duration_ns=200, size_bytes=1_000)
    assert [burst.sent_bytes(t) for t in (0, 100, 200, 300, 10**9)] == [0, 0, 500, 1_000, 1_000]


def test_ring_of_three_replicas_moves_two_thirds_twice() -> None:
    """2(n−1)/n of the gradients cross each edge of the ring, which has n edges."""
    job = Workload(shape=LabShape(hosts=3, rails=1, pods=1, leaves=1), stages=1)
    edges = [t for t in job.transfers if t.why == "DP"]
    assert len(edges) == 3
    assert {t.bursts[0].size_bytes for t in edges} == {2 * 2 * (1 << 30) // 3 // 4 * 4}


def test_a_lone_host_has_no_traffic() -> None:
    """Tensor parallelism never leaves the host."""
    assert Workload(shape=LabShape(hosts=1, pods=1)).transfers == ()


@pytest.mark.parametrize(("stages", "period_ms"), [(3, 2_000), (0, 2_000), (2, 100), (2, 10**9)])
def test_jobs_that_do_not_fit_are_refused(stages: int, period_ms: int) -> None:
    """Stages must divide the hosts, and the period has bounds."""
    with pytest.raises(WorkloadError):
        Workload(shape=LabShape(), stages=stages, period_ns=period_ms * MS_NS)


def test_ticks_are_whole_multiples_and_ahead() -> None:
    """The next tick is on the grid, and at least the lead away."""
    for wall_ms in range(1_000_000, 1_000_200):
        tick = next_tick_ns(wall_ms * MS_NS)
        assert tick % TICK_NS == 0
        assert 4 * MS_NS < tick - wall_ms * MS_NS <= TICK_NS + 4 * MS_NS
