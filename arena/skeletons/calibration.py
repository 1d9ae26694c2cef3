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

from arena.skeletons.report import LEVELS, Outcome
from arena.skeletons.scoring import JobScore
from schemas.columns.arrays import Floats

RIDGE: Final = 1.0
FOLDS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Weights, and what they are worth on captures left out.

    Attributes
    ----------
    weights : by sign
    jobs : how many the fit is made from
    brier : mean squared error of the confidence on captures left out
    base : the same of a confidence that is the mean for every job
    levels : (confidence, jobs said so surely, share of them that are right), left out
    """

    bias: float
    weights: dict[str, float]
    jobs: int
    brier: float
    base: float
    levels: list[tuple[float, int, float]]


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
        jobs=len(right),
        brier=float(((left_out - right) ** 2).mean()),
        base=float(right.var()),
        levels=[
            (level, int((left_out >= level).sum()), float(right[left_out >= level].mean()))
            for level in LEVELS
            if (left_out >= level).any()
        ],
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
