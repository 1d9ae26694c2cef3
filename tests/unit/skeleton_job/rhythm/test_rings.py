"""Which hosts share a ring that turns all the time."""

import numpy as np
import pytest

from schemas.columns.arrays import Floats
from skeleton_job.rhythm.rings import equal_groups, likeness_of_hosts, ring_size

POINTS = 32
ITERATIONS = 20


def _flows(rings: int, hosts: int, seed: int = 0) -> Floats:
    """Return what goes through hosts, by their own clocks; hosts of one ring have its delays."""
    rng = np.random.default_rng(seed)
    at = np.arange(POINTS)
    # Each step of an iteration has a delay of its own, which all hosts of the ring share.
    late = 0.2 * rng.standard_normal((rings, ITERATIONS, POINTS))
    clock = rng.normal(0.0, 1.0, (rings * hosts, 1, 1))
    flows = np.sin(2 * np.pi * (at - clock) / POINTS) + np.repeat(late, hosts, axis=0)
    out: Floats = flows + 0.05 * rng.standard_normal(flows.shape)
    return out


@pytest.mark.parametrize(("rings", "hosts"), [(2, 2), (4, 4), (8, 2), (3, 4)])
def test_hosts_of_a_ring_are_found(rings: int, hosts: int) -> None:
    """By their common delays, in any order of the hosts."""
    order = np.random.default_rng(2).permutation(rings * hosts)
    likeness = likeness_of_hosts(_flows(rings, hosts)[order])
    assert likeness is not None
    assert ring_size([likeness]) == hosts
    ring = (np.arange(rings * hosts) // hosts)[order]
    labels = equal_groups(likeness, hosts)
    assert all(np.unique(ring[labels == g]).size == 1 for g in range(rings))


@pytest.mark.parametrize("hosts", [2, 4, 8])
def test_a_ring_that_all_share_is_one_group(hosts: int) -> None:
    """What is left of the hosts is noise."""
    likeness = likeness_of_hosts(_flows(1, hosts))
    assert likeness is not None
    assert ring_size([likeness]) == hosts
    assert np.unique(equal_groups(likeness, hosts)).size == 1


def test_too_few_iterations_say_nothing() -> None:
    """Iterations with missing samples do not count."""
    flows = _flows(2, 2)
    flows[0, 3:] = np.nan
    assert likeness_of_hosts(flows) is None
