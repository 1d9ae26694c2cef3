"""Observations as sparse matrices, and what a fault makes of them. Pure.

The likelihoods of `localizer.underlay`: an observation is good with probability
(1 - e) * prod over the faults that it crosses of (1 - severity); where it crosses one
with chance q only, the factor is 1 - q * severity.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Maybes:
    """What observations cross with some chance only: `rows`, `columns`, `chance`, all (k,)."""

    rows: Ints
    columns: Ints
    chance: Floats


def no_maybes() -> Maybes:
    """Return an empty one."""
    none = np.empty(0, np.int64)
    return Maybes(rows=none, columns=none, chance=np.empty(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Observations of one sort, m of them, with n entries (observation, column).

    `bad`, `weight`, `lag`: shape (m,); `rows`, `columns`: shape (n,), no entry of which
    is one of `maybes` too.
    """

    bad: Bools
    weight: Floats
    lag: Floats
    rows: Ints
    columns: Ints
    maybes: Maybes = field(default_factory=no_maybes)


class Side:
    """One block, with its grid of severities and P(good) under what is chosen."""

    def __init__(self, block: Block, grid: tuple[float, ...], chance: float, columns: int) -> None:
        self.block = block
        self.grid = grid
        self.good = np.full(len(block.bad), 1.0 - chance)
        self._columns = columns
        maybes = block.maybes
        self._rows, self._starts = _by_column(block.rows, block.columns, columns)
        self._maybe, self._maybe_starts = _by_column(
            np.arange(len(maybes.rows)), maybes.columns, columns
        )

    def log_likelihood(self) -> float:
        """Return the log-likelihood of the block under what is chosen."""
        block = self.block
        return float((block.weight * _terms(block.bad, block.lag, self.good)).sum())

    def gains(self) -> Floats:
        """Return what adding each column with each severity gains, shape (grid, columns)."""
        block, maybes, count = self.block, self.block.maybes, self._columns
        now = _terms(block.bad, block.lag, self.good)
        rows = maybes.rows
        bad, lag, weight = block.bad[rows], block.lag[rows], block.weight[rows]
        out = np.empty((len(self.grid), count))
        for index, severity in enumerate(self.grid):
            then = _terms(block.bad, block.lag, self.good * (1.0 - severity))
            delta = block.weight * (then - now)
            out[index] = np.bincount(block.columns, weights=delta[block.rows], minlength=count)
            if len(rows):
                then = _terms(bad, lag, self.good[rows] * (1.0 - maybes.chance * severity))
                out[index] += np.bincount(
                    maybes.columns, weights=weight * (then - now[rows]), minlength=count
                )
        return out

    def add(self, column: int, severity: float) -> None:
        """Choose a column."""
        self.good[self._rows_of(column)] *= 1.0 - severity
        rows, chance = self._maybe_of(column)
        self.good[rows] *= 1.0 - chance * severity

    def remove(self, column: int, severity: float) -> None:
        """Take a chosen column back."""
        self.good[self._rows_of(column)] /= 1.0 - severity
        rows, chance = self._maybe_of(column)
        self.good[rows] /= 1.0 - chance * severity

    def _rows_of(self, column: int) -> Ints:
        return self._rows[self._starts[column] : self._starts[column + 1]]

    def _maybe_of(self, column: int) -> tuple[Ints, Floats]:
        entries = self._maybe[self._maybe_starts[column] : self._maybe_starts[column + 1]]
        return self.block.maybes.rows[entries], self.block.maybes.chance[entries]


def _by_column(rows: Ints, columns: Ints, count: int) -> tuple[Ints, Ints]:
    """Return rows in the order of their columns, and where each column begins."""
    order = np.argsort(columns, kind="stable")
    return rows[order], np.searchsorted(columns[order], np.arange(count + 1))


def _terms(bad: Bools, lag: Floats, good: Floats) -> Floats:
    spoilt = np.maximum(1.0 - good, 1e-300)
    return np.where(bad, np.log(spoilt), np.log1p(-np.minimum(lag * spoilt, 1 - 1e-12)))
