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

from localizer.network.flow_index import CROSSED, NOTHING, FlowIndex, Numbers
from localizer.network.replies import End, Leaves, ReplyWays, Shares
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
        # By the leaves and bonds of target and source the shares of components, and with those of
        # directions.
        self._returned: dict[tuple[End, End], tuple[Shares, Shares]] = {}
        # Number of components, and of places.
        self._counted: tuple[int, int] = (0, 0)
        # What `rows` found in a version of the index, and `directed_counts`.
        self._found: tuple[int, dict[str, Int64s]] = (-1, {})
        self._directions: tuple[int, Int64s] = (-1, NONE)
        # Of cables that the index knows.
        self._directed_numbers: dict[str, int] = {}
        # `_ends_of_cables`, of which numbers, and the cables with a switch that has none.
        self._joined: Numbers = np.full((2, 1), -1, np.int32)
        self._numbered = 1
        self._open_cables: list[int] = []

    def cable(self, place: str) -> str:
        """Return the component that a place is, or is a direction of."""
        found = self._ends.get(place)
        return place if found is None else found[0]

    def is_directed(self, place: str) -> bool:
        """Return whether a place is one direction of a cable."""
        return place in self._ends

    def is_alone(self, place: str) -> bool:
        """Return whether a directed cable is the only one between its switches.

        No trace tells parallel cables apart: all that crosses any of them seems to cross one.
        """
        _, tail, head = self._ends[place]
        links_at = self._topology.links_at
        return len(set(links_at(tail)).intersection(links_at(head))) == 1

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
        between = self.replies.end(dst), self.replies.end(src)
        known = self._returned.get(between)
        if known is None or known[0] is not shares:
            if len(self._returned) >= MOST_PAIRS:
                self._returned.clear()
            known = self._returned[between] = shares, shares | self._directed(shares, *between)
        return known[1]

    def returning(self, src: str, dst: str, place: str) -> float:
        """Return the share of replies that cross a place: as in `returned`, for less."""
        cable, *way = self._ends.get(place, (place,))
        if not self.replies.may_cross(cable):
            return 0.0
        share = self.replies.shares(src, dst).get(cable, 0.0)
        if not share or not way:
            return share
        ways = self._ways(cable, self.replies.end(dst).leaves, self.replies.end(src).leaves)
        return share / len(ways) if tuple(way) in ways else 0.0

    def _directed(self, shares: Shares, begin: End, end: End) -> Shares:
        """Return the shares of the directions in which packets between leaves cross cables."""
        return {
            self._place(cable, *way): share / len(ways)
            for cable, share in shares.items()
            for ways in (self._ways(cable, begin.leaves, end.leaves),)
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
        if place not in self._ends:
            return self.index.count(place)
        return int(self.directed_counts()[self.directed_number(place)])

    def directed_number(self, place: str) -> int:
        """Return the number of a directed cable in `directed_counts`; of an unknown one 0."""
        found = self._directed_numbers.get(place)
        if found is None:
            cable, _, head = self._ends[place]
            number = self.index.components.get(cable, NOTHING)
            if number == NOTHING:
                return 0
            found = 2 * number + (head == self._switches(cable)[1])
            self._directed_numbers[place] = found
        return found

    def directed_counts(self) -> Int64s:
        """Return how many 5-tuples cross each directed cable, by `directed_number`."""
        if self._directions[0] != self.index.version:
            self._directions = self.index.version, self.counted_rows(self.index.rows)
        return self._directions[1]

    def counted_rows(self, rows: Numbers) -> Int64s:
        """Return the same of some rows of the index."""
        ends = self._ends_of_cables()
        tail, cable, head = rows[:, CROSSED:-2], rows[:, CROSSED + 1 : -1], rows[:, CROSSED + 2 :]
        first, second = ends[0][cable], ends[1][cable]
        ahead = (tail == first) & (head == second)
        back = (tail == second) & (head == first)
        numbers = np.concatenate([2 * cable[back], 2 * cable[ahead] + 1])
        return np.bincount(numbers, minlength=2 * len(self.index.crossing))

    def _ends_of_cables(self) -> Numbers:
        """Return the numbers of both switches that cables join, (2, capacity); -1 of all else."""
        index, found = self.index, self._joined
        if len(found[0]) < len(index.crossing):
            more = len(index.crossing) - len(found[0])
            found = self._joined = np.pad(found, ((0, 0), (0, more)), constant_values=-1)
        # A cable's switches get their numbers with it, or later.
        new = [*self._open_cables, *range(self._numbered, index.number_count)]
        self._open_cables, self._numbered = [], index.number_count
        for number in new:
            switches = self._switches(index.name(number))
            if len(switches) == 2:
                ends = [index.components.get(switch, NOTHING) for switch in switches]
                if NOTHING in ends:
                    self._open_cables.append(number)
                else:
                    found[:, number] = ends
        return found

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
    directed : (n,) int64
        Of directed cables their `Directions.directed_number`, else 0.
    """

    numbers: Int64s
    directed: Int64s


class RemainingFlows:
    """What is left of an index without the 5-tuples that cross some places."""

    def __init__(self, places: Directions) -> None:
        self._places = places
        self._left = len(places.index)
        # Of the index: rows that are gone, how many of them have each number, and how many cross
        # each directed cable; None: none is.
        self._gone: Bools | None = None
        self._removed: Int64s | None = None
        self._removed_directed: Int64s | None = None

    def __len__(self) -> int:
        return self._left

    def counted(self, places: Sequence[str]) -> CountedPlaces:
        """Return places for `counts`."""
        known, directed = self._places.index.components, self._places.is_directed
        number = self._places.directed_number
        return CountedPlaces(
            np.array([known.get(one, NOTHING) for one in places], np.int64),
            np.array([number(one) if directed(one) else 0 for one in places], np.int64),
        )

    def counts(self, places: CountedPlaces) -> Int64s:
        """Return how many 5-tuples are left that cross each of some places, shape (n,)."""
        directed = self._places.directed_counts()
        found: Int64s = self._places.index.crossing[places.numbers] + directed[places.directed]
        if self._removed is not None and self._removed_directed is not None:
            found -= self._removed[places.numbers] + self._removed_directed[places.directed]
        return found

    def remove(self, place: str) -> None:
        """Remove the 5-tuples that cross a place."""
        index = self._places.index
        rows = self._places.rows(place)
        if not len(rows):
            return
        if self._gone is None or self._removed is None or self._removed_directed is None:
            self._gone = np.zeros(len(index.live), np.bool_)
            self._removed = np.zeros(len(index.crossing), np.int64)
            self._removed_directed = np.zeros(2 * len(index.crossing), np.int64)
        rows = rows[~self._gone[rows]]
        self._gone[rows] = True
        self._left -= len(rows)
        gone = np.bincount(index.rows[rows, CROSSED:].ravel(), minlength=len(index.crossing))
        gone[NOTHING] = 0
        self._removed += gone
        self._removed_directed += self._places.counted_rows(index.rows[rows])
