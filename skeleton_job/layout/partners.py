"""Likely partners of each block by its own delays, whatever the layout.

Each replica has small delays of its own, and they travel along its pipeline: what one block sends
late, another receives late. So the residuals of partners correlate, once what all blocks share is
removed. How many effects they share (one clock, one per stage, one per collective) is not known: as
many principal components are removed as make the best partner of a block stand out most.

This needs neither degrees nor stages, so it finds partners where these are wrong. It is a ranking
for ping lists, not a matching: one in three of the first choices may be wrong.
"""

from typing import Final

import numpy as np

from schemas.columns.arrays import Bools, Floats
from skeleton_job.rhythm.chains import octaves, unit_rows
from skeleton_job.rhythm.clusters import Labels
from skeleton_job.rhythm.rings import MIN_ITERATIONS

# Numbers of common components to try; of a few blocks only few, since these would be their own.
COMPONENTS: Final = (1, 2, 4, 8, 16, 32)
BLOCKS_PER_COMPONENT: Final = 4


def rank_partners(tx: Floats, rx: Floats, hosts: Labels, count: int) -> Labels:
    """Return the likeliest partners of each block on other hosts, the best first.

    Parameters
    ----------
    tx, rx : (n_blocks, n_iterations, points)
        Every iteration of each block; NaN where samples are missing.
    hosts : (n_blocks,) index of the host
    count : partners for each

    Returns
    -------
    (n_blocks, at most count) int64, -1 where there is none; no columns: nothing can be said
    """
    n = hosts.size
    known = np.flatnonzero(~(np.isnan(tx).all(axis=(1, 2)) | np.isnan(rx).all(axis=(1, 2))))
    if tx.shape[1] < MIN_ITERATIONS or known.size < BLOCKS_PER_COMPONENT:
        return np.empty((n, 0), dtype=np.int64)
    own = np.vstack([_own(pieces[known]) for pieces in (tx, rx)])
    apart = hosts[known][:, None] != hosts[known][None]
    vectors = np.linalg.eigh(own @ own.T)[1]
    tried = []
    for components in COMPONENTS:
        if components * BLOCKS_PER_COMPONENT <= len(apart):
            common = vectors[:, -components:]
            tried.append(_alike(own - common @ (common.T @ own)))
    best = max(tried, key=lambda alike: _clearness(alike, apart))
    score = np.where(apart, best, -np.inf)
    order = np.argsort(-score, axis=1, kind="stable")[:, : min(count, len(apart) - 1)]
    there = np.take_along_axis(apart, order, axis=1)
    out = np.full((n, order.shape[1]), -1, dtype=np.int64)
    out[known] = np.where(there, known[order], -1)
    return out


def _own(pieces: Floats) -> Floats:
    """Return each block's deviations from its mean iteration by octaves, (n, features).

    A missing sample does not deviate.
    """
    there = ~np.isnan(pieces)
    count = np.maximum(there.sum(axis=1, keepdims=True), 1)
    mean = np.where(there, pieces, 0.0).sum(axis=1, keepdims=True) / count
    return octaves(np.where(there, pieces - mean, 0.0))


def _alike(own: Floats) -> Floats:
    """Return the correlation of what each sends with what another receives, both ways, (n, n)."""
    unit = unit_rows(own)
    one_way = unit[: len(unit) // 2] @ unit[len(unit) // 2 :].T
    out: Floats = one_way + one_way.T
    return out


def _clearness(alike: Floats, apart: Bools) -> float:
    """Return by how many deviations the best partner exceeds the usual one, mean over blocks."""
    others = np.where(apart, alike, np.nan)
    some = apart.sum(axis=1) > 1
    if not some.any():
        return 0.0
    rows = others[some]
    rise = np.nanmax(rows, axis=1) - np.nanmedian(rows, axis=1)
    return float((rise / np.maximum(np.nanstd(rows, axis=1), 1e-300)).mean())
