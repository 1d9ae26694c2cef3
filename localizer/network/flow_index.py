"""Index of all probed 5-tuples by what they cross, as rows of numbers.

The localizer counts good 5-tuples per component over up to a million rows. The index is updated row
by row, since between two decisions only a few 5-tuples change their paths.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from localizer.network.plain_routes import Ends
from schemas.columns.arrays import Bools, Int64s
from schemas.ids import FlowId

Numbers = NDArray[np.int32]

# A 5-tuple, what it crosses, its prober, and the agent of its target; None: not known.
NewFlow = tuple[FlowId, Iterable[str], str, str | None]

# Pads the rows; also the number of an unknown responder.
NOTHING: Final = 0
# Columns of a row: prober, responder, then the components from `CROSSED` on.
PROBER, RESPONDER, CROSSED = 0, 1, 2
FIRST: Final = 1_024
# The sorted postings are rebuilt when one row in this many has changed.
STALE_SHARE: Final = 64


class FlowIndex:
    """The 5-tuples on a ping list between registered endpoints whose path is known from a trace.

    Attributes
    ----------
    rows : (capacity, most) int32
        Numbers of prober, responder and components, padded with 0.
    ends : (capacity, 2) int32
        Numbers of the two endpoints.
    live : (capacity,) bool
        Rows in use.
    crossing : (at least `number_count`,) int64
        How many live rows have each number.
    components, probers, responders
        Numbers by id; no number is used twice.
    endpoints
        Numbers by id, counted separately.
    by_key
        Row of each 5-tuple.
    version
        Grows with every change of a row.
    """

    def __init__(self) -> None:
        self.rows: Numbers = np.zeros((FIRST, CROSSED), np.int32)
        self.ends: Numbers = np.zeros((FIRST, 2), np.int32)
        self.live: Bools = np.zeros(FIRST, np.bool_)
        self.crossing: Int64s = np.zeros(FIRST, np.int64)
        self.components: dict[str, int] = {}
        self.probers: dict[str, int] = {}
        self.responders: dict[str, int] = {}
        self.endpoints: dict[str, int] = {}
        self.version = 0
        self.by_key: dict[FlowId, int] = {}
        self._keys: list[FlowId] = []
        # What each row crosses, as the caller passed it; None: by its numbers alone.
        self._crossed: list[Iterable[str] | None] = []
        self._free: list[int] = []
        # Ids by number; number 0 has none.
        self._names: list[str] = [""]
        # Postings: rows sorted by number as of the last rebuild, the rows that changed since, and
        # where these are now, by number.
        self._order: Int64s = np.empty(0, np.int64)
        self._starts: Int64s = np.zeros(1, np.int64)
        self._stale: Bools = np.zeros(FIRST, np.bool_)
        self._changed: set[int] = set()
        self._moved: defaultdict[int, set[int]] = defaultdict(set)
        # Whether so many rows changed that the next query rebuilds the postings.
        self._due = False

    def __len__(self) -> int:
        return len(self.by_key)

    def set_flow(
        self, key: FlowId, components: Iterable[str], prober: str, responder: str | None
    ) -> bool:
        """Add or update a 5-tuple; return whether anything changed.

        Parameters
        ----------
        components
            What it crosses; kept as this object, see `row_of`.
        responder
            Agent of its target, None if not known.
        """
        number = self._number
        found = [number(self.probers, prober)]
        found.append(NOTHING if responder is None else number(self.responders, responder))
        found += [number(self.components, c) for c in components]
        known = self.by_key.get(key)
        if known is not None:
            row = self.rows[known].tolist()
            if row[: len(found)] == found and not any(row[len(found) :]):
                self._crossed[known] = components
                return False
        self.drop_flow(key)
        place = self._allocate_row(key, len(found))
        self._crossed[place] = components
        self.rows[place, : len(found)] = found
        self.ends[place] = [self._endpoint(key[0]), self._endpoint(key[1])]
        self.live[place] = True
        for one in found:
            self.crossing[one] += one != NOTHING
        self._note_change(place, found)
        self.version += 1
        return True

    def add_flows(self, flows: Sequence[NewFlow]) -> None:
        """Add many 5-tuples that have no row: as `set_flow` one by one, for much less."""
        number, components = self._number, self.components
        found: list[int] = []
        widths: list[int] = []
        ends: list[int] = []
        for key, crossed, prober, responder in flows:
            before = len(found)
            found.append(number(self.probers, prober))
            found.append(NOTHING if responder is None else number(self.responders, responder))
            try:
                found += [components[c] for c in crossed]
            except KeyError:
                found += [number(components, c) for c in crossed]
            widths.append(len(found) - before)
            ends += (self._endpoint(key[0]), self._endpoint(key[1]))
        if not flows:
            return
        width = max(widths)
        rows = np.zeros((len(flows), width), np.int32)
        rows[np.arange(width) < np.array(widths)[:, None]] = found
        keys = [key for key, *_ in flows]
        self._add(keys, rows, np.array(ends).reshape(-1, 2), [crossed for _, crossed, *_ in flows])

    def add_rows(
        self,
        keys: Sequence[FlowId],
        ends: Ends,
        crossed: Numbers,
        probers: Sequence[str],
        agents: Sequence[str | None],
    ) -> None:
        """Add many 5-tuples that have no row.

        Parameters
        ----------
        ends
            Their ends.
        crossed : (n, most) int32
            Numbers of what they cross (`component_number`), in order, padded with `NOTHING`.
        probers
            The agent that probes each 5-tuple.
        agents
            By number of an end its agent, None if not known.
        """
        if not keys:
            return
        number = self._number
        answering = [
            NOTHING if agent is None else number(self.responders, agent) for agent in agents
        ]
        endpoints = np.array([self._endpoint(end) for end in ends.names], np.int32)
        rows = np.zeros((len(keys), CROSSED + crossed.shape[1]), np.int32)
        known = self.probers
        rows[:, PROBER] = [known.get(prober) or number(known, prober) for prober in probers]
        rows[:, RESPONDER] = np.array(answering, np.int32)[ends.dst]
        rows[:, CROSSED:] = crossed
        between = np.stack([endpoints[ends.src], endpoints[ends.dst]], axis=1)
        self._add(keys, rows, between, [None] * len(keys))

    def component_number(self, component_id: str) -> int:
        """Return the number of a component, which may be new."""
        return self._number(self.components, component_id)

    def _add(
        self,
        keys: Sequence[FlowId],
        rows: Numbers,
        ends: Numbers | Int64s,
        crossed: Sequence[Iterable[str] | None],
    ) -> None:
        """Add rows of 5-tuples that have none."""
        self.version += 1
        width = rows.shape[1]
        places = self._allocate_rows(keys, width)
        for place, one in zip(places.tolist(), crossed, strict=True):
            self._crossed[place] = one
        self.rows[places, :width] = rows
        self.ends[places] = ends
        self.live[places] = True
        crossing = np.bincount(rows.ravel(), minlength=len(self.crossing))
        crossing[NOTHING] = 0
        self.crossing += crossing
        self._stale[places] = True
        self._changed.update(places.tolist())
        self._due |= self._is_due()
        if self._due:
            self._moved.clear()
        else:
            for place, row in zip(places.tolist(), rows.tolist(), strict=True):
                self._note_numbers(place, row)

    def drop_flow(self, key: FlowId) -> bool:
        """Remove a 5-tuple; return whether it was there."""
        place = self.by_key.pop(key, None)
        if place is None:
            return False
        for one in self.rows[place].tolist():
            if one != NOTHING:
                self.crossing[one] -= 1
                if one in self._moved:
                    self._moved[one].discard(place)
        self.rows[place] = NOTHING
        self.live[place] = False
        self._free.append(place)
        self._crossed[place] = ()
        self._note_change(place, ())
        self.version += 1
        return True

    def renumber_endpoints(self) -> None:
        """Renumber the endpoints of live rows, so that endpoints that left take no numbers."""
        used = np.unique(self.ends[self.live])
        fresh = np.zeros(len(self.endpoints) + 1, np.int32)
        fresh[used] = np.arange(len(used))
        names = list(self.endpoints)
        self.endpoints = {names[old]: new for new, old in enumerate(used.tolist())}
        self.ends = fresh[self.ends] * self.live[:, None]

    @property
    def number_count(self) -> int:
        """How many numbers are in use, `NOTHING` included."""
        return len(self._names)

    @property
    def spare_row_count(self) -> int:
        """How many rows are free."""
        return len(self._free)

    @property
    def used_number_count(self) -> int:
        """How many numbers live rows have."""
        return int(np.count_nonzero(self.crossing))

    def row_of(self, key: FlowId, components: Iterable[str]) -> int:
        """Return the row of a 5-tuple if it was set with this object of components, else -1.

        If it was set with numbers, that they mean the same is enough.
        """
        return int(self.rows_of([(key, components)])[0])

    def rows_of(self, flows: Sequence[tuple[FlowId, Iterable[str]]]) -> Int64s:
        """Return `row_of` of many 5-tuples, (n,) int64."""
        places = [self.by_key.get(key, -1) for key, _ in flows]
        kept = self._crossed
        unnamed = [n for n, place in enumerate(places) if place >= 0 and kept[place] is None]
        if unnamed:
            rows = self.rows[[places[n] for n in unnamed], CROSSED:].tolist()
            for n, row in zip(unnamed, rows, strict=True):
                if self._ids(row) == tuple(flows[n][1]):
                    kept[places[n]] = flows[n][1]
        return np.array(
            [
                place if place >= 0 and kept[place] is components else -1
                for place, (_, components) in zip(places, flows, strict=True)
            ],
            np.int64,
        )

    def crossed(self, key: FlowId) -> Iterable[str]:
        """Return what a 5-tuple crosses; empty if it has no row."""
        place = self.by_key.get(key)
        if place is None:
            return ()
        known = self._crossed[place]
        return self._ids(self.rows[place, CROSSED:].tolist()) if known is None else known

    def _ids(self, numbers: list[int]) -> tuple[str, ...]:
        return tuple([self._names[one] for one in numbers if one != NOTHING])

    def key(self, place: int) -> FlowId:
        """Return the 5-tuple of a row."""
        return self._keys[place]

    def name(self, number: int) -> str:
        """Return the id of a number."""
        return self._names[number]

    def prober(self, place: int) -> str:
        """Return the agent that probes a row's 5-tuple."""
        return self.name(int(self.rows[place, PROBER]))

    def count(self, component: str) -> int:
        """Return how many 5-tuples cross a component."""
        return int(self.crossing[self.components.get(component, NOTHING)])

    def rows_with(self, number: int) -> Int64s:
        """Return the live rows with a number, in any order, shape (k,) int64."""
        if number == NOTHING or not self.crossing[number]:
            return np.empty(0, np.int64)
        self.sort_if_stale()
        found = np.empty(0, np.int64)
        if number + 1 < len(self._starts):
            found = self._order[self._starts[number] : self._starts[number + 1]]
            if self._changed:
                found = found[~self._stale[found]]
        if moved := self._moved.get(number):
            found = np.concatenate([found, np.array(sorted(moved), np.int64)])
        return found

    def sort_if_stale(self) -> None:
        """Rebuild the postings if many rows have changed; `rows_with` does so, too, when needed."""
        if not self._due:
            return
        places = np.flatnonzero(self.live)
        rows = self.rows[places]
        words = (rows.astype(np.int64) << 32) | places[:, None]
        words = np.sort(words[rows != NOTHING])
        self._order = words & 0xFFFFFFFF
        self._starts = np.searchsorted(words, np.arange(len(self._names) + 1) << 32)
        self._changed.clear()
        self._moved.clear()
        self._stale[:] = False
        self._due = False

    def _note_change(self, place: int, numbers: Iterable[int]) -> None:
        """Note that a row has these numbers now."""
        self._changed.add(place)
        self._stale[place] = True
        self._due |= self._is_due()
        if self._due:
            self._moved.clear()
            return
        self._note_numbers(place, numbers)

    def _note_numbers(self, place: int, numbers: Iterable[int]) -> None:
        for number in numbers:
            if number != NOTHING:
                self._moved[number].add(place)

    def _is_due(self) -> bool:
        return len(self._changed) > FIRST + len(self.by_key) // STALE_SHARE

    def _number(self, known: dict[str, int], name: str) -> int:
        found = known.get(name)
        if found is None:
            found = known[name] = len(self._names)
            self._names.append(name)
            if len(self._names) >= len(self.crossing):
                self.crossing = np.append(self.crossing, np.zeros_like(self.crossing))
        return found

    def _endpoint(self, name: str) -> int:
        return self.endpoints.setdefault(name, len(self.endpoints))

    def _allocate_row(self, key: FlowId, most: int) -> int:
        """Return a free row for a 5-tuple."""
        return int(self._allocate_rows([key], most)[0])

    def _allocate_rows(self, keys: Sequence[FlowId], most: int) -> Int64s:
        """Return free rows for 5-tuples, each so wide."""
        reused = [self._free.pop() for _ in range(min(len(keys), len(self._free)))]
        for place, key in zip(reused, keys, strict=False):
            self._keys[place] = key
        fresh = range(len(self._keys), len(self._keys) + len(keys) - len(reused))
        self._keys += keys[len(reused) :]
        self._crossed += [()] * len(fresh)
        places = [*reused, *fresh]
        room, width = self.rows.shape
        more_rows = max(room, len(self._keys) - room) if len(self._keys) > room else 0
        if more_rows or most > width:
            more = ((0, more_rows), (0, max(0, most - width)))
            self.rows = np.pad(self.rows, more)
            self.ends = np.pad(self.ends, (more[0], (0, 0)))
            self.live, self._stale = np.pad(self.live, more[0]), np.pad(self._stale, more[0])
        self.by_key.update(zip(keys, places, strict=True))
        return np.array(places, np.int64)
