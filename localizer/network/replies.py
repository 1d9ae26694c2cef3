"""The ways that replies may take, as probabilities per component.

A trace follows the probe. The reply has another 5-tuple, ECMP hashes it anew, and no trace shows
its path. Between the same two leaves it may take any way that probes are known to take, in either
direction. So the share of known ways that cross a component is the probability that a reply does.

An RNIC whose cables are bonded sends by one of them and gets what comes back by any. Each bond
deals its packets by a hash of its own, so that a reply crosses either of two cables half of the
time, whichever its probe crossed.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence, Set
from itertools import chain, islice, pairwise
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from localizer.network.flow_index import CROSSED, FIRST, NOTHING, FlowIndex, Numbers
from localizer.network.topology import Topology
from schemas.columns.arrays import Bools, Floats, Int64s
from schemas.enums import ComponentKind

Leaves = frozenset[str]
# The cables of an RNIC that has several.
Bond = tuple[str, ...]
Shares = dict[str, float]
Pair = tuple[int, int]
# The index's numbers of components, each with the probability that a reply crosses it.
Numbered = tuple[Int64s, Floats]
# Number of known ways, the index's numbers of what they cross, and how many cross each.
Ways = tuple[int, Int64s, Int64s]
NONE: Final[Shares] = {}
NO_NUMBERS: Final[Numbered] = np.empty(0, np.int64), np.empty(0)
# Marks an endpoint whose leaves were not looked up yet.
NOT_LOOKED_UP: Final = -1
# Leaves whose ways are counted per call while all is calm: a third of a millisecond each.
LEAVES_PER_CALL: Final = 256
# Calls without a change after which leaves are counted again. Where containers come and go each
# second, ways that are counted ahead are out of date before anything breaks, and counting all of
# them four times a second took a third of a core at 16,000 RNICs.
SETTLED_CALLS: Final = 16
# Pairs of leaves whose shares are counted together: their ways take some megabytes.
PAIRS_AT_ONCE: Final = 4_096
# Bits that hold a number of the index in a sort key.
WORD: Final = 32
# Pairs of bonded RNICs whose ways are remembered by name, a few kilobytes each.
MOST_BONDED: Final = 4_096
# What a component is to replies.
HOSTS_OWN: Final = 0
OF_FABRIC: Final = 1
BONDED: Final = 2


class End(NamedTuple):
    """How an endpoint is joined to the fabric.

    Attributes
    ----------
    leaves
        Those that its RNIC is joined to.
    bond
        The RNIC's cables, if it has several.
    """

    leaves: Leaves
    bond: Bond


NOWHERE: Final = End(frozenset(), ())


class ReplyWays:
    """Shares of the known ways between two groups of leaves that cross each component.

    Parameters
    ----------
    topology
        To which leaves endpoints are joined.
    index
        The 5-tuples whose ways are known.
    """

    def __init__(self, topology: Topology, index: FlowIndex) -> None:
        self._topology = topology
        self._index = index
        self._ends: dict[str, End] = {}
        # Numbers of the groups of leaves, 0 for unknown ones; by the index's endpoint number the
        # number of its group.
        self._groups: dict[Leaves, int] = {frozenset(): 0}
        self._ranks: list[list[str]] = [[]]
        self._group: Int64s = np.full(FIRST, NOT_LOOKED_UP)
        # Likewise numbers of bonds, 0 for none.
        self._bonds: dict[Bond, int] = {(): 0}
        self._bond: Int64s = np.zeros(FIRST, np.int64)
        self._between: dict[Pair, Numbered] = {}
        self._named: dict[Pair, Shares] = {}
        # By source and target, one of them bonded: the shares between their leaves, and all.
        self._bonded: dict[tuple[End, End], tuple[Shares, Shares]] = {}
        self._ways: dict[int, dict[int, Ways]] = {}
        # By group: at which call of `prepare` its 5-tuples changed last.
        self._calls = 0
        self._changed: dict[int, int] = {}
        # By number of a group: the pairs in `_between` that it is part of, the shares of its
        # cables, and these.
        self._pairs: defaultdict[int, set[Pair]] = defaultdict(set)
        self._leaving: dict[int, Numbered] = {}
        self._cables: dict[int, list[str]] = {}
        # By cable: the groups in `_leaving` that count it.
        self._cabled: defaultdict[str, set[int]] = defaultdict(set)
        # Endpoints and numbers of the index that were looked up already.
        self._looked_up, self._prepared = 0, 1
        # By the index's number: what the component is to replies.
        self._role = np.full(FIRST, NOT_LOOKED_UP, np.int8)

    def prepare(self) -> None:
        """Look up new endpoints and components, and count some ways, before anything breaks.

        A storm's first decision then has less to do.
        """
        self._grow()
        self._look_up_ends()
        self.in_fabric(np.arange(self._prepared, self._index.number_count))
        self._prepared = self._index.number_count
        self._calls += 1
        if len(self._ways) < len(self._ranks) - 1:
            waiting = (n for n in range(1, len(self._ranks)) if self._is_due(n))
            for number in islice(waiting, LEAVES_PER_CALL):
                self._ways[number] = self._count_ways(number)
                self._uplinks(number)

    def _is_due(self, number: int) -> bool:
        """Return whether ways of a group are to be counted ahead: none are, and nothing changes."""
        settled = self._calls - self._changed.get(number, -SETTLED_CALLS) >= SETTLED_CALLS
        return settled and number not in self._ways

    def renumber(self) -> None:
        """Follow the index after it renumbered its endpoints; drop those that left."""
        self._ends = {e: found for e, found in self._ends.items() if e in self._index.endpoints}
        self._group, self._looked_up = np.full(FIRST, NOT_LOOKED_UP), 0
        self._bond = np.zeros(FIRST, np.int64)

    def invalidate(
        self, ends: Set[str], moved: Collection[str] = (), crossed: Iterable[str] = ()
    ) -> None:
        """Drop what depends on 5-tuples that came, went or changed their paths.

        Parameters
        ----------
        ends
            Endpoints of these 5-tuples.
        moved
            Endpoints that may be joined to other leaves; all of their 5-tuples are among them.
        crossed
            What the 5-tuples cross and crossed before, including cables of leaves that no
            endpoint is joined to alone.
        """
        groups = {self._number(self.leaves(end)) for end in ends}
        for end in moved:
            self._ends.pop(end, None)
            number = self._index.endpoints.get(end)
            if number is not None and number < self._looked_up:
                self._look_up_end(number, end)
        groups |= {self._number(self.leaves(end)) for end in ends & set(moved)}
        for group in groups:
            self._ways.pop(group, None)
            self._changed[group] = self._calls
        for group in groups.union(*(self._cabled.get(cable, ()) for cable in crossed)):
            for pair in self._pairs.pop(group, ()):
                self._between.pop(pair, None)
                self._named.pop(pair, None)
            self._leaving.pop(group, None)

    def shares(self, src: str, dst: str) -> Shares:
        """Return by component the probability that a reply from `dst` to `src` crosses it.

        Of the switches and cables between them, and the cables of bonded RNICs. Empty if the
        topology does not say to which leaves the endpoints are joined.
        """
        pair = self._pair(src, dst)
        if pair is None:
            return NONE
        between = self._named.get(pair)
        if between is None:
            self._keep_shares([pair])
            numbers, chance = self._between[pair]
            names = map(self._index.name, numbers.tolist())
            # Ordered by what does not depend on the order in which the index met them.
            between = self._named[pair] = dict(sorted(zip(names, chance.tolist(), strict=True)))
        ends = self.end(src), self.end(dst)
        of_bonds = _shares_of_bonds(ends)
        if not of_bonds:
            return between
        known = self._bonded.get(ends)
        if known is None or known[0] is not between:
            if len(self._bonded) >= MOST_BONDED:
                self._bonded.clear()
            known = self._bonded[ends] = between, between | of_bonds
        return known[1]

    def numbered_shares(self, ends: Iterable[tuple[str, str]]) -> list[Numbered]:
        """Return `shares` of many by the index's numbers, for less: both (n,), in no order.

        Without bonded cables that no probe crosses, which have no number.

        Parameters
        ----------
        ends
            Source and target of each.
        """
        ends = list(ends)
        pairs = [self._pair(src, dst) for src, dst in ends]
        self._keep_shares(pairs)
        return [
            NO_NUMBERS if pair is None else self._with_bonds(pair, src, dst)
            for pair, (src, dst) in zip(pairs, ends, strict=True)
        ]

    def _with_bonds(self, pair: Pair, src: str, dst: str) -> Numbered:
        """Return the shares of a pair with those of two endpoints' bonded cables."""
        numbers, chance = self._between[pair]
        known, of_bonds = self._index.components, _shares_of_bonds((self.end(src), self.end(dst)))
        more = {known[cable]: share for cable, share in of_bonds.items() if cable in known}
        if not more:
            return numbers, chance
        return np.append(numbers, list(more)), np.append(chance, list(more.values()))

    def _pair(self, src: str, dst: str) -> Pair | None:
        """Return the groups of leaves of two endpoints; None if either has none."""
        a, b = self._number(self.leaves(src)), self._number(self.leaves(dst))
        if not a or not b:
            return None
        return (a, b) if a <= b else (b, a)

    def _keep_shares(self, pairs: Iterable[Pair | None]) -> None:
        """Count the shares of those pairs of which none are kept."""
        new = [p for p in dict.fromkeys(pairs) if p is not None and p not in self._between]
        for begin in range(0, len(new), PAIRS_AT_ONCE):
            some = new[begin : begin + PAIRS_AT_ONCE]
            for pair, found in zip(some, self._shares(some), strict=True):
                self._between[pair] = found
                for group in pair:
                    self._pairs[group].add(pair)

    def _shares(self, pairs: Sequence[Pair]) -> list[Numbered]:
        """Return the shares among all known ways between two groups of leaves, for each pair."""
        known = [self._known_ways(pair) for pair in pairs]
        owner = np.repeat(np.arange(len(pairs)), [sum(len(n) for n, _ in own) for own in known])
        parts = [NO_NUMBERS, *chain.from_iterable(known)]
        words = (owner << WORD) | np.concatenate([numbers for numbers, _ in parts])
        order = np.argsort(words, kind="stable")
        words, chance = words[order], np.concatenate([chance for _, chance in parts])[order]
        begins = np.flatnonzero(np.diff(words, prepend=NOT_LOOKED_UP))
        most = np.maximum.reduceat(chance, begins) if len(begins) else chance
        numbers, cuts = _by_owner(words[begins], len(pairs))
        # Copies: a pair that stays would keep all others' numbers in memory.
        return [(numbers[begin:end].copy(), most[begin:end].copy()) for begin, end in cuts]

    def _known_ways(self, pair: Pair) -> list[Numbered]:
        """Return the shares of a pair by each of its sources; the greatest of them counts."""
        first, second = sorted(pair, key=self._ranks.__getitem__)
        ways = self._ways.get(first)
        if ways is None:
            ways = self._ways[first] = self._count_ways(first)
        if second not in ways:
            return []
        count, numbers, crossing = ways[second]
        # Few ways are known between two leaves, more of those that leave either.
        return [(numbers, crossing / count), *(map(self._uplinks, pair) if first != second else ())]

    def _count_ways(self, number: int) -> dict[int, Ways]:
        """Return the known ways between a group and all groups of no lower rank.

        By number of the other group; counted together, since most of the work is shared.
        """
        index, ranks = self._index, self._ranks
        near = [index.rows_with(index.components.get(leaf, NOTHING)) for leaf in ranks[number]]
        places = near[0] if len(near) == 1 else np.unique(np.concatenate(near))
        group = self.groups_of(index.ends[places])
        other = np.where(group[:, 0] == number, group[:, 1], group[:, 0])
        own = ranks[number]
        counts = np.bincount(other[(group == number).any(axis=1)])
        wanted = [n for n in np.flatnonzero(counts).tolist() if ranks[n] >= own]
        # Small numbers that keep the sort keys in order; -1 for groups that are not wanted.
        which = np.full(len(ranks), NOT_LOOKED_UP)
        which[wanted] = np.arange(len(wanted))
        mine = which[other]
        mine[(group != number).all(axis=1)] = NOT_LOOKED_UP
        rows = index.rows[places, CROSSED:].astype(np.int64)
        words = (mine[:, None] << WORD) | rows
        words = np.sort(words[self.in_fabric(rows) & (mine >= 0)[:, None]])
        begins = np.flatnonzero(np.diff(words, prepend=NOT_LOOKED_UP))
        crossing = np.diff(begins, append=len(words))
        numbers, cuts = _by_owner(words[begins], len(wanted))
        return {
            other: (int(counts[other]), numbers[begin:end], crossing[begin:end])
            for other, (begin, end) in zip(wanted, cuts, strict=True)
        }

    def in_fabric(self, numbers: Int64s | Numbers) -> Bools:
        """Return which numbers of the index are components of the fabric, shape of `numbers`."""
        found: Bools = self._roles(numbers) == OF_FABRIC
        return found

    def are_possible(self, numbers: Int64s | Numbers) -> Bools:
        """Return by number of the index whether `may_cross`, shape of `numbers`."""
        found: Bools = self._roles(numbers) >= OF_FABRIC
        return found

    def _roles(self, numbers: Int64s | Numbers) -> npt.NDArray[np.int8]:
        self._grow()
        known = self._role[numbers]
        if (known == NOT_LOOKED_UP).any():
            for number in np.unique(numbers[known == NOT_LOOKED_UP]).tolist():
                name = None if number == NOTHING else self._index.name(number)
                self._role[number] = HOSTS_OWN if name is None else self._role_of(name)
            known = self._role[numbers]
        return known

    def _role_of(self, component_id: str) -> int:
        if self.belongs_to_fabric(component_id):
            return OF_FABRIC
        rnics = self._topology.rnics_at(component_id)
        bonded = any(component_id in self._topology.bond_at(rnic) for rnic in rnics)
        return BONDED if bonded else HOSTS_OWN

    def _uplinks(self, number: int) -> Numbered:
        """Return the share of each cable in what leaves or reaches a group of leaves."""
        found = self._leaving.get(number)
        if found is None:
            cables = self._cables.get(number)
            if cables is None:
                # They are those of the fabric, for which all of this is made.
                cables = self._cables[number] = [
                    cable
                    for leaf in self._ranks[number]
                    for cable in self._topology.links_at(leaf)
                    if self.belongs_to_fabric(cable)
                ]
            for cable in cables:
                self._cabled[cable].add(number)
            known = self._index.components
            numbers = np.unique([known.get(cable, NOTHING) for cable in cables]).astype(np.int64)
            counts = self._index.crossing[numbers]
            crossed = (numbers != NOTHING) & (counts > 0)
            found = numbers[crossed], counts[crossed] / max(1, counts[crossed].sum())
            self._leaving[number] = found
        return found

    def groups_of(self, ends: Numbers) -> Int64s:
        """Return the group of leaves of endpoints, both by number."""
        self._grow()
        self._look_up_ends()
        found: Int64s = self._group[ends]
        return found

    def bonds_of(self, ends: Numbers) -> Int64s:
        """Return the number of the bond of endpoints, both by number; 0: they have none."""
        self._grow()
        self._look_up_ends()
        found: Int64s = self._bond[ends]
        return found

    def _look_up_ends(self) -> None:
        """Look up the leaves and bonds of endpoints that are new in the index."""
        if self._looked_up == len(self._index.endpoints):
            # The usual case; skipping known endpoints one by one would be quadratic over time.
            return
        for name, number in islice(self._index.endpoints.items(), self._looked_up, None):
            self._look_up_end(number, name)
        self._looked_up = len(self._index.endpoints)

    def _look_up_end(self, number: int, endpoint_id: str) -> None:
        end = self.end(endpoint_id)
        self._group[number] = self._number(end.leaves)
        self._bond[number] = self._bonds.setdefault(end.bond, len(self._bonds))

    def _grow(self) -> None:
        """Grow the arrays with the index."""
        more = len(self._index.endpoints)
        if more > len(self._group):
            self._group = np.append(self._group, np.full(more, NOT_LOOKED_UP))
            self._bond = np.append(self._bond, np.zeros(more, np.int64))
        more = len(self._index.crossing) - len(self._role)
        if more > 0:
            self._role = np.append(self._role, np.full(more, NOT_LOOKED_UP, np.int8))

    def _number(self, leaves: Leaves) -> int:
        found = self._groups.get(leaves)
        if found is None:
            found = self._groups[leaves] = len(self._ranks)
            self._ranks.append(sorted(leaves))
        return found

    def belongs_to_fabric(self, component_id: str) -> bool:
        """Return whether a component belongs to the fabric, not to one host."""
        known = self._topology.get(component_id)
        if known is None or known.kind is ComponentKind.SWITCH:
            return known is not None
        kinds = {self._topology.kind(end) for end in (known.a, known.b) if end is not None}
        return known.kind is ComponentKind.LINK and kinds == {ComponentKind.SWITCH}

    def may_cross(self, component_id: str) -> bool:
        """Return whether replies may cross a component that their probes did not."""
        return self._role_of(component_id) != HOSTS_OWN

    def leaves(self, endpoint_id: str) -> Leaves:
        """Return the leaves that an endpoint's RNIC is joined to."""
        return self.end(endpoint_id).leaves

    def end(self, endpoint_id: str) -> End:
        """Return how an endpoint is joined to the fabric."""
        found = self._ends.get(endpoint_id)
        if found is None:
            kinds = self._topology.kind
            held = self._topology.parents(endpoint_id)
            rnic = next((p for p in held if kinds(p) is ComponentKind.RNIC), None)
            found = NOWHERE if rnic is None else self._end_at(rnic)
            self._ends[endpoint_id] = found
        return found

    def _end_at(self, rnic: str) -> End:
        near = self._topology.neighbours(rnic)
        leaves = (n for n in near if self._topology.kind(n) is ComponentKind.SWITCH)
        return End(frozenset(leaves), self._topology.bond_at(rnic))


def _shares_of_bonds(ends: Iterable[End]) -> Shares:
    """Return the probability that a reply between endpoints crosses each of their bonded cables."""
    return {cable: 1 / len(end.bond) for end in ends for cable in end.bond}


def _by_owner(words: Int64s, owners: int) -> tuple[Int64s, list[tuple[int, int]]]:
    """Return the numbers in sorted keys, and between which of them those of each owner lie.

    Parameters
    ----------
    words
        Ascending keys of an owner, from 0 on, and a number of the index.
    """
    cuts = np.searchsorted(words, np.arange(owners + 1) << WORD).tolist()
    return words & ((1 << WORD) - 1), list(pairwise(cuts))
