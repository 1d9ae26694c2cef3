"""Pairs beside an unsure layout: bounded, and the true partners among them."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from skeleton_job.job import Pair, Rnic
from skeleton_job.layout.hedges import hedges, needed_pairs, rail_twins
from skeleton_job.layout.partners import rank_partners

PAIRS = st.frozensets(st.tuples(st.integers(0, 9), st.integers(10, 19)), max_size=30).map(
    lambda found: frozenset((f"e{a}", f"e{b}") for a, b in found)
)


@given(pairs=PAIRS, room=st.integers(0, 60), parcels=st.lists(PAIRS, max_size=6))
def test_there_is_a_bound_whatever_is_guessed(
    pairs: frozenset[Pair], room: int, parcels: list[frozenset[Pair]]
) -> None:
    """Nothing of the layout is repeated, and the whole is bounded if the layout is."""
    added = hedges(pairs, room, parcels)
    assert not added & pairs
    assert added <= frozenset[Pair]().union(*parcels)
    assert len(pairs) + len(added) <= max(len(pairs), room)
    if parcels and len(pairs | parcels[0]) <= room:
        assert parcels[0] - pairs <= added


def test_needed_are_rings_and_pipelines() -> None:
    """Two replicas of four stages, a host for each: a pair of each group, three joints each."""
    at = {
        (s, d, r): Rnic(f"h{s}{d}/r{r}", f"h{s}{d}", f"h{s}{d}", r)
        for s in range(4)
        for d in (0, 1)
        for r in (0, 1)
    }
    groups = [[at[s, d, r] for d in (0, 1)] for s in range(4) for r in (0, 1)]
    chains = [[at[s, d, r] for s in range(4)] for d in (0, 1) for r in (0, 1)]
    assert needed_pairs(groups, chains, set()) == 4 * 2 + 3 * 4
    assert needed_pairs(groups, chains, {at[0, 0, 0]}) == 4 * 2 - 1 + 3 * 4 - 1
    alone = [Rnic(f"h/r{r}", "h", "h", r) for r in (0, 1)]
    assert needed_pairs([alone], [alone], set(alone)) == 0
    # A layout that needs hardly any pair is often wrong.
    assert needed_pairs([alone], [alone], set()) == 1


def test_a_joint_across_rails_may_run_on_the_rail_of_either_end() -> None:
    """Neighbours on one rail, or in one host, have no twins; nor has what is not heard."""
    at = {(h, r): Rnic(f"{h}/r{r}", h, h, r) for h in "ab" for r in (0, 1)}
    paths = [[at["a", 0], at["a", 1], at["b", 0]], [at["a", 1], at["b", 1]]]
    assert rail_twins(paths, at.values()) == {("a/r0", "b/r0"), ("a/r1", "b/r1")}
    assert rail_twins(paths, [r for r in at.values() if r != at["b", 1]]) == {("a/r0", "b/r0")}
    assert rail_twins(paths[1:], at.values()) == set()


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    replicas=st.sampled_from([4, 8]),
    stages=st.sampled_from([2, 4]),
    missing=st.sampled_from([0.0, 0.05]),
)
def test_partners_are_found_without_the_layout(
    seed: int, replicas: int, stages: int, missing: float
) -> None:
    """Each replica is late by its own; stages differ; the order of the blocks says nothing."""
    rng = np.random.default_rng(seed)
    n, iterations, points = replicas * stages, 20, 32
    # Bytes over each joint: the stage's shape, moved by the iteration's delay and the replica's.
    shape = rng.random((stages - 1, points)).cumsum(axis=1)
    slope = np.gradient(shape, axis=1)
    shared = rng.normal(0, 1, (iterations, 1))
    own = rng.normal(0, 1, (replicas, stages - 1, iterations, 1))
    joint = shape[None, :, None] + slope[None, :, None] * (shared + own)
    tx, rx = np.zeros((2, replicas, stages, iterations, points))
    tx[:, :-1] += joint
    rx[:, 1:] += joint
    place = rng.permutation(n)
    noise = rng.normal(0, 0.02, (2, n, iterations, points))
    tx, rx = (side.reshape(n, iterations, points)[place] for side in (tx, rx))
    tx, rx = tx + noise[0], rx + noise[1]
    gone = rng.random((n, iterations)) < missing
    tx[gone], rx[gone] = np.nan, np.nan
    at = np.argsort(place).reshape(replicas, stages)
    ranked = rank_partners(tx, rx, np.arange(n), 4)
    found = [int(other) in ranked[one] for row in at for one, other in itertools.pairwise(row)]
    assert np.mean(found) > 0.9


def test_nothing_is_ranked_without_data() -> None:
    """Too few blocks or iterations; blocks of one host are no partners."""
    rng = np.random.default_rng(0)
    for blocks, iterations in ((3, 20), (8, 2)):
        tx, rx = rng.random((2, blocks, iterations, 8))
        assert rank_partners(tx, rx, np.arange(blocks), 4).shape == (blocks, 0)
    tx, rx = rng.random((2, 8, 20, 8))
    tx[3] = np.nan
    ranked = rank_partners(tx, rx, np.arange(8) // 2, 7)
    assert set(ranked[3]) == {-1}
    assert not [b for a, row in enumerate(ranked) for b in row if b >= 0 and b // 2 == a // 2]
    assert 3 not in ranked
