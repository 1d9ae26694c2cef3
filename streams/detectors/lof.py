"""Local outlier factor of a new window against the look-back, for many 5-tuples at once.

LOF compares the density around a point with the density around its neighbours
(Breunig et al., SIGMOD 2000); about 1: as dense as they are; large: outside.
Here the reference set is fixed (novelty detection): the look-back windows
without those that were anomalous themselves.

Features are logarithms of the seven published statistics, each divided by its
spread over the look-back: a path's own scale, whatever it is. With a spread
floor, windows that are all the same (a calm path) have distances near 0 instead
of undefined ones.
"""

from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from schemas.columns.arrays import Floats

# Neighbours. With five windows of history, the least, each has four others.
NEIGHBOURS: Final = 4
MIN_HISTORY: Final = NEIGHBOURS + 1
# Added before the logarithm, so that a deviation of some ns does not become a
# large negative number: the resolution of a software timestamp.
RESOLUTION_NS: Final = 1_000
# Least spread of a feature: 2 %. Windows of a calm path differ by less, and
# nothing below it is worth an alarm.
MIN_SPREAD: Final = 0.02
# Least reach distance in units of the spread; only identical windows come near.
MIN_REACH: Final = 1e-3

# False alarms per window and 5-tuple by LOF alone, for one window that decides,
# and for each of two windows in a row that decide together. With the effect that
# an alarm needs beside it (`streams.detectors.latency`) the real rate is far lower.
STRONG_RATE: Final = 1e-4
WEAK_RATE: Final = 1e-3
# LOF that a healthy window exceeds with these probabilities, by windows of history
# from 5 on: the worst of log-normal round trips with sigma 0.05, 0.3 and 1.0 at
# 4 and 30 answers per window. `python -m streams.detectors.calibration` computes them.
STRONG: Final = (6.80, 5.70, 5.10, 4.80, 4.60, 4.45)
WEAK: Final = (4.15, 3.65, 3.50, 3.40, 3.30, 3.25)


def log_features(features_ns: NDArray[np.int64]) -> Floats:
    """Return features in nanoseconds, shape (..., 7), on the logarithmic scale."""
    return cast(Floats, np.log(features_ns.astype(np.float64) + RESOLUTION_NS))


def thresholds(table: tuple[float, ...], history: NDArray[np.int64]) -> Floats:
    """Return the threshold for each count of history windows; inf below the least."""
    place = np.clip(history - MIN_HISTORY, 0, len(table) - 1)
    return np.where(history < MIN_HISTORY, np.inf, np.array(table)[place])


def lof_scores(reference: Floats, valid: NDArray[np.bool_], points: Floats) -> Floats:
    """Return the LOF of one new point against each reference set.

    Parameters
    ----------
    reference
        Look-back in log features, shape (n, windows, 7).
    valid
        Which of its windows count, shape (n, windows).
    points
        New windows in log features, shape (n, 7).

    Returns
    -------
    ndarray
        Shape (n,); nan where fewer than `MIN_HISTORY` windows count.
    """
    scores = np.full(len(points), np.nan)
    enough = valid.sum(axis=1) >= MIN_HISTORY
    if enough.any():
        scaled, point = _scaled(reference[enough], valid[enough], points[enough])
        scores[enough] = _lof(scaled, valid[enough], point)
    return scores


def _scaled(reference: Floats, valid: NDArray[np.bool_], points: Floats) -> tuple[Floats, Floats]:
    """Centre and divide by each feature's spread over the valid windows."""
    weight = valid[:, :, None].astype(np.float64)
    count = weight.sum(axis=1)
    centre = (reference * weight).sum(axis=1) / count
    deviation = (reference - centre[:, None, :]) * weight
    spread = np.sqrt((deviation * deviation).sum(axis=1) / count)
    spread = np.maximum(spread, MIN_SPREAD)
    return deviation / spread[:, None, :], (points - centre) / spread


def _lof(reference: Floats, valid: NDArray[np.bool_], points: Floats) -> Floats:
    k = NEIGHBOURS
    windows = reference.shape[1]
    gaps = reference[:, :, None, :] - reference[:, None, :, :]
    among = np.sqrt((gaps * gaps).sum(axis=-1))
    among[:, np.arange(windows), np.arange(windows)] = np.inf
    among = np.where(valid[:, None, :], among, np.inf)
    near = np.argsort(among, axis=2, kind="stable")[:, :, :k]
    near_distance = np.take_along_axis(among, near, axis=2)
    k_distance = near_distance[:, :, -1]
    near_k = np.take_along_axis(k_distance[:, None, :].repeat(windows, axis=1), near, axis=2)
    density = 1.0 / np.maximum(np.maximum(near_distance, near_k).mean(axis=2), MIN_REACH)

    away = reference - points[:, None, :]
    to_point = np.where(valid, np.sqrt((away * away).sum(axis=-1)), np.inf)
    nearest = np.argsort(to_point, axis=1, kind="stable")[:, :k]
    reach = np.maximum(
        np.take_along_axis(to_point, nearest, axis=1),
        np.take_along_axis(k_distance, nearest, axis=1),
    )
    mean_reach = np.maximum(reach.mean(axis=1), MIN_REACH)
    return cast(Floats, np.take_along_axis(density, nearest, axis=1).mean(axis=1) * mean_reach)
