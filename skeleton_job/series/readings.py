"""Counter readings of several endpoints as columns, ordered by endpoint and time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from schemas.columns.arrays import Int64s, UInt64s

# The sampling interval is estimated from this many endpoints.
TICK_ENDPOINTS: Final = 64
T = TypeVar("T", np.int64, np.uint64)

# Numbers below this fit two bytes, which a radix sort orders in two passes.
SMALL: Final = 2**16


@dataclass(frozen=True, slots=True, eq=False)
class Readings:
    """Readings of `endpoints`, ordered by endpoint and time.

    Attributes
    ----------
    endpoints : their ids
    begin, end : (n_endpoints,) int64, range of each endpoint's readings in the columns
    time_ns : (n,) int64, strictly increasing within an endpoint
    tx_bytes, rx_bytes : (n,) uint64
    bits : (n_endpoints,) int64, width of the counters, `UNDECLARED` where not declared
    """

    endpoints: tuple[str, ...]
    begin: Int64s
    end: Int64s
    time_ns: Int64s
    tx_bytes: UInt64s
    rx_bytes: UInt64s
    bits: Int64s

    def between(self, start_ns: int, end_ns: int) -> "Readings":
        """Return the readings from start_ns to end_ns, both included."""
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
        """Return the readings of some endpoints, in this order.

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
        """Return an empty selection that holds no memory of this one."""
        return replace(
            self.of(()), time_ns=self.time_ns[:0].copy(), tx_bytes=self.tx_bytes[:0].copy(),
            rx_bytes=self.rx_bytes[:0].copy(),
        )  # fmt: skip

    def padded(self, column: NDArray[T], rows: Int64s) -> NDArray[T]:
        """Return a column as a table of these rows, padded by each one's last reading."""
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
    """Return the median of the positive steps between readings; None if there is none.

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
    """Return readings from columns in any order; of equal times of one endpoint the last counts.

    Parameters
    ----------
    row : (n,) index of the endpoint of each reading
    time_ns, tx_bytes, rx_bytes : (n,)
    bits : (n_endpoints,) width of each endpoint's counters
    """
    # Begin of each run of one endpoint; most inputs hold each endpoint's readings together.
    runs = _run_starts(row)
    if runs.size > np.unique(row[runs]).size:
        order = np.argsort(row.astype(np.uint16) if len(endpoints) <= SMALL else row, kind="stable")
        row, time_ns, tx_bytes, rx_bytes = (
            row[order],
            time_ns[order],
            tx_bytes[order],
            rx_bytes[order],
        )
        runs = _run_starts(row)
    inside = np.ones(max(row.size - 1, 0), dtype=np.bool_)
    inside[runs[1:] - 1] = False
    if np.any(inside & (time_ns[1:] < time_ns[:-1])):
        # Sort within runs, not by endpoint number: the runs stay where they are.
        place = np.repeat(np.arange(runs.size), np.diff(np.append(runs, row.size)))
        order = np.lexsort((time_ns, place))
        time_ns, tx_bytes, rx_bytes = time_ns[order], tx_bytes[order], rx_bytes[order]
    double = inside & (time_ns[1:] == time_ns[:-1])
    if double.any():
        kept = np.append(~double, True)
        runs = np.append(0, np.cumsum(kept))[runs]
        row, time_ns, tx_bytes, rx_bytes = row[kept], time_ns[kept], tx_bytes[kept], rx_bytes[kept]
    begin = np.zeros(len(endpoints), dtype=np.int64)
    end = np.zeros(len(endpoints), dtype=np.int64)
    begin[row[runs]] = runs
    end[row[runs]] = np.append(runs[1:], row.size)
    return Readings(tuple(endpoints), begin, end, time_ns, tx_bytes, rx_bytes, bits)


def _run_starts(row: NDArray[np.integer]) -> Int64s:
    """Return the indices at which a new value begins."""
    if not row.size:
        return np.zeros(0, dtype=np.int64)
    return np.append(0, np.flatnonzero(row[1:] != row[:-1]) + 1)
