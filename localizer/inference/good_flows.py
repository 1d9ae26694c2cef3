"""The good 5-tuples: counted per cause, and listed as rows only when the search asks for them.

A large cluster has a million good 5-tuples. Before a search needs them one by one, it is enough to
know how many cross each cause; `GoodRows` provides both views to `tables.Table`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from localizer.inference.causes import Columns
from localizer.inference.detection_lag import Shown
from localizer.network.flow_index import CROSSED, NOTHING, PROBER, FlowIndex, Numbers
from schemas.columns.arrays import Bools, Floats, Int64s
from schemas.ids import FlowId

NO_ROWS: Final[Int64s] = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class GoodFlows:
    """The good 5-tuples of an index.

    Attributes
    ----------
    mask
        Rows of the index that are good, shape (capacity,).
    total
        How many there are.
    crossing
        How many of them have each number of the index, shape as `FlowIndex.crossing`.
    hidden
        The same of those that are not bad but whose agent reports nothing reliable.
    """

    index: FlowIndex
    mask: Bools
    total: int
    crossing: Int64s
    hidden: Int64s

    @classmethod
    def of(
        cls,
        index: FlowIndex,
        not_good: Iterable[FlowId],
        unreliable: Iterable[str],
        *,
        bad_rows: Int64s = NO_ROWS,
    ) -> "GoodFlows":
        """Select all 5-tuples but the bad ones and those of agents that report nothing reliable.

        Parameters
        ----------
        not_good
            5-tuples that are not good.
        bad_rows
            Rows of further 5-tuples that are not good, shape (n,).
        unreliable
            Agents whose silence about a 5-tuple is no sign that it is well.
        """
        known = map(index.by_key.get, not_good)
        places = np.array([place for place in known if place is not None], np.int64)
        numbers = [n for known in (index.probers, index.responders) for a in unreliable
                   if (n := known.get(a)) is not None]  # fmt: skip
        mask = index.live.copy()
        mask[places] = False
        mask[bad_rows] = False
        bad = np.flatnonzero(index.live & ~mask)
        for number in numbers:
            mask[index.rows_with(number)] = False
        out = np.flatnonzero(index.live & ~mask)
        size = len(index.crossing)
        gone = np.bincount(index.rows[out].ravel(), minlength=size)
        hidden = gone - np.bincount(index.rows[bad].ravel(), minlength=size)
        hidden[NOTHING] = 0
        return cls(index, mask, len(index) - len(out), index.crossing - gone, hidden)

    def hidden_at(self, component_id: str) -> int:
        """Return how many 5-tuples that cross a component may be good, but nobody says so now."""
        return int(self.hidden[self.index.components.get(component_id, NOTHING)])

    def at_agent(self, agent_id: str) -> int:
        """Return how many good 5-tuples begin or end at an agent."""
        numbers = [known.get(agent_id, NOTHING) for known in self._ends()]
        places = np.unique(np.concatenate([self.index.rows_with(n) for n in numbers]))
        return int(self.mask[places].sum())

    def lags(self, places: Int64s, lag_of: Floats) -> Floats:
        """Return the share of the truly bad 5-tuples that is detected, by row, shape (k,).

        Parameters
        ----------
        lag_of
            `lag_of`, which takes time for each number of the index.
        """
        found: Floats = lag_of[self.index.rows[places, PROBER]]
        return found

    def alike(self, components: Iterable[str]) -> float:
        """Return how many 5-tuples of one agent cross a component, on average over some."""
        index = self.index
        flows, agents = 0, 0
        for component in components:
            places = index.rows_with(index.components.get(component, NOTHING))
            flows += len(places)
            agents += len(np.unique(index.rows[places, PROBER]))
        return flows / agents if agents else 1.0

    def columns(self, column: Columns, width: int, shown: Shown) -> tuple["GoodRows", ...]:
        """Return the good 5-tuples as rows over the inference's columns; none is listed yet.

        One set of rows for each share of truly bad ones that is detected; at least one.
        """
        of = self._numbered(column, width)
        return tuple(
            part.rows(column, width, lag, *of) for part, lag in self._by_lag(self.lag_of(shown))
        )

    def lag_of(self, shown: Shown) -> Floats:
        """Return the share of the truly bad 5-tuples that is detected, by number of the prober.

        Returns
        -------
        ndarray
            Shape as `FlowIndex.crossing`.
        """
        found = np.full(len(self.index.crossing), shown.usual)
        for agent, share in shown.heard.items():
            found[self.index.probers.get(agent, NOTHING)] = share
        found[NOTHING] = shown.usual
        return found

    def _by_lag(self, lag_of: Floats) -> list[tuple["GoodFlows", float]]:
        """Return the good 5-tuples by lag; of the most frequent lag as what the others leave."""
        lags, counts = np.unique(lag_of, return_counts=True)
        usual = float(lags[counts.argmax()])
        if len(lags) == 1:
            return [(self, usual)]
        lag = lag_of[self.index.rows[:, PROBER]]
        rest, size = self, len(self.index.crossing)
        found = []
        for one in lags.tolist():
            places = np.flatnonzero(self.mask & (lag == one)) if one != usual else ()
            if not len(places):
                continue
            mask = np.zeros_like(self.mask)
            mask[places] = True
            crossing = np.bincount(self.index.rows[places].ravel(), minlength=size)
            found.append(
                (replace(self, mask=mask, total=len(places), crossing=crossing), float(one))
            )
            rest = replace(
                rest,
                mask=rest.mask & ~mask,
                total=rest.total - len(places),
                crossing=rest.crossing - crossing,
            )
        return [(rest, usual), *found]

    def _numbered(self, column: Columns, width: int) -> tuple[Int64s, Int64s | None]:
        """Return by number of the index its column, `width` for none, and that of a starved host.

        The second is None where no host is starved.
        """
        of = np.full(len(self.index.crossing), width)
        index = self.index
        for known, names in (
            (column.components, index.components),
            (column.probers, index.probers),
            (column.responders, index.responders),
        ):
            found = [(names[name], place) for name, place in known.items() if name in names]
            if found:
                numbers, places = np.array(found).T
                of[numbers] = places
        if not column.starved:
            return of, None
        # An agent's prober and its responder are one starved host.
        starved = np.full(len(of), width)
        for known in self._ends():
            for name, place in column.starved.items():
                if name in known:
                    starved[known[name]] = place
        return of, starved

    def rows(
        self, column: Columns, width: int, lag: float, of: Int64s, starved: Int64s | None
    ) -> "GoodRows":
        """Return these 5-tuples as rows over the inference's columns; none is listed yet.

        Parameters
        ----------
        of, starved
            As of `_numbered`.
        """
        counts = np.zeros(width + 1)
        for columns in (of,) if starved is None else (of, starved):
            used = np.flatnonzero(columns < width)
            np.add.at(counts, columns[used], self.crossing[used])
        if column.global_cause is not None:
            counts[column.global_cause] = self.total
        return GoodRows(
            self,
            of,
            counts[:-1],
            lag,
            column.global_cause,
            starved=starved,
        )

    def _ends(self) -> tuple[dict[str, int], dict[str, int]]:
        return self.index.probers, self.index.responders


class GoodRows:
    """Good 5-tuples that a table has not listed yet; implements `tables.UnlistedRows`."""

    def __init__(
        self,
        good: GoodFlows,
        columns: Int64s,
        counts: Floats,
        lag: float,
        everything: int | None,
        *,
        starved: Int64s | None,
    ) -> None:
        self.total = good.total
        self.lag = lag
        self.counts = counts
        self.index = good.index
        self._waiting = good.mask.copy()
        self._columns = columns
        self._everything = everything
        # The starved host of each of the index's numbers; None without one.
        self._starved = starved
        # The index's number of each column; `NOTHING` where the index does not know the cause.
        self._numbers = np.full(len(counts) + 1, NOTHING)
        self._numbers[columns] = np.arange(len(columns))
        # Before any is listed; arrays are replaced then, and not changed.
        self.parts = (
            self.index, self.index.version, good.mask, lag, counts, columns, everything, starved,
        )  # fmt: skip

    def columns_of(self, places: Int64s) -> Int64s:
        """Return the columns that rows of the index cross, whether good or not, shape (k, w)."""
        return self.columns_of_numbers(self.index.rows[places, CROSSED:])

    def columns_of_numbers(self, numbers: Int64s | Numbers) -> Int64s:
        """Return the columns of components, by number of the index, shape of `numbers`."""
        found: Int64s = self._columns[numbers]
        return found

    def list_rows(self, column: int) -> Int64s:
        """List all unlisted rows that cross a column; return their columns, (k, w), padded."""
        if column == self._everything:
            places = np.flatnonzero(self._waiting)
        else:
            numbers = [int(self._numbers[column])]
            if self._starved is not None:
                numbers += np.flatnonzero(self._starved == column).tolist()
            places = np.concatenate([self.index.rows_with(number) for number in numbers])
            places = places[self._waiting[places]]
        self._waiting[places] = False
        self.total -= len(places)
        numbered = self.index.rows[places]
        rows = self._columns[numbered]
        if self._starved is not None:
            rows = np.concatenate([rows, self._starved[numbered[:, :CROSSED]]], axis=1)
        if self._everything is not None:
            more = np.full((len(rows), 1), self._everything)
            rows = np.concatenate([rows, more], axis=1)
        self.counts = self.counts - np.bincount(rows.ravel(), minlength=len(self.counts) + 1)[:-1]
        return rows
