"""The kernels of the search against their slow, obvious twins; sums: in `tests/property`."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from localizer.inference.likelihood_kernel import (
    best_totals,
    find_moves,
    first_best,
    value_state,
)
from localizer.inference.tables import log_likelihoods

gains = st.lists(st.tuples(*[st.floats(-50.0, 50.0) for _ in range(4)]), min_size=1, max_size=20)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2)), max_size=200))
def test_moves_are_the_distinct_pairs(pairs: list[tuple[int, int]]) -> None:
    """The twin sorts."""
    rows = np.arange(len(pairs))[::-1].copy()
    state = np.array([one for one, _ in reversed(pairs)], np.int64)
    which = np.array([kind for _, kind in pairs], np.int64)
    seen, place = np.zeros(41 * 3, np.int64), np.empty(len(pairs), np.int64)
    count = find_moves(rows, state, which, 3, seen, place)
    wanted, wanted_place = np.unique(state[rows] * 3 + which, return_inverse=True)
    np.testing.assert_array_equal(seen[:count], wanted)
    np.testing.assert_array_equal(place, wanted_place)


@given(st.booleans(), st.floats(0.01, 1.0), st.floats(0.0, 1.0))
def test_a_state_is_worth_what_its_rows_are(bad: bool, lag: float, good: float) -> None:
    """The twin is the formula over arrays."""
    severity = np.array([0.1, 0.5, 0.999])
    values, gained = np.zeros(2), np.zeros((2, 3))
    value_state(bad, lag, good, severity, values, gained, 1)
    chances = np.array([good, *good * (1.0 - severity)])
    wanted = log_likelihoods(np.full(4, bad), np.full(4, lag), chances)
    np.testing.assert_allclose([values[1], *gained[1]], [wanted[0], *wanted[1:] - wanted[0]])
    assert not values[0]
    assert not gained[0].any()


@given(gains, st.data())
def test_the_best_column_is_the_first_that_ties(
    rows: list[tuple[float, ...]], data: st.DataObject
) -> None:
    """The twin looks at all; a column that gains nothing by 5-tuples is none."""
    both = np.array([*rows, (0.0,) * 4])
    flow, hop = both[:, :2].copy(), both[:, 2:].copy()
    prior, totals = np.linspace(-3.0, 0.0, len(rows)), np.empty(len(rows))
    best_totals(flow, hop, prior, 1.0, totals)
    wanted = [
        max(one[:2]) + max(one[2:]) + float(add) if max(one[:2]) >= 1.0 else -np.inf
        for one, add in zip(rows, prior, strict=True)
    ]
    np.testing.assert_allclose(totals, wanted)
    free = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))))
    column = first_best(totals, free, 0.5)
    of_free = [total for total, is_free in zip(totals.tolist(), free, strict=True) if is_free]
    if not of_free:
        assert column == -1
    else:
        tied = [n for n in range(len(rows)) if free[n] and totals[n] >= max(of_free) - 0.5]
        assert column == tied[0]
