"""Order of stages and chains on made-up mean iterations."""

from itertools import permutations

import numpy as np
import pytest

from schemas.columns.arrays import Floats
from skeleton_job.layout.stages import (
    DISPUTED,
    StageOrder,
    by_chains,
    flow_cue,
    gradient_cue,
    longest_pause,
    onset_cue,
    order_stages,
    under_way,
)
from skeleton_job.rhythm.chains import best_chains, chain_gains, likeness_of, match_chains

POINTS = 80


def box(start: float, length: float = 2.0) -> Floats:
    """Return a burst of one unit over part of the iteration, around the circle."""
    edges = np.arange(POINTS + 1, dtype=np.float64)
    out = np.zeros(POINTS)
    for turn in (-POINTS, 0, POINTS):
        out += np.diff(np.clip(edges - start - turn, 0.0, length))
    return out


def pipeline(
    stages: int, *, gradients: float = 8.0, turn: float = 0.0, batches: int = 3
) -> tuple[Floats, Floats]:
    """Return tx and rx of each stage: forward, backward, gradient sum (0: one replica)."""
    tx, rx = np.zeros((stages, POINTS)), np.zeros((stages, POINTS))
    for s in range(stages - 1):
        for m in range(batches):
            forward = box(turn + 6 + 3 * s + 3 * m)
            backward = box(turn + 30 + 3 * (stages - 2 - s) + 3 * m)
            tx[s] += forward
            rx[s + 1] += forward
            tx[s + 1] += backward
            rx[s] += backward
    for s in range(stages):
        burst = gradients * box(turn + 45 + 3 * (stages - 1 - s), 4.0)
        tx[s] += burst
        rx[s] += burst
    return tx, rx


@pytest.mark.parametrize("stages", [2, 3, 4, 6])
@pytest.mark.parametrize("gradients", [8.0, 0.0])
@pytest.mark.parametrize("turn", [0.0, 33.0])
def test_the_order_is_found_wherever_the_iteration_is_cut(
    stages: int, gradients: float, turn: float
) -> None:
    """With and without gradient sums, from any class order and any start of the fold."""
    tx, rx = pipeline(stages, gradients=gradients, turn=turn)
    replicas = 2 if gradients else 1
    for shuffled in list(permutations(range(stages)))[:: max(1, stages**2)]:
        mixed = list(shuffled)
        found = order_stages(tx[mixed], rx[mixed], replicas=replicas)
        assert tuple(mixed[c] for c in found.order) == tuple(range(stages))
        assert found.directed
        assert found.trust >= 0.85


def test_each_cue_finds_the_order_by_itself() -> None:
    """They use different parts of the traffic, so that agreement says something."""
    tx, rx = pipeline(4)
    onset = onset_cue(tx, rx)
    assert onset is not None
    assert onset.order == gradient_cue(tx, rx).order == (0, 1, 2, 3)
    assert flow_cue(tx, rx).order in ((0, 1, 2, 3), (3, 2, 1, 0))


@pytest.mark.parametrize("stages", [2, 5])
@pytest.mark.parametrize("gradients", [8.0, 0.0])
@pytest.mark.parametrize("turn", [0.0, 33.0, 61.0])
def test_bytes_are_under_way_from_the_first_stage(
    stages: int, gradients: float, turn: float
) -> None:
    """Wherever the iteration is cut; storage that flows all the time does not matter."""
    tx, rx = pipeline(stages, gradients=gradients, turn=turn)
    rx += 0.2
    assert under_way(tx, rx) > 0.2
    assert under_way(tx[::-1], rx[::-1]) == pytest.approx(-under_way(tx, rx))


def test_without_a_trace_the_order_is_disputed() -> None:
    """Stages that all send what they receive, all the time, have no order."""
    tx = np.vstack([np.ones(POINTS) * (1 + 0.2 * s) for s in range(3)])
    found = order_stages(tx, tx, replicas=2)
    assert not found.directed
    assert found.trust <= 0.5


def test_one_stage_needs_no_order() -> None:
    """It is first and last."""
    found = order_stages(np.ones((1, 8)), np.ones((1, 8)), replicas=4)
    assert (found.order, found.trust, found.directed) == ((0,), 1.0, True)


