"""Rates cut at a level, so that what is rare and large does not hide what repeats.

A checkpoint or a gradient sum can move far more bytes in a second than all else in minutes.
"""

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.columns.arrays import Floats
from skeleton_job.rhythm.iterations import Rhythm, channels, find_rhythm
from skeleton_job.series.rates import RateMatrix

# Rates are cut at this many times their mean, which is that of the cut rates, found in so many
# rounds: each takes more of the weight from short bursts.
CUT: Final = 3.0
CUT_ROUNDS: Final = 3


def cut_level(rates: Floats) -> Floats:
    """Return the level at which each series of rates is cut, (...,); see `CUT`.

    Parameters
    ----------
    rates : (..., n_bins) bytes per second

    Examples
    --------
    >>> round(float(cut_level(np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 100.0]))), 1)
    9.3
    """
    level = np.full(rates.shape[:-1], np.inf)
    for _ in range(CUT_ROUNDS):
        level = CUT * np.minimum(rates, level[..., None]).mean(axis=-1)
    return level


def limited(matrix: RateMatrix) -> RateMatrix:
    """Return a matrix in which each RNIC's rates are cut at a level of its own."""
    tx, rx = (np.minimum(rates, cut_level(rates)[:, None]) for rates in (matrix.tx, matrix.rx))
    return replace(matrix, tx=tx, rx=rx)


def find_hidden_rhythm(matrix: RateMatrix, rows: NDArray[np.int64]) -> Rhythm | None:
    """Return the iterations that few large bursts hide, such as checkpoints; None without any.

    A pipeline without replicas moves so little that one checkpoint outweighs all its iterations.

    Parameters
    ----------
    rows : of the matrix, those with usable counters
    """
    return find_rhythm(channels(limited(matrix), rows))
