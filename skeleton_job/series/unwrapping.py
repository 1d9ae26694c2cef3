"""Unwraps and cumulates the counters of many endpoints at once, and reads them at bin edges.

Tables have a row per endpoint, padded by repeating its last reading: nothing moves between equal
readings. The floating-point operations and their order are those of `np.interp` on one endpoint's
readings, so a result does not depend on which endpoints share the table.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from schemas.columns.arrays import Bools, Floats, Int64s, UInt64s
from schemas.units import SECOND_NS

# Widths of real counters: 64 bits, and 32 bits that count bytes or words of 4 bytes.
COUNTER_BITS: Final = (64, 34, 32)
# Width of a counter that nobody declared.
UNDECLARED: Final = 0


def increments(
    time_ns: Int64s, value: UInt64s, bits: int | Int64s, max_rate: float
) -> tuple[Floats, Bools]:
    """Return the bytes between successive readings and whether they are known.

    A decrease is a wrap at 2**bits if that gives a rate that a port can have. Otherwise the counter
    was reset, and the bytes lost by the reset are unknown.

    Parameters
    ----------
    time_ns : (..., m) int64, increasing
    value : (..., m) uint64
    bits : width of the counter, one for all or (...,)
    max_rate : bytes per second

    Returns
    -------
    bytes : (..., m - 1) float64, 0 where unknown
    known : (..., m - 1) bool

    Examples
    --------
    A counter of 32 bits that wraps within a second:

    >>> time_ns = np.array([0, 10**9])
    >>> moved, known = increments(time_ns, np.array([2**32 - 10, 5], np.uint64), 32, 1e9)
    >>> moved.tolist(), known.tolist()
    ([15.0], [True])
    """
    bound = np.diff(time_ns) / SECOND_NS
    bound *= max_rate
    step = np.diff(value)  # uint64: modulo 2^64 by itself
    narrow = np.asarray(bits) < 64
    if narrow.any():
        # 1 << 64 is no uint64: the mask of a full width is all ones.
        ones = np.uint64(2**64 - 1)
        mask = np.where(narrow, (np.uint64(1) << (np.asarray(bits, np.uint64) % 64)) - 1, ones)
        fell = value[..., 1:] < value[..., :-1]
        np.bitwise_and(step, mask[..., None].astype(np.uint64), out=step, where=fell)
    moved = step.astype(np.float64)
    known: Bools = moved <= bound
    if not known.all():
        moved[~known] = 0.0
    return moved, known


def guess_bits(value: UInt64s) -> int:
    """Return the likely width of a counter that nobody declared.

    The narrowest width that holds the largest reading, if a decrease started from its upper half as
    a wrap does; 64 otherwise.
    """
    if value.size < 2 or not np.any(value[1:] < value[:-1]):
        return 64
    largest = int(value.max())
    for bits in sorted(COUNTER_BITS):
        if 2 ** (bits - 1) <= largest < 2**bits:
            return bits
    return 64


@dataclass(frozen=True)
class Table:
    """When some endpoints were read, and the bin edges of interest.

    Attributes
    ----------
    time_ns : (n, m) int64, increasing up to the padding
    count : (n,) int64, number of readings of each row, at least 1
    edges_ns : (n_bins + 1,) int64, equally spaced, more than a microsecond apart
    """

    time_ns: Int64s
    count: Int64s
    edges_ns: Int64s

    @cached_property
    def times(self) -> Floats:
        """The times as float64, as `np.interp` uses them."""
        return self.time_ns.astype(np.float64)

    @cached_property
    def steps(self) -> Floats:
        """Differences of successive times, (n, m - 1); 1 in the padding."""
        steps: Floats = np.diff(self.times)
        steps[steps == 0.0] = 1.0
        return steps

    @cached_property
    def before(self) -> tuple[Int64s, Floats]:
        """The last reading at or before each edge, and the distance of the edge from it.

        A flat index into the table and nanoseconds, each (n, n_bins + 1). Edges outside of a row's
        readings get the first or the last of them, at distance 0.
        """
        n, m = self.time_ns.shape
        edges = self.edges_ns.astype(np.float64)
        padded = np.append(edges, np.inf)
        bin_ns = int(self.edges_ns[1] - self.edges_ns[0])
        # The first edge at or after each reading. Float times are rounded to 256 ns today, so an
        # edge and a reading may change places: correct for both cases.
        behind = np.ceil((self.time_ns - self.edges_ns[0]) / bin_ns)
        first = np.clip(behind, 0, edges.size).astype(np.int64)
        first -= (first > 0) & (padded[first - 1] >= self.times)
        first += padded[first] < self.times
        first[np.arange(m)[None] >= self.count[:, None]] = edges.size
        first += (np.arange(n) * padded.size)[:, None]
        upto = np.bincount(first.ravel(), minlength=n * padded.size).reshape(n, -1)[:, :-1]
        upto = np.cumsum(upto, axis=1)
        outside = (upto == 0) | (upto == self.count[:, None])
        at: Int64s = np.maximum(upto - 1, 0) + (np.arange(n) * m)[:, None]
        past = edges - self.times.ravel()[at]
        past[outside] = 0.0
        return at, past


def cumulated(
    table: Table, value: UInt64s, bits: Int64s, *, max_gap_ns: int, max_rate: float
) -> tuple[Floats, Bools]:
    """Return bytes cumulated at the bin edges, and which bins are missing.

    Parameters
    ----------
    value : (n, m) uint64, the counters when they were read
    bits : (n,) their widths
    max_gap_ns : readings further apart leave a gap
    max_rate : bytes per second

    Returns
    -------
    at_edges : (n, n_bins + 1) float64, bytes since the first reading
    missing : (n, n_bins) bool, bins not wholly between readings, or touched by a gap or a reset
    """
    n, m = value.shape
    edges_ns = table.edges_ns
    n_bins = edges_ns.size - 1
    if m < 2:
        return np.zeros((n, n_bins + 1)), np.ones((n, n_bins), dtype=np.bool_)
    moved, known = increments(table.time_ns, value, bits, max_rate)
    total = np.zeros((n, m))
    np.cumsum(moved, axis=1, out=total[:, 1:])
    slope = np.zeros((n, m))
    np.divide(np.diff(total), table.steps, out=slope[:, :-1])
    at, past = table.before
    at_edges: Floats = slope.ravel()[at]
    at_edges *= past
    at_edges += total.ravel()[at]
    missing = (edges_ns[:-1] < table.time_ns[:, :1]) | (edges_ns[1:] > table.time_ns[:, -1:])
    bad = ~known | (np.diff(table.time_ns) > max_gap_ns)
    if bad.any():
        row, at_reading = np.nonzero(bad)
        begin = np.searchsorted(edges_ns, table.time_ns[row, at_reading], side="right") - 1
        end = np.searchsorted(edges_ns, table.time_ns[row, at_reading + 1], side="left")
        touched = np.unique(row)
        marks = np.zeros((touched.size, n_bins + 1), dtype=np.int64)
        seat = np.searchsorted(touched, row)
        np.add.at(marks, (seat, np.clip(begin, 0, n_bins)), 1)
        np.add.at(marks, (seat, np.clip(end, 0, n_bins)), -1)
        missing[touched] |= np.cumsum(marks, axis=1)[:, :-1] > 0
    return at_edges, missing
