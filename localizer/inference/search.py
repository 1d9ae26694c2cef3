"""Which faults explain the bad observations and are not contradicted by the good ones.

Model. A component c, if faulty, spoils each observation that crosses it with
probability s_c (its severity: 1 for a cut, less for partial faults), each
independently (noisy-or); whatever is wrong with the network, an observation is
spoilt by chance with probability e. So with the set H of faulty components

    P(observation i is good | H) = (1 - e) * prod over c in H that i crosses of (1 - s_c)

and a faulty component adds log(prior) to the score. A bad observation that has
not shown itself yet looks good: with `lag` F, the share of truly bad ones that are
known by now, P(looks good) = 1 - F * P(bad). The score of (H, s, e) is the
log-posterior up to a constant; severities and e are taken from small grids. The
model is that of Flock (CoNEXT 2023), extended by severity, lag and chance rate.

Which way the reply of a bad 5-tuple took nobody knows: what it crossed with chance q
only is a factor 1 - q * s_c instead.

Two blocks of observations have severities of their own: 5-tuples, which a
detector judged bad over many probes, and the single probes of traces, each of
which crossed only the components up to its hop and so tells apart what all
5-tuples cross together. Some columns are no components but other reasons for
bad observations (a busy prober, a stalled responder, everything at once): they
compete, so that noise is not blamed on the network.

Search: add the component with the greatest gain, then adjust, swap and remove
while that gains; for every e of the grid; the best of all wins. Sparse sums over
(observation, component) entries; nothing is enumerated.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from localizer.inference.table_likelihood import TableLikelihood
from localizer.inference.tables import Block, Table
from schemas.columns.arrays import Bools, Floats, Int64s

# A partial fault flags every second 5-tuple or fewer, a cut all of them.
FLOW_SEVERITIES: Final = (0.1, 0.25, 0.5, 0.8, 0.97, 0.999)
# 5 % to 20 % loss show in single probes of traces as they are; a cut stops all.
HOP_SEVERITIES: Final = (0.05, 0.1, 0.2, 0.5, 0.95, 0.999)
# Severities are equally likely beforehand.
LOG_SEVERITY: Final = -float(np.log(len(FLOW_SEVERITIES)))
# More faults at once than that are one larger thing, or none.
MAX_FAULTS: Final = 64
# Traces say where, not whether: what explains no bad 5-tuple is not at fault,
# however late or lost single probes across it were.
MIN_FLOW_GAIN: Final = 1.0
# Rounds of adjusting after each added component; it settles in two or three.
MAX_ROUNDS: Final = 8
# Scores closer than this are a tie: sums of thousands of log_likelihoods in different order.
TIE: Final = 1e-7
# Rivals with less belief than this are not told: of a hundred thousand columns all but a few.
LEAST_BELIEF: Final = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What there is to explain.

    Attributes
    ----------
    names
        Columns, in the order in which ties are broken.
    log_prior
        Log odds of each column to be at fault, shape (columns,).
    blamable
        Columns that may be chosen, shape (columns,): something bad crosses them.
    flows, hops
        The two blocks.
    chance
        Grid of (chance rate of a bad 5-tuple, log of its weight).
    hop_chance
        Probability that a single probe of a trace is bad by chance.
    """

    names: tuple[str, ...]
    log_prior: Floats
    blamable: Bools
    flows: Block | Table
    hops: Block
    chance: tuple[tuple[float, float], ...]
    hop_chance: float


@dataclass(frozen=True, slots=True)
class Suspect:
    """A chosen column.

    `shares` are (column, share of the belief) of all that could stand in its
    place, best first; `doubt` the share of "nothing there".
    """

    column: int
    flow_severity: float
    hop_severity: float
    shares: tuple[tuple[int, float], ...]
    doubt: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """The best explanation found; `score` without a constant."""

    suspects: tuple[Suspect, ...]
    chance: float
    score: float


def explain(problem: Problem) -> Explanation:
    """Return the best explanation; without suspects when chance alone is better."""
    best: tuple[float, float, _Search] | None = None
    width = len(problem.names)
    tables = _table(problem.flows, width), _table(problem.hops, width)
    for chance, log_weight in problem.chance:
        search = _Search(problem, tables, chance)
        # More than this it cannot come to, whatever is chosen.
        if best is not None and search.bound() + log_weight <= best[0] + TIE:
            continue
        search.run()
        score = search.score() + log_weight
        if best is None or score > best[0] + TIE:
            best = (score, chance, search)
    if best is None:
        raise ValueError("the grid of chance rates is empty")
    score, chance, search = best
    return Explanation(search.suspects(), chance, score)


def _table(observed: Block | Table, width: int) -> Table:
    return observed if isinstance(observed, Table) else Table.of(observed, width)


