"""Which classes are stages, by what they send less what they receive."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.columns.arrays import Floats
from skeleton_job.layout.flows import Halves, one_sign, pipelines_of

POINTS = 40


def _link(number: int) -> Floats:
    """Return the net flow over a link: activations, later as many bytes of gradients back.

    Farther links forward later, and return earlier.
    """
    at = np.arange(POINTS)
    there, back = (np.exp(-(((at - t) / 1.5) ** 2)) for t in (5 + 2 * number, 36 - 2 * number))
    out: Floats = there - back
    return out


def _pipeline(stages: int) -> list[Floats]:
    """Return the net flow of each stage of a pipeline."""
    links = [np.zeros(POINTS), *(_link(k) for k in range(stages - 1)), np.zeros(POINTS)]
    return [after - before for before, after in pairwise(links)]


def _halves(flows: list[Floats], noise: float = 0.01) -> Halves:
    """Return tx and rx of blocks with these net flows, beside a balanced collective."""
    rng = np.random.default_rng(1)
    net = np.array(flows)

    def half() -> Floats:
        tx = 5.0 + np.maximum(net, 0) + noise * rng.standard_normal(net.shape)
        rx = 5.0 + np.maximum(-net, 0) + noise * rng.standard_normal(net.shape)
        return np.hstack([tx, rx])

    return half(), half()


@pytest.mark.parametrize("stages", [2, 3, 4, 8])
@pytest.mark.parametrize("replicas", [1, 3])
def test_the_stages_of_a_pipeline_stay(stages: int, replicas: int) -> None:
    """Each cut of a pipeline leaves a link open."""
    flows = [f for f in _pipeline(stages) for _ in range(replicas)]
    labels = np.repeat(np.arange(stages), replicas)
    n = labels.size
    found, count = pipelines_of(labels, stages, _halves(flows), np.ones(n, bool), np.arange(n))
    assert count == stages
    assert found.tolist() == labels.tolist()


@pytest.mark.parametrize(("units", "stages"), [(2, 2), (2, 4), (4, 2)])
def test_units_with_delays_of_their_own_share_the_stages(units: int, stages: int) -> None:
    """Two expert groups whose pipelines run at times of their own are two replicas."""
    flow = _pipeline(stages)
    flows = [np.roll(flow[s], u) for s in range(stages) for u in range(units)]
    n = units * stages
    found, count = pipelines_of(np.arange(n), n, _halves(flows), np.ones(n, bool), np.arange(n))
    assert count == stages
    assert len({tuple(np.flatnonzero(found == c) // units) for c in range(stages)}) == stages
    assert np.bincount(found).tolist() == [units] * stages


def test_classes_without_net_flow_are_one_stage() -> None:
    """They differ in their collectives only."""
    n = 4
    halves = _halves([np.zeros(POINTS)] * n, noise=1e-4)
    _, count = pipelines_of(np.arange(n), n, halves, np.ones(n, bool), np.arange(n))
    assert count == 1


def test_popular_experts_are_no_stages() -> None:
    """One host receives more tokens than it sends, all the time."""
    flows = [np.full(POINTS, way) + 0.1 * _link(0) for way in (1.0, -1.0)]
    known, each = np.ones(2, bool), np.arange(2)
    assert one_sign(each, 2, _halves(flows), known, each)
    assert not one_sign(each, 2, _halves(_pipeline(2)), known, each)
    # What is relayed inside a host is no surplus of the host.
    assert not one_sign(each, 2, _halves(flows), known, np.zeros(2, np.int64))


def test_stages_beside_each_other_in_hosts_are_not_joined() -> None:
    """What they exchange inside the host is not seen, so closed groups say nothing."""
    across = _link(1)
    # Stages 0 to 3, two a host: only the link from 1 to 2 crosses the network.
    flows = [np.zeros(POINTS), across, -across, np.zeros(POINTS)]
    hosts = np.array([0, 0, 1, 1])
    _, count = pipelines_of(np.arange(4), 4, _halves(flows), np.ones(4, bool), hosts)
    assert count == 4


@given(st.permutations(range(8)))
def test_the_order_of_blocks_does_not_matter(order: list[int]) -> None:
    """The count of stages is that of the job, whoever is named first."""
    flow = _pipeline(4)
    flows = [np.roll(flow[s], u) for s in range(4) for u in range(2)]
    odd, even = _halves(flows)
    chosen = np.array(order)
    hosts = np.arange(8)
    _, count = pipelines_of(np.arange(8), 8, (odd[chosen], even[chosen]), np.ones(8, bool), hosts)
    assert count == 4
