"""Queues."""

from dataclasses import replace

import numpy as np
import pytest

from arena.sealed.queues import MOST_LOAD, Load, draw_queues, paused_loads
from arena.sealed.schedule import steady
from tests.unit.arena.sealed.small import cluster_where, rng_of, single


@pytest.mark.parametrize("rho", [0.1, 0.5, 0.9])
def test_the_mean_wait_is_that_of_m_g_1(rho: float) -> None:
    """It is rho / (1 - rho) times the service time, times the burstiness."""
    queues = replace(draw_queues(cluster_where(single), rng_of(1)), service_ns=100.0, burst=4.0)
    waits = queues.waits_ns(np.full(200_000, rho), rng_of(2))
    assert waits.mean() == pytest.approx(rho / (1.0 - rho) * 400.0, rel=0.03)
    assert (waits > 0.0).mean() == pytest.approx(rho, abs=0.01)


def test_loads_follow_the_phases_of_the_job_and_what_is_added() -> None:
    """Padding is always empty; an added load holds on its links while it is on."""
    cluster = cluster_where(single)
    queues = draw_queues(cluster, rng_of(3))
    dlinks = np.arange(cluster.fabric.dlinks + 1)
    extra = Load(dlinks=frozenset({4}), schedule=steady(50.0, 60.0), rho=0.95)
    for at_s in (10.0, 55.0, 70.0):
        rho = queues.loads(dlinks, np.full(len(dlinks), at_s), [extra])
        assert rho[-1] == 0.0
        assert rho.max() <= MOST_LOAD
        usual = {float(queues.busy[4]), float(queues.quiet[4])}
        assert (rho[4] == 0.95) if at_s == 55.0 else (rho[4] in usual)


def test_pause_frames_load_what_leads_to_a_full_link() -> None:
    """Only cables that enter the switch in front of it, and only when it is nearly full."""
    cluster = cluster_where(single)
    fabric = cluster.fabric
    dlink = next(d for d in range(fabric.dlinks) if fabric.tail(d) >= fabric.rnics)
    full = Load(dlinks=frozenset({dlink}), schedule=steady(0.0), rho=0.96)
    _, behind = paused_loads(cluster, full)
    assert {fabric.head(d) for d in behind.dlinks} == {fabric.tail(dlink)}
    assert behind.rho < full.rho
    assert len(paused_loads(cluster, replace(full, rho=0.7))) == 1
