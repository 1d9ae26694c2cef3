"""The components that many whole traces cross, computed together.

As `localizer.network.routes.traced` does for one trace, for those without gaps: each hop is a known
component that forwards packets, and so are both RNICs.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from localizer.network.flow_rows import NOTHING
from localizer.network.topology import Topology
from localizer.network.trace_batches import NO_HOP
from schemas.columns.arrays import Bools, Int32s, Int64s
from schemas.ids import FlowId

# Bits that hold a component's number in a pair of them.
WORD: Final = 32
# Pairs of components remembered. A fabric has a few for each cable; traces may claim any.
MAX_PAIRS: Final = 1_000_000
# Of hops, known and not: a fabric of 40,000 RNICs has some thousands.
MAX_ADDRESSES: Final = 100_000


class Ends(NamedTuple):
    """The ends of some 5-tuples: endpoints, and by 5-tuple the numbers of both, (n,) int32."""

    names: Sequence[str]
    src: Int32s
    dst: Int32s

    @classmethod
    def of(cls, keys: Sequence[FlowId]) -> "Ends":
        """Return the ends of 5-tuples, each once."""
        numbers: dict[str, int] = {}
        number = numbers.setdefault
        src = [number(key[0], len(numbers)) for key in keys]
        dst = [number(key[1], len(numbers)) for key in keys]
        return cls(list(numbers), np.array(src, np.int32), np.array(dst, np.int32))


class _Held(NamedTuple):
    """What carries an endpoint: all, without the RNIC, and this alone, for a version of it."""

    version: int
    parts: list[int]
    others: list[int]
    rnic: int


NOT_HELD: Final = _Held(0, [], [], NOTHING)


class PlainRoutes:
    """Components by number, as far as paths cross them, and the paths of whole traces.

    Attributes
    ----------
    version
        Version of the fabric for which the numbers hold.
    names
        Ids by number; `NOTHING` has none.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._forget()

    def _forget(self) -> None:
        self.version = self._topology.fabric_version
        self.names: list[str] = [""]
        self._numbers: dict[str, int] = {}
        # By address the component that forwards packets there, NOTHING if there is none.
        self._nodes: dict[str, int] = {}
        # Of endpoints; those that left or moved go at the next sweep.
        self._ends: dict[str, _Held] = {}
        # By two components that follow each other the cable between them, NOTHING if none is.
        self._links: dict[int, int] = {}

    def follow(self) -> bool:
        """Drop all numbers if the fabric changed; return whether it did."""
        if self.version == self._topology.fabric_version:
            return False
        self._forget()
        return True

    def forget_departed(self) -> None:
        """Forget the endpoints that left or moved."""
        version_of = self._topology.end_version
        gone = [end for end, held in self._ends.items() if version_of(end) != held.version]
        for end in gone:
            del self._ends[end]

    def crossed(self, ends: Ends, hops: Int32s, addresses: Sequence[str]) -> tuple[Int32s, Bools]:
        """Return what the paths of whole traces cross.

        Parameters
        ----------
        ends
            Of their 5-tuples.
        hops : (n, w) int32
            Numbers of `addresses` by ttl, padded with `NO_HOP`.

        Returns
        -------
        crossed : (n, most) int32
            Numbers of the components in order, padded with `NOTHING`.
        plain : (n,) bool
            Which traces show their paths plainly; rows of the others hold nothing.
        """
        self.follow()
        counts = (hops != NO_HOP).sum(axis=1)
        names, src, dst = ends
        near, others, rnics = self._holders(names)
        nodes = self._nodes_of(hops, counts, addresses)
        width = near.shape[1] + others.shape[1] + 2 * hops.shape[1]
        found = np.zeros((len(src), width), np.int32)
        plain = np.zeros(len(src), np.bool_)
        for count in np.unique(counts).tolist():
            rows = np.flatnonzero(counts == count)
            # From RNIC to RNIC; the target itself is none of them.
            walk = np.concatenate(
                [rnics[src[rows], None], nodes[rows, : count - 1], rnics[dst[rows], None]], axis=1
            )
            steps = np.stack([self._links_of(walk), walk[:, 1:]], axis=2).reshape(len(rows), -1)
            parts = [near[src[rows]], steps[:, :-2], others[dst[rows]], steps[:, -2:]]
            whole = np.concatenate(parts, axis=1)
            good = (walk != NOTHING).all(axis=1) & ~_doubled(whole)
            found[rows[good], : whole.shape[1]] = whole[good]
            plain[rows[good]] = True
        return _packed(found), plain

    def nodes_at(self, numbers: Int32s, addresses: Sequence[str]) -> Int32s:
        """Return the components at some of the addresses, NOTHING for what forwards no packets."""
        self.follow()
        distinct, which = np.unique(numbers, return_inverse=True)
        nodes = np.array([self._node(addresses[n]) for n in distinct.tolist()], np.int32)
        found: Int32s = nodes[which]
        return found

    def _holders(self, ends: Sequence[str]) -> tuple[Int32s, Int32s, Int32s]:
        """Return by endpoint what carries it: all, without the RNIC, and this alone.

        Nothing of one that is unknown, or without an RNIC.
        """
        held = [self._held(end) for end in ends]
        rnics = np.array([one.rnic for one in held], np.int32)
        return _table([one.parts for one in held]), _table([one.others for one in held]), rnics

    def _held(self, end: str) -> _Held:
        """Return what carries an endpoint."""
        version = self._topology.end_version(end)
        known = self._ends.get(end)
        if known is not None and known.version == version:
            return known
        found = self._topology.holders(end) if version else None
        if found is None or found.rnic is None:
            return NOT_HELD
        number = self._number
        parts, others = ([number(part) for part in of] for of in (found.parts, found.others))
        known = self._ends[end] = _Held(version, parts, others, number(found.rnic))
        return known

    def _nodes_of(self, hops: Int32s, counts: Int64s, addresses: Sequence[str]) -> Int32s:
        """Return the components of hops, NOTHING for what forwards no packets."""
        shown = np.arange(hops.shape[1]) < counts[:, None] - 1
        found = np.full(hops.shape, NOTHING, np.int32)
        found[shown] = self.nodes_at(hops[shown], addresses)
        return found

    def _node(self, address: str) -> int:
        found = self._nodes.get(address)
        if found is None:
            if len(self._nodes) >= MAX_ADDRESSES:
                self._nodes.clear()
            # Asked once for each fabric, which changes if another component gets the address.
            node = self._topology.at_address(address)
            known = node is not None and self._topology.forwards(node)
            found = self._nodes[address] = self._number(str(node)) if known else NOTHING
        return found

    def _links_of(self, walk: Int32s) -> Int32s:
        """Return the cables between components that follow each other, (n, w - 1)."""
        pairs = (walk[:, :-1].astype(np.int64) << WORD) | walk[:, 1:]
        distinct, which = np.unique(pairs, return_inverse=True)
        links = np.array([self._link(pair) for pair in distinct.tolist()], np.int32)
        found: Int32s = links[which.reshape(pairs.shape)]
        return found

    def _link(self, pair: int) -> int:
        found = self._links.get(pair)
        if found is None:
            a, b = pair >> WORD, pair & ((1 << WORD) - 1)
            link = self._topology.link_between(self.names[a], self.names[b])
            if len(self._links) >= MAX_PAIRS:
                self._links.clear()
            found = self._links[pair] = NOTHING if link is None else self._number(link)
        return found

    def _number(self, component_id: str) -> int:
        found = self._numbers.get(component_id)
        if found is None:
            found = self._numbers[component_id] = len(self.names)
            self.names.append(component_id)
        return found


def _table(rows: Sequence[Sequence[int]]) -> Int32s:
    """Return lists of numbers as rows, padded with `NOTHING`."""
    counts = np.array([len(row) for row in rows])
    found = np.full((len(rows), int(counts.max())), NOTHING, np.int32)
    found[np.arange(found.shape[1]) < counts[:, None]] = [one for row in rows for one in row]
    return found


def _doubled(rows: Int32s) -> Bools:
    """Return which rows have a number twice."""
    ordered = np.sort(rows, axis=1)
    found: Bools = ((np.diff(ordered, axis=1) == 0) & (ordered[:, 1:] != NOTHING)).any(axis=1)
    return found


def _packed(rows: Int32s) -> Int32s:
    """Return rows with their numbers side by side, padded behind."""
    filled = rows != NOTHING
    counts = filled.sum(axis=1)
    found = np.full((len(rows), max(1, int(counts.max(initial=0)))), NOTHING, np.int32)
    found[np.arange(found.shape[1]) < counts[:, None]] = rows[filled]
    return found
