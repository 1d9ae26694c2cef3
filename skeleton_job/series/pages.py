"""Counters of 64 bits in fewer bytes: those of one endpoint are close to each other.

Readings of an agent's counters, packed: 15 bytes each, in columns of some seconds.

A large cluster keeps a hundred million of them. Nothing is rounded: what comes out is what
came in.
"""

from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from schemas.columns.arrays import Int64s, UInt64s

LOW_BITS: Final = np.uint64(32)


class Narrow(NamedTuple):
    """Numbers as what each is above the first of its group, modulo 2**64; nothing is lost.

    Attributes
    ----------
    first : (n_groups,) uint64
    low : (n,) uint32, the lower half of the difference
    high : (n,), the upper half in as few bytes as hold it; None where all are 0
    """

    first: UInt64s
    low: NDArray[np.uint32]
    high: NDArray[np.unsignedinteger] | None

    def widened(self, group: NDArray[np.integer]) -> UInt64s:
        """Return the numbers, (n,), of these groups."""
        out: UInt64s = self.low.astype(np.uint64)
        if self.high is not None:
            out += self.high.astype(np.uint64) << LOW_BITS
        out += self.first[group]
        return out


def narrow(values: UInt64s, group: NDArray[np.integer]) -> Narrow:
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


# Readings lie less than this behind the first of their batch: four bytes.
SPAN_NS: Final = 2**32
# Names are numbered by one byte.
MAX_NAMES: Final = 256
FIRST_ROWS: Final = 64

# An endpoint, and the width of its counters.
Name = tuple[str, int]
# Numbers of names; pages share them.
Codes = dict[Name, int]
# Time, number of the name, tx and rx of each reading.
Numbers = NDArray[np.uint8]
Columns = tuple[Int64s, Numbers, UInt64s, UInt64s]


class Page:
    """Batches of one agent, as they came.

    A page that takes no more holds its counters in fewer bytes, in `_narrow` (tx, rx).
    """

    __slots__ = (
        "_base_ns",
        "_begin",
        "_code",
        "_end_ns",
        "_narrow",
        "_offset",
        "_rx",
        "_size",
        "_tx",
        "codes",
    )

    def __init__(self, codes: Codes) -> None:
        self.codes = codes
        self._size = 0
        self._offset = np.empty(FIRST_ROWS, dtype=np.uint32)
        self._code = np.empty(FIRST_ROWS, dtype=np.uint8)
        self._tx = np.empty(FIRST_ROWS, dtype=np.uint64)
        self._rx = np.empty(FIRST_ROWS, dtype=np.uint64)
        self._narrow: tuple[Narrow, Narrow] | None = None
        # Of each batch: where it begins, its first and its last time.
        self._begin = array("q")
        self._base_ns = array("q")
        self._end_ns = array("q")

    @property
    def end_ns(self) -> int:
        """The latest reading."""
        return max(self._end_ns)

    def has_room_for(self, begin_ns: int, end_ns: int, page_ns: int) -> bool:
        """Whether a batch of that time belongs here, in a page that lasts so long."""
        first_ns = self._base_ns[0]
        return first_ns - page_ns < begin_ns and end_ns < first_ns + page_ns

    def add_batch(
        self, time_ns: Int64s, code: Sequence[int] | Numbers, tx: ArrayLike, rx: ArrayLike
    ) -> None:
        """Take a batch; the times lie within `SPAN_NS`."""
        begin_ns = int(time_ns.min())
        begin, end = self._size, self._size + time_ns.size
        if end > self._offset.size:
            self._resize(max(end, 2 * self._offset.size))
        self._offset[begin:end] = time_ns - begin_ns
        self._code[begin:end] = code
        self._tx[begin:end] = tx
        self._rx[begin:end] = rx
        self._size = end
        self._begin.append(begin)
        self._base_ns.append(begin_ns)
        self._end_ns.append(int(time_ns.max()))

    def close(self) -> None:
        """Take no more, and give back what is not needed for that."""
        if self._narrow is not None:
            return
        self._resize(self._size)
        self._narrow = narrow(self._tx, self._code), narrow(self._rx, self._code)
        self._tx = self._rx = self._tx[:0].copy()

    def columns(self, start_ns: int, end_ns: int) -> Columns:
        """Return the readings of whole batches that touch the time between."""
        base = np.array(self._base_ns, dtype=np.int64)
        chosen = (np.array(self._end_ns) >= start_ns) & (base <= end_ns)
        if not chosen.any():
            return base[:0], self._code[:0], self._tx[:0], self._rx[:0]
        n = self._size
        counts = np.append(self._begin[1:], n).astype(np.int64) - np.array(self._begin)
        time_ns = np.repeat(base, counts) + self._offset[:n]
        code, tx, rx = self._code[:n], self._tx[:n], self._rx[:n]
        if self._narrow is not None:
            tx, rx = (column.widened(code) for column in self._narrow)
        if chosen.all():
            return time_ns, code, tx, rx
        rows = np.repeat(chosen, counts)
        return time_ns[rows], code[rows], tx[rows], rx[rows]

    def _resize(self, size: int) -> None:
        for name in ("_offset", "_code", "_tx", "_rx"):
            old = getattr(self, name)
            new = np.empty(size, dtype=old.dtype)
            new[: self._size] = old[: self._size]
            setattr(self, name, new)
