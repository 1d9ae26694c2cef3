"""The few series that carry a job's rhythm: the mean of its RNICs' rates, and what they add to it.

A sum over all RNICs may be flat although each beats (stages take turns; sharded models send all
along), so its main components are taken beside it.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.columns.arrays import Bools, Floats
from skeleton_job.series.rates import RateMatrix

# Components that are looked at, and RNICs that they are made from.
CHANNELS: Final = 4
MAX_ROWS: Final = 256


def job_sum(matrix: RateMatrix, rows: Bools) -> Floats:
    """Return the mean rate over the chosen RNICs at each bin, (n_bins,).

    A missing sample does not dent it: each bin is the mean of what is there;
    bins without any are the mean of all.
    """
    # Where something is missing the rates are 0.
    chosen = slice(None) if rows.all() else rows
    count = int(rows.sum()) - matrix.missing[chosen].sum(axis=0)
    rates = (matrix.tx[chosen] + matrix.rx[chosen]).sum(axis=0)
    mean = np.divide(rates, count, out=np.zeros_like(rates), where=count > 0)
    if np.any(count > 0):
        mean[count == 0] = mean[count > 0].mean()
    out: Floats = mean
    return out


def channels(matrix: RateMatrix, rows: NDArray[np.int64]) -> Floats:
    """Return the mean rate and the main components of the RNICs' rates, (n_channels, n_bins).

    All in bytes per second of one RNIC, so that their squares add up to what they explain.
    """
    if rows.size > MAX_ROWS:
        rows = rows[np.linspace(0, rows.size - 1, MAX_ROWS).round().astype(np.int64)]
    chosen = np.zeros(len(matrix.endpoints), dtype=np.bool_)
    chosen[rows] = True
    there = ~matrix.missing[rows]
    count = np.maximum(there.sum(axis=1, keepdims=True), 1)
    parts = []
    for rates in (matrix.tx[rows], matrix.rx[rows]):
        mean = np.where(there, rates, 0.0).sum(axis=1, keepdims=True) / count
        parts.append(np.where(there, rates - mean, 0.0))
    both = np.vstack(parts)
    main = job_sum(matrix, chosen)
    total = main - main.mean()
    # What the sum already says is taken out first.
    weight = both @ total / max(float(total @ total), 1e-300)
    rest = both - weight[:, None] * total
    values, vectors = np.linalg.eigh(rest @ rest.T / rows.size)
    top = np.argsort(values)[::-1][: min(CHANNELS - 1, rows.size)]
    components = vectors[:, top].T @ rest / np.sqrt(rows.size)
    # Fixed signs, so that nothing depends on the solver.
    signs = np.where(components.sum(axis=1) < 0, -1.0, 1.0)
    out: Floats = np.vstack([main[None], signs[:, None] * components])
    return out
