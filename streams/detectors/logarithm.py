"""Natural logarithms of whole numbers, to the last bit the same on every machine.

Not numpy's, whose last bit depends on the processor. A kernel in
`streams.detectors.compiled_logarithm` gives the same.
"""

from math import log

import numpy as np

from schemas.columns.arrays import Floats, Int64s


def logarithms(values: Int64s) -> Floats:
    """Return the logarithm of each; of less than 1 it is 0."""
    return np.array([log(max(value, 1)) for value in values.tolist()])
