"""Readings of an agent's counters, packed: 15 bytes each, in columns of some seconds.

A large cluster keeps a hundred million of them. Nothing is rounded: what comes out is what
came in.
"""

from array import array
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skeleton_job.arrays import Ints, Unsigned
from skeleton_job.narrow import Narrow, narrow

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
Columns = tuple[Ints, Numbers, Unsigned, Unsigned]


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

    def takes(self, begin_ns: int, end_ns: int, page_ns: int) -> bool:
        """Whether a batch of that time belongs here, in a page that lasts so long."""
        first_ns = self._base_ns[0]
        return first_ns - page_ns < begin_ns and end_ns < first_ns + page_ns

    def add(
        self, time_ns: Ints, code: Sequence[int] | Numbers, tx: ArrayLike, rx: ArrayLike
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
            tx, rx = (column.values(code) for column in self._narrow)
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
