"""The sums that a search keeps up, against plain ones over all observations."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from localizer.inference.search import FLOW_SEVERITIES, Problem, explain
from localizer.inference.table_likelihood import TableLikelihood, upper_bound
from localizer.inference.tables import Table, log_likelihoods
from schemas.columns.arrays import Floats, Int64s
from tests.property.test_localizer_search import CHANCE, COLUMNS, Row, block, rows

RATE = 0.02
moves = st.lists(
    st.tuples(st.integers(0, COLUMNS - 1), st.sampled_from(FLOW_SEVERITIES)), max_size=8
)


class Waiting:
    """Good observations that are listed when a column of theirs is asked for, kept in a list."""

    def __init__(self, crossed: list[frozenset[int]], lag: float) -> None:
        self.lag = lag
        self._crossed = crossed

    @property
    def total(self) -> int:
        """How many wait."""
        return len(self._crossed)

    @property
    def counts(self) -> Floats:
        """How many of them cross each column."""
        return np.array([sum(c in row for row in self._crossed) for c in range(COLUMNS)], float)

    @property
    def parts(self) -> tuple[object, ...]:
        """What decides which they are."""
        return self.lag, tuple(self._crossed)

    def list_rows(self, column: int) -> Int64s:
        """Return those that cross a column; they wait no more."""
        found = [sorted(row) for row in self._crossed if column in row]
        self._crossed = [row for row in self._crossed if column not in row]
        return np.array([row + [COLUMNS] * (4 - len(row)) for row in found], np.int64)


def split(observed: list[Row], lag: float) -> Table:
    """Return a table of the bad ones, the good ones of which are unlisted."""
    bad = [row for row in observed if row[0]]
    table = Table.of(block(bad, lag), COLUMNS)
    table.unlisted = (Waiting([crossed for spoilt, crossed in observed if not spoilt], lag),)
    return table


def plain(
    observed: list[Row], lag: float, chosen: dict[int, float], odds: float | None
) -> TableLikelihood:
    """Return a likelihood that was made with columns already chosen: nothing was kept up."""
    likelihood = TableLikelihood(
        Table.of(block(observed, lag, odds), COLUMNS), FLOW_SEVERITIES, RATE
    )
    table = likelihood.table
    good = np.full(len(observed), 1.0 - RATE)
    for column, severity in chosen.items():
        places, chance = table.rows(column)
        good[places] *= 1.0 - chance * severity
    now = log_likelihoods(table.bad, table.lag, good)
    likelihood.value = float(now.sum())
    for index, severity in enumerate(FLOW_SEVERITIES):
        for column in range(COLUMNS):
            places, chance = table.rows(column)
            then = log_likelihoods(
                table.bad[places], table.lag[places], good[places] * (1.0 - chance * severity)
            )
            likelihood.gains[column, index] = float((then - now[places]).sum())
    return likelihood


@settings(max_examples=150)
@given(rows, moves, st.sampled_from([0.3, 1.0]), st.sampled_from([None, 0.25, 0.6]))
def test_what_is_kept_up_is_what_a_new_sum_gives(
    observed: list[Row], changes: list[tuple[int, float]], lag: float, odds: float | None
) -> None:
    """Columns come and go in any order: gains and likelihood are those of the ones there."""
    table = Table.of(block(observed, lag, odds), COLUMNS)
    likelihood = TableLikelihood(table, FLOW_SEVERITIES, RATE)
    bound = upper_bound(table, RATE)
    chosen: dict[int, float] = {}
    for column, severity in changes:
        if column in chosen:
            likelihood.remove_fault(column)
            del chosen[column]
        else:
            likelihood.add_fault(column, severity)
            chosen[column] = severity
        expected = plain(observed, lag, chosen, odds)
        assert abs(likelihood.value - expected.value) < 1e-8
        free = [c for c in range(COLUMNS) if c not in chosen]
        assert np.allclose(likelihood.gains[free], expected.gains[free], atol=1e-8)
        assert likelihood.value <= bound + 1e-8


@settings(max_examples=100)
@given(rows, moves)
def test_going_back_is_as_if_nothing_had_been(
    observed: list[Row], changes: list[tuple[int, float]]
) -> None:
    """A column that is taken back for a moment leaves nothing behind."""
    likelihood = TableLikelihood(Table.of(block(observed, 1.0), COLUMNS), FLOW_SEVERITIES, RATE)
    chosen = dict(changes)
    for column, severity in chosen.items():
        likelihood.add_fault(column, severity)
    for column in chosen:
        gains, value = likelihood.gains.copy(), likelihood.value
        mark = likelihood.snapshot(column)
        likelihood.remove_fault(column)
        likelihood.restore(mark)
        assert np.array_equal(likelihood.gains, gains)
        assert likelihood.value == value


@settings(max_examples=150)
@given(rows, st.sampled_from([0.3, 1.0]))
def test_unlisted_observations_weigh_what_listed_ones_do(observed: list[Row], lag: float) -> None:
    """The same explanation, whether good observations are rows or only counted."""
    spoilt = {c for bad, crossed in observed if bad for c in crossed}
    blamable = np.array([n in spoilt for n in range(COLUMNS)])
    found = [
        explain(
            Problem(
                names=tuple(f"c{n}" for n in range(COLUMNS)),
                log_prior=np.full(COLUMNS, -7.0),
                blamable=blamable,
                flows=flows,
                hops=block([], 1.0),
                chance=CHANCE,
                hop_chance=0.02,
            )
        )
        for flows in (block(observed, lag), split(observed, lag))
    ]
    listed, unlisted = found
    assert abs(listed.score - unlisted.score) < 1e-6
    assert listed.chance == unlisted.chance
    assert [s.column for s in listed.suspects] == [s.column for s in unlisted.suspects]
