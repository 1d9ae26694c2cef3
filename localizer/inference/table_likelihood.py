"""The likelihood of a table under a set of chosen faults, updated as faults are added and removed.

Rows with the same outcome, the same lag and the same chosen faults are in one state. There are few
states, and all rows of a state gain the same when a further fault is added. So adding or removing a
fault updates only the rows that cross it, one state at a time.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from localizer.inference.likelihood_kernel import (
    find_moves,
    move_groups,
    move_rows,
    value_state,
)
from localizer.inference.tables import Table, log_likelihoods
from schemas.columns.arrays import Floats, Int64s

# States that there is room for at first.
ROOM: Final = 64


@dataclass(frozen=True, slots=True)
class _RowState:
    """Outcome of rows, and the factors (column, factor) of chosen faults on P(good), sorted."""

    bad: bool
    lag: float
    factors: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What `TableLikelihood.restore` goes back to."""

    rows: Int64s
    state: Int64s
    gains: Floats
    value: float


def upper_bound(table: Table, chance: float) -> float:
    """Return what the log-likelihood never exceeds: that of the good rows with nothing chosen.

    Parameters
    ----------
    table
        Observations.
    chance
        Probability that an observation that crosses no fault is bad.
    """
    rows = np.flatnonzero(~table.bad)
    lag, weight = table.lag[rows], table.weight[rows]
    lag = np.append(lag, [unlisted.lag for unlisted in table.unlisted])
    weight = np.append(weight, [float(unlisted.total) for unlisted in table.unlisted])
    values = log_likelihoods(np.zeros(len(lag), np.bool_), lag, np.full(len(lag), 1.0 - chance))
    return float(weight @ values)


