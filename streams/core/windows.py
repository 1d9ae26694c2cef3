"""Event-time tumbling windows per 5-tuple: exact statistics, closed for many agents at once.

A result belongs to the window that holds its sending time. Results are written into tables of
fixed size, the slots of the open windows; those of plain rounds by their kernel
(`streams.core.absorb`). What finds no free slot is kept in lists of column chunks. When a window
closes, one pass gives the statistics of every 5-tuple in it (`streams.columns.slots`,
`streams.columns.closing`).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np

from schemas.columns.arrays import Bools, Int32s, Int64s
from streams.columns import closing, memory
from streams.columns.closing import Chunk, Values
from streams.columns.quantities import COUNT
from streams.columns.rounds import RoundColumns
from streams.columns.slots import slot_values, slotted
from streams.columns.table import FIRST_ROWS
from streams.config import DetectionConfig
from streams.core.clock import AgentClocks
from streams.core.partition_arrays import OPEN_WINDOWS, SPILL, SlotArrays
from streams.core.slotting import put_results

# Probes of a 5-tuple in a window: once a second for half a minute, and some sent again.
FIRST_SLOTS: Final = 32
MOST_SLOTS: Final = 128
# Rows are added for an agent's 5-tuples at a time, some 80. Five megabytes, a quarter of it used.
SPARE_ROWS: Final = 4_096
# With a larger share of a window's results without a slot there will be more slots; each slot
# takes 12 bytes of every 5-tuple.
SPILLED_SHARE: Final = 0.05
# From this size on (40,000 5-tuples of a partition, with 32 slots) the slots of a closed window
# are given back to the system. To get them again costs 3 % of a worker's time for the window.
LARGE_BYTES: Final = 16 * 2**20


@dataclass(slots=True)
class _Open:
    """Chunks of one window index, by agent; `repeats` are rows of duplicate results.

    A window holds thousands of small ones, and a few agents at a time close theirs.
    """

    chunks: defaultdict[int, list[Chunk]] = field(default_factory=lambda: defaultdict(list))
    repeats: defaultdict[int, list[Int64s]] = field(default_factory=lambda: defaultdict(list))

    def pop(self, agents: Iterable[int]) -> tuple[list[Chunk], list[Int64s]]:
        """Return what some agents have, and forget it."""
        chunks: list[Chunk] = []
        repeats: list[Int64s] = []
        for agent in agents:
            chunks += self.chunks.pop(agent, ())
            repeats += self.repeats.pop(agent, ())
        return chunks, repeats

    def hand_over(self, former: int, agent: int, moved: Int64s) -> None:
        """Give an agent what another one has of some rows."""
        chunks, repeats = self.pop([former])
        for rows, values in chunks:
            here = np.isin(rows, moved)
            for owner, own in ((agent, here), (former, ~here)):
                if own.any():
                    self.chunks[owner].append((rows[own], values[:, own]))
        for rows in repeats:
            # The results of one round.
            self.repeats[agent if rows[0] in moved else former].append(rows)


@dataclass(frozen=True, slots=True)
class ClosedWindow:
    """Statistics of one window, one entry per row (5-tuple) with results.

    All arrays have one length, `values` has len(COLUMNS) columns; -1 stands for "no
    probe answered" or "not measured". `index` times the window's length is its start.
    """

    index: int
    rows: Int64s
    sent: Int64s
    ok: Int64s
    repeats: Int64s
    values: Int64s


class Windows:
    """The open windows of one partition.

    Each agent's windows are closed by its own clock (`streams.core.clock.AgentClocks`), so that at
    one time windows of different indices are open.

    Parameters
    ----------
    config
        Length of a window, and how long it stays open after its end; the next ones are open
        meanwhile.
    agents
        Which windows of each agent are open.

    Attributes
    ----------
    slots
        Results of the open windows.
    """

    def __init__(self, config: DetectionConfig, agents: AgentClocks) -> None:
        self.window_ns = config.window_ns
        self._agents = agents
        self._open: dict[int, _Open] = {}
        # Number of each 5-tuple's agent, by row; -1: not known.
        self._agent_of = np.full(FIRST_ROWS, -1, np.int64)
        count = min(
            OPEN_WINDOWS, 2 + (config.lateness_ns + config.closing_spread_ns) // config.window_ns
        )
        self._slots_wanted = FIRST_SLOTS
        self.slots = SlotArrays(
            counts=np.zeros((count, 0), np.int32),
            values=np.zeros((count, COUNT, FIRST_SLOTS, 0), np.int32),
            spilled=np.zeros(count, np.int64),
            spill_rows=np.zeros((count, SPILL), np.int64),
            spill=np.zeros((count, COUNT, SPILL), np.int64),
        )

    def add_round(self, agent: int, rows: Int64s, columns: RoundColumns) -> Bools:
        """Add the results of a round; return which of them came in time."""
        self._note_agent(agent, rows)
        sent_ns, clocks = columns.sent_ns, self._agents.table
        timely: Bools = sent_ns >= clocks["first_open"][agent] * self.window_ns
        counted = timely & (sent_ns >= clocks["entry_ns"][agent])
        index = sent_ns // self.window_ns
        if counted.all() and len(index) and index.min() == index.max():
            # Usually a round lies in one window as a whole.
            self._add(agent, int(index[0]), rows, columns.values)
            return timely
        for window in np.unique(index[counted]).tolist():
            here = counted & (index == window)
            self._add(agent, window, rows[here], columns.values[:, here])
        return timely

    def _note_agent(self, agent: int, rows: Int64s) -> None:
        """Note who probes some 5-tuples; what is held of those that have moved goes with them."""
        if len(rows) and int(rows.max()) >= len(self._agent_of):
            more = 2 * int(rows.max()) - len(self._agent_of)
            self._agent_of = np.pad(self._agent_of, (0, more), constant_values=-1)
        before = self._agent_of[rows]
        moved = (before != agent) & (before >= 0)
        for former in np.unique(before[moved]).tolist() if moved.any() else ():
            for window in self._open.values():
                window.hand_over(former, agent, rows)
        self._agent_of[rows] = agent

    def _add(self, agent: int, index: int, rows: Int64s, values: Int64s) -> None:
        """Add results of one window: in slots, if the agent has some for it, or as a chunk."""
        count = len(self.slots.spilled)
        ahead = index - int(self._agents.table["first_open"][agent])
        if ahead >= count or len(rows) > SPILL:
            self._window(index).chunks[agent].append((rows, values))
            return
        if self.slots.spilled[index % count] + len(rows) > SPILL:
            self.spill_slots()
        self.fit_slots(int(rows.max(initial=-1)) + 1)
        put_results(self.slots, index % count, rows, np.ascontiguousarray(values))

    def is_crowded(self, agent: int, reach_ns: int) -> bool:
        """Return whether a probe at that time is in a window for which the agent has no slots."""
        ahead = reach_ns // self.window_ns - int(self._agents.table["first_open"][agent])
        return ahead >= len(self.slots.spilled)

    def add_repeats(self, agent: int, rows: Int64s, sent_ns: Int64s) -> None:
        """Note duplicate results in the windows that are still open."""
        index = sent_ns // self.window_ns
        entry_ns = self._agents.table["entry_ns"][agent]
        for window in np.unique(index[sent_ns >= entry_ns]).tolist():
            self._window(window).repeats[agent].append(rows[index == window])

    def close(self, numbers: Int64s, after: Int64s, active_ns: int) -> list[ClosedWindow]:
        """Close windows of some agents; return them, lowest index first.

        Parameters
        ----------
        numbers, after : (n,) int64
            Agents, and the index of the first window of each that stays open.
        active_ns
            The partition's active time.
        """
        closed = [
            self._closed(index, own, in_slots) for index, own, in_slots in self._due(numbers, after)
        ]
        self._agents.open_from(numbers, after, active_ns)
        return [window for window in closed if len(window.rows)]

    def drop(self, numbers: Int64s, after: Int64s, active_ns: int) -> None:
        """Do the same with windows whose statistics nobody wants."""
        for index, own, in_slots in self._due(numbers, after):
            self._chunks(index, own)
            self._free(index, self._rows_in_slots(index, in_slots))
        self._agents.open_from(numbers, after, active_ns)

    def _due(self, numbers: Int64s, after: Int64s) -> Iterator[tuple[int, Int64s, Int64s]]:
        """Yield the windows to close, lowest index first: index, agents, those with slots."""
        if not len(numbers):
            return
        self.spill_slots()
        before = self._agents.table["first_open"][numbers]
        count = len(self.slots.spilled)
        begin, end = int(before.min()), int(after.max())
        due = {index for index in self._open if begin <= index < end}
        for first in {begin} if end == begin + 1 else set(before.tolist()):
            due.update(range(first, min(first + count, end)))
        for index in sorted(due):
            here = (before <= index) & (index < after)
            if here.any():
                yield index, numbers[here], numbers[here & (index < before + count)]

    def holding(self, rows: Int64s) -> Bools:
        """Return which 5-tuples have results in open windows."""
        self.spill_slots()
        counts = self.slots.counts
        slotted = rows < counts.shape[1]
        held: Bools = np.zeros(len(rows), np.bool_)
        held[slotted] = counts[:, rows[slotted]].any(axis=0)
        chunks = [
            chunk
            for window in self._open.values()
            for own in window.chunks.values()
            for chunk, _ in own
        ]
        return held | np.isin(rows, np.concatenate([*chunks, np.zeros(0, np.int64)]))

    def fit_slots(self, rows: int) -> None:
        """Give so many rows slots."""
        slots = self.slots
        windows, had = slots.counts.shape
        count = slots.values.shape[2]
        if rows <= had and self._slots_wanted == count:
            return
        # More than needed, since growing copies everything.
        counts = np.zeros((windows, max(rows + max(rows // 8, SPARE_ROWS), had)), np.int32)
        counts[:, :had] = slots.counts
        values = np.zeros((windows, COUNT, self._slots_wanted, counts.shape[1]), np.int32)
        values[:, :, :count, :had] = slots.values
        self.slots = slots._replace(counts=counts, values=values)

    def spill_slots(self) -> None:
        """Make chunks of the results without a slot."""
        slots = self.slots
        count = len(slots.spilled)
        for place in np.flatnonzero(slots.spilled).tolist():
            used = int(slots.spilled[place])
            rows, values = slots.spill_rows[place, :used], slots.spill[place, :, :used]
            agents = self._agent_of[rows]
            first = self._agents.table["first_open"][agents]
            index = first + (place - first) % count
            order = np.lexsort((agents, index))
            rows, values, agents, index = rows[order], values[:, order], agents[order], index[order]
            changes = (np.diff(agents) != 0) | (np.diff(index) != 0)
            bounds = [0, *(1 + np.flatnonzero(changes)).tolist(), used]
            for begin, end in pairwise(bounds):
                own = self._window(int(index[begin])).chunks[int(agents[begin])]
                own.append((rows[begin:end], values[:, begin:end]))
            slots.spilled[place] = 0

    def _closed(self, index: int, numbers: Int64s, in_slots: Int64s) -> ClosedWindow:
        """Take a window's results of some agents out; those of the latter may be in slots."""
        chunks, repeats = self._chunks(index, numbers)
        rows, sent, ok, values = self._values(index, in_slots, chunks)
        return ClosedWindow(
            index=index,
            rows=rows,
            sent=sent,
            ok=ok,
            repeats=_repeats(rows, repeats),
            values=values,
        )

    def _chunks(self, index: int, numbers: Int64s) -> tuple[list[Chunk], list[Int64s]]:
        """Take chunks and repeats of some agents out of a window."""
        window = self._open.get(index)
        if window is None:
            return [], []
        taken = window.pop(numbers.tolist())
        if not (window.chunks or window.repeats):
            del self._open[index]
        return taken

    def _rows_in_slots(self, index: int, numbers: Int64s) -> Int64s:
        """Return the rows of some agents that use slots of a window."""
        counts = self.slots.counts[index % len(self.slots.spilled)]
        return slotted(counts, self._agent_of, self._marked(numbers))

    def _free(self, index: int, rows: Int64s) -> None:
        """Free the slots of some rows in a window."""
        place = index % len(self.slots.spilled)
        every, slots = self.slots.counts[place], self.slots.values[place]
        every[rows] = 0
        if slots.nbytes >= LARGE_BYTES and not every.any():
            # The next window needs memory only as its slots fill.
            memory.empty(slots)

    def _marked(self, numbers: Int64s) -> Bools:
        """Return marks of these agents, by number."""
        marks = np.zeros(self._agents.table.capacity, np.bool_)
        marks[numbers] = True
        return marks

    def _values(self, index: int, numbers: Int64s, chunks: list[Chunk]) -> Values:
        """Return a window's values of each row of some agents; its slots are free afterwards."""
        place = index % len(self.slots.spilled)
        every, slots = self.slots.counts[place], self.slots.values[place]
        mine = self._rows_in_slots(index, numbers)
        if chunks:
            counts = np.zeros_like(every)
            counts[mine] = every[mine]
            values = self._mixed(counts, slots, chunks)
        else:
            values = slot_values(every, slots, mine)
        self._free(index, mine)
        return values

    def _mixed(self, counts: Int32s, slots: Int32s, chunks: list[Chunk]) -> Values:
        """Return the values of slots and chunks; some rows are in one, some in both."""
        mixed = closing.chunk_values(chunks, counts, slots)
        rows = mixed[0][mixed[0] < len(counts)]
        own = counts[rows]
        spilled = sum(len(chunk[0]) for chunk in chunks)
        if spilled > SPILLED_SHARE * counts.sum() and int(own.max(initial=0)) >= len(slots[0]):
            self._slots_wanted = min(2 * len(slots[0]), MOST_SLOTS)
        counts[rows] = 0
        plain = slot_values(counts, slots, np.flatnonzero(counts))
        order = np.argsort(np.concatenate((plain[0], mixed[0])))
        joined = [np.concatenate(pair)[order] for pair in zip(plain, mixed, strict=True)]
        return joined[0], joined[1], joined[2], joined[3]

    def _window(self, index: int) -> _Open:
        window = self._open.get(index)
        if window is None:
            window = self._open[index] = _Open()
        return window


def _repeats(rows: Int64s, chunks: list[Int64s]) -> Int64s:
    if not chunks:
        return np.zeros(len(rows), np.int64)
    repeated = np.concatenate(chunks)
    place = np.searchsorted(rows, repeated)
    known = (place < len(rows)) & (rows[np.minimum(place, len(rows) - 1)] == repeated)
    return np.bincount(place[known], minlength=len(rows)).astype(np.int64)
