"""Observations as sparse tables: one row per observation, one column per candidate cause.

The likelihood is that of `localizer.inference.search`. An observation is good with probability
(1 - e) * product over the faults that it crosses of (1 - severity); for a fault that it crosses
only with probability q, the factor is 1 - q * severity.

The search needs a good 5-tuple as a row of its own only once a column that it crosses has been
chosen. Until then the number of good 5-tuples per column is enough. So good rows stay unlisted, and
those of a column are listed when the column is first tried: of a million, those of a few cables.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np

from schemas.columns.arrays import Bools, Floats, Int64s

# Bounds of the chance that an observation is bad, whose logarithms are finite.
LEAST_CHANCE: Final = 1e-300
MOST_CHANCE: Final = 1 - 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class PossibleCrossings:
    """Columns that observations cross with some probability only.

    Attributes
    ----------
    rows, columns : (k,) int64
    chance : (k,) float64, probability that the row crosses the column
    """

    rows: Int64s
    columns: Int64s
    chance: Floats


def no_possible_crossings() -> PossibleCrossings:
    """Return no entries."""
    none = np.empty(0, np.int64)
    return PossibleCrossings(rows=none, columns=none, chance=np.empty(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Observations of one sort: m rows with n entries (row, column).

    Attributes
    ----------
    bad : (m,) bool
    weight : (m,) float64, how many observations the row stands for
    lag : (m,) float64, share of truly bad ones that are detected by now, see `detection_lag`
    rows, columns : (n,) int64, what is crossed for certain
    possible : what is crossed with some probability only; disjoint from the entries above
    """

    bad: Bools
    weight: Floats
    lag: Floats
    rows: Int64s
    columns: Int64s
    possible: PossibleCrossings = field(default_factory=no_possible_crossings)


def log_likelihoods(bad: Bools, lag: Floats, good: Floats) -> Floats:
    """Return the log-likelihood of each observation.

    Parameters
    ----------
    bad
        Whether it is bad, shape (...).
    lag
        Share of truly bad observations that are detected by now, shape (...).
    good
        Probability that it is good, shape (...).

    Examples
    --------
    >>> log_likelihoods(np.array([True, False]), np.ones(2), np.full(2, 0.5)).round(3)
    array([-0.693, -0.693])
    """
    bad_chance = np.maximum(1.0 - good, LEAST_CHANCE)
    return np.where(bad, np.log(bad_chance), np.log1p(-np.minimum(lag * bad_chance, MOST_CHANCE)))


