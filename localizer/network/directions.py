"""Directed cables: the two directions of a cable between switches as places of their own.

Most of what harms a cable harms one direction: a transceiver that sends badly, a queue at one end.
Of the 5-tuples that cross the cable half go the other way and are well. So a test that pools the
5-tuples of a place has twice as much by chance as it would need.

A probe's direction is in its trace. A reply goes from its target's leaf to that of its source: a
cable beside the one takes it away from there, one beside the other towards it.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from localizer.network.flow_index import CROSSED, NOTHING, FlowIndex
from localizer.network.replies import Leaves, ReplyWays, Shares
from localizer.network.topology import Topology
from schemas.columns.arrays import Bools, Int64s
from schemas.enums import ComponentKind

# Paths and ways that are remembered; of more all are forgotten, and made anew.
MOST_REMEMBERED: Final = 65_536
NONE: Final = np.empty(0, np.int64)


class Directions:
    """The directed cables that 5-tuples and their replies cross, for one index and fabric.

    A place is the id of a component, or that of a cable and of the switch towards which it is
    crossed.

    Attributes
    ----------
    index
        All 5-tuples.
    replies
        The ways of replies.

    Parameters
    ----------
    topology
        Which switches cables join; when the fabric changes, another object is made.
    before
        The former one, which knows places by their names.
    """

    def __init__(
        self,
        index: FlowIndex,
        topology: Topology,
        replies: ReplyWays,
        *,
        before: "Directions | None" = None,
    ) -> None:
        self.index = index
        self.replies = replies
        self._topology = topology
        # By place the cable, the switch that it is left from, and the one that it leads to.
        self._ends: dict[str, tuple[str, str, str]] = {} if before is None else before._ends
        self._crossed: dict[tuple[str, ...], tuple[str, ...]] = {}
        # By the object of the shares, and the leaves of the target; the object stays the same.
        self._returned: dict[tuple[int, Leaves, Leaves], tuple[Shares, Shares]] = {}
        # Number of components, and of places.
        self._counted: tuple[int, int] = (0, 0)
        # What `rows` found in a version of the index.
        self._found: tuple[int, dict[str, Int64s]] = (-1, {})

    def cable(self, place: str) -> str:
        """Return the component that a place is, or is a direction of."""
        found = self._ends.get(place)
        return place if found is None else found[0]

    def is_directed(self, place: str) -> bool:
        """Return whether a place is one direction of a cable."""
        return place in self._ends

    def place_count(self) -> int:
        """Return how many places there are: components, and two for each cable between switches."""
        names = self.index.components
        if self._counted[0] != len(names):
            cables = sum(len(self._switches(name)) == 2 for name in names)
            self._counted = len(names), len(names) + 2 * cables
        return self._counted[1]

    def crossed(self, components: Sequence[str]) -> tuple[str, ...]:
        """Return what a path crosses, and then its directed cables: for equal paths one object."""
        path = tuple(components)
        found = self._crossed.get(path)
        if found is None:
            steps = zip(path, path[1:], path[2:], strict=False)
            found = path + tuple(
                self._place(cable, tail, head)
                for tail, cable, head in steps
                if {tail, head} == set(self._switches(cable))
            )
            if len(self._crossed) >= MOST_REMEMBERED:
                self._crossed.clear()
            self._crossed[path] = found
        return found

    def returned(self, src: str, dst: str) -> Shares:
        """Return `ReplyWays.shares`, and of directed cables."""
        shares = self.replies.shares(src, dst)
        begin, end = self.replies.leaves(dst), self.replies.leaves(src)
        key = id(shares), begin, end
        known = self._returned.get(key)
        if known is None or known[0] is not shares:
            directed = {
                self._place(cable, *way): share
                for cable, share in shares.items()
                if (way := self._way(cable, begin, end)) is not None
            }
            if len(self._returned) >= MOST_REMEMBERED:
                self._returned.clear()
            known = self._returned[key] = shares, shares | directed
        return known[1]

    def rows(self, place: str) -> Int64s:
        """Return the rows of the index whose 5-tuples cross a place, in any order, (n,) int64."""
        numbers, known = self.index.components, self._ends.get(place)
        if known is None:
            return self.index.rows_with(numbers.get(place, NOTHING))
        if self._found[0] != self.index.version:
            self._found = self.index.version, {}
        found = self._found[1].get(place)
        if found is None:
            cable, tail, head = (numbers.get(name, NOTHING) for name in known)
            found = self.index.rows_with(cable)
            if len(found):
                crossed = self.index.rows[found, CROSSED:]
                at = (crossed[:, 1:-1] == cable).argmax(axis=1)
                each = np.arange(len(found))
                found = found[(crossed[each, at] == tail) & (crossed[each, at + 2] == head)]
            self._found[1][place] = found
        return found

    def count(self, place: str) -> int:
        """Return how many 5-tuples cross a place."""
        return len(self.rows(place)) if place in self._ends else self.index.count(place)

    def _way(self, cable: str, begin: Leaves, end: Leaves) -> tuple[str, str] | None:
        """Return from which switch to which a packet between leaves crosses a cable; None: open."""
        switches = self._switches(cable)
        if len(switches) != 2:
            return None
        ways = (switches, switches[::-1])
        for near in (Leaves.__contains__, self._is_beside):
            found = [way for way in ways if near(begin, way[0]) or near(end, way[1])]
            if len(found) == 1:
                return found[0]
        return None

    def _is_beside(self, leaves: Leaves, switch: str) -> bool:
        return any(self._topology.link_between(switch, leaf) is not None for leaf in leaves)

    def _switches(self, cable: str) -> tuple[str, ...]:
        """Return the two switches that a cable joins; empty if it is none between switches."""
        kind, ends = self._topology.kind, self._topology.ends(cable)
        return ends if all(kind(end) is ComponentKind.SWITCH for end in ends) else ()

    def _place(self, cable: str, tail: str, head: str) -> str:
        place = f"{cable}>{head}"
        self._ends[place] = cable, tail, head
        return place


class CountedPlaces(NamedTuple):
    """Places whose 5-tuples are counted again and again.

    Attributes
    ----------
    numbers : (n,) int64
        Of components in the index; `NOTHING` for directed cables, and for what it does not know.
    rows, place : (m,) int64
        The rows of the directed cables one after the other, and the place of each.
    """

    numbers: Int64s
    rows: Int64s
    place: Int64s


class RemainingFlows:
    """What is left of an index without the 5-tuples that cross some places."""

    def __init__(self, places: Directions) -> None:
        self._places = places
        self._left = len(places.index)
        # Of the index: rows that are gone, and how many of them have each number; None: none is.
        self._gone: Bools | None = None
        self._removed: Int64s | None = None

    def __len__(self) -> int:
        return self._left

    def count(self, place: str) -> int:
        """Return how many 5-tuples are left that cross a place."""
        return int(self.counts(self.counted([place]))[0])

    def counted(self, places: Sequence[str]) -> CountedPlaces:
        """Return places for `counts`."""
        known, directed = self._places.index.components, self._places.is_directed
        each = [self._places.rows(one) if directed(one) else NONE for one in places]
        return CountedPlaces(
            np.array([known.get(one, NOTHING) for one in places], np.int64),
            np.concatenate([NONE, *each]),
            np.repeat(np.arange(len(each)), [len(rows) for rows in each]),
        )

    def counts(self, places: CountedPlaces) -> Int64s:
        """Return how many 5-tuples are left that cross each of some places, shape (n,)."""
        found = self._places.index.crossing[places.numbers]
        of = places.place
        if self._gone is not None and self._removed is not None:
            found = found - self._removed[places.numbers]
            of = of[~self._gone[places.rows]]
        return found + np.bincount(of, minlength=len(found))

    def remove(self, place: str) -> None:
        """Remove the 5-tuples that cross a place."""
        index = self._places.index
        rows = self._places.rows(place)
        if not len(rows):
            return
        if self._gone is None or self._removed is None:
            self._gone = np.zeros(len(index.live), np.bool_)
            self._removed = np.zeros(len(index.crossing), np.int64)
        rows = rows[~self._gone[rows]]
        self._gone[rows] = True
        self._left -= len(rows)
        gone = np.bincount(index.rows[rows, CROSSED:].ravel(), minlength=len(index.crossing))
        gone[NOTHING] = 0
        self._removed += gone
