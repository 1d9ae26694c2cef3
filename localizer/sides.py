"""What a set of chosen faults makes of observations, kept up as columns come and go. Pure.

Observations on which the chosen columns act alike, and that came out alike, are in one
state; there are few states, and all rows of one gain the same by a further column. So a
column that comes or goes changes only the sums of its own rows, a state at a time.
"""

from dataclasses import dataclass

import numpy as np

from localizer.blocks import Floats, Ints, terms
from localizer.tables import Table


@dataclass(frozen=True, slots=True)
class _State:
    """How rows came out, and what chosen columns left of P(good): (column, factor), sorted."""

    bad: bool
    lag: float
    factors: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Mark:
    """What a side goes back to."""

    rows: Ints
    state: Ints
    gains: Floats
    value: float


class Side:
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
        self._ids: dict[_State, int] = {}
        self._states: list[_State] = []
        # By state: whether its rows are bad, their lag, P(good), and the log-likelihood of one.
        self._bad = np.empty(0, np.bool_)
        self._lag = np.empty(0)
        self._good = np.empty(0)
        self._worth = np.empty(0)
        # What each state's rows gain by a further column, shape (grid, states).
        self._delta = np.empty((len(grid), 0))
        self._state = np.empty(0, np.int64)
        self.gains = np.zeros((len(grid), table.width))
        self.value = self.bound = 0.0
        self._begin()

    def add(self, column: int, severity: float) -> None:
        """Choose a column."""
        rows, odds = self.table.rows(column)
        self._list()
        self._move(column, rows, 1.0 - odds * severity)

    def remove(self, column: int) -> None:
        """Take a chosen column back."""
        rows, _ = self.table.rows(column)
        self._move(column, rows, None)

    def mark(self, column: int) -> Mark:
        """Return how things are, for a column that is taken back for a moment."""
        rows, _ = self.table.rows(column)
        return Mark(rows, self._state[rows], self.gains.copy(), self.value)

    def go_back(self, mark: Mark) -> None:
        """Be again as things were when marked; only that column may have gone since."""
        self._state[mark.rows] = mark.state
        self.gains, self.value = mark.gains, mark.value

    def _begin(self) -> None:
        table = self.table
        outcomes = np.stack([table.bad.astype(np.float64), table.lag])
        kinds, kind = np.unique(outcomes, axis=1, return_inverse=True)
        ids = [self._id(_State(bool(bad), float(lag))) for bad, lag in kinds.T]
        self._state = np.array(ids, np.int64)[kind.reshape(-1)] if ids else self._state
        every = np.arange(len(table))
        self._count(every, self._state, 1.0)
        worth = table.weight * self._worth[self._state]
        self.value, self.bound = float(worth.sum()), float(worth[~table.bad].sum())
        if table.unlisted is not None:
            state = self._id(_State(False, table.unlisted.lag))
            self.gains += self._delta[:, state, None] * table.unlisted.counts
            more = table.unlisted.total * float(self._worth[state])
            self.value, self.bound = self.value + more, self.bound + more

    def _list(self) -> None:
        """Follow the table, which has listed rows that nothing chosen crosses: none but good."""
        more = len(self.table) - len(self._state)
        if more and self.table.unlisted is not None:
            state = self._id(_State(False, self.table.unlisted.lag))
            self._state = np.append(self._state, np.full(more, state))

    def _id(self, state: _State) -> int:
        """Return the number of a state; one that is new is worked out."""
        known = self._ids.get(state)
        if known is not None:
            return known
        good = self._base
        for _, factor in state.factors:
            good *= factor
        bad, lag = np.array([state.bad]), np.array([state.lag])
        now = terms(bad, lag, np.array([good]))
        then = terms(bad, lag, good * (1.0 - self._severity))
        self._states.append(state)
        self._bad, self._lag = np.append(self._bad, bad), np.append(self._lag, lag)
        self._good = np.append(self._good, good)
        self._worth = np.append(self._worth, now)
        self._delta = np.concatenate([self._delta, (then - now)[:, None]], axis=1)
        self._ids[state] = len(self._states) - 1
        return self._ids[state]

    def _move(self, column: int, rows: Ints, factors: Floats | None) -> None:
        """Put rows into the states that a column makes of theirs; None: that it leaves behind."""
        old = self._state[rows]
        if factors is None:
            pairs, place = np.unique(old, return_inverse=True)
            new = [self._without(state, column) for state in pairs.tolist()]
        else:
            values, which = np.unique(factors, return_inverse=True)
            pairs, place = np.unique(old * len(values) + which, return_inverse=True)
            new = [
                self._with(pair // len(values), column, float(values[pair % len(values)]))
                for pair in pairs.tolist()
            ]
        to = np.array(new, np.int64)[place] if new else old
        self._count(rows, old, -1.0)
        self._count(rows, to, 1.0)
        weight = self.table.weight[rows]
        self.value += float((weight * (self._worth[to] - self._worth[old])).sum())
        self._state[rows] = to

    def _with(self, state: int, column: int, factor: float) -> int:
        before = self._states[state]
        factors = tuple(sorted((*before.factors, (column, factor))))
        return self._id(_State(before.bad, before.lag, factors))

    def _without(self, state: int, column: int) -> int:
        before = self._states[state]
        factors = tuple(f for f in before.factors if f[0] != column)
        return self._id(_State(before.bad, before.lag, factors))

    def _count(self, rows: Ints, state: Ints, sign: float) -> None:
        """Add (or take away) what rows in some states gain by each column."""
        if not len(rows):
            return
        table, width = self.table, self.table.width + 1
        weight = sign * table.weight[rows]
        crossed = table.crossed[rows]
        states, place = np.unique(state, return_inverse=True)
        most = crossed.shape[1]
        if len(states) <= len(self.grid):
            # A sum for each state serves all severities.
            flat = (place[:, None] * width + crossed).ravel()
            sums = np.bincount(flat, np.repeat(weight, most), len(states) * width)
            self.gains += self._delta[:, states] @ sums.reshape(len(states), width)[:, :-1]
        else:
            delta, flat = self._delta[:, state], crossed.ravel()
            for index in range(len(self.grid)):
                each = np.repeat(weight * delta[index], most)
                self.gains[index] += np.bincount(flat, each, width)[:-1]
        self._count_maybes(rows, state, weight)

    def _count_maybes(self, rows: Ints, state: Ints, weight: Floats) -> None:
        group = self.table.group[rows]
        unsure = np.flatnonzero(group)
        if not len(unsure):
            return
        chances, count = self.table.chances, len(self._states)
        keys, place = np.unique(group[unsure] * count + state[unsure], return_inverse=True)
        sums = np.bincount(place, weight[unsure])
        entries, which = chances.entries(keys // count)
        states = (keys % count)[which]
        columns, odds = chances.columns[entries], chances.chance[entries]
        bad, lag, good = self._bad[states], self._lag[states], self._good[states]
        then = terms(bad, lag, good * (1.0 - odds * self._severity[:, None]))
        each = sums[which] * (then - self._worth[states])
        width, most = self.table.width, len(self.grid)
        flat = (np.arange(most)[:, None] * width + columns).ravel()
        self.gains += np.bincount(flat, each.ravel(), most * width).reshape(most, width)
