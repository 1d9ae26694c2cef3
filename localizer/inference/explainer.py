"""Explains the problems of one family of anomalies, one decision after the other.

While a fault lasts, many decisions have the same observations: a repetition of an anomaly changes
only numbers that the problem does not contain. Such a problem is not solved again.
"""

import numpy as np

from localizer.inference.search import Explanation, Problem, explain
from localizer.inference.tables import Block, Table

Parts = tuple[object, ...]


class Explainer:
    """Keeps the last problem and its explanation."""

    def __init__(self) -> None:
        self._parts: Parts = ()
        self._found: Explanation | None = None

    def explain(self, problem: Problem) -> Explanation:
        """Return the best explanation, as `localizer.inference.search.explain` does."""
        parts = _parts(problem)
        if self._found is None or not _equal(parts, self._parts):
            self._found = explain(problem)
            self._parts = parts
        return self._found

    def forget(self) -> None:
        """Forget the last problem."""
        self._parts, self._found = (), None


def _parts(problem: Problem) -> Parts:
    """Return all that a solution depends on, before the search lists rows of its tables."""
    return (
        problem.names, problem.log_prior, problem.blamable, problem.chance, problem.hop_chance,
        *_parts_of(problem.flows), *_parts_of(problem.hops),
    )  # fmt: skip


def _parts_of(observed: Block | Table) -> Parts:
    if isinstance(observed, Table):
        possible = observed.possible
        return (
            observed.bad, observed.weight, observed.lag, observed.crossed, observed.group,
            possible.starts, possible.columns, possible.chance,
            *(part for rows in observed.unlisted for part in rows.parts),
        )  # fmt: skip
    crossings = observed.possible
    return (
        observed.bad, observed.weight, observed.lag, observed.rows, observed.columns,
        crossings.rows, crossings.columns, crossings.chance,
    )  # fmt: skip


def _equal(one: Parts, other: Parts) -> bool:
    return len(one) == len(other) and all(map(_same, one, other))


def _same(one: object, other: object) -> bool:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one, other)
    return type(one) is type(other) and one == other