class _Search:
    def __init__(self, problem: Problem, tables: tuple[Table, Table], chance: float) -> None:
        self._problem = problem
        self._likelihoods = (
            TableLikelihood(tables[0], FLOW_SEVERITIES, chance),
            TableLikelihood(tables[1], HOP_SEVERITIES, problem.hop_chance),
        )
        # Column to the places of its severities in the two grids.
        self._chosen: dict[int, tuple[int, int]] = {}
        # Chosen columns that were better than all others when they were looked at last, with
        # what they gained; nothing near them has changed since.
        self._settled: dict[int, float] = {}
        self._totals: Floats | None = None

    def run(self) -> None:
        """Search: as long as one more component, with what follows from it, is a gain."""
        score = self.score()
        while len(self._chosen) < MAX_FAULTS:
            column, places, gain = self._best()
            if gain <= TIE:
                # Until now only what is near a change was looked at again.
                self._settled.clear()
                self._improve()
                if self.score() <= score + TIE:
                    return
                score = self.score()
                continue
            before = dict(self._chosen)
            self._add(column, places)
            self._improve()
            # Adjusting may drop what explains nothing any more, and lose by it.
            if self.score() <= score + TIE:
                self._restore(before)
                return
            score = self.score()

    def _restore(self, chosen: dict[int, tuple[int, int]]) -> None:
        for column in list(self._chosen):
            self._remove(column)
        for column, places in chosen.items():
            self._add(column, places)

    def bound(self) -> float:
        """Return what no score exceeds: all that is bad explained, nothing that is good spoilt."""
        return sum(likelihood.upper_bound for likelihood in self._likelihoods)

    def score(self) -> float:
        """Return the log-posterior of what is chosen, up to a constant."""
        prior = sum(float(self._problem.log_prior[c]) + 2 * LOG_SEVERITY for c in self._chosen)
        return sum(likelihood.value for likelihood in self._likelihoods) + prior

    def suspects(self) -> tuple[Suspect, ...]:
        """Return what is chosen, each with its rivals."""
        found = []
        for column in sorted(self._chosen):
            flow, hop = self._chosen[column]
            self._remove(column)
            rivals = np.where(self._selectable(), self._gains(), -np.inf)
            self._add(column, (flow, hop))
            top = max(float(rivals.max(initial=-np.inf)), 0.0)
            belief = np.exp(rivals - top)
            doubt = float(np.exp(-top))
            whole = float(belief.sum()) + doubt
            belief /= whole
            order = sorted(
                np.flatnonzero(belief > LEAST_BELIEF),
                key=lambda c: (-round(float(belief[c]), 9), self._problem.names[c]),
            )
            found.append(
                Suspect(
                    column,
                    FLOW_SEVERITIES[flow],
                    HOP_SEVERITIES[hop],
                    tuple((int(c), float(belief[c])) for c in order),
                    doubt / whole,
                )
            )
        return tuple(found)

    def _selectable(self) -> Bools:
        free = self._problem.blamable.copy()
        free[list(self._chosen)] = False
        return free

    def _gains(self) -> Floats:
        """Return the gain of each column at its best severities."""
        if self._totals is None:
            flow, hop = (likelihood.gains for likelihood in self._likelihoods)
            flow_gain = flow.max(axis=0)
            totals = self._problem.log_prior + 2 * LOG_SEVERITY + flow_gain + hop.max(axis=0)
            totals[flow_gain < MIN_FLOW_GAIN] = -np.inf
            self._totals = totals
        return self._totals

    def _places(self, column: int) -> tuple[int, int]:
        """Return the places of a column's best severities."""
        flow, hop = (int(likelihood.gains[:, column].argmax()) for likelihood in self._likelihoods)
        return flow, hop

    def _best(self) -> tuple[int, tuple[int, int], float]:
        totals = self._gains()
        free = self._selectable()
        if not free.any():
            return -1, (0, 0), -np.inf
        totals = np.where(free, totals, -np.inf)
        # The first within a hair of the best: rounding must not choose.
        column = int(np.flatnonzero(totals >= totals.max() - TIE)[0])
        return column, self._places(column), float(totals[column])

    def _add(self, column: int, places: tuple[int, int]) -> None:
        self._chosen[column] = places
        for likelihood, place in zip(self._likelihoods, places, strict=True):
            likelihood.add_fault(column, likelihood.grid[place])
        self._touch(column)

    def _remove(self, column: int) -> None:
        self._chosen.pop(column)
        self._settled.pop(column, None)
        for likelihood in self._likelihoods:
            likelihood.remove_fault(column)
        self._touch(column)

    def _touch(self, column: int) -> None:
        """Note that a column came or went: what shares an observation with it is unsettled."""
        self._totals = None
        for likelihood in self._likelihoods:
            near = likelihood.table.columns_near(column)
            for settled in [c for c in self._settled if _holds(near, c)]:
                del self._settled[settled]

    def _improve(self) -> None:
        """Adjust, swap or remove what is chosen, one after another, while it gains."""
        for _ in range(MAX_ROUNDS):
            before = self.score()
            for column in sorted(self._chosen):
                if column not in self._settled or self._best()[2] > self._settled[column]:
                    self._adjust(column)
            if self.score() <= before + TIE:
                return

    def _adjust(self, column: int) -> None:
        """Put in the place of a chosen column what is best there: mostly itself."""
        places = self._chosen[column]
        settled, marks = (
            dict(self._settled),
            [each.snapshot(column) for each in self._likelihoods],
        )
        self._remove(column)
        mine = float(self._gains()[column])
        other, new_places, gain = self._best()
        if gain > TIE:
            keep = mine >= gain - TIE
            best = self._places(column) if keep else new_places
            if keep and best == places:
                for likelihood, mark in zip(self._likelihoods, marks, strict=True):
                    likelihood.restore(mark)
                self._chosen[column], self._totals = places, None
                self._settled = {**settled, column: mine}
            else:
                self._add(column if keep else other, best)
        elif mine > TIE:
            self._add(column, places)


def _holds(places: Int64s, place: int) -> bool:
    """Say whether sorted places hold one."""
    at = int(np.searchsorted(places, place))
    return at < len(places) and int(places[at]) == place
