"""Counter readings of an agent, packed into pages of some seconds, 15 bytes per reading.

A large cluster keeps a hundred million readings. 64-bit counters are stored as the difference to
the first reading of their endpoint, in as few bytes as needed. Nothing is rounded.
"""

from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from schemas.columns.arrays import Int64s, UInt64s

LOW_BITS: Final = np.uint64(32)


class Narrow(NamedTuple):
    """Numbers as differences to the first number of their group, modulo 2**64; lossless.

    Attributes
    ----------
    first : (n_groups,) uint64
    low : (n,) uint32, lower half of the difference
    high : (n,) upper half, in the smallest unsigned type that holds it; None if all are 0
    """

    first: UInt64s
    low: NDArray[np.uint32]
    high: NDArray[np.unsignedinteger] | None

    def widened(self, group: NDArray[np.integer]) -> UInt64s:
        """Return the numbers, (n,) uint64; `group` as given to `narrow`."""
        out: UInt64s = self.low.astype(np.uint64)
        if self.high is not None:
            out += self.high.astype(np.uint64) << LOW_BITS
        out += self.first[group]
        return out


def narrow(values: UInt64s, group: NDArray[np.integer]) -> Narrow:
    """Return numbers as differences: five bytes each if they grow by less than 2**40.

    Parameters
    ----------
    values : (n,) uint64
    group : (n,) small non-negative integers, the group of each number

    Examples
    --------
    >>> packed = narrow(np.array([7, 2**40, 9], np.uint64), np.array([0, 1, 0]))
    >>> packed.low.tolist(), packed.widened(np.array([0, 1, 0])).tolist()
    ([0, 0, 2], [7, 1099511627776, 9])
    """
    first = np.zeros(int(group.max(initial=0)) + 1, dtype=np.uint64)
    # Assign in reverse order, so that the first number of each group remains.
    first[group[::-1]] = values[::-1]
    above = values - first[group]
    high = (above >> LOW_BITS).astype(np.uint32)
    most = int(high.max(initial=0))
    return Narrow(
        first, above.astype(np.uint32), high.astype(np.min_scalar_type(most)) if most else None
    )


# Readings are stored as offsets from the first one of their batch, in four bytes.
SPAN_NS: Final = 2**32
# Names are numbered by one byte.
MAX_NAMES: Final = 256
FIRST_ROWS: Final = 64

# An endpoint, and the width of its counters in bits.
Name = tuple[str, int]
# Numbers of names; pages share them.
Codes = dict[Name, int]
# Per reading: time, number of the name, tx and rx.
Numbers = NDArray[np.uint8]
Columns = tuple[Int64s, Numbers, UInt64s, UInt64s]


class Page:
    """Batches of one agent in the order of arrival.

    A closed page accepts no more batches and packs its counters in `_narrow` (tx, rx).
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
        # Per batch: its first row, its first and its last time.
        self._begin = array("q")
        self._base_ns = array("q")
        self._end_ns = array("q")

    @property
    def end_ns(self) -> int:
        """Time of the latest reading."""
        return max(self._end_ns)

    def has_room_for(self, begin_ns: int, end_ns: int, page_ns: int) -> bool:
        """Return whether a batch of that time belongs into this page of length `page_ns`."""
        first_ns = self._base_ns[0]
        return first_ns - page_ns < begin_ns and end_ns < first_ns + page_ns

    def add_batch(
        self, time_ns: Int64s, code: Sequence[int] | Numbers, tx: ArrayLike, rx: ArrayLike
    ) -> None:
        """Append a batch; its times span less than `SPAN_NS`."""
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
        """Accept no more batches, and free the memory that only those would need."""
        if self._narrow is not None:
            return
        self._resize(self._size)
        self._narrow = narrow(self._tx, self._code), narrow(self._rx, self._code)
        self._tx = self._rx = self._tx[:0].copy()

    def columns(self, start_ns: int, end_ns: int) -> Columns:
        """Return the readings of whole batches that overlap the time from start_ns to end_ns."""
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
