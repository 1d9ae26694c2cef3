"""The confidence of an inference: a logistic regression on the signs that it reports.

Fitted to whether data- and pipeline-parallel degree are right, with a ridge. `measured` infers the
captures of the fit, all for developing: of both generators, and of jobs as small as those of the
labs. Their signs are kept in a table beside this module (`TABLE`), so that the weights in
`skeleton_job.layout.confidence` can be fitted again, to the digit, within a second.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from arena.skeletons.reliability import Reliability, reliability
from arena.skeletons.report import measure
from arena.skeletons.scoring import JobScore
from arena.skeletons.sealed import measure_dev
from arena.skeletons.suites import cases
from schemas.columns.arrays import Floats

TABLE: Final = Path(__file__).with_name("calibration.parquet")
# Seeds of the other generator, each with a capture of every family.
SEALED_FIRST: Final = 100
SEALED_SEEDS: Final = 60
# Captures of suites.
SUITES: Final = {"dev": 120, "small": 180}

RIDGE: Final = 1.0
# Captures take the families of their suite in turns (10 and 12): no fold is one of families.
FOLDS: Final = 7
# Digits of the weights in use.
DIGITS: Final = 2
CAPTURE: Final = "capture"
RIGHT: Final = "right"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Weights by sign, and how reliable they are on captures left out."""

    bias: float
    weights: dict[str, float]
    left_out: Reliability


def measured() -> Iterator[list[JobScore]]:
    """Yield the scores of the jobs of each capture that the weights are fitted to."""
    for seed in range(SEALED_FIRST, SEALED_FIRST + SEALED_SEEDS):
        yield from measure_dev(1, first=seed)
    for suite, count in SUITES.items():
        for case in cases(suite, count):
            yield measure(case, ("ours",)).scores["ours"]


def table_of(captures: Sequence[Sequence[JobScore]]) -> pl.DataFrame:
    """Return the signs of all jobs of which a layout was inferred.

    Returns
    -------
    Columns `capture` (a number), `right` (1.0 if both degrees are) and one for each sign; a row
    for each job.

    Raises
    ------
    ValueError
        If there is none.
    """
    rows = [
        {CAPTURE: number, RIGHT: score.figures["dp+pp"], **score.signs}
        for number, scores in enumerate(captures)
        for score in scores
        if score.signs
    ]
    if not rows:
        raise ValueError("no job was inferred; take more seeds")
    return pl.DataFrame(rows)


def calibrate(table: pl.DataFrame) -> Fit:
    """Fit weights to the jobs of a table; see `table_of`.

    The weights have as many digits as those in use.
    """
    names = [name for name in table.columns if name not in {CAPTURE, RIGHT}]
    ones = np.ones((table.height, 1))
    signs = np.hstack([ones, table.select(names).to_numpy()])
    right = table[RIGHT].to_numpy()
    fold = table[CAPTURE].to_numpy() % FOLDS
    left_out = np.zeros(len(right))
    for one in range(FOLDS):
        out = fold == one
        left_out[out] = expit(signs[out] @ fit(signs[~out], right[~out]))
    bias, *weights = fit(signs, right).round(DIGITS).tolist()
    return Fit(
        bias=bias,
        weights=dict(zip(names, weights, strict=True)),
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

    found: Floats = minimize(
        loss,
        np.zeros(signs.shape[1]),
        jac=True,
        method="L-BFGS-B",
        # To far more digits than are used, so that no machine rounds them differently.
        options={"ftol": 1e-15, "gtol": 1e-8, "maxiter": 1000},
    ).x
    return found
