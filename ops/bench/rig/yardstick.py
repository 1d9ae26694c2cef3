"""Fixed work, to compare the figures of one machine with those of another.

The same code took half as much time again on another machine of as many cores and the same
name; whoever reads a table wants to know on which of them it was measured.
"""

import time
from statistics import median
from typing import Final

import numpy as np

RUNS: Final = 5
# Some tenths of a second each: records through Python, columns through numpy.
RECORDS: Final = 1_500_000
VALUES: Final = 10_000_000


def yardstick_s() -> float:
    """Return seconds of CPU that the work takes, the median of some runs."""
    return median(_once() for _ in range(RUNS))


def _once() -> float:
    begin_s = time.process_time()
    records = {number: (number, str(number)) for number in range(RECORDS)}
    kept = [text for number, text in records.values() if number % 3]
    values = np.arange(VALUES, dtype=np.uint32) * np.uint32(2_654_435_761)
    values.sort()
    spent_s = time.process_time() - begin_s
    if len(kept) != RECORDS * 2 // 3 or int(values[0]) != 0:
        raise AssertionError("the work was not done")
    return spent_s
