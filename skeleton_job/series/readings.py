"""The readings of endpoints' counters, endpoint after endpoint: what rates are made of."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from schemas.columns.arrays import Int64s, UInt64s

# The tick is looked for in the readings of so many endpoints.
TICK_ENDPOINTS: Final = 64
T = TypeVar("T", np.int64, np.uint64)

# Numbers below this are sorted by two passes of a radix sort.
SMALL: Final = 2**16


@dataclass(frozen=True, slots=True, eq=False)
class Readings:
    """Readings of `endpoints`, each one's in a row and by time.

    Attributes
    ----------
    endpoints : their ids
    begin, end : (n_endpoints,) int64, where each one's readings are in the columns
    time_ns : (n,) int64, strictly increasing within an endpoint
    tx_bytes, rx_bytes : (n,) uint64
    bits : (n_endpoints,) int64, width of the counters, `UNDECLARED` where nobody said
    """

    endpoints: tuple[str, ...]
    begin: Int64s
    end: Int64s
    time_ns: Int64s
    tx_bytes: UInt64s
    rx_bytes: UInt64s
    bits: Int64s

    def between(self, start_ns: int, end_ns: int) -> "Readings":
        """Return those at start_ns and later, and at end_ns and before."""
        if not self.time_ns.size:
            return self
        begin, end = self.begin.copy(), self.end.copy()
        for row, (first, behind) in enumerate(zip(self.begin, self.end, strict=True)):
            mine = self.time_ns[first:behind]
            if first < behind and (mine[0] < start_ns or mine[-1] > end_ns):
                begin[row] = first + np.searchsorted(mine, start_ns, side="left")
                end[row] = first + np.searchsorted(mine, end_ns, side="right")
        return replace(self, begin=begin, end=end)

    def of(self, endpoints: Sequence[str]) -> "Readings":
        """Return those of some endpoints, in this order.

        Raises
        ------
        KeyError
            If an endpoint is not among those here.
        """
        at = {endpoint: row for row, endpoint in enumerate(self.endpoints)}
        rows = np.array([at[endpoint] for endpoint in endpoints], dtype=np.int64)
        return replace(
            self,
            endpoints=tuple(endpoints),
            begin=self.begin[rows],
            end=self.end[rows],
            bits=self.bits[rows],
        )

    def none(self) -> "Readings":
        """Return no readings of nobody."""
        return replace(
            self.of(()), time_ns=self.time_ns[:0].copy(), tx_bytes=self.tx_bytes[:0].copy(),
            rx_bytes=self.rx_bytes[:0].copy(),
        )  # fmt: skip

    def padded(self, column: NDArray[T], rows: Int64s) -> NDArray[T]:
        """Return what a column says of some rows, each one's last reading repeated to its end."""
        out = np.empty((rows.size, int((self.end - self.begin)[rows].max())), dtype=column.dtype)
        for line, row in zip(out, rows, strict=True):
            mine = column[self.begin[row] : self.end[row]]
            line[: mine.size] = mine
            line[mine.size :] = mine[-1]
        return out

    @property
    def tick_ns(self) -> int | None:
        """The usual distance between an endpoint's readings, None without any."""
        some = np.flatnonzero(self.end > self.begin)[:TICK_ENDPOINTS]
        if not some.size:
            return None
        return usual_tick_ns(
            np.concatenate([np.diff(self.time_ns[self.begin[i] : self.end[i]]) for i in some])
        )


def usual_tick_ns(steps_ns: Int64s) -> int | None:
    """Return the usual one of steps between readings, None where there is none above 0.

    Rounded to a millisecond, since readings jitter around their tick.
    """
    steps_ns = steps_ns[steps_ns > 0]
    if not steps_ns.size:
        return None
    return max(1, round(float(np.median(steps_ns)) / 1e6)) * 1_000_000


def in_order(
    endpoints: Sequence[str],
    row: NDArray[np.integer],
    *,
    time_ns: Int64s,
    tx_bytes: UInt64s,
    rx_bytes: UInt64s,
    bits: Int64s,
) -> Readings:
    """Return readings that come in any order; of two of one endpoint at one time the last counts.

    Parameters
    ----------
    row : (n,) which endpoint each is of
    time_ns, tx_bytes, rx_bytes : (n,)
    bits : (n_endpoints,) width of each one's counters
    """
    # Where another endpoint's readings begin; most tables hold each one's together.
    turns = _turns(row)
    if turns.size > np.unique(row[turns]).size:
        order = np.argsort(row.astype(np.uint16) if len(endpoints) <= SMALL else row, kind="stable")
        row, time_ns, tx_bytes, rx_bytes = (
            row[order],
            time_ns[order],
            tx_bytes[order],
            rx_bytes[order],
        )
        turns = _turns(row)
    inside = np.ones(max(row.size - 1, 0), dtype=np.bool_)
    inside[turns[1:] - 1] = False
    if np.any(inside & (time_ns[1:] < time_ns[:-1])):
        # By place in the table rather than by number: the turns stay where they are.
        place = np.repeat(np.arange(turns.size), np.diff(np.append(turns, row.size)))
        order = np.lexsort((time_ns, place))
        time_ns, tx_bytes, rx_bytes = time_ns[order], tx_bytes[order], rx_bytes[order]
    double = inside & (time_ns[1:] == time_ns[:-1])
    if double.any():
        kept = np.append(~double, True)
        turns = np.append(0, np.cumsum(kept))[turns]
        row, time_ns, tx_bytes, rx_bytes = row[kept], time_ns[kept], tx_bytes[kept], rx_bytes[kept]
    begin = np.zeros(len(endpoints), dtype=np.int64)
    end = np.zeros(len(endpoints), dtype=np.int64)
    begin[row[turns]] = turns
    end[row[turns]] = np.append(turns[1:], row.size)
    return Readings(tuple(endpoints), begin, end, time_ns, tx_bytes, rx_bytes, bits)


def _turns(row: NDArray[np.integer]) -> Int64s:
    """Return where another number than before begins."""
    if not row.size:
        return np.zeros(0, dtype=np.int64)
    return np.append(0, np.flatnonzero(row[1:] != row[:-1]) + 1)
