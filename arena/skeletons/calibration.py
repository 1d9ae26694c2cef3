"""The confidence of an inference: a logistic regression on the evidence that it reports.

Fitted to whether data- and pipeline-parallel degree are right, with a ridge, on captures
for development. It is validated on captures that were left out of the fit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from arena.skeletons.reliability import Reliability, reliability
from arena.skeletons.report import Outcome
from arena.skeletons.scoring import JobScore
from schemas.columns.arrays import Floats

RIDGE: Final = 1.0
FOLDS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Weights by sign, and how reliable they are on captures left out."""

    bias: float
    weights: dict[str, float]
    left_out: Reliability


def calibrate(outcomes: Sequence[Outcome], others: Sequence[Sequence[JobScore]] = ()) -> Fit:
    """Fit weights to the jobs of captures.

    Parameters
    ----------
    others : the jobs of further captures, from another generator

    Raises
    ------
    ValueError
        If no job was inferred.
    """
    captures = [*(outcome.scores.get("ours", []) for outcome in outcomes), *others]
    said = [
        (number, score.signs, score.figures["dp+pp"])
        for number, scores in enumerate(captures)
        for score in scores
        if score.signs
    ]
    if not said:
        raise ValueError("no job was inferred; take more seeds")
    names = list(said[0][1])
    signs = np.array([[1.0, *(s[name] for name in names)] for _, s, _ in said])
    right = np.array([r for _, _, r in said])
    fold = np.array([number for number, _, _ in said]) % FOLDS
    left_out = np.zeros(len(right))
    for one in range(FOLDS):
        out = fold == one
        left_out[out] = expit(signs[out] @ fit(signs[~out], right[~out]))
    weights = fit(signs, right)
    return Fit(
        bias=float(weights[0]),
        weights=dict(zip(names, weights[1:].tolist(), strict=True)),
        left_out=reliability(left_out, right),
    )


def fit(signs: Floats, right: Floats) -> Floats:
    """Return the weights of a logistic regression with a ridge on all but the first.

    Parameters
    ----------
    signs : (jobs, signs), the first column 1
    right : (jobs,), 0 or 1
    """

    def loss(weights: Floats) -> tuple[float, Floats]:
        at = signs @ weights
        cost = -(right * log_expit(at) + (1 - right) * log_expit(-at)).sum()
        slope = signs.T @ (expit(at) - right)
        ridge = weights.copy()
        ridge[0] = 0.0
        return float(cost + RIDGE / 2 * (ridge @ ridge)), slope + RIDGE * ridge

    found: Floats = minimize(loss, np.zeros(signs.shape[1]), jac=True, method="L-BFGS-B").x
    return found
