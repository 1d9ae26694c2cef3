"""Natural logarithms of whole numbers, to the last bit the same on every machine.

Not numpy's, whose last bit depends on the processor. `streams.columnar.logarithm` gives the same
by a kernel.
"""

from math import log

import numpy as np

from streams.columns import Int64s
from streams.detectors.lof import Floats


def logarithms(values: Int64s) -> Floats:
    """Return the logarithm of each; of less than 1 it is 0."""
    return np.array([log(max(value, 1)) for value in values.tolist()])