def test_the_longest_pause_is_circular() -> None:
    """A pause over the end of the profile counts whole; without one there is none."""
    total = np.ones(20)
    total[[18, 19, 0, 1, 2]] = 0.0
    total[8:11] = 0.0
    assert longest_pause(total).nonzero()[0].tolist() == [0, 1, 2, 18, 19]
    assert not longest_pause(np.ones(20)).any()


def delays(replicas: int, seed: int) -> Floats:
    """Return what each replica has of its own, iteration by iteration."""
    rng = np.random.default_rng(seed)
    out: Floats = rng.standard_normal((replicas, 20, POINTS))
    return out


@pytest.mark.parametrize("replicas", [2, 3, 5])
def test_chains_follow_the_traffic(replicas: int) -> None:
    """What a sender does late its own receiver gets late, whatever the order of the hosts."""
    rng = np.random.default_rng(replicas)
    forward, backward = delays(replicas, 1), delays(replicas, 2)
    mixed = rng.permutation(replicas)
    noise = 0.2 * delays(replicas, 3)
    partner, seen = match_chains(forward, backward, backward[mixed] + noise, forward[mixed] + noise)
    assert seen
    assert mixed[partner].tolist() == list(range(replicas))


def test_chains_follow_the_bytes_where_jitter_hides_the_times() -> None:
    """What a sender sends in an iteration its own receiver gets, at whatever time."""
    rng = np.random.default_rng(0)
    replicas = 8
    mixed = rng.permutation(replicas)
    forward, backward = 0.15 * rng.standard_normal((2, replicas, 20, 1))
    # Jitter moves bytes from sample to sample, and adds none.
    jitter = [d - np.roll(d, 1, axis=2) for d in (delays(replicas, seed) for seed in range(4))]
    moved = (forward, backward, backward[mixed], forward[mixed])
    likeness = likeness_of(*(own + shared for own, shared in zip(jitter, moved, strict=True)))
    assert mixed[best_chains(likeness)].tolist() == list(range(replicas))


def test_without_a_trace_chains_follow_the_platform() -> None:
    """Replicas whose delays have nothing to do with each other are matched by order."""
    partner, seen = match_chains(*(delays(4, s) for s in range(4)))
    assert not seen
    assert partner.tolist() == [0, 1, 2, 3]


def test_missing_iterations_do_not_make_chains() -> None:
    """Without enough whole iterations nothing is claimed."""
    pieces = delays(3, 1)
    pieces[:, ::2] = np.nan
    pieces[1, 1:15] = np.nan
    partner, seen = match_chains(pieces, pieces, pieces, pieces)
    assert not seen
    assert partner.tolist() == [0, 1, 2]


def test_chains_decide_for_the_cue_whose_neighbours_exchange_bytes() -> None:
    """Each border has delays of its own; a cue that nothing supports leaves the order as it is."""
    stages, replicas = 4, 3
    borders = [(delays(replicas, 2 * s), delays(replicas, 2 * s + 1)) for s in range(stages - 1)]
    nothing = np.zeros_like(borders[0][0])
    before, after = [(nothing, nothing), *borders], [*borders, (nothing, nothing)]
    pieces = [
        (forth[0] + back[1], back[0] + forth[1]) for back, forth in zip(before, after, strict=True)
    ]
    gains = chain_gains(pieces)
    top = {tuple(sorted(divmod(int(at), stages))) for at in np.argsort(-gains, axis=None)[:6]}
    assert top == {(0, 1), (1, 2), (2, 3)}
    tx, rx = pipeline(stages)
    wrong, right = (0, 2, 1, 3), (3, 2, 1, 0)
    found = by_chains(StageOrder(wrong, DISPUTED, True, (wrong, right)), gains, tx, rx)
    assert (found.order, found.directed) == ((0, 1, 2, 3), True)
    assert found.trust > DISPUTED
    disputed = StageOrder(right, DISPUTED, True, (right, wrong))
    assert by_chains(disputed, gains, tx, rx) is disputed
