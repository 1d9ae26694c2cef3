"""Whether the bytes of blocks are those of a single pipeline."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.columns.arrays import Floats
from skeleton_job.layout.single_pipeline import (
    ends_sum_alone,
    half_at_ends,
    one_pipeline,
    send_to_one_each,
    upper_level,
)

POINTS = 24


def _profiles(moved: Floats) -> Floats:
    """Return mean iterations of blocks that move so many bytes each way, at times of their own."""
    rng = np.random.default_rng(3)
    shape = rng.random((moved.size, 2, POINTS))
    shape /= shape.mean(axis=2, keepdims=True)
    return (moved[:, None, None] * shape).reshape(moved.size, 2 * POINTS)


@pytest.mark.parametrize(("replicas", "stages"), [(1, 8), (1, 16), (2, 5), (4, 16), (3, 3)])
@pytest.mark.parametrize("ends", [0.5, 0.97, 1.1])
def test_the_ends_of_a_single_pipeline_are_seen(replicas: int, stages: int, ends: float) -> None:
    """Whether the ends move less, or more by their embeddings; noise is a part in ten thousand."""
    rng = np.random.default_rng(replicas * 100 + stages)
    one = np.array([ends, *[1.0] * (stages - 2), ends])
    moved = np.repeat(one, replicas) * (1 + 1e-4 * rng.standard_normal(replicas * stages))
    upper = upper_level(_profiles(moved), np.ones(moved.size, np.bool_))
    assert upper is not None
    assert one_pipeline(upper) == (replicas == 1)


def test_storage_on_one_way_makes_no_level() -> None:
    """One host that reads data receives twice as much, and sends as much as before."""
    profiles = _profiles(np.array([0.5, 1.0, 1.0, 1.0, 1.0, 0.5]))
    profiles[2, POINTS:] *= 2
    upper = upper_level(profiles, np.ones(6, np.bool_))
    assert upper is not None
    assert upper.tolist() == [False, True, True, True, True, False]


def test_what_is_not_clear_or_not_known_is_not_said() -> None:
    """Bytes that scatter; equal bytes; a block without counters; two blocks."""
    rng = np.random.default_rng(4)
    known = np.ones(12, np.bool_)
    assert upper_level(_profiles(rng.uniform(0.9, 1.1, 12)), known) is None
    assert upper_level(_profiles(np.ones(12)), known) is None
    levels = _profiles(np.array([0.5, *[1.0] * 10, 0.5]))
    assert upper_level(levels, known) is not None
    known[3] = False
    assert upper_level(levels, known) is None
    assert upper_level(_profiles(np.array([1.0, 2.0])), np.ones(2, np.bool_)) is None


@given(st.lists(st.booleans(), min_size=3, max_size=48))
def test_neither_the_order_of_blocks_nor_which_level_is_upper_counts(upper: list[bool]) -> None:
    """Ends may move more or less, and stages come in any order."""
    levels = np.array(upper)
    found = one_pipeline(levels)
    assert found == one_pipeline(~levels) == one_pipeline(levels[::-1])


@pytest.mark.parametrize("stages", [4, 8])
def test_ends_with_half_the_bytes_sum_no_gradients(stages: int) -> None:
    """They have one neighbour instead of two; what is summed adds to all."""
    known = np.ones(stages, np.bool_)
    alone = np.array([0.5, *[1.0] * (stages - 2), 0.5])
    assert half_at_ends(_profiles(alone), known)
    assert not half_at_ends(_profiles(alone + 0.2), known)
    assert not half_at_ends(_profiles(np.ones(stages)), known)
    known[0] = False
    assert not half_at_ends(_profiles(alone), known)


def _summing(sums: list[list[tuple[int, float]]], *, alike: bool = False) -> Floats:
    """Return mean iterations of blocks that sum gradients at these points, at these rates.

    Beside that the last one sends what the first receives, or does the same if they are alike.
    """
    flows = 0.1 * np.random.default_rng(5).random((len(sums), 2, POINTS))
    flows[-1] = flows[0] if alike else flows[0, ::-1]
    for row, own in zip(flows, sums, strict=True):
        for at, rate in own:
            row[:, at] = rate
    return flows.reshape(len(sums), 2 * POINTS)


def test_ends_that_sum_alone_are_those_of_one_pipeline() -> None:
    """Not if another block sums, now or later; nor two replicas of one stage, one after another."""
    known = np.ones(6, np.bool_)
    end: list[tuple[int, float]] = [(20, 1.0)]
    alone = [end, [], [], [], [], end]
    assert ends_sum_alone(_summing(alone), known)
    assert not ends_sum_alone(_summing(alone, alike=True), known)
    assert not ends_sum_alone(_summing(alone), np.arange(6) != 2)
    assert not ends_sum_alone(_summing([end, [], [(20, 0.5)], [], [], end]), known)
    assert not ends_sum_alone(_summing([end, [], [(3, 0.9)], [(3, 0.9)], [], end]), known)
    assert not ends_sum_alone(_summing([end, [], [], [], [], [(10, 1.0)]]), known)
    # A tree of three replicas: its root has twice the rate of the leaves.
    assert not ends_sum_alone(_summing([end, [], [(20, 0.5)], end, [], [(20, 0.5)]]), known)


@pytest.mark.parametrize("stages", [8, 16])
def test_blocks_that_send_to_one_other_each_are_those_of_one_pipeline(stages: int) -> None:
    """One rail passes activations on, another one gradients; not if sums are added to them."""
    rng = np.random.default_rng(stages)
    flows = rng.random((stages, POINTS))
    tx, rx = np.zeros((2, stages, POINTS))
    # Two blocks a host: the even ones pass on forward, the odd ones backward.
    for at in range(0, stages - 2, 2):
        tx[at] = rx[at + 2] = flows[at]
        tx[at + 3] = rx[at + 1] = flows[at + 1]
    hosts, known = np.arange(stages) // 2, np.ones(stages, np.bool_)
    assert send_to_one_each(np.hstack([tx, rx]), known, hosts)
    assert not send_to_one_each(np.hstack([tx, rx]), known, np.zeros_like(hosts))
    assert not send_to_one_each(np.hstack([tx, rx]), np.arange(stages) > 0, hosts)
    # Each stage sums at a time of its own.
    sums = np.eye(stages, POINTS)
    assert not send_to_one_each(np.hstack([tx + sums, rx + sums]), known, hosts)
    twice = np.vstack([np.hstack([tx, rx])] * 2)
    assert not send_to_one_each(twice, np.ones(2 * stages, np.bool_), np.arange(2 * stages) // 2)


@pytest.mark.parametrize("replicas", [4, 8])
def test_two_stages_whose_replicas_have_clocks_of_their_own_are_no_single_pipeline(
    replicas: int,
) -> None:
    """Each block sends to one other, but that one sends back."""
    rng = np.random.default_rng(replicas)
    forth, back = rng.random((2, replicas, POINTS))
    both = np.hstack([np.vstack([forth, back]), np.vstack([back, forth])])
    hosts, known = np.arange(2 * replicas), np.ones(2 * replicas, np.bool_)
    assert not send_to_one_each(both, known, hosts)


def test_a_ring_has_no_ends() -> None:
    """Each block sends to the next one, all around."""
    flows = np.random.default_rng(1).random((8, POINTS))
    ring = np.hstack([flows, np.roll(flows, 1, axis=0)])
    assert not send_to_one_each(ring, np.ones(8, np.bool_), np.arange(8))
    path = ring.copy()
    path[0, POINTS:] = path[-1, :POINTS] = 0.0
    assert send_to_one_each(path, np.ones(8, np.bool_), np.arange(8))
