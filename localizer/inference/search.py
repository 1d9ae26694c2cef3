"""Find the faults that explain the bad observations and are not contradicted by the good ones.

Model. A faulty component c makes each observation that crosses it bad with probability s_c, its
severity: 1 for a cut, less for a partial fault, independently for each observation (noisy-or).
Whatever is wrong with the network, an observation is bad by chance with probability e. With the
set H of faulty components

    P(observation i is good | H) = (1 - e) * product over c in H that i crosses of (1 - s_c)

and each faulty component adds log(prior) to the score. A bad observation that is not detected yet
looks good: F is the share of truly bad ones that are detected by now (see `detection_lag`), and
P(looks good) = 1 - F * P(bad). The score of (H, s, e) is the log-posterior up to a constant;
severities and e come from small grids. The model is that of Flock (CoNEXT 2023), extended by
severity, lag and a grid of chance rates. SkeletonHunter itself (SIGCOMM 2025, Algorithm 1) counts
votes of failing paths and does not use successful probes.

The way of a reply is not traced: where an observation crosses c only with probability q, the
factor is 1 - q * s_c.

Two tables have severities of their own: 5-tuples, which a detector judged over many probes, and
single probes of traces, which crossed only the components up to their hop and so separate
components that all 5-tuples cross together. Some columns are no components but noise (a busy
prober, a stalled responder, a cluster-wide disturbance). They compete with the components, so that
noise is not blamed on the network.

Search. Greedy: add the component with the greatest gain, then adjust, swap and remove chosen ones
while the score rises. This is repeated for every e of the grid; the best result is returned.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from localizer.inference.likelihood_kernel import best_totals, first_best
from localizer.inference.table_likelihood import Snapshot, TableLikelihood, upper_bound
from localizer.inference.tables import Block, PossibleCrossings, Table
from schemas.columns.arrays import Bools, Floats, Int64s

# A partial fault makes at most half of the 5-tuples bad, a cut all of them.
FLOW_SEVERITIES: Final = (0.1, 0.25, 0.5, 0.8, 0.97, 0.999)
# Single probes show loss of 5 % to 20 % as it is; a cut stops all.
HOP_SEVERITIES: Final = (0.05, 0.1, 0.2, 0.5, 0.95, 0.999)
# All severities have the same prior probability.
LOG_SEVERITY: Final = -float(np.log(len(FLOW_SEVERITIES)))
# More simultaneous faults than this are one larger fault, or noise.
MAX_FAULTS: Final = 64
# Traces tell where a fault is, not whether there is one: a cause that explains no bad 5-tuple is
# not at fault, however many single probes across it were late or lost.
MIN_FLOW_GAIN: Final = 1.0
# Rounds of adjusting after each addition; two or three are enough in practice.
MAX_ROUNDS: Final = 8
# Scores closer than this are equal: sums of thousands of terms depend on their order.
TIE: Final = 1e-7
# Rivals below this probability are left out: nearly all of a hundred thousand columns.
LEAST_BELIEF: Final = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The input of the search.

    Attributes
    ----------
    names
        Columns, in the order that breaks ties.
    log_prior
        Log odds that each column is at fault, shape (columns,) float64.
    blamable
        Columns that may be chosen, shape (columns,) bool: a bad observation crosses them.
    flows, hops
        Observations of 5-tuples, and of single probes of traces.
    chance
        Grid of (probability that a 5-tuple is bad by chance, its log weight).
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
    """A chosen column and its rivals.

    Attributes
    ----------
    shares
        (column, posterior probability) of all columns that could take its place, best first.
    doubt
        Posterior probability that none of them is at fault.
    """

    column: int
    flow_severity: float
    hop_severity: float
    shares: tuple[tuple[int, float], ...]
    doubt: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """The best set of faults; `score` is its log-posterior up to a constant."""

    suspects: tuple[Suspect, ...]
    chance: float
    score: float


def explain(problem: Problem) -> Explanation:
    """Return the best explanation.

    Parameters
    ----------
    problem
        Observations, columns and priors.

    Returns
    -------
    Explanation
        Without suspects if chance alone explains the observations better.

    Raises
    ------
    ValueError
        If the grid of chance rates is empty.
    """
    best: tuple[float, float, _Search] | None = None
    width = len(problem.names)
    tables = _table(problem.flows, width), _table(problem.hops, width)
    for chance, log_weight in problem.chance:
        # Mostly the first chance rate is the best one: the others then need no search.
        if best is not None:
            bound = upper_bound(tables[0], chance) + upper_bound(tables[1], problem.hop_chance)
            if bound + log_weight <= best[0] + TIE:
                continue
        search = _Search(problem, tables, chance)
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
        # For each chosen column the indices of its severities in the two grids.
        self._chosen: dict[int, tuple[int, int]] = {}
        # Chosen columns that had no better replacement when last checked, with their gain then; no
        # column that shares an observation with them has changed since.
        self._settled: dict[int, float] = {}
        self._prior = problem.log_prior + 2 * LOG_SEVERITY
        self._totals: Floats | None = None

    def run(self) -> None:
        """Add faults one by one, adjusting the others after each, while the score rises."""
        score = self.score()
        while len(self._chosen) < MAX_FAULTS:
            column, places, gain = self._best()
            if gain <= TIE:
                # So far only columns near a change were checked again: check all before stopping.
                self._settled.clear()
                self._improve()
                if self.score() <= score + TIE:
                    return
                score = self.score()
                continue
            before = dict(self._chosen)
            self._add(column, places)
            self._improve()
            # Adjusting may drop columns and end with a lower score: undo the addition.
            if self.score() <= score + TIE:
                self._restore(before)
                return
            score = self.score()

    def _restore(self, chosen: dict[int, tuple[int, int]]) -> None:
        for column in list(self._chosen):
            self._remove(column)
        for column, places in chosen.items():
            self._add(column, places)

    def score(self) -> float:
        """Return the log-posterior of the chosen faults, up to a constant."""
        prior = sum(float(self._problem.log_prior[c]) + 2 * LOG_SEVERITY for c in self._chosen)
        return sum(likelihood.value for likelihood in self._likelihoods) + prior

    def suspects(self) -> tuple[Suspect, ...]:
        """Return the chosen columns, each with its rivals."""
        found = []
        for column in sorted(self._chosen):
            flow, hop = self._chosen[column]
            marks = [each.snapshot(column) for each in self._likelihoods]
            self._remove(column)
            rivals = np.where(self._selectable(), self._gains(), -np.inf)
            self._put_back(column, (flow, hop), marks)
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
            self._totals = np.empty(len(self._prior))
            flow, hop = (likelihood.gains for likelihood in self._likelihoods)
            best_totals(flow, hop, self._prior, MIN_FLOW_GAIN, self._totals)
        return self._totals

    def _places(self, column: int) -> tuple[int, int]:
        """Return the indices of a column's best severities."""
        flow, hop = (int(likelihood.gains[column].argmax()) for likelihood in self._likelihoods)
        return flow, hop

    def _best(self) -> tuple[int, tuple[int, int], float]:
        totals = self._gains()
        # The first that ties with the best: rounding must not decide.
        column = first_best(totals, self._selectable(), TIE)
        if column < 0:
            return -1, (0, 0), -np.inf
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

    def _put_back(self, column: int, places: tuple[int, int], marks: list[Snapshot]) -> None:
        """Undo the removal of a column since the snapshots."""
        for likelihood, mark in zip(self._likelihoods, marks, strict=True):
            likelihood.restore(mark)
        self._chosen[column], self._totals = places, None

    def _touch(self, column: int) -> None:
        """Note that a column came or went: columns that share a row with it are unsettled."""
        self._totals = None
        for likelihood in self._likelihoods:
            near = likelihood.table.columns_near(column)
            for settled in [c for c in self._settled if _holds(near, c)]:
                del self._settled[settled]

    def _improve(self) -> None:
        """Adjust the chosen columns in turn while the score rises."""
        for _ in range(MAX_ROUNDS):
            before = self.score()
            for column in sorted(self._chosen):
                if column not in self._settled or self._best()[2] > self._settled[column]:
                    self._adjust(column)
            if self.score() <= before + TIE:
                return

    def _adjust(self, column: int) -> None:
        """Replace a chosen column by the best one there, mostly itself; drop it if none gains."""
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
                self._put_back(column, places, marks)
                self._settled = {**settled, column: mine}
            else:
                self._add(column if keep else other, best)
        elif mine > TIE:
            self._add(column, places)


def warm() -> None:
    """Compile the kernels, some seconds once after an installation, or read them from disk."""
    one, many = np.ones(1), np.zeros(1, np.int64)
    way = PossibleCrossings(rows=many, columns=many + 1, chance=one / 2)
    rows = Block(
        bad=one > 0, weight=one, lag=one, rows=many, columns=many, possible=way
    )  # fmt: skip
    explain(
        Problem(
            names=("a", "b"), log_prior=np.zeros(2), blamable=np.ones(2, np.bool_),
            flows=rows, hops=rows, chance=((0.01, 0.0),), hop_chance=0.01,
        )
    )  # fmt: skip


def _holds(places: Int64s, place: int) -> bool:
    """Return whether a sorted array contains a value."""
    at = int(np.searchsorted(places, place))
    return at < len(places) and int(places[at]) == place
