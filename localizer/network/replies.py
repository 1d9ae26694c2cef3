"""Which ways replies may take: ECMP chooses theirs anew, and no trace shows it.

A trace follows the probe. What comes back has another 5-tuple, and between the same two
leaves it may take any way that probes between them are known to take, in either direction.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from itertools import islice
from typing import Final

import numpy as np

from localizer.network.flow_index import CROSSED, FIRST, NOTHING, FlowIndex, Numbers
from localizer.network.paths import FlowKey
from localizer.network.topology import Topology
from schemas.columns.arrays import Bools, Int64s
from schemas.enums import ComponentKind

Leaves = frozenset[str]
Shares = dict[str, float]
Pair = tuple[int, int]
# How many ways are known, the index's numbers of what they cross, and how many cross each.
Ways = tuple[int, Int64s, Int64s]
NONE: Final[Shares] = {}
# Leaves of an endpoint that nobody has asked for.
UNASKED: Final = -1
# Leaves whose ways are counted at a time while all is calm: a third of a millisecond each.
SETTLED: Final = 256
# Bits of a word that hold a number of the index.
WORD: Final = 32


class ReplyWays:
    """Shares of the known ways between two leaves that cross each component.

    Parameters
    ----------
    topology
        Where endpoints are joined to leaves.
    index
        The 5-tuples whose ways are known.
    """

    def __init__(self, topology: Topology, index: FlowIndex) -> None:
        self._topology = topology
        self._index = index
        self._joined: dict[str, Leaves] = {}
        # Leaves of an endpoint by number, 0 where they are not known; by the index's numbers
        # of endpoints: those of their leaves, -1 where nobody has asked.
        self._groups: dict[Leaves, int] = {frozenset(): 0}
        self._ranks: list[list[str]] = [[]]
        self._group: Int64s = np.full(FIRST, UNASKED)
        self._between: dict[Pair, Shares] = {}
        self._ways: dict[int, dict[int, Ways]] = {}
        # By number of leaves: which of `_between` they take part in; the shares of their cables.
        self._pairs: defaultdict[int, set[Pair]] = defaultdict(set)
        self._leaving: dict[int, Shares] = {}
        # By cable: which of `_leaving` count it.
        self._cabled: defaultdict[str, set[int]] = defaultdict(set)
        # Endpoints, and numbers of the index, that have been asked for already.
        self._asked, self._settled = 0, 1
        # By the index's number whether a component belongs to the fabric.
        self._fabric = np.full(FIRST, UNASKED, np.int8)

    def prepare(self) -> None:
        """Ask for the leaves of new endpoints and for new components, before anything breaks.

        And count the ways of some leaves, so that a storm's first decision need not.
        """
        self._make_room()
        self._ask()
        self.in_fabric(np.arange(self._settled, self._index.number_count))
        self._settled = self._index.number_count
        if len(self._ways) < len(self._ranks) - 1:
            waiting = (n for n in range(1, len(self._ranks)) if n not in self._ways)
            for number in islice(waiting, SETTLED):
                self._ways[number] = self._counted(number)
                self._uplinks(number)

    def renumber(self) -> None:
        """Follow the index, whose endpoints have other numbers; those that left have none."""
        self._joined = {e: found for e, found in self._joined.items() if e in self._index.endpoints}
        self._group, self._asked = np.full(FIRST, UNASKED), 0

    def invalidate(
        self, keys: Iterable[FlowKey], moved: Collection[str] = (), crossed: Iterable[str] = ()
    ) -> None:
        """Note that some 5-tuples have come or gone, or take another way.

        Parameters
        ----------
        moved
            Endpoints that may be joined to other leaves; `keys` hold all of their 5-tuples.
        crossed
            What the 5-tuples cross, and crossed before: also cables of leaves that no end is
            joined to, or not to them alone.
        """
        ends = {end for key in keys for end in key[:2]}
        groups = {self._number(self._leaves(end)) for end in ends}
        for end in moved:
            self._joined.pop(end, None)
            number = self._index.endpoints.get(end)
            if number is not None and number < self._asked:
                self._group[number] = self._number(self._leaves(end))
        groups |= {self._number(self._leaves(end)) for end in ends.intersection(moved)}
        for group in groups:
            self._ways.pop(group, None)
        for group in groups.union(*(self._cabled.get(cable, ()) for cable in crossed)):
            for pair in self._pairs.pop(group, ()):
                self._between.pop(pair, None)
            self._leaving.pop(group, None)

    def shares(self, src: str, dst: str) -> Shares:
        """Return by component the chance that a reply from `dst` to `src` crosses it.

        Only of switches and the cables between them: that either cable of an RNIC may bring
        replies would excuse the RNIC itself. Empty where the topology does not say which
        leaves the endpoints are joined to.
        """
        a, b = self._number(self._leaves(src)), self._number(self._leaves(dst))
        if not a or not b:
            return NONE
        pair = (a, b) if a <= b else (b, a)
        found = self._between.get(pair)
        if found is None:
            found = self._between[pair] = self._shares(pair)
            self._pairs[a].add(pair)
            self._pairs[b].add(pair)
        return found

    def _shares(self, pair: Pair) -> Shares:
        """Return the shares among all known ways between two groups of leaves."""
        first, second = sorted(pair, key=self._ranks.__getitem__)
        ways = self._ways.get(first)
        if ways is None:
            ways = self._ways[first] = self._counted(first)
        if second not in ways:
            return {}
        count, numbers, crossing = ways[second]
        names = map(self._index.name, numbers.tolist())
        shares = dict(sorted(zip(names, (crossing / count).tolist(), strict=True)))
        if first != second:
            # Few ways are known between two leaves, and more of those that leave either.
            for number in (first, second):
                for uplink, share in self._uplinks(number).items():
                    if share > shares.get(uplink, 0.0):
                        shares[uplink] = share
        return shares

    def _counted(self, number: int) -> dict[int, Ways]:
        """Return which ways are known between some leaves and all others of no lower rank.

        By the other's number; of all at once, since most of it is the same for all.
        """
        index, ranks = self._index, self._ranks
        near = [index.rows_with(index.components.get(leaf, NOTHING)) for leaf in ranks[number]]
        places = near[0] if len(near) == 1 else np.unique(np.concatenate(near))
        group = self.groups_of(index.ends[places])
        other = np.where(group[:, 0] == number, group[:, 1], group[:, 0])
        own = ranks[number]
        counts = np.bincount(other[(group == number).any(axis=1)])
        wanted = [n for n in np.flatnonzero(counts).tolist() if ranks[n] >= own]
        # As small numbers, by which words are in order; of what is not wanted, none.
        which = np.full(len(ranks), UNASKED)
        which[wanted] = np.arange(len(wanted))
        mine = which[other]
        mine[(group != number).all(axis=1)] = UNASKED
        rows = index.rows[places, CROSSED:].astype(np.int64)
        words = (mine[:, None] << WORD) | rows
        words = np.sort(words[self.in_fabric(rows) & (mine >= 0)[:, None]])
        begins = np.flatnonzero(np.diff(words, prepend=UNASKED))
        crossing = np.diff(begins, append=len(words))
        words = words[begins]
        cuts = np.searchsorted(words, np.arange(len(wanted) + 1) << WORD).tolist()
        numbers = words & ((1 << WORD) - 1)
        return {
            other: (int(counts[other]), numbers[begin:end], crossing[begin:end])
            for other, begin, end in zip(wanted, cuts, cuts[1:], strict=False)
        }

    def in_fabric(self, numbers: Int64s | Numbers) -> Bools:
        """Return which of the index's numbers are components that belong to the fabric."""
        self._make_room()
        known = self._fabric[numbers]
        if (known == UNASKED).any():
            for number in np.unique(numbers[known == UNASKED]).tolist():
                self._fabric[number] = number != NOTHING and self._shared(self._index.name(number))
            known = self._fabric[numbers]
        found: Bools = known == 1
        return found

    def _uplinks(self, number: int) -> Shares:
        """Return the shares of all that leaves some leaves, or comes to them, by its cable."""
        found = self._leaving.get(number)
        if found is None:
            crossed = {
                cable: self._index.count(cable)
                for leaf in self._ranks[number]
                for cable in self._topology.links_at(leaf)
                if self._shared(cable)
            }
            for cable in crossed:
                self._cabled[cable].add(number)
            total = sum(crossed.values())
            found = {cable: count / total for cable, count in crossed.items() if count}
            self._leaving[number] = found
        return found

    def groups_of(self, ends: Numbers) -> Int64s:
        """Return the leaves of endpoints, both by number."""
        self._make_room()
        self._ask()
        found: Int64s = self._group[ends]
        return found

    def _ask(self) -> None:
        """Ask for the leaves of the endpoints that have come to the index since."""
        if self._asked == len(self._index.endpoints):
            # Mostly: to skip all that are known, pair by pair, is quadratic.
            return
        for name, number in islice(self._index.endpoints.items(), self._asked, None):
            self._group[number] = self._number(self._leaves(name))
        self._asked = len(self._index.endpoints)

    def _make_room(self) -> None:
        """Follow the index, which has new endpoints and new numbers."""
        more = len(self._index.endpoints)
        if more > len(self._group):
            self._group = np.append(self._group, np.full(more, UNASKED))
        more = len(self._index.crossing) - len(self._fabric)
        if more > 0:
            self._fabric = np.append(self._fabric, np.full(more, UNASKED, np.int8))

    def _number(self, leaves: Leaves) -> int:
        found = self._groups.get(leaves)
        if found is None:
            found = self._groups[leaves] = len(self._ranks)
            self._ranks.append(sorted(leaves))
        return found

    def _shared(self, component_id: str) -> bool:
        """Say whether a component belongs to the fabric, and not to one host."""
        known = self._topology.get(component_id)
        if known is None or known.kind is ComponentKind.SWITCH:
            return known is not None
        kinds = {self._topology.kind(end) for end in (known.a, known.b) if end is not None}
        return known.kind is ComponentKind.LINK and kinds == {ComponentKind.SWITCH}

    def _leaves(self, endpoint_id: str) -> Leaves:
        """Return the leaves that an endpoint's RNIC is joined to."""
        if endpoint_id not in self._joined:
            kinds = self._topology.kind
            held = self._topology.parents(endpoint_id)
            rnic = next((p for p in held if kinds(p) is ComponentKind.RNIC), None)
            near = [] if rnic is None else self._topology.neighbours(rnic)
            self._joined[endpoint_id] = frozenset(
                n for n in near if kinds(n) is ComponentKind.SWITCH
            )
        return self._joined[endpoint_id]
