"""Logarithms by a kernel, as `streams.detectors.logarithm`: both ask the C library."""

from math import log

import numpy as np
from numpy.typing import NDArray

from schemas.columns.arrays import Floats, Int64s
from streams.columns.compiled import compiled


def logarithms(values: Int64s) -> Floats:
    """Return what `streams.detectors.logarithm.logarithms` returns."""
    out = np.empty(len(values))
    _logarithms(values, out)
    return out


@compiled
def _logarithms(values: NDArray[np.int64], out: NDArray[np.float64]) -> None:
    for place in range(len(values)):
        out[place] = log(max(values[place], 1))
