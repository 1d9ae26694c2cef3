"""Kernels of `localizer.inference.table_likelihood`: what rows gain as they change their states.

A search moves some hundred rows a hundred times; numpy's calls alone took most of that.
"""

from math import log, log1p

import numpy as np

from localizer.inference.tables import LEAST_CHANCE, MOST_CHANCE
from schemas.columns.arrays import Bools, Floats, Int64s
from schemas.columns.compiled import compiled, inlined


@inlined
def _log_likelihood(bad: bool, lag: float, good: float) -> float:
    """Return the log-likelihood of one observation, as `tables.log_likelihoods`."""
    chance = max(1.0 - good, LEAST_CHANCE)
    if bad:
        return log(chance)
    return log1p(-min(lag * chance, MOST_CHANCE))


@compiled
def value_state(
    bad: bool, lag: float, good: float, severity: Floats, values: Floats, gains: Floats, state: int
) -> None:
    """Note what a row of a state is worth, and what it gains by a further fault.

    Parameters
    ----------
    bad, lag, good
        Outcome, lag, and probability that the row is good.
    severity : (grid,)
    values : (states,)
        Written at `state`.
    gains : (states, grid)
        Written at `state`.
    """
    now = _log_likelihood(bad, lag, good)
    values[state] = now
    for index in range(len(severity)):
        gains[state, index] = _log_likelihood(bad, lag, good * (1.0 - severity[index])) - now


@compiled
def find_moves(
    rows: Int64s, state: Int64s, which: Int64s, kinds: int, seen: Int64s, place: Int64s
) -> int:
    """Find the distinct pairs of state and kind among some rows.

    Parameters
    ----------
    rows, which, place : (n,) int64
        Rows; the kind of each, from 0 to `kinds`; written: which of the pairs it is.
    state : (all rows,) int64
    seen : (states * kinds,) int64
        All 0. Its first places are written: the pairs `state * kinds + kind`, ascending.

    Returns
    -------
    int
        How many pairs there are.
    """
    for at in range(len(rows)):
        seen[state[rows[at]] * kinds + which[at]] = 1
    count = 0
    for pair in range(len(seen)):
        if seen[pair]:
            count += 1
            seen[pair] = count
    for at in range(len(rows)):
        place[at] = seen[state[rows[at]] * kinds + which[at]] - 1
    for pair in range(len(seen)):
        if seen[pair]:
            # Never behind this pair's own place.
            seen[seen[pair] - 1] = pair
    return count


@compiled
def best_totals(flow: Floats, hop: Floats, prior: Floats, least: float, totals: Floats) -> None:
    """Write what each column gains at its best severities.

    Parameters
    ----------
    flow, hop : (columns + 1, grid)
        Gains by both tables.
    prior, totals : (columns,)
        Added; written.
    least
        A column that gains less by `flow` is none: minus infinity.
    """
    for column in range(len(totals)):
        by_flow, by_hop = flow[column, 0], hop[column, 0]
        for index in range(1, flow.shape[1]):
            by_flow = max(by_flow, flow[column, index])
            by_hop = max(by_hop, hop[column, index])
        totals[column] = -np.inf if by_flow < least else prior[column] + by_flow + by_hop


@compiled
def first_best(totals: Floats, free: Bools, tie: float) -> int:
    """Return the first free column that ties with the best; -1 if none is free."""
    most, any_free = -np.inf, False
    for column in range(len(totals)):
        if free[column]:
            any_free = True
            most = max(most, totals[column])
    if not any_free:
        return -1
    for column in range(len(totals)):
        if free[column] and totals[column] >= most - tie:
            return column
    return -1


@compiled
def move_rows(
    rows: Int64s, place: Int64s, old: Int64s, new: Int64s,
    weight: Floats, crossed: Int64s, values: Floats, row_gain: Floats, sums: Floats,
    group: Int64s, pooled: Floats, keys: Int64s,
) -> tuple[int, float]:  # fmt: skip
    """Add up what columns gain as rows that cross them change their states.

    Parameters
    ----------
    rows, place : (n,) int64
        Rows that move, and which of the moves each makes.
    old, new : (moves,) int64
        States before and after each; old -1: the rows are new.
    weight : (rows,), crossed : (rows, most), group : (rows,)
        Of the table.
    values : (states,), row_gain : (states, grid)
        Log-likelihood of a row of each state, and what it gains by a further fault.
    sums : (columns + 1, grid)
        Added to; the last is of the padding.
    pooled : (groups * moves,)
        All 0; the weight of each group and move is added to it.
    keys : (n,) int64
        Written: `group * moves + move` of those with possible crossings.

    Returns
    -------
    keys
        How many there are.
    gained
        What the rows gain themselves.
    """
    grid, most, moves, count = row_gain.shape[1], crossed.shape[1], len(new), 0
    gained = 0.0
    for at in range(len(rows)):
        row, move = rows[at], place[at]
        before, after = old[move], new[move]
        gained += weight[row] * (values[after] - (values[before] if before >= 0 else 0.0))
        for index in range(grid):
            one = row_gain[after, index]
            if before >= 0:
                one -= row_gain[before, index]
            one *= weight[row]
            for entry in range(most):
                sums[crossed[row, entry], index] += one
        if group[row]:
            key = group[row] * moves + move
            if pooled[key] == 0.0:
                keys[count] = key
                count += 1
            pooled[key] += weight[row]
    return count, gained


@compiled
def move_groups(
    keys: Int64s, pooled: Floats, old: Int64s, new: Int64s,
    bad: Bools, lag: Floats, good: Floats, values: Floats, severity: Floats,
    starts: Int64s, columns: Int64s, chance: Floats, sums: Floats,
) -> None:  # fmt: skip
    """Add up what columns gain that rows cross with a probability only.

    Parameters
    ----------
    keys, pooled
        As `move_rows` left them; `pooled` is all 0 again afterwards.
    old, new : (moves,) int64
    bad, lag, good, values : (states,)
        Outcome, lag, P(good) and log-likelihood of a row of each state.
    severity : (grid,)
    starts, columns, chance
        Of the table's `PossibleGroups`.
    sums : (columns + 1, grid)
        Added to.
    """
    moves = len(new)
    for key in keys:
        weight = pooled[key]
        pooled[key] = 0.0
        before, after = old[key % moves], new[key % moves]
        for entry in range(starts[key // moves], starts[key // moves + 1]):
            for index in range(len(severity)):
                left = 1.0 - chance[entry] * severity[index]
                one = _log_likelihood(bad[after], lag[after], good[after] * left) - values[after]
                if before >= 0:
                    one -= (
                        _log_likelihood(bad[before], lag[before], good[before] * left)
                        - values[before]
                    )
                sums[columns[entry], index] += one * weight
