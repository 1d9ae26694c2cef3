"""Counters of 64 bits in fewer bytes: those of one endpoint are close to each other."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skeleton_job.arrays import Unsigned

LOW_BITS: Final = np.uint64(32)


class Narrow(NamedTuple):
    """Numbers as what each is above the first of its group, modulo 2**64; nothing is lost.

    Attributes
    ----------
    first : (n_groups,) uint64
    low : (n,) uint32, the lower half of the difference
    high : (n,), the upper half in as few bytes as hold it; None where all are 0
    """

    first: Unsigned
    low: NDArray[np.uint32]
    high: NDArray[np.unsignedinteger] | None

    def values(self, group: NDArray[np.integer]) -> Unsigned:
        """Return the numbers, (n,), of these groups."""
        out: Unsigned = self.low.astype(np.uint64)
        if self.high is not None:
            out += self.high.astype(np.uint64) << LOW_BITS
        out += self.first[group]
        return out


def narrow(values: Unsigned, group: NDArray[np.integer]) -> Narrow:
    """Return numbers in fewer bytes; five each, say, where they grow by less than 2**40.

    Parameters
    ----------
    values : (n,)
    group : (n,) non-negative and small, of whom each is
    """
    first = np.zeros(int(group.max(initial=0)) + 1, dtype=np.uint64)
    # From behind: what is written last stays.
    first[group[::-1]] = values[::-1]
    above = values - first[group]
    high = (above >> LOW_BITS).astype(np.uint32)
    most = int(high.max(initial=0))
    return Narrow(
        first, above.astype(np.uint32), high.astype(np.min_scalar_type(most)) if most else None
    )
