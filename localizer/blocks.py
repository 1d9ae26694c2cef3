"""Observations as sparse matrices.

The likelihoods of `localizer.underlay`: an observation is good with probability
(1 - e) * prod over the faults that it crosses of (1 - severity); where it crosses one
with chance q only, the factor is 1 - q * severity.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Maybes:
    """What observations cross with some chance only: `rows`, `columns`, `chance`, all (k,)."""

    rows: Ints
    columns: Ints
    chance: Floats


def no_maybes() -> Maybes:
    """Return an empty one."""
    none = np.empty(0, np.int64)
    return Maybes(rows=none, columns=none, chance=np.empty(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Observations of one sort, m of them, with n entries (observation, column).

    `bad`, `weight`, `lag`: shape (m,); `rows`, `columns`: shape (n,), no entry of which
    is one of `maybes` too.
    """

    bad: Bools
    weight: Floats
    lag: Floats
    rows: Ints
    columns: Ints
    maybes: Maybes = field(default_factory=no_maybes)


def terms(bad: Bools, lag: Floats, good: Floats) -> Floats:
    """Return the log-likelihood of observations with P(good) as given, all of one shape."""
    spoilt = np.maximum(1.0 - good, 1e-300)
    return np.where(bad, np.log(spoilt), np.log1p(-np.minimum(lag * spoilt, 1 - 1e-12)))
