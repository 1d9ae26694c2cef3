"""Whether a confidence means what it says, and how much it tells."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy.stats import rankdata

from arena.skeletons.scoring import JobScore
from schemas.columns.arrays import Floats

# Borders between which confidences are compared with how many are right.
BINS: Final = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """How good a confidence is.

    Attributes
    ----------
    jobs : how many it was said of
    right : share of them that are right
    brier : mean squared error of the confidence (Brier 1950)
    base : the same of always saying the mean
    auc : how often a right job has more than a wrong one; None where all are right, or wrong
    bins : (mean confidence, jobs, share of them that are right), from the least sure on
    """

    jobs: int
    right: float
    brier: float
    base: float
    auc: float | None
    bins: list[tuple[float, int, float]]


def reliability(said: Floats, right: Floats) -> Reliability:
    """Return how good confidences are.

    Parameters
    ----------
    said : (jobs,) 0 to 1
    right : (jobs,) 0 or 1

    Raises
    ------
    ValueError
        If there is no job.

    Examples
    --------
    >>> found = reliability(np.array([0.2, 0.9]), np.array([0.0, 1.0]))
    >>> round(found.brier, 3), found.base, found.auc
    (0.025, 0.25, 1.0)
    """
    if not said.size:
        raise ValueError("no job; take more seeds")
    at = np.digitize(said, BINS[1:-1])
    return Reliability(
        jobs=said.size,
        right=float(right.mean()),
        brier=float(((said - right) ** 2).mean()),
        base=float(right.var()),
        auc=_auc(said, right),
        bins=[
            (float(said[at == k].mean()), int((at == k).sum()), float(right[at == k].mean()))
            for k in np.unique(at).tolist()
        ],
    )


def summary_of(captures: Sequence[Sequence[JobScore]]) -> dict[str, Any]:
    """Return the means of the figures of captures' jobs, and how reliable their confidence is."""
    jobs = [job for capture in captures for job in capture]
    names = list(dict.fromkeys(name for job in jobs for name in job.figures))
    values = {name: [j.figures[name] for j in jobs if name in j.figures] for name in names}
    lengths = np.array(values["length"])
    return {
        **{name: round(float(np.mean(of)), 4) for name, of in values.items()},
        "length, median": round(float(np.median(lengths)), 3),
        "above ten times": int((lengths > 10).sum()),
        "confidence": reliability(
            np.array([job.confidence for job in jobs]),
            np.array([job.figures["dp+pp"] for job in jobs]),
        ),
    }


def _auc(said: Floats, right: Floats) -> float | None:
    """Return the share of pairs of a right and a wrong job of which the right one has more."""
    count = int(right.sum())
    pairs = count * (right.size - count)
    if not pairs:
        return None
    ranks = float(rankdata(said)[right == 1].sum())
    return (ranks - count * (count + 1) / 2) / pairs
