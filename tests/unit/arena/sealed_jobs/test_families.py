"""Families: each has what its name says."""

from functools import cache

import numpy as np
import pytest

from arena.sealed_jobs.families import BUILDERS
from arena.sealed_jobs.pipelined import PipelinedJob
from arena.sealed_jobs.recipes import World
from arena.sealed_jobs.sharded import ShardedJob

SEEDS = range(8)


@cache
def worlds(family: str) -> list[World]:
    """Draw some worlds."""
    return [BUILDERS[family](np.random.default_rng([seed, 99])) for seed in SEEDS]


@pytest.mark.parametrize("family", [f for f in BUILDERS if f != "large"])
def test_sizes_are_in_range(family: str) -> None:
    """16 to 256 RNICs in a job, up to 384 with GPUs that share them; no RNIC in two jobs."""
    for world in worlds(family):
        seen: set[int] = set()
        for placed in world.jobs:
            assert 16 <= len(placed.layout.rnics) <= 384
            assert placed.layout.fits()
            assert not seen & placed.layout.rnics
            seen |= placed.layout.rnics


def test_degrees_follow_the_family() -> None:
    """Experts and contexts reach over hosts; one replica has no other."""
    for world in worlds("experts"):
        degrees = world.jobs[0].layout.degrees
        assert degrees.ep * degrees.tp > 8
    for world in worlds("context"):
        degrees = world.jobs[0].layout.degrees
        assert degrees.cp * degrees.tp > 8
    assert all(w.jobs[0].layout.degrees.dp == 1 for w in worlds("one_replica"))
    assert all(w.jobs[0].layout.degrees.pp > 1 for w in worlds("interleaved"))
    assert all(isinstance(w.jobs[0].job, ShardedJob) for w in worlds("sharded"))


def test_interleaved_schedules_are_mixed() -> None:
    """Several rounds, split backwards and two directions occur."""
    jobs = [w.jobs[0].job for w in worlds("interleaved")]
    plans = [job.schedule for job in jobs if isinstance(job, PipelinedJob)]
    assert any(plan.split for plan in plans)
    assert any(len(plan.chains) == 2 for plan in plans)
    assert any(len(plan.chains[0]) > len(plan.orders) for plan in plans)


def test_odd_hosts_are_odd() -> None:
    """Several numbers of RNICs and GPUs occur, also within one capture."""
    shapes = [{(h.gpus, len(h.rails)) for h in w.fleet.hosts} for w in worlds("odd_hosts")]
    assert len(set().union(*shapes)) >= 3
    assert any(len(s) > 1 for s in shapes)


def test_pipelines_leave_their_hosts() -> None:
    """And some hosts hold several stages."""
    for world in worlds("pipelines_across_rails"):
        layout = world.jobs[0].layout
        of_stage = [set(layout.host[ranks.reshape(-1)].tolist()) for ranks in layout.grid]
        assert any(one & other for one in of_stage for other in of_stage if one is not other)
        pipeline = layout.host[layout.grid[:, 0].reshape(-1)]
        assert len(set(pipeline.tolist())) > 1


def test_clusters_are_shared() -> None:
    """Several jobs, idle hosts, and at times two jobs in a host or half a host idle."""
    mixed = 0
    for world in worlds("shared_cluster"):
        assert len(world.jobs) >= 2
        used = frozenset().union(*(placed.layout.rnics for placed in world.jobs))
        assert len(used) <= len(world.fleet) - 16
        hosts = [set(placed.layout.host.tolist()) for placed in world.jobs]
        mixed += sum(map(len, hosts)) > len(set().union(*hosts))
    assert mixed


def test_large_jobs_have_1024_rnics() -> None:
    """On 128 hosts."""
    world = BUILDERS["large"](np.random.default_rng(0))
    assert len(world.jobs[0].layout.rnics) == len(world.fleet) == 1024
