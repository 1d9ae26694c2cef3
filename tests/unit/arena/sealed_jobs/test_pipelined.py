"""Iterations of pipelined jobs: bytes and times that can be worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from arena.sealed_jobs import schedules
from arena.sealed_jobs.fleet import Degrees, Fleet, Host, Layout, Seat
from arena.sealed_jobs.pipelined import Habits, PipelinedJob, create_job
from arena.sealed_jobs.schedules import Schedule
from arena.sealed_jobs.traffic import Traffic, bytes_each_way
from arena.sealed_jobs.workload import Workload

CALM = Habits(step_noise=0.0, stage_noise=0.0, unit_noise=0.0, iteration_noise=0.0, hidden=0.0)


def job_of(degrees: Degrees, schedule: Schedule, habits: Habits = CALM) -> PipelinedJob:
    """Return a job on hosts of eight, with round numbers."""
    hosts = degrees.ranks // 8
    fleet = Fleet([Host(name=f"h{i}", gpus=8, rails=tuple(range(8))) for i in range(hosts)])
    layout = Layout(fleet, degrees, [Seat(host=h, gpu=g) for h in range(hosts) for g in range(8)])
    work = Workload(
        forward_s=np.full(len(schedule.chains[0]), 0.1),
        backward_ratio=2.0,
        hop_bytes=1e6,
        gradient_bytes=np.full(degrees.pp, 1e9),
        parameter_bytes=np.full(degrees.pp, 5e8),
        expert_gradient_bytes=2e9 if degrees.ep > 1 else 0.0,
        token_bytes=1e7 if degrees.ep > 1 else 0.0,
        sequence_bytes=1e7 if degrees.cp > 1 else 0.0,
        embedding_bytes=0.0,
        segments=2,
        bytes_per_s=1e10,
        optimizer_s=0.05,
    )
    return create_job(np.random.default_rng(0), layout, schedule, work, habits)


def one_iteration(job: PipelinedJob, *, evaluating: bool = False) -> Traffic:
    """Simulate one."""
    return job.iterations(np.random.default_rng(1), 1, evaluating=evaluating)


def test_a_stage_sends_what_its_schedule_says() -> None:
    """Eight microbatches forth and back, and a ring all-reduce of two: the payload once."""
    job = job_of(Degrees(tp=8, dp=2, pp=2), schedules.one_forward_one_backward(2, 8))
    tx, rx = bytes_each_way(one_iteration(job), 32)
    assert tx.tolist() == pytest.approx([8e6 + 1e9] * 32)
    assert rx.tolist() == pytest.approx(tx.tolist())


def test_iterations_take_bubble_sums_and_optimizer() -> None:
    """(8 + 1) microbatches of 0.3 s, 0.1 s of gradients, 0.05 s of optimizer, and small delays."""
    job = job_of(Degrees(tp=8, dp=2, pp=2), schedules.one_forward_one_backward(2, 8))
    assert one_iteration(job).seconds[0] == pytest.approx(9 * 0.3 + 0.1 + 0.05, abs=0.05)


def test_overlapped_sums_start_earlier() -> None:
    """Buckets of a part are summed while its last backward goes on; bytes stay the same."""
    degrees, schedule = Degrees(tp=8, dp=2, pp=2), schedules.one_forward_one_backward(2, 8)
    late = one_iteration(job_of(degrees, schedule))
    early = one_iteration(job_of(degrees, schedule, replace(CALM, overlapped=True, buckets=4)))
    assert early.seconds[0] < late.seconds[0] - 0.05
    assert bytes_each_way(early, 32)[0].sum() == pytest.approx(bytes_each_way(late, 32)[0].sum())


def test_a_sharded_optimizer_gathers_parameters() -> None:
    """Half of the gradients each way, and half of the parameters."""
    habits = replace(CALM, sharded_optimizer=True)
    job = job_of(Degrees(tp=8, dp=2), schedules.one_forward_one_backward(1, 2), habits)
    tx, _ = bytes_each_way(one_iteration(job), 16)
    assert tx.tolist() == pytest.approx([0.5e9 + 0.25e9] * 16)


def test_evaluations_send_activations_only() -> None:
    """Half of the messages between stages, one way, and no gradients."""
    job = job_of(Degrees(tp=8, dp=2, pp=2), schedules.one_forward_one_backward(2, 8))
    traffic = one_iteration(job, evaluating=True)
    tx, rx = bytes_each_way(traffic, 32)
    assert tx.sum() == pytest.approx(16 * 8e6)
    assert set(tx[tx > 0].tolist()) == {8e6}
    assert not (tx * rx).any()
    assert traffic.seconds[0] == pytest.approx(9 * 0.1, abs=0.05)


def test_experts_exchange_tokens_and_sum_apart() -> None:
    """All-to-all in expert groups, dense sums over all replicas, expert sums over their holders."""
    job = job_of(Degrees(tp=4, dp=8, ep=4), schedules.one_forward_one_backward(1, 1))
    kinds = one_iteration(job).kinds
    tokens = {pair for pair, k in kinds.items() if "ep" in k}
    sums = {pair for pair, k in kinds.items() if "dp" in k}
    assert tokens == {(r, r + 8) for r in (*range(8), *range(16, 24))}
    assert {(r, r + 16) for r in range(16)} <= sums


def test_keys_go_around_the_context_ring() -> None:
    """One host for each part of the sequence."""
    job = job_of(Degrees(tp=8, cp=4), schedules.one_forward_one_backward(1, 1))
    kinds = one_iteration(job).kinds
    ring = {(r, r + 8) for r in range(24)} | {(r, r + 24) for r in range(8)}
    assert {pair for pair, k in kinds.items() if "cp" in k} == ring


def test_interleaved_chains_close_the_ring_of_stages() -> None:
    """The last stage sends to the first between two rounds."""
    plain = job_of(Degrees(tp=8, pp=4), schedules.one_forward_one_backward(4, 4))
    assert len(one_iteration(plain).kinds) == 3 * 8
    around = job_of(Degrees(tp=8, pp=4), schedules.interleaved(4, 4, 2))
    assert len(one_iteration(around).kinds) == 4 * 8


def test_mirrored_stages_sum_their_gradients() -> None:
    """Devices d and 3 - d hold the same parts, so that even one replica has gradient sums."""
    habits = replace(CALM, mirrored=True)
    job = job_of(Degrees(tp=8, pp=4), schedules.dual_pipe(4, 8), habits)
    kinds = one_iteration(job).kinds
    mirrors = {(r, r + 24) for r in range(8)} | {(r + 8, r + 16) for r in range(8)}
    assert {pair for pair, k in kinds.items() if "dp" in k} == mirrors


def test_stragglers_hold_up_everybody() -> None:
    """A stage of one replica that is half slower makes the iteration longer."""
    job = job_of(Degrees(tp=8, dp=2, pp=2), schedules.one_forward_one_backward(2, 8))
    slow = np.ones((2, 2, 2))
    slow[1, 0, 1] = 1.5
    seconds = job.iterations(np.random.default_rng(0), 2, slow=slow).seconds
    assert seconds[1] > 1.3 * seconds[0]
