"""Kinds of arrays, and the nanoseconds of a second."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Unsigned = NDArray[np.uint64]
Bools = NDArray[np.bool_]

S_NS: Final = 10**9