class UnlistedRows(Protocol):
    """Good observations of weight 1 and one lag that have no row in the table yet."""

    @property
    def total(self) -> int:
        """How many there are."""

    @property
    def lag(self) -> float:
        """The lag of each, as in `Block`."""

    @property
    def counts(self) -> Floats:
        """How many of them cross each column, shape (columns,)."""

    @property
    def parts(self) -> tuple[object, ...]:
        """What they are made of at first: as long as all parts are equal, so are the rows."""

    def list_rows(self, column: int) -> Int64s:
        """List all that cross a column; return their columns, shape (k, w), padded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PossibleGroups:
    """Possible crossings, shared by groups of rows.

    Rows of one group possibly cross the same columns with the same probabilities.

    Attributes
    ----------
    starts : (groups + 1,) int64
        Group g has the entries from `starts[g]` to `starts[g + 1]`; group 0 has none.
    columns : (entries,) int64
    chance : (entries,) float64
    """

    starts: Int64s
    columns: Int64s
    chance: Floats

    def entries(self, groups: Int64s) -> tuple[Int64s, Int64s]:
        """Return all entries of some groups, and for each entry the position of its group."""
        counts = self.starts[groups + 1] - self.starts[groups]
        which = np.repeat(np.arange(len(groups)), counts)
        first = np.cumsum(counts) - counts
        return self.starts[groups][which] + np.arange(len(which)) - first[which], which


def no_possible_groups() -> PossibleGroups:
    """Return the groups of rows that cross everything for certain."""
    none = np.empty(0, np.int64)
    return PossibleGroups(starts=np.zeros(2, np.int64), columns=none, chance=np.empty(0))


class Table:
    """Rows of observations; the search lists further rows as it needs them.

    Attributes
    ----------
    width
        Number of columns; rows are padded with this number.
    bad, weight, lag
        As in `Block`, shape (rows,).
    crossed
        Columns that each row crosses for certain, shape (rows, most), padded.
    group
        Group of `possible` that each row belongs to, shape (rows,).
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
        unlisted: Sequence[UnlistedRows] = (),
    ) -> None:
        self.width = width
        self.bad = bad
        self.weight = weight
        self.lag = lag
        self.crossed = crossed
        self.possible = no_possible_groups() if chances is None else chances
        self.group = np.zeros(len(bad), np.int64) if group is None else group
        self.unlisted = tuple(unlisted)
        self._rows: dict[int, tuple[Int64s, Floats]] = {}
        self._levels: dict[int, tuple[Floats, Int64s]] = {}
        self._near: dict[int, Int64s] = {}

    def __len__(self) -> int:
        return len(self.bad)

    @classmethod
    def of(cls, block: Block, width: int) -> "Table":
        """Return the table of a block's rows."""
        count = len(block.bad)
        order = np.argsort(block.rows, kind="stable")
        rows, columns = block.rows[order], block.columns[order]
        place = np.arange(len(rows)) - np.searchsorted(rows, rows)
        crossed = np.full((count, int(place.max(initial=-1)) + 1), width, np.int64)
        crossed[rows, place] = columns
        possible = block.possible
        order = np.argsort(possible.rows, kind="stable")
        possible_rows, sizes = np.unique(possible.rows, return_counts=True)
        group = np.zeros(count, np.int64)
        group[possible_rows] = 1 + np.arange(len(possible_rows))
        chances = PossibleGroups(
            starts=np.concatenate([[0, 0], np.cumsum(sizes)]).astype(np.int64),
            columns=possible.columns[order],
            chance=possible.chance[order],
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
        """Return the rows that cross a column, and the probability; lists unlisted ones first."""
        found = self._rows.get(column)
        if found is None:
            self._list(column)
            certain = np.flatnonzero((self.crossed == column).any(axis=1))
            chances = self.possible
            entries = np.flatnonzero(chances.columns == column)
            chance_of_group = np.zeros(len(chances.starts) - 1)
            chance_of_group[np.searchsorted(chances.starts, entries, side="right") - 1] = (
                chances.chance[entries]
            )
            possible_rows = np.flatnonzero(chance_of_group[self.group]) if len(entries) else entries
            found = self._rows[column] = (
                np.concatenate([certain, possible_rows]),
                np.concatenate([np.ones(len(certain)), chance_of_group[self.group[possible_rows]]]),
            )
        return found

    def levels(self, column: int) -> tuple[Floats, Int64s]:
        """Return the distinct probabilities of `rows`, and which of them is each row's."""
        found = self._levels.get(column)
        if found is None:
            values, which = np.unique(self.rows(column)[1], return_inverse=True)
            found = self._levels[column] = values, which.reshape(-1)
        return found

    def columns_near(self, column: int) -> Int64s:
        """Return all columns that share a row with a column, itself included, sorted."""
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
        for unlisted in self.unlisted:
            if unlisted.counts[column]:
                self._append(unlisted.list_rows(column), unlisted.lag)

    def _append(self, new: Int64s, lag: float) -> None:
        """Append good rows with these columns, shape (k, w), padded."""
        count, most = len(new), max(new.shape[1], self.crossed.shape[1])
        padded = [
            np.pad(rows, ((0, 0), (0, most - rows.shape[1])), constant_values=self.width)
            for rows in (self.crossed, new)
        ]
        self.crossed = np.concatenate(padded)
        self.bad = np.append(self.bad, np.zeros(count, np.bool_))
        self.weight = np.append(self.weight, np.ones(count))
        self.lag = np.append(self.lag, np.full(count, lag))
        self.group = np.append(self.group, np.zeros(count, np.int64))
