"""Fully sharded iterations: which pairs, how many bytes, how long."""

from dataclasses import replace

import numpy as np
import pytest

from arena.sealed_jobs.fleet import Degrees, Fleet, Host, Layout, Seat
from arena.sealed_jobs.sharded import ShardedJob, create_sharded_job
from arena.sealed_jobs.traffic import bytes_each_way


def job_of(hosts: int, shard_ranks: int, *, seed: int = 0) -> ShardedJob:
    """Return a job with a data rank for each RNIC of hosts with eight."""
    fleet = Fleet([Host(name=f"h{i}", gpus=8, rails=tuple(range(8))) for i in range(hosts)])
    seats = [Seat(host=h, gpu=g) for h in range(hosts) for g in range(8)]
    return create_sharded_job(
        np.random.default_rng(seed),
        Layout(fleet, Degrees(dp=8 * hosts), seats),
        shard_ranks=shard_ranks,
        seconds=(2.0, 4.0),
        link_gbps=200.0,
    )


def neighbours(job: ShardedJob) -> set[tuple[int, int]]:
    """Return the distances in hosts of all pairs, and whether they change rails."""
    kinds = job.iterations(np.random.default_rng(1), 1).kinds
    return {((b // 8) - (a // 8), (b - a) % 8) for a, b in kinds}


@pytest.mark.parametrize("seed", range(6))
def test_iterations_last_as_long_as_asked(seed: int) -> None:
    """Whether communication or computation takes longer."""
    job = job_of(4, 32, seed=seed)
    assert 1.5 < job.iterations(np.random.default_rng(1), 5).seconds.mean() < 6.0


def test_shards_over_all_hosts_go_around_one_ring() -> None:
    """Each rail has a ring of all hosts."""
    assert neighbours(job_of(4, 32)) == {(1, 0), (3, 0)}


def test_shards_within_two_hosts_and_copies_between() -> None:
    """Gathers join neighbours, sums of copies hosts two apart."""
    assert neighbours(job_of(4, 16)) == {(1, 0), (2, 0)}


def test_shards_within_a_host_are_not_seen() -> None:
    """Only the sums of their copies are."""
    job = job_of(4, 8)
    assert max(p.peak for p in job.shard_patterns()) == 0
    assert neighbours(job) == {(1, 0), (3, 0)}


def test_bytes_follow_from_the_parameters() -> None:
    """Gathered twice and scattered once, over eight channels of each host."""
    job = replace(job_of(2, 16), micros=3, gathered_again=True, sums_each_micro=True, units=4)
    sizes = np.array([1e9, 2e9, 2e9, 1e9])
    job = replace(job, unit_bytes=sizes, forward_s=np.full(4, 0.1))
    tx, rx = bytes_each_way(job.iterations(np.random.default_rng(0), 1), 16)
    gathered = 3 * (2 * 6e9 - 1e9) + 3 * 6e9  # the last unit stays for the backward pass
    assert tx.tolist() == pytest.approx([gathered * 15 / 16 / 8] * 16)
    assert rx.tolist() == pytest.approx(tx.tolist())


def test_evaluations_gather_once() -> None:
    """Without gradients."""
    job = job_of(2, 16)
    tx, _ = bytes_each_way(job.iterations(np.random.default_rng(0), 1, evaluating=True), 16)
    assert tx.sum() == pytest.approx(job.micros * job.unit_bytes.sum() * 15 / 16 * 2)