class TableLikelihood:
    """The likelihood of one table, and what each further fault would gain.

    Attributes
    ----------
    grid
        Severities that a fault may have.
    gains
        Gain in log-likelihood by adding each column at each severity, shape (columns + 1, grid);
        the last is of the padding.
    value
        Log-likelihood under the chosen faults.
    """

    def __init__(self, table: Table, grid: tuple[float, ...], chance: float) -> None:
        self.table = table
        self.grid = grid
        self._base = 1.0 - chance
        self._severity = np.array(grid)
        self._ids: dict[_RowState, int] = {}
        self._states: list[_RowState] = []
        # Per state, with room for more: whether its rows are bad, their lag, P(good), the
        # log-likelihood of one row, and its gain by a further fault, shape (states, grid).
        self._bad = np.zeros(ROOM, np.bool_)
        self._lag = np.zeros(ROOM)
        self._good = np.zeros(ROOM)
        self._row_value = np.zeros(ROOM)
        self._row_gain = np.zeros((ROOM, len(grid)))
        self._state = np.empty(0, np.int64)
        self.gains = np.zeros((table.width + 1, len(grid)))
        # Scratch of the kernel, all 0 in between.
        self._pooled = np.zeros(0)
        self.value = 0.0
        self._begin()

    def add_fault(self, column: int, severity: float) -> None:
        """Add a column to the chosen faults."""
        rows, _ = self.table.rows(column)
        self._list()
        levels, which = self.table.levels(column)
        self._move_rows(column, rows, which, (1.0 - levels * severity).tolist())

    def remove_fault(self, column: int) -> None:
        """Remove a column from the chosen faults."""
        rows, _ = self.table.rows(column)
        self._move_rows(column, rows, np.zeros(len(rows), np.int64), None)

    def snapshot(self, column: int) -> Snapshot:
        """Save what removing this column changes, for `restore`."""
        rows, _ = self.table.rows(column)
        return Snapshot(rows, self._state[rows], self.gains.copy(), self.value)

    def restore(self, mark: Snapshot) -> None:
        """Undo the removal since the snapshot; nothing else may have changed."""
        self._state[mark.rows] = mark.state
        self.gains, self.value = mark.gains, mark.value

    def _begin(self) -> None:
        table = self.table
        self._state = np.zeros(len(table), np.int64)
        if len(table):
            lags, which = np.unique(table.lag, return_inverse=True)
            # Of each lag two, whether or not there are rows of both outcomes.
            ids = [self._id(_RowState(bad, lag)) for lag in lags.tolist() for bad in (False, True)]
            place, states = 2 * which.reshape(-1) + table.bad, np.array(ids, np.int64)
            self._state = states[place]
            none = np.full(len(ids), -1)
            self.value += self._update_gains(np.arange(len(table)), place, none, states)
        for unlisted in table.unlisted:
            state = self._id(_RowState(False, unlisted.lag))
            self.gains[:-1] += unlisted.counts[:, None] * self._row_gain[state]
            self.value += unlisted.total * float(self._row_value[state])

    def _list(self) -> None:
        """Give states to rows that the table has listed since; no chosen fault crosses them."""
        lags, which = np.unique(self.table.lag[len(self._state) :], return_inverse=True)
        if len(lags):
            states = [self._id(_RowState(False, lag)) for lag in lags.tolist()]
            self._state = np.append(self._state, np.array(states, np.int64)[which])

    def _id(self, state: _RowState) -> int:
        """Return the number of a state; register a new one."""
        known = self._ids.get(state)
        if known is not None:
            return known
        good = self._base
        for _, factor in state.factors:
            good *= factor
        number = self._ids[state] = len(self._states)
        self._states.append(state)
        if number == len(self._bad):
            self._grow()
        self._bad[number], self._lag[number], self._good[number] = state.bad, state.lag, good
        value_state(
            state.bad, state.lag, good, self._severity, self._row_value, self._row_gain, number
        )
        return number

    def _grow(self) -> None:
        """Make room for as many states again."""
        self._bad = np.append(self._bad, np.zeros_like(self._bad))
        self._lag = np.append(self._lag, np.zeros_like(self._lag))
        self._good = np.append(self._good, np.zeros_like(self._good))
        self._row_value = np.append(self._row_value, np.zeros_like(self._row_value))
        self._row_gain = np.concatenate([self._row_gain, np.zeros_like(self._row_gain)])

    def _move_rows(
        self, column: int, rows: Int64s, which: Int64s, factors: list[float] | None
    ) -> None:
        """Move rows into the states after a column is added, or removed (`factors` None).

        `which`: the factor of each row, shape (rows,).
        """
        if not len(rows):
            return
        kinds, place = len(factors or (0,)), np.empty(len(rows), np.int64)
        pairs = np.zeros(len(self._states) * kinds, np.int64)
        pairs = pairs[: find_moves(rows, self._state, which, kinds, pairs, place)]
        if factors is None:
            old = pairs
            targets = [self._without(state, column) for state in old.tolist()]
        else:
            old = pairs // kinds
            targets = [
                self._with(pair // kinds, column, factors[pair % kinds]) for pair in pairs.tolist()
            ]
        new = np.array(targets, np.int64)
        self.value += self._update_gains(rows, place, old, new)
        self._state[rows] = new[place]

    def _with(self, state: int, column: int, factor: float) -> int:
        before = self._states[state]
        factors = tuple(sorted((*before.factors, (column, factor))))
        return self._id(_RowState(before.bad, before.lag, factors))

    def _without(self, state: int, column: int) -> int:
        before = self._states[state]
        factors = tuple(f for f in before.factors if f[0] != column)
        return self._id(_RowState(before.bad, before.lag, factors))

    def _update_gains(self, rows: Int64s, place: Int64s, old: Int64s, new: Int64s) -> float:
        """Update the gains for rows that change their states; return what they gain themselves.

        Arguments as of `likelihood_kernel.move_rows`.
        """
        table, possible = self.table, self.table.possible
        keys = np.empty(len(rows), np.int64)
        room = (len(possible.starts) - 1) * len(new)
        if len(self._pooled) < room:
            self._pooled = np.zeros(room)
        count, gained = move_rows(
            rows, place, old, new, table.weight, table.crossed, self._row_value, self._row_gain,
            self.gains, table.group, self._pooled, keys,
        )  # fmt: skip
        if count:
            move_groups(
                np.sort(keys[:count]), self._pooled, old, new, self._bad, self._lag, self._good,
                self._row_value, self._severity, possible.starts, possible.columns,
                possible.chance, self.gains,
            )  # fmt: skip
        return gained
