"""What a set of chosen faults makes of observations, kept up as columns come and go. Pure.

Observations on which the chosen columns act alike, and that came out alike, are in one
state; there are few states, and all rows of one gain the same by a further column. So a
column that comes or goes changes only the sums of its own rows, a state at a time.
"""

from dataclasses import dataclass

import numpy as np

from localizer.inference.tables import Table, log_likelihoods
from schemas.columns.arrays import Floats, Int64s


@dataclass(frozen=True, slots=True)
class _RowState:
    """How rows came out, and what chosen columns left of P(good): (column, factor), sorted."""

    bad: bool
    lag: float
    factors: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a likelihood goes back to."""

    rows: Int64s
    state: Int64s
    gains: Floats
    value: float


class TableLikelihood:
    """One table, with its grid of severities and P(good) under what is chosen.

    Attributes
    ----------
    gains
        What adding each column with each severity gains, shape (grid, columns).
    value
        Log-likelihood under what is chosen.
    bound
        What `value` never exceeds: that of the good ones when nothing is chosen.
    """

    def __init__(self, table: Table, grid: tuple[float, ...], chance: float) -> None:
        self.table = table
        self.grid = grid
        self._base = 1.0 - chance
        self._severity = np.array(grid)
        self._ids: dict[_RowState, int] = {}
        self._states: list[_RowState] = []
        # By state: whether its rows are bad, their lag, P(good), and the log-likelihood of one.
        self._bad = np.empty(0, np.bool_)
        self._lag = np.empty(0)
        self._good = np.empty(0)
        self._worth = np.empty(0)
        # What each state's rows gain by a further column, shape (grid, states).
        self._delta = np.empty((len(grid), 0))
        self._state = np.empty(0, np.int64)
        self.gains = np.zeros((len(grid), table.width))
        self.value = self.upper_bound = 0.0
        self._begin()

    def add_fault(self, column: int, severity: float) -> None:
        """Choose a column."""
        rows, odds = self.table.rows(column)
        self._list()
        self._move(column, rows, 1.0 - odds * severity)

    def remove_fault(self, column: int) -> None:
        """Take a chosen column back."""
        rows, _ = self.table.rows(column)
        self._move(column, rows, None)

    def snapshot(self, column: int) -> Snapshot:
        """Return how things are, for a column that is taken back for a moment."""
        rows, _ = self.table.rows(column)
        return Snapshot(rows, self._state[rows], self.gains.copy(), self.value)

    def restore(self, mark: Snapshot) -> None:
        """Be again as things were when marked; only that column may have gone since."""
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
            self._spread(every, kind.reshape(-1), None, np.array(ids, np.int64))
        worth = table.weight * self._worth[self._state]
        self.value, self.upper_bound = float(worth.sum()), float(worth[~table.bad].sum())
        if table.unlisted is not None:
            state = self._id(_RowState(False, table.unlisted.lag))
            self.gains += self._delta[:, state, None] * table.unlisted.counts
            more = table.unlisted.total * float(self._worth[state])
            self.value, self.upper_bound = self.value + more, self.upper_bound + more

    def _list(self) -> None:
        """Follow the table, which has listed rows that nothing chosen crosses: none but good."""
        more = len(self.table) - len(self._state)
        if more and self.table.unlisted is not None:
            state = self._id(_RowState(False, self.table.unlisted.lag))
            self._state = np.append(self._state, np.full(more, state))

    def _id(self, state: _RowState) -> int:
        """Return the number of a state; one that is new is worked out."""
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
        self._worth = np.append(self._worth, now)
        self._delta = np.concatenate([self._delta, (then - now)[:, None]], axis=1)
        self._ids[state] = len(self._states) - 1
        return self._ids[state]

    def _move(self, column: int, rows: Int64s, factors: Floats | None) -> None:
        """Put rows into the states that a column makes of theirs; None: that it leaves behind."""
        if not len(rows):
            return
        before = self._state[rows]
        if factors is None:
            pairs, place = np.unique(before, return_inverse=True)
            old = pairs
            made = [self._without(state, column) for state in old.tolist()]
        else:
            values, which = np.unique(factors, return_inverse=True)
            pairs, place = np.unique(before * len(values) + which, return_inverse=True)
            old, used = pairs // len(values), values[pairs % len(values)]
            made = [
                self._with(state, column, factor)
                for state, factor in zip(old.tolist(), used.tolist(), strict=True)
            ]
        new = np.array(made, np.int64)
        self._spread(rows, place, old, new)
        gained = np.bincount(place, self.table.weight[rows], len(pairs))
        self.value += float(gained @ (self._worth[new] - self._worth[old]))
        self._state[rows] = new[place]

    def _with(self, state: int, column: int, factor: float) -> int:
        before = self._states[state]
        factors = tuple(sorted((*before.factors, (column, factor))))
        return self._id(_RowState(before.bad, before.lag, factors))

    def _without(self, state: int, column: int) -> int:
        before = self._states[state]
        factors = tuple(f for f in before.factors if f[0] != column)
        return self._id(_RowState(before.bad, before.lag, factors))

    def _spread(self, rows: Int64s, place: Int64s, old: Int64s | None, new: Int64s) -> None:
        """Tell the gains that rows have gone from some states into others.

        Parameters
        ----------
        place
            Which of the states a row goes from and into, shape (rows,).
        old, new
            The states, shape (kinds of moves,); None: the rows were not counted before.
        """
        table, width, kinds = self.table, self.table.width + 1, len(new)
        weight, crossed = table.weight[rows], table.crossed[rows]
        delta = self._delta[:, new]
        if old is not None:
            delta = delta - self._delta[:, old]
        most = crossed.shape[1]
        if kinds <= len(self.grid):
            # A sum for each kind of move serves all severities.
            flat = (place[:, None] * width + crossed).ravel()
            sums = np.bincount(flat, np.repeat(weight, most), kinds * width)
            self.gains += delta @ sums.reshape(kinds, width)[:, :-1]
        else:
            flat = crossed.ravel()
            for index, each in enumerate(delta):
                one = np.repeat(weight * each[place], most)
                self.gains[index] += np.bincount(flat, one, width)[:-1]
        self._spread_maybes(table.group[rows] * kinds + place, weight, old, new)

    def _spread_maybes(self, key: Int64s, weight: Floats, old: Int64s | None, new: Int64s) -> None:
        """Tell them of what the rows may cross; `key`: group and kind of move in one."""
        kinds = len(new)
        unsure = key >= kinds
        if not unsure.any():
            return
        keys, place = np.unique(key[unsure], return_inverse=True)
        sums = np.bincount(place, weight[unsure])
        entries, which = self.table.possible.entries(keys // kinds)
        columns, odds = self.table.possible.columns[entries], self.table.possible.chance[entries]
        move = (keys % kinds)[which]
        each = self._unsure(new[move], odds)
        if old is not None:
            each -= self._unsure(old[move], odds)
        each *= sums[which]
        width, most = self.table.width, len(self.grid)
        flat = (np.arange(most)[:, None] * width + columns).ravel()
        self.gains += np.bincount(flat, each.ravel(), most * width).reshape(most, width)

    def _unsure(self, states: Int64s, odds: Floats) -> Floats:
        """Return what rows gain by a column that they cross with a chance, (grid, entries)."""
        bad, lag, good = self._bad[states], self._lag[states], self._good[states]
        then = log_likelihoods(bad, lag, good * (1.0 - odds * self._severity[:, None]))
        gained: Floats = then - self._worth[states]
        return gained
