"""5-tuples of which one whole trace is known, as rows of arrays: after a start nearly all are.

A row takes a hundred bytes, where the objects of a trace and of its path take a kilobyte. A 5-tuple
leaves with its second trace, or when its path is asked for (`localizer.network.paths`).
"""

from typing import Final, TypeVar

import numpy as np

from localizer.network.trace_batches import NO_HOP, TraceBatch, padded, trace_of_row
from localizer.network.traces import Trace
from schemas.columns.arrays import Bools, Int32s, Int64s
from schemas.columns.interpreter import NULL

ROWS: Final = 1_024
# Addresses beside twice those that were in use when they were last numbered anew. Nearly all are of
# endpoints, which come and go.
SPARE_ADDRESSES: Final = 1_024
# Number of nothing: pads what a path crosses.
NOTHING: Final = 0

Column = TypeVar("Column", Bools, Int64s)


class FirstTraces:
    """One whole trace of each of many 5-tuples.

    Attributes
    ----------
    seen_ns : (capacity,) int64
        When the 5-tuple was last traced, or found to be still probed.
    version : (capacity,) int64
        Version of the topology for which `crossed` was computed.
    crossed : (capacity, most) int32
        Numbers of the components that the path crosses (`localizer.network.plain_routes`), in
        order, padded with `NOTHING`; only that where the trace does not show the path plainly.
    """

    def __init__(self) -> None:
        self.seen_ns: Int64s = np.zeros(ROWS, np.int64)
        self.version: Int64s = np.zeros(ROWS, np.int64)
        self.crossed: Int32s = np.zeros((ROWS, 1), np.int32)
        self._traced_ns: Int64s = np.zeros(ROWS, np.int64)
        self._discovery: Bools = np.zeros(ROWS, np.bool_)
        self._hops: Int32s = np.full((ROWS, 1), NO_HOP, np.int32)
        self._rtts_ns: Int64s = np.full((ROWS, 1), NULL, np.int64)
        self._live: Bools = np.zeros(ROWS, np.bool_)
        self._free: list[int] = []
        self._used = 0
        self._numbers: dict[str, int] = {}
        self._addresses: list[str] = []
        self._clean_at = SPARE_ADDRESSES

    def __len__(self) -> int:
        return self._used - len(self._free)

    def add_traces(self, batch: TraceBatch, now_ns: int) -> list[int]:
        """Add traces of 5-tuples that have no row; return their rows."""
        count = len(batch)
        reused = [self._free.pop() for _ in range(min(count, len(self._free)))]
        fresh = range(self._used, self._used + count - len(reused))
        self._used += len(fresh)
        rows = [*reused, *fresh]
        self._make_room(batch.hops.shape[1])
        place = np.array(rows, np.int64)
        self.seen_ns[place] = now_ns
        self.version[place] = -1
        self.crossed[place] = NOTHING
        self._traced_ns[place] = batch.traced_ns
        self._discovery[place] = batch.discovery
        width = self._hops.shape[1]
        self._hops[place] = padded(self._own_numbers(batch), width, NO_HOP)
        self._rtts_ns[place] = padded(batch.rtts_ns, width, NULL)
        self._live[place] = True
        return rows

    def set_crossed(self, rows: Int64s, crossed: Int32s, version: int) -> None:
        """Note what the paths of some rows cross, for a version of the topology."""
        width = crossed.shape[1]
        if width > self.crossed.shape[1]:
            self.crossed = padded(self.crossed, width, NOTHING)
        self.crossed[rows] = NOTHING
        self.crossed[rows, :width] = crossed
        self.version[rows] = version

    def hops_of(self, rows: Int64s) -> tuple[Int32s, list[str]]:
        """Return the hops of rows as numbers of addresses, padded, and all addresses by number."""
        return self._hops[rows], self._addresses

    def trace(self, row: int) -> tuple[Trace, bool]:
        """Return the trace of a row, and whether it was made without a cause."""
        hops = self._hops[row].tolist()
        addresses = [self._addresses[number] for number in hops if number != NO_HOP]
        rtts_ns = self._rtts_ns[row, : len(addresses)]
        trace = trace_of_row(int(self._traced_ns[row]), addresses, rtts_ns)
        return trace, bool(self._discovery[row])

    def drop(self, row: int) -> None:
        """Give a row back."""
        self._live[row] = False
        self._free.append(row)

    def forget_addresses(self) -> None:
        """Renumber the addresses if most are of rows that are gone."""
        if len(self._addresses) <= self._clean_at:
            return
        hops = self._hops[: self._used]
        used = np.unique(hops[self._live[: self._used]])
        used = used[used != NO_HOP]
        fresh = np.full(len(self._addresses) + 1, NO_HOP, np.int32)
        fresh[used] = np.arange(len(used))
        # Rows that are gone have whatever numbers; the last place of the table is `NO_HOP`'s.
        self._hops[: self._used] = fresh[hops]
        self._addresses = [self._addresses[number] for number in used.tolist()]
        self._numbers = {address: number for number, address in enumerate(self._addresses)}
        self._clean_at = SPARE_ADDRESSES + 2 * len(used)

    def _own_numbers(self, batch: TraceBatch) -> Int32s:
        """Return a batch's hops by the numbers that addresses have here."""
        numbers, addresses = self._numbers, self._addresses
        own = np.empty(len(batch.addresses) + 1, np.int32)
        own[-1] = NO_HOP
        for place in np.unique(batch.hops).tolist():
            if place == NO_HOP:
                continue
            address = batch.addresses[place]
            number = numbers.get(address)
            if number is None:
                number = numbers[address] = len(addresses)
                addresses.append(address)
            own[place] = number
        found: Int32s = own[batch.hops]
        return found

    def _make_room(self, width: int) -> None:
        """Make room for the rows in use, and for so many hops."""
        room = len(self._live)
        if self._used > room:
            room = max(2 * room, self._used)
            self.seen_ns, self.version = _grown(self.seen_ns, room), _grown(self.version, room)
            self._traced_ns = _grown(self._traced_ns, room)
            self._discovery, self._live = _grown(self._discovery, room), _grown(self._live, room)
            more = ((0, room - len(self._hops)), (0, 0))
            self.crossed = np.pad(self.crossed, more)
            self._hops = np.pad(self._hops, more, constant_values=NO_HOP)
            self._rtts_ns = np.pad(self._rtts_ns, more, constant_values=NULL)
        if width > self._hops.shape[1]:
            self._hops = padded(self._hops, width, NO_HOP)
            self._rtts_ns = padded(self._rtts_ns, width, NULL)


def _grown(column: Column, room: int) -> Column:
    return np.pad(column, (0, room - len(column)))
