"""5-tuples whose traces all show one path, as rows of arrays: after a start nearly all are.

Whole traces show it, those that broke off a part of it. A row takes a hundred bytes and a trace
sixty, where objects of both take kilobytes. A 5-tuple leaves when a trace shows another path, or
when it is asked for more than what the path crosses (`localizer.network.paths`).
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from localizer.network.trace_batches import NO_HOP, SILENT, TraceBatch, padded
from localizer.network.trace_rows import NO_TRACE, ROWS, Places, TraceRows, grow
from localizer.network.traces import REFERENCES, Trace
from schemas.columns.arrays import Bools, Int32s, Int64s

# Addresses beside twice those that were in use when they were last numbered anew. Nearly all are of
# endpoints, which come and go.
SPARE_ADDRESSES: Final = 1_024
# Traces beside those that counted when a 5-tuple's were last trimmed, which takes as long as to add
# a few.
SPARE_TRACES: Final = 4
# Traces of a row after that. Four complete ones, two more for a baseline and six of all count;
# there are more only where several have the same time.
MOST_TRACES: Final = 16
# Number of nothing: pads what a path crosses.
NOTHING: Final = 0
# Number of an address that no path has.
NEW: Final = np.iinfo(np.int32).max


class FlowRows:
    """The path of each of many 5-tuples, and its traces.

    Attributes
    ----------
    seen_ns : (capacity,) int64
        When the 5-tuple was last traced, or found to be still probed.
    version : (capacity,) int64
        Version of the topology for which `crossed` was computed.
    crossed : (capacity, most) int32
        Numbers of the components that the path crosses (`localizer.network.plain_routes`), in
        order, padded with `NOTHING`; only that where the hops do not show the path plainly.
    """

    def __init__(self) -> None:
        self.seen_ns: Int64s = np.zeros(ROWS, np.int64)
        self.version: Int64s = np.zeros(ROWS, np.int64)
        self.crossed: Int32s = np.zeros((ROWS, 1), np.int32)
        self._hops: Int32s = np.full((ROWS, 1), NO_HOP, np.int32)
        self._newest_ns: Int64s = np.zeros(ROWS, np.int64)
        # The trace that was added last, how many there are, and at how many they are trimmed.
        self._last: Int32s = np.zeros(ROWS, np.int32)
        self._count: NDArray[np.uint8] = np.zeros(ROWS, np.uint8)
        self._trim_at: NDArray[np.uint8] = np.zeros(ROWS, np.uint8)
        self._live: Bools = np.zeros(ROWS, np.bool_)
        self._places = Places()
        self._traces = TraceRows()
        self._numbers: dict[str, int] = {}
        self._addresses: list[str] = []
        self._clean_at = SPARE_ADDRESSES

    def __len__(self) -> int:
        return len(self._places)

    def add_flows(self, batch: TraceBatch, now_ns: int) -> list[int]:
        """Add 5-tuples that have no row by whole traces; return their rows."""
        rows = self._places.take(len(batch))
        self._make_room(batch.hops.shape[1])
        place = np.array(rows, np.int64)
        self.version[place] = -1
        self.crossed[place] = NOTHING
        numbers = self._numbers
        for number in np.unique(batch.hops[batch.hops >= 0]).tolist():
            address = batch.addresses[number]
            if address not in numbers:
                numbers[address] = len(self._addresses)
                self._addresses.append(address)
        self._hops[place] = padded(self._own_numbers(batch), self._hops.shape[1], NO_HOP)
        self._newest_ns[place] = batch.traced_ns
        self._last[place], self._count[place] = NO_TRACE, 0
        self._trim_at[place] = REFERENCES + SPARE_TRACES
        self._live[place] = True
        self.add_traces(place, batch, now_ns)
        return rows

    def shows_path(self, rows: Int64s, batch: TraceBatch) -> Bools:
        """Return which traces show the paths of some rows: each hop that answered is theirs.

        The target is no hop of a trace that broke off.
        """
        width = max(batch.hops.shape[1], self._hops.shape[1])
        hops = padded(self._own_numbers(batch), width, NO_HOP)
        path = padded(self._hops[rows], width, NO_HOP)
        last = np.arange(width) == (path != NO_HOP).sum(axis=1, keepdims=True) - 1
        whole = (hops == path).all(axis=1)
        part = ((hops < 0) | ((hops == path) & ~last)).all(axis=1)
        found: Bools = np.where(batch.complete, whole, part)
        return found

    def add_traces(
        self, rows: Int64s, batch: TraceBatch, now_ns: int
    ) -> tuple[Int64s, Sequence[int]]:
        """Add a trace that shows the path to each of some rows, none of which stands there twice.

        Returns
        -------
        newest_ns : (n,) int64
            When each 5-tuple was last traced.
        crowded
            Which of them have more traces than a row may have.
        """
        self.seen_ns[rows] = now_ns
        newest_ns: Int64s = np.maximum(self._newest_ns[rows], batch.traced_ns)
        self._newest_ns[rows] = newest_ns
        self._last[rows] = self._traces.add_traces(batch, self._last[rows])
        self._count[rows] += 1
        due = np.flatnonzero(self._count[rows] >= self._trim_at[rows])
        if not len(due):
            return newest_ns, ()
        full = rows[due]
        self._last[full], count = self._traces.trim(self._last[full])
        self._count[full], self._trim_at[full] = count, count + SPARE_TRACES
        return newest_ns, due[count > MOST_TRACES].tolist()

    def set_crossed(self, rows: Int64s, crossed: Int32s, version: int) -> None:
        """Note what the paths of some rows cross, for a version of the topology."""
        width = crossed.shape[1]
        if width > self.crossed.shape[1]:
            self.crossed = padded(self.crossed, width, NOTHING)
        self.crossed[rows] = NOTHING
        self.crossed[rows, :width] = crossed
        self.version[rows] = version

    @property
    def addresses(self) -> list[str]:
        """Addresses by number."""
        return self._addresses

    def hops_of(self, rows: Int64s) -> Int32s:
        """Return the hops of rows as numbers of `addresses`, padded."""
        return self._hops[rows]

    def traces(self, row: int) -> list[tuple[Trace, bool]]:
        """Return the traces of a row as they came, and whether each was made without a cause."""
        return self._traces.traces(self._traces.chain(int(self._last[row])), self._path(row))

    def broke_off(
        self, rows: Int64s, since_ns: Int64s, latest: int
    ) -> tuple[Int64s, Int32s, Bools, Bools]:
        """Return how far the traces of rows got that broke off.

        Parameters
        ----------
        since_ns, latest
            As for `TraceRows.broke_off`.

        Returns
        -------
        hop : (n,) int64
            Index of the farthest hop that was the last to answer in a trace; -1 if none did.
        address : (n,) int32
            Number of its address (`addresses`); of no meaning without one.
        before_target : (n,) bool
            Whether only the target is behind it.
        certain : (n,) bool
            False where traces have the same time: then the hop may be another trace's.
        """
        hop, certain = self._traces.broke_off(self._last[rows], since_ns, latest)
        path = self._hops[rows]
        length = (path != NO_HOP).sum(axis=1)
        address: Int32s = path[np.arange(len(rows)), hop]
        before_target: Bools = (hop >= 0) & (hop == length - 2)
        return hop, address, before_target, certain

    def drop(self, row: int) -> None:
        """Give a row back."""
        self._live[row] = False
        self._traces.drop(int(self._last[row]))
        self._places.give_back([row])

    def forget_addresses(self) -> None:
        """Renumber the addresses if most are of rows that are gone."""
        if len(self._addresses) <= self._clean_at:
            return
        hops = self._hops[: self._places.used]
        used = np.unique(hops[self._live[: self._places.used]])
        used = used[used != NO_HOP]
        fresh = np.full(len(self._addresses) + 1, NO_HOP, np.int32)
        fresh[used] = np.arange(len(used))
        # Rows that are gone have whatever numbers; the last place of the table is `NO_HOP`'s.
        self._hops[: self._places.used] = fresh[hops]
        self._addresses = [self._addresses[number] for number in used.tolist()]
        self._numbers = {address: number for number, address in enumerate(self._addresses)}
        self._clean_at = SPARE_ADDRESSES + 2 * len(used)

    def _path(self, row: int) -> list[str]:
        """Return the addresses of a path's hops."""
        return [self._addresses[n] for n in self._hops[row].tolist() if n != NO_HOP]

    def _own_numbers(self, batch: TraceBatch) -> Int32s:
        """Return a batch's hops by the numbers of addresses here, `NEW` if they have none."""
        own = np.empty(len(batch.addresses) + 2, np.int32)
        known = self._numbers.get
        own[: len(batch.addresses)] = [known(address, NEW) for address in batch.addresses]
        own[SILENT], own[NO_HOP] = SILENT, NO_HOP
        found: Int32s = own[batch.hops]
        return found

    def _make_room(self, width: int) -> None:
        """Make room for the rows in use, and for so many hops."""
        room = self._places.room(len(self._live))
        if room > len(self._live):
            names = (
                "seen_ns", "version", "crossed", "_hops", "_newest_ns", "_last", "_count",
                "_trim_at", "_live",
            )  # fmt: skip
            grow(self, names, room)
        if width > self._hops.shape[1]:
            self._hops = padded(self._hops, width, NO_HOP)
