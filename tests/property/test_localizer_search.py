"""Invariants of the inference, and its agreement with a naive twin that tries everything."""

from itertools import pairwise

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from localizer.inference.search import Problem, explain
from localizer.inference.tables import Block, PossibleCrossings
from tests.unit.localizer import naive

COLUMNS = 6
CHANCE = ((0.002, 0.0), (0.1, -5.0))

Crossed = frozenset[int]
Row = tuple[bool, Crossed]
rows = st.lists(
    st.tuples(st.booleans(), st.frozensets(st.integers(0, COLUMNS - 1), min_size=1, max_size=4)),
    max_size=24,
)


def block(observed: list[Row], lag: float, odds: float | None = None) -> Block:
    """Return observations as a block.

    `odds`: the chance with which bad ones cross the last of their columns; None: certain.
    """
    entries = [(r, c) for r, (_, crossed) in enumerate(observed) for c in sorted(crossed)]
    unsure = [
        (r, max(crossed))
        for r, (bad, crossed) in enumerate(observed)
        if bad and odds is not None and len(crossed) > 1
    ]
    places = [e for e in entries if e not in unsure]
    return Block(
        bad=np.array([bad for bad, _ in observed], dtype=np.bool_),
        weight=np.ones(len(observed)),
        lag=np.full(len(observed), lag),
        rows=np.array([r for r, _ in places], dtype=np.int64),
        columns=np.array([c for _, c in places], dtype=np.int64),
        possible=PossibleCrossings(
            rows=np.array([r for r, _ in unsure], dtype=np.int64),
            columns=np.array([c for _, c in unsure], dtype=np.int64),
            chance=np.full(len(unsure), odds or 0.0),
        ),
    )


def problem(
    flows: list[Row], hops: list[Row], lag: float = 1.0, odds: float | None = None
) -> Problem:
    """Return a problem over six columns of equal prior; what is bad nowhere is not blamable."""
    spoilt = {c for bad, crossed in flows if bad for c in crossed}
    return Problem(
        names=tuple(f"c{n}" for n in range(COLUMNS)),
        log_prior=np.full(COLUMNS, -7.0),
        blamable=np.array([n in spoilt for n in range(COLUMNS)]),
        flows=block(flows, lag, odds),
        hops=block(hops, 1.0, odds),
        chance=CHANCE,
        hop_chance=0.02,
    )


@settings(max_examples=150)
@given(rows, rows, st.sampled_from([0.3, 1.0]), st.sampled_from([None, 0.25, 0.6]))
def test_the_score_is_the_naive_one(
    flows: list[Row], hops: list[Row], lag: float, odds: float | None
) -> None:
    """Sparse sums and plain loops agree on what an explanation is worth."""
    made = problem(flows, hops, lag, odds)
    found = explain(made)
    faults = {s.column: (s.flow_severity, s.hop_severity) for s in found.suspects}
    value = naive.score(made, faults, found.chance, dict(CHANCE)[found.chance])
    assert abs(value - found.score) < 1e-6 * max(1.0, abs(value))


@settings(max_examples=100)
@given(rows, rows)
def test_nothing_is_blamed_that_only_good_ones_cross(flows: list[Row], hops: list[Row]) -> None:
    """A component all of whose 5-tuples are good is never a suspect, nor a rival."""
    made = problem(flows, hops)
    for suspect in explain(made).suspects:
        for column in (suspect.column, *(c for c, _ in suspect.shares)):
            assert any(bad and column in crossed for bad, crossed in flows)


@settings(max_examples=60)
@given(
    st.integers(0, COLUMNS - 1),
    st.lists(st.frozensets(st.integers(0, COLUMNS - 1), min_size=1, max_size=3), min_size=8,
             max_size=20),
)  # fmt: skip
def test_one_cut_is_found_as_by_trying_everything(culprit: int, crossed: list[Crossed]) -> None:
    """Greedy search finds what the search over all sets of up to two finds, or a tie of it."""
    flows = [(culprit in c, c) for c in crossed]
    assume(sum(bad for bad, _ in flows) >= 4)
    made = problem(flows, [])
    found = explain(made)
    best, score = naive.best(made, most=1)
    assert len(best) == 1
    assert found.score >= score - 1e-6
    chosen = {s.column for s in found.suspects}
    if len(chosen) == 1:
        ties = {c for c, share in found.suspects[0].shares if share > 0.01}
        assert best <= ties


@settings(max_examples=60)
@given(rows, st.randoms(use_true_random=False))
def test_the_order_of_observations_does_not_matter(flows: list[Row], chance: object) -> None:
    """Shuffled rows give the same suspects."""
    mixed = list(flows)
    chance.shuffle(mixed)  # type: ignore[attr-defined]
    first, second = explain(problem(flows, [])), explain(problem(mixed, []))
    assert [s.column for s in first.suspects] == [s.column for s in second.suspects]
    assert abs(first.score - second.score) < 1e-6


@settings(max_examples=40)
@given(rows)
def test_belief_is_shared_out(flows: list[Row]) -> None:
    """Shares of a suspect's rivals and the doubt add up to one, best first."""
    for suspect in explain(problem(flows, [])).suspects:
        shares = [share for _, share in suspect.shares]
        assert abs(sum(shares) + suspect.doubt - 1.0) < 1e-9
        assert all(a >= b - 1e-9 for a, b in pairwise(shares))
