"""Matches the replicas of neighbouring pipeline stages: which of them form one pipeline."""

from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from schemas.columns.arrays import Floats
from skeleton_job.rhythm.clusters import Labels

# Chains are recognised if their correlation exceeds that of other pairs by this much.
MIN_CHAIN_GAIN: Final = 0.15
# Overruling the platform's order takes more: blurred samples correlate by chance.
OVERRULE_GAIN: Final = 0.55
# The platform's order is accepted if it explains this share of what the best match explains.
INDEX_TRUSTED: Final = 0.8
MIN_CHAIN_ITERATIONS: Final = 4
# With fewer blocks, a common effect of clocks cannot be separated from what each block does.
MIN_FOR_CLOCKS: Final = 6


def match_chains(
    tx_a: Floats, rx_a: Floats, tx_b: Floats, rx_b: Floats
) -> tuple[NDArray[np.int64], bool]:
    """Return which replica of stage b each replica of stage a is joined to.

    Replicas do the same work, but each has small delays of its own, which travel along its own
    pipeline only. The residual of each iteration, after the means over replicas and over iterations
    are removed, is compared between sender and receiver. Where that is not clear, the platform's
    order decides.

    Parameters
    ----------
    tx_a, rx_a, tx_b, rx_b : (n_replicas, n_iterations, points)
        In the platform's order; NaN where samples are missing.

    Returns
    -------
    partner : (n_replicas,) int64
    seen : whether the traffic shows it
    """
    n = tx_a.shape[0]
    by_index = np.arange(n, dtype=np.int64)
    if n == 1:
        return by_index, True
    likeness = likeness_of(tx_a, rx_a, tx_b, rx_b)
    partner = best_chains(likeness)
    top, rest = _apart(likeness, partner)
    index_gain = float(np.trace(likeness)) / n - rest
    if top - rest < MIN_CHAIN_GAIN:
        return by_index, False
    if index_gain >= INDEX_TRUSTED * (top - rest):
        return by_index, True
    # All chains must be clear: a best match that is weak for some is chance.
    clear = likeness[by_index, partner] - rest >= OVERRULE_GAIN
    return (partner, True) if clear.all() else (by_index, False)


def likeness_of(tx_a: Floats, rx_a: Floats, tx_b: Floats, rx_b: Floats) -> Floats:
    """Return how two stages' replicas correlate in their residuals, (n, n); see `match_chains`."""
    one, other = ((_own_octaves(tx), _own_octaves(rx)) for tx, rx in ((tx_a, rx_a), (tx_b, rx_b)))
    return _likeness(one, other)


def _likeness(one: tuple[Floats, Floats], other: tuple[Floats, Floats]) -> Floats:
    """Return the mean correlation, both ways, of rows of `octaves` for tx and rx."""
    out: Floats = (one[0] @ other[1].T + one[1] @ other[0].T) / 2
    return out


def chain_gains(stages: Sequence[tuple[Floats, Floats]]) -> Floats:
    """Return by how much joined replicas of each two stages correlate more than others.

    Parameters
    ----------
    stages : tx and rx of each stage, see `match_chains`; two replicas or more

    Returns
    -------
    (n_stages, n_stages), 0 on the diagonal
    """
    own = [(_own_octaves(tx), _own_octaves(rx)) for tx, rx in stages]
    gains = np.zeros((len(own), len(own)))
    for a, b in combinations(range(len(own)), 2):
        likeness = _likeness(own[a], own[b])
        top, rest = _apart(likeness, best_chains(likeness))
        gains[a, b] = gains[b, a] = top - rest
    return gains


def _apart(likeness: Floats, partner: Labels) -> tuple[float, float]:
    """Return the mean likeness of replicas and their partners, and of all others."""
    n = len(likeness)
    top = float(likeness[np.arange(n), partner].mean())
    return top, (float(likeness.sum()) - top * n) / (n * (n - 1))


def best_chains(likeness: Floats) -> Labels:
    """Return the one-to-one matching with the highest total correlation, (n,) int64."""
    partner: Labels = linear_sum_assignment(-likeness)[1].astype(np.int64)
    return partner


def _own_octaves(pieces: Floats) -> Floats:
    """Return each replica's residual by octaves, without the means over replicas and iterations.

    Iterations with missing samples of any replica are 0, and with too few others all are.
    """
    whole = ~np.isnan(pieces).any(axis=(0, 2))
    kept = np.zeros_like(pieces)
    if int(whole.sum()) >= MIN_CHAIN_ITERATIONS:
        kept[:, whole] = own_delays(pieces[:, whole])
    return octaves(kept)


def octaves(residuals: Floats) -> Floats:
    """Return rows whose product is the mean correlation of two blocks over all octaves.

    The octaves of an iteration's spectrum: its mean, what happens once in it, twice and three
    times, and so on. What one sends another receives, whatever happens between them to single
    samples. So the bytes of whole iterations tell who shares them where jitter hides the shape, and
    the shape does where all iterations move the same number of bytes. Which of them does is not
    known, so each octave counts alike.

    Parameters
    ----------
    residuals : (n_blocks, n_iterations, points), none missing

    Returns
    -------
    (n_blocks, features); zeros in an octave in which a block has no residuals
    """
    spectrum = np.fft.rfft(residuals, axis=2)
    count = spectrum.shape[2]
    edges = dict.fromkeys([0, *(2**k for k in range(count.bit_length())), count])
    bands = (spectrum[:, :, a:b].reshape(len(spectrum), -1) for a, b in pairwise(edges))
    parts = [unit_rows(np.hstack([band.real, band.imag])) for band in bands]
    out: Floats = np.hstack(parts) / np.sqrt(len(parts))
    return out


def unit_rows(rows: Floats) -> Floats:
    """Return the rows as unit vectors; zeros stay."""
    out: Floats = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
    return out


def own_delays(pieces: Floats) -> Floats:
    """Return each block's residual in each iteration.

    The means over blocks and over iterations are removed, and what a clock offset makes of the
    shared delays: a shift of the common profile.

    Parameters
    ----------
    pieces : (n_blocks, n_iterations, points), none missing

    Returns
    -------
    Same shape
    """
    common = pieces.mean(axis=0)
    own = pieces - common
    flat = np.hstack([common, np.roll(common[:, :1], -1, axis=0)])
    before = np.hstack([np.roll(common[:, -1:], 1, axis=0), common])
    steps = np.stack([(flat[:, 1:] - common).ravel(), (common - before[:, :-1]).ravel()])
    square = steps @ steps.T
    if len(own) >= MIN_FOR_CLOCKS and np.linalg.matrix_rank(square) == 2:
        factors = np.linalg.solve(square, steps @ own.reshape(len(own), -1).T)
        shift = factors.sum(axis=0) - factors.sum(axis=0).mean()
        # The effect of a shift between the points is unknown, but the same for all blocks.
        flat_own = own.reshape(len(own), -1)
        effect = shift @ flat_own / max(float(shift @ shift), 1e-300)
        own = (flat_own - shift[:, None] * effect).reshape(own.shape)
    out: Floats = own - own.mean(axis=1, keepdims=True)
    return out
