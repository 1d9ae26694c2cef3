"""Directed cables: the two directions of a cable between switches as places of their own.

Most of what harms a cable harms one direction: a transceiver that sends badly, a queue at one end.
Of the 5-tuples that cross the cable half go the other way and are well. So a test that pools the
5-tuples of a place has twice as much by chance as it would need.

A probe's direction is in its trace. A reply goes from its target's leaf to that of its source: a
cable beside the one takes it away from there, one beside the other towards it. Elsewhere its
direction is open, and it takes either with half the probability.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from localizer.network.flow_index import CROSSED, NOTHING, FlowIndex
from localizer.network.replies import Leaves, ReplyWays, Shares
from localizer.network.topology import Topology
from schemas.columns.arrays import Bools, Int64s
from schemas.enums import ComponentKind
from schemas.process.names import shared

# Paths that are remembered, a quarter of a kilobyte each; of more all are forgotten, and made anew.
MOST_PATHS: Final = 65_536
# Likewise pairs of leaves with the ways of replies between them: each loss that is kept may be
# between others (`facts.stray_losses.MAX_LOSSES`). Where leaves have 64 uplinks a pair takes ten
# kilobytes.
MOST_PAIRS: Final = 16_384
# Stands in a direction between cable and switch. No id holds it: what came over the wire was UTF-8,
# which has no surrogates.
TOWARDS: Final = "\ud800"
NONE: Final = np.empty(0, np.int64)


def direction(cable: str, head: str) -> str:
    """Return the place that a cable is where it is crossed towards a switch."""
    # One object: thousands of paths and ways name it.
    return shared(f"{cable}{TOWARDS}{head}")


class Directions:
    """The directed cables that 5-tuples and their replies cross, for one index and fabric.

    A place is the id of a component, or a `direction`.

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
        self._ends: dict[str, tuple[str, str, str]] = {}
        if before is not None:
            self._ends = {place: ends for place, ends in before._ends.items() if self._joins(*ends)}
        self._crossed: dict[tuple[str, ...], tuple[str, ...]] = {}
        # By the leaves of target and source the shares of components, and with those of directions.
        self._returned: dict[tuple[Leaves, Leaves], tuple[Shares, Shares]] = {}
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
                if self._joins(cable, tail, head)
            )
            if len(self._crossed) >= MOST_PATHS:
                self._crossed.clear()
            self._crossed[path] = found
        return found

    def returned(self, src: str, dst: str) -> Shares:
        """Return `ReplyWays.shares`, and of directed cables.

        One object while the shares are. Where nothing tells the direction, either is as likely.
        """
        shares = self.replies.shares(src, dst)
        between = self.replies.leaves(dst), self.replies.leaves(src)
        known = self._returned.get(between)
        if known is None or known[0] is not shares:
            if len(self._returned) >= MOST_PAIRS:
                self._returned.clear()
            known = self._returned[between] = shares, shares | self._directed(shares, *between)
        return known[1]

    def _directed(self, shares: Shares, begin: Leaves, end: Leaves) -> Shares:
        """Return the shares of the directions in which packets between leaves cross cables."""
        return {
            self._place(cable, *way): share / len(ways)
            for cable, share in shares.items()
            for ways in (self._ways(cable, begin, end),)
            for way in ways
        }

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
                at_cable = crossed[:, 1:-1] == cable
                at_ends = (crossed[:, :-2] == tail) & (crossed[:, 2:] == head)
                found = found[(at_cable & at_ends).any(axis=1)]
            self._found[1][place] = found
        return found

    def count(self, place: str) -> int:
        """Return how many 5-tuples cross a place."""
        return len(self.rows(place)) if place in self._ends else self.index.count(place)

    def _ways(self, cable: str, begin: Leaves, end: Leaves) -> Sequence[tuple[str, str]]:
        """Return from which switch to which a packet between leaves may cross a cable."""
        switches = self._switches(cable)
        if len(switches) != 2:
            return ()
        ways = (switches, switches[::-1])
        for near in (Leaves.__contains__, self._is_beside):
            found = [way for way in ways if near(begin, way[0]) or near(end, way[1])]
            if len(found) == 1:
                return found
        return ways

    def _is_beside(self, leaves: Leaves, switch: str) -> bool:
        return any(self._topology.link_between(switch, leaf) is not None for leaf in leaves)

    def _joins(self, cable: str, tail: str, head: str) -> bool:
        """Return whether a cable joins two switches."""
        return {tail, head} == set(self._switches(cable))

    def _switches(self, cable: str) -> tuple[str, ...]:
        """Return the two switches that a cable joins; empty if it is none between switches."""
        kind, ends = self._topology.kind, self._topology.ends(cable)
        return ends if all(kind(end) is ComponentKind.SWITCH for end in ends) else ()

    def _place(self, cable: str, tail: str, head: str) -> str:
        place = direction(cable, head)
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
