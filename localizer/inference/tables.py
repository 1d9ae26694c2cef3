"""Observations as sparse matrices.

The likelihoods of `localizer.inference.search`: an observation is good with probability
(1 - e) * prod over the faults that it crosses of (1 - severity); where it crosses one
with chance q only, the factor is 1 - q * severity.

Observations as the search reads them: one row of columns each, listed as far as needed. Pure.

A good 5-tuple matters one by one only when a column that it crosses is chosen: until then it
is enough to know how many of them cross each column. So good ones may stay unlisted, and a
column's are listed when it is tried first. Of a million, that is those of a few cables.
"""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from schemas.columns.arrays import Bools, Floats, Int64s


@dataclass(frozen=True, slots=True, kw_only=True)
class PossibleCrossings:
    """What observations cross with some chance only: `rows`, `columns`, `chance`, all (k,)."""

    rows: Int64s
    columns: Int64s
    chance: Floats


def no_possible_crossings() -> PossibleCrossings:
    """Return an empty one."""
    none = np.empty(0, np.int64)
    return PossibleCrossings(rows=none, columns=none, chance=np.empty(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Observations of one sort, m of them, with n entries (observation, column).

    `bad`, `weight`, `lag`: shape (m,); `rows`, `columns`: shape (n,), no entry of which
    is one of `maybes` too.
    """

    bad: Bools
    weight: Floats
    lag: Floats
    rows: Int64s
    columns: Int64s
    possible: PossibleCrossings = field(default_factory=no_possible_crossings)


def log_likelihoods(bad: Bools, lag: Floats, good: Floats) -> Floats:
    """Return the log-likelihood of observations with P(good) as given, all of one shape."""
    spoilt = np.maximum(1.0 - good, 1e-300)
    return np.where(bad, np.log(spoilt), np.log1p(-np.minimum(lag * spoilt, 1 - 1e-12)))


class UnlistedRows(Protocol):
    """Good observations of weight 1 that no row stands for yet."""

    @property
    def total(self) -> int:
        """How many."""

    @property
    def lag(self) -> float:
        """As of a block, the same for all."""

    @property
    def counts(self) -> Floats:
        """How many of them cross each column, shape (columns,)."""

    def list_rows(self, column: int) -> Int64s:
        """Return the columns of all that cross one, shape (k, w), padded; they are listed now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PossibleGroups:
    """What groups of rows cross with some chance only, entry by entry.

    Group g has the entries `starts[g]` to `starts[g + 1]`; group 0 has none. `columns` and
    `chance`: shape (entries,).
    """

    starts: Int64s
    columns: Int64s
    chance: Floats

    def entries(self, groups: Int64s) -> tuple[Int64s, Int64s]:
        """Return all entries of some groups, and for each the place of its group among them."""
        counts = self.starts[groups + 1] - self.starts[groups]
        which = np.repeat(np.arange(len(groups)), counts)
        first = np.cumsum(counts) - counts
        return self.starts[groups][which] + np.arange(len(which)) - first[which], which


def no_possible_groups() -> PossibleGroups:
    """Return those of rows that cross everything for certain."""
    none = np.empty(0, np.int64)
    return PossibleGroups(starts=np.zeros(2, np.int64), columns=none, chance=np.empty(0))


class Table:
    """Rows of observations, more of which may be listed in the course of a search.

    Attributes
    ----------
    width
        How many columns there are; the number is also what rows are padded with.
    bad, weight, lag
        Shape (rows,).
    crossed
        Columns of each row, shape (rows, most), padded.
    group
        Which group of `chances` holds of a row, shape (rows,).
    """

    def __init__(
        self,
        width: int,
        *,
        bad: Bools,
        weight: Floats,
        lag: Floats,
        crossed: Int64s,
        group: Int64s | None = None,
        chances: PossibleGroups | None = None,
        unlisted: UnlistedRows | None = None,
    ) -> None:
        self.width = width
        self.bad = bad
        self.weight = weight
        self.lag = lag
        self.crossed = crossed
        self.possible = no_possible_groups() if chances is None else chances
        self.group = np.zeros(len(bad), np.int64) if group is None else group
        self.unlisted = unlisted
        self._rows: dict[int, tuple[Int64s, Floats]] = {}
        self._near: dict[int, Int64s] = {}

    def __len__(self) -> int:
        return len(self.bad)

    @classmethod
    def of(cls, block: Block, width: int) -> "Table":
        """Return a block's rows."""
        count = len(block.bad)
        order = np.argsort(block.rows, kind="stable")
        rows, columns = block.rows[order], block.columns[order]
        place = np.arange(len(rows)) - np.searchsorted(rows, rows)
        crossed = np.full((count, int(place.max(initial=-1)) + 1), width, np.int64)
        crossed[rows, place] = columns
        maybes = block.possible
        order = np.argsort(maybes.rows, kind="stable")
        unsure, sizes = np.unique(maybes.rows, return_counts=True)
        group = np.zeros(count, np.int64)
        group[unsure] = 1 + np.arange(len(unsure))
        chances = PossibleGroups(
            starts=np.concatenate([[0, 0], np.cumsum(sizes)]).astype(np.int64),
            columns=maybes.columns[order],
            chance=maybes.chance[order],
        )
        return cls(
            width,
            bad=block.bad,
            weight=block.weight,
            lag=block.lag,
            crossed=crossed,
            group=group,
            chances=chances,
        )

    def rows(self, column: int) -> tuple[Int64s, Floats]:
        """Return the rows that cross a column, with the chance; what is unlisted is listed."""
        found = self._rows.get(column)
        if found is None:
            self._list(column)
            sure = np.flatnonzero((self.crossed == column).any(axis=1))
            chances = self.possible
            entries = np.flatnonzero(chances.columns == column)
            odds = np.zeros(len(chances.starts) - 1)
            odds[np.searchsorted(chances.starts, entries, side="right") - 1] = chances.chance[
                entries
            ]
            maybe = np.flatnonzero(odds[self.group]) if len(entries) else entries
            found = self._rows[column] = (
                np.concatenate([sure, maybe]),
                np.concatenate([np.ones(len(sure)), odds[self.group[maybe]]]),
            )
        return found

    def columns_near(self, column: int) -> Int64s:
        """Return all columns that share a row with a column, itself included."""
        found = self._near.get(column)
        if found is None:
            rows, _ = self.rows(column)
            entries, _ = self.possible.entries(np.unique(self.group[rows]))
            seen = np.zeros(self.width + 1, np.bool_)
            seen[self.crossed[rows]] = True
            seen[self.possible.columns[entries]] = True
            seen[column] = True
            found = self._near[column] = np.flatnonzero(seen[:-1])
        return found

    def _list(self, column: int) -> None:
        unlisted = self.unlisted
        if unlisted is None or not unlisted.counts[column]:
            return
        new = unlisted.list_rows(column)
        count, most = len(new), max(new.shape[1], self.crossed.shape[1])
        padded = [
            np.pad(rows, ((0, 0), (0, most - rows.shape[1])), constant_values=self.width)
            for rows in (self.crossed, new)
        ]
        self.crossed = np.concatenate(padded)
        self.bad = np.append(self.bad, np.zeros(count, np.bool_))
        self.weight = np.append(self.weight, np.ones(count))
        self.lag = np.append(self.lag, np.full(count, unlisted.lag))
        self.group = np.append(self.group, np.zeros(count, np.int64))
