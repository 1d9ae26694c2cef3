"""The likelihood of a table under a set of chosen faults, updated as faults are added and removed.

Rows with the same outcome, the same lag and the same chosen faults are in one state. There are few
states, and all rows of a state gain the same when a further fault is added. So adding or removing a
fault updates only the rows that cross it, one state at a time.
"""

from dataclasses import dataclass

import numpy as np

from localizer.inference.tables import Table, log_likelihoods
from schemas.columns.arrays import Floats, Int64s


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
        Gain in log-likelihood by adding each column at each severity, shape (grid, columns).
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
        # Per state: whether its rows are bad, their lag, P(good), and the log-likelihood of one
        # row.
        self._bad = np.empty(0, np.bool_)
        self._lag = np.empty(0)
        self._good = np.empty(0)
        self._row_value = np.empty(0)
        # Gain of one row of each state by a further fault, shape (grid, states).
        self._row_gain = np.empty((len(grid), 0))
        self._state = np.empty(0, np.int64)
        self.gains = np.zeros((len(grid), table.width))
        self.value = 0.0
        self._begin()

    def add_fault(self, column: int, severity: float) -> None:
        """Add a column to the chosen faults."""
        rows, odds = self.table.rows(column)
        self._list()
        self._move_rows(column, rows, 1.0 - odds * severity)

    def remove_fault(self, column: int) -> None:
        """Remove a column from the chosen faults."""
        rows, _ = self.table.rows(column)
        self._move_rows(column, rows, None)

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
        outcomes = np.stack([table.bad.astype(np.float64), table.lag])
        kinds, kind = np.unique(outcomes, axis=1, return_inverse=True)
        ids = [self._id(_RowState(bool(bad), float(lag))) for bad, lag in kinds.T]
        self._state = np.array(ids, np.int64)[kind.reshape(-1)] if ids else self._state
        if ids:
            every = np.arange(len(table))
            self._update_gains(every, kind.reshape(-1), None, np.array(ids, np.int64))
        self.value = float((table.weight * self._row_value[self._state]).sum())
        for unlisted in table.unlisted:
            state = self._id(_RowState(False, unlisted.lag))
            self.gains += self._row_gain[:, state, None] * unlisted.counts
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
        bad, lag = np.array([state.bad]), np.array([state.lag])
        now = log_likelihoods(bad, lag, np.array([good]))
        then = log_likelihoods(bad, lag, good * (1.0 - self._severity))
        self._states.append(state)
        self._bad, self._lag = np.append(self._bad, bad), np.append(self._lag, lag)
        self._good = np.append(self._good, good)
        self._row_value = np.append(self._row_value, now)
        self._row_gain = np.concatenate([self._row_gain, (then - now)[:, None]], axis=1)
        self._ids[state] = len(self._states) - 1
        return self._ids[state]

    def _move_rows(self, column: int, rows: Int64s, factors: Floats | None) -> None:
        """Move rows into the states after a column is added, or removed (`factors` None)."""
        if not len(rows):
            return
        before = self._state[rows]
        if factors is None:
            pairs, place = distinct(before)
            old = pairs
            targets = [self._without(state, column) for state in old.tolist()]
        else:
            values, which = np.unique(factors, return_inverse=True)
            pairs, place = distinct(before * len(values) + which)
            old, used = pairs // len(values), values[pairs % len(values)]
            targets = [
                self._with(state, column, factor)
                for state, factor in zip(old.tolist(), used.tolist(), strict=True)
            ]
        new = np.array(targets, np.int64)
        self._update_gains(rows, place, old, new)
        gained = np.bincount(place, self.table.weight[rows], len(pairs))
        self.value += float(gained @ (self._row_value[new] - self._row_value[old]))
        self._state[rows] = new[place]

    def _with(self, state: int, column: int, factor: float) -> int:
        before = self._states[state]
        factors = tuple(sorted((*before.factors, (column, factor))))
        return self._id(_RowState(before.bad, before.lag, factors))

    def _without(self, state: int, column: int) -> int:
        before = self._states[state]
        factors = tuple(f for f in before.factors if f[0] != column)
        return self._id(_RowState(before.bad, before.lag, factors))

    def _update_gains(self, rows: Int64s, place: Int64s, old: Int64s | None, new: Int64s) -> None:
        """Update the gains for rows that change their states.

        Parameters
        ----------
        place
            Which of the moves each row makes, shape (rows,).
        old, new
            States before and after each move, shape (moves,); `old` None: the rows are new.
        """
        table, width, kinds = self.table, self.table.width + 1, len(new)
        weight, crossed = table.weight[rows], table.crossed[rows]
        delta = self._row_gain[:, new]
        if old is not None:
            delta = delta - self._row_gain[:, old]
        most = crossed.shape[1]
        if kinds <= len(self.grid):
            # One sum per move serves all severities.
            flat = (place[:, None] * width + crossed).ravel()
            sums = np.bincount(flat, np.repeat(weight, most), kinds * width)
            self.gains += delta @ sums.reshape(kinds, width)[:, :-1]
        else:
            flat = crossed.ravel()
            for index, each in enumerate(delta):
                one = np.repeat(weight * each[place], most)
                self.gains[index] += np.bincount(flat, one, width)[:-1]
        self._update_possible_gains(table.group[rows] * kinds + place, weight, old, new)

    def _update_possible_gains(
        self, key: Int64s, weight: Floats, old: Int64s | None, new: Int64s
    ) -> None:
        """Update the gains for possible crossings; `key` combines group and move."""
        kinds = len(new)
        possible = key >= kinds
        if not possible.any():
            return
        keys, place = distinct(key[possible])
        sums = np.bincount(place, weight[possible])
        entries, which = self.table.possible.entries(keys // kinds)
        columns, odds = self.table.possible.columns[entries], self.table.possible.chance[entries]
        move = (keys % kinds)[which]
        each = self._possible_gains(new[move], odds)
        if old is not None:
            each -= self._possible_gains(old[move], odds)
        each *= sums[which]
        width, most = self.table.width, len(self.grid)
        flat = (np.arange(most)[:, None] * width + columns).ravel()
        self.gains += np.bincount(flat, each.ravel(), most * width).reshape(most, width)

    def _possible_gains(self, states: Int64s, odds: Floats) -> Floats:
        """Return what rows gain by columns that they cross with a probability, (grid, entries)."""
        bad, lag, good = self._bad[states], self._lag[states], self._good[states]
        then = log_likelihoods(bad, lag, good * (1.0 - odds * self._severity[:, None]))
        gained: Floats = then - self._row_value[states]
        return gained


def distinct(numbers: Int64s) -> tuple[Int64s, Int64s]:
    """Return the distinct numbers in order, and the place of each number among them.

    As `np.unique(numbers, return_inverse=True)`, by counting instead of sorting: for numbers of
    states and groups, which are small. It is called a hundred times a decision.

    Parameters
    ----------
    numbers : (n,) int64, none below 0

    Returns
    -------
    values : (k,) int64
    places : (n,) int64; `values[places]` are the numbers
    """
    seen = np.zeros(int(numbers.max(initial=-1)) + 1, np.bool_)
    seen[numbers] = True
    return np.flatnonzero(seen), (np.cumsum(seen) - 1)[numbers]
