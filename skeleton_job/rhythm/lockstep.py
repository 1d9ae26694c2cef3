"""Finds RNICs of a host that run in lock step, as those of one tensor-parallel group (TP) do.

They have the same samples. Replicas do the same work, each with small delays of its own. For groups
of several hosts see `skeleton_job.rhythm.groups`.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.ndimage import uniform_filter1d
from scipy.special import ndtr

from schemas.columns.arrays import Bools, Floats
from skeleton_job.rhythm.clusters import Labels, divisors
from skeleton_job.series.rates import RateMatrix

# RNICs of two groups lag behind each other by more than those of one group, by this factor (of the
# mean square) at least.
MIN_EXTRA: Final = 1.35
# Spread of that factor's logarithm: over hosts, and what is common to the borders of all hosts.
USUAL_EXTRA_SPREAD: Final = 0.15
BORDER_SPREAD: Final = 0.1
# Spread of the logarithm for one RNIC, as that of all its pairs, and for a pair: one that also
# reads storage lags behind all others.
RNIC_SPREAD: Final = 3.0
PAIR_SPREAD: Final = 0.3
# Exponent by which the mean square grows with the distance of RNICs in a host, and its spread: from
# 0 (independent delays) to 1 (delays that add up from RNIC to RNIC).
USUAL_EXPONENT: Final = 0.77
EXPONENT_SPREAD: Final = 0.5
# RNICs are compared in sections of the window: an iteration long at least, and not more than so
# many.
SECTION_BINS: Final = 50
MIN_SECTION: Final = 3
MAX_SECTIONS: Final = 20
MAX_HOSTS: Final = 32
# Share of the possible borders that are one, before anything is seen: each host has several places
# for a border, and most hosts have none.
USUALLY_SPLIT: Final = 0.1
# A host is split if that is more probable than not.
SPLIT_FROM: Final = 0.5
# RNICs of a host are read, and sent on, one after the other, on a busy host by some milliseconds
# later: lags up to a tenth of a bin, here in square bins, mean nothing.
READ_LAG: Final = 1e-2
# A lag is told from bytes: below this share of the mean rate a difference is no lag.
MOVING_SHARE: Final = 0.2
# A lag beyond this number of bins is a different phase of the iteration; how far does not matter.
MAX_LAG_BINS: Final = 2.0


@dataclass(frozen=True, slots=True)
class HostWidth:
    """How many neighbouring RNICs of a host move the same bytes at the same time.

    Attributes
    ----------
    width : a divisor of the number of rails
    certainty : probability that it is right, 0.5 to 1
    """

    width: int
    certainty: float


def host_width(matrix: RateMatrix, rows: Labels, known: Bools, *, period_bins: float) -> HostWidth:
    """Return how many neighbouring RNICs of a host move the same bytes at the same time.

    Compared sample by sample under the host's one clock, not in the mean iteration: replicas on one
    host are alike in the mean, but not in their delays.

    RNICs of two groups must lag behind each other by more than RNICs of one group that are as far
    apart in the host: a host reads its RNICs, and sends on them, one after the other, so that RNICs
    differ the more the farther apart they are (live, 1.7 times as much over four RNICs as over
    two).

    Parameters
    ----------
    rows : (n_hosts, n_rails) rows of the matrix
    known : (n_hosts, n_rails) bool
    period_bins : length of an iteration
    """
    n_rails = int(rows.shape[1])
    widths = [w for w in divisors(n_rails)[:-1] if w > 1]
    whole = rows[known.all(axis=1)][:MAX_HOSTS]
    measured = [_lags(matrix, host, period_bins) for host in whole]
    lags = np.array([lag for lag in measured if lag is not None])
    if not widths or not lags.size:
        return HostWidth(n_rails, 1.0)
    found = {width: _border(lags, width) for width in widths}
    likely = [width for width in widths if found[width].probability > SPLIT_FROM]
    if likely:
        # A border between groups of four is one between groups of two as well, but not each of
        # these is one between groups of four.
        width = max(likely, key=lambda w: found[w].extra)
        return HostWidth(width, found[width].probability)
    return HostWidth(n_rails, 1.0 - max(border.probability for border in found.values()))


def _lags(matrix: RateMatrix, host: Labels, period_bins: float) -> Floats | None:
    """Return how much RNICs of a host lag behind each other; None if none of them sends.

    The lag is the difference of the bytes moved so far over the rate. So it is as large in the
    little traffic of a pipeline, in which groups have delays of their own, as in the gradient sum,
    which all groups begin together. Its mean means nothing: each RNIC has its own time of
    reading. Neither does a difference that grows from iteration to iteration: other traffic.

    The median over sections of the window: a fault that cuts RNICs off makes two groups of them for
    as long as it lasts.

    Returns
    -------
    (n_pairs,) logarithm of the mean square lag in square bins, pairs in the order of
    `np.triu_indices`
    """
    there = ~matrix.missing[host].any(axis=0)
    total = np.zeros(host.size * (host.size - 1) // 2)
    moved = False
    for rates in (matrix.tx[host][:, there], matrix.rx[host][:, there]):
        if rates.shape[1] < MIN_SECTION or not rates.any():
            continue
        moved = True
        longest = max(SECTION_BINS, round(period_bins))
        count = min(MAX_SECTIONS, max(1, rates.shape[1] // longest))
        sections = np.array_split(rates, count, axis=1)
        total += np.median([_square_lags(section, period_bins) for section in sections], axis=0)
    return np.log(total / 2 + READ_LAG) if moved else None


def _square_lags(rates: Floats, period_bins: float) -> Floats:
    """Return the mean square lag of each pair in one section, (n_pairs,); see `_lags`.

    Parameters
    ----------
    rates : (n_rails, n_bins)
    """
    first, second = np.triu_indices(len(rates), 1)
    ahead = np.cumsum(rates, axis=1)[:, :-1]
    ahead = ahead[second] - ahead[first]
    rate = np.maximum((rates[first] + rates[second]) / 2, 0.0)
    least = MOVING_SHARE * rate.mean(axis=1, keepdims=True)
    rate = (rate[:, :-1] + rate[:, 1:]) / 2
    apart = rate - rate.mean(axis=1, keepdims=True)
    usual = (ahead * apart).sum(axis=1) / np.maximum((apart**2).sum(axis=1), 1e-300)
    ahead -= usual[:, None] * rate
    ahead -= uniform_filter1d(ahead, max(3, round(period_bins)), axis=1, mode="nearest")
    lag = np.clip(ahead / (rate + np.maximum(least, 1e-300)), -MAX_LAG_BINS, MAX_LAG_BINS)
    out: Floats = (lag**2).mean(axis=1)
    return out


@dataclass(frozen=True, slots=True)
class _Border:
    """A possible border between groups: the logarithm of its extra lag, and how likely it is."""

    extra: float
    probability: float


def _border(lags: Floats, width: int) -> _Border:
    """Return by how much groups of this width lag behind each other more than their members do.

    Least squares on each host: the logarithm of a pair's lag is the sum of a share of either RNIC,
    a multiple of the logarithm of their distance, and the extra if they are in two groups; a ridge
    keeps all but the extra near what is usual. Hosts that disagree, and pairs that do not follow
    such a sum, make it less certain.

    Parameters
    ----------
    lags : (n_hosts, n_pairs), see `_lags`
    """
    count, n_pairs = lags.shape
    n_rails = round((1 + np.sqrt(1 + 8 * n_pairs)) / 2)
    first, second = np.triu_indices(n_rails, 1)
    pairs = np.arange(n_pairs)
    share = np.zeros((n_pairs, n_rails))
    share[pairs, first] = share[pairs, second] = 1.0
    across = (first // width != second // width).astype(np.float64)
    apart = np.log(second - first)
    lags = lags - USUAL_EXPONENT * apart
    design = np.column_stack([across, np.ones(n_pairs), apart, share])
    ridge = np.zeros(design.shape[1])
    ridge[2] = (PAIR_SPREAD / EXPONENT_SPREAD) ** 2
    ridge[3:] = (PAIR_SPREAD / RNIC_SPREAD) ** 2
    solve = np.linalg.solve(design.T @ design + np.diag(ridge), design.T)
    extra = lags @ solve[0]
    mean = float(extra.mean())
    # Few hosts say little of how hosts differ: two more of the usual spread are assumed.
    total = float(((extra - mean) ** 2).sum()) + 2 * USUAL_EXTRA_SPREAD**2
    usual = np.median(lags, axis=0)
    misfit = usual - design @ (solve @ usual)
    freedom = max(1, n_pairs - design.shape[1])
    variance = (
        total / (count + 1) / count
        + BORDER_SPREAD**2
        + float(misfit @ misfit) / freedom * float(solve[0] @ solve[0])
    )
    clear = (mean - np.log(MIN_EXTRA)) / np.sqrt(variance)
    split, none = USUALLY_SPLIT * float(ndtr(clear)), (1 - USUALLY_SPLIT) * float(ndtr(-clear))
    return _Border(mean, split / (split + none))
