"""Replay of the overlay's forwarding chain over the hosts' flow tables, hop by hop.

A packet from `src` to `dst` starts at its endpoint and follows the entries (node, dst) -> next hop
until it reaches `dst`. A node without an entry loses it; a node that is met twice closes a loop
(SkeletonHunter, SIGCOMM 2025, Algorithm 1). Only captured tables can accuse, and only for
destinations that one of their entries names: a host whose tables nobody has read is unknown, not
broken, and a host's agent knows only the destinations that the host deals with.

An entry that was there once and is gone is a fault. One that never was may be none: the pair may
take another way, or have none at all.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from localizer.network.topology import Topology
from schemas.records import FlowTable
from schemas.units import us_to_ns

# Endpoint, virtual switch, VTEP, the same at the other end, and some slack.
MAX_STEPS: Final = 64
# Hosts whose tables are known at once.
MAX_TABLES: Final = 100_000


class Break(Enum):
    """How a chain ends before its destination."""

    MISSING = "no entry"
    LOOP = "loop"


@dataclass(frozen=True, slots=True)
class ChainFault:
    """Where a chain breaks.

    Attributes
    ----------
    node
        Component to blame.
    others
        Further members of a loop.
    dst
        Endpoint whose entry is at fault.
    captured_ns
        When the table was read.
    lost
        False: no table that was read ever had the entry that is missing.
    """

    how: Break
    node: str
    others: tuple[str, ...]
    dst: str
    captured_ns: int
    lost: bool = True


@dataclass(frozen=True, slots=True)
class _Table:
    captured_ns: int
    next_hops: dict[tuple[str, str], str | None]
    nodes: frozenset[str]
    dsts: frozenset[str]
    # Entries that earlier tables had, for destinations that the host still deals with.
    lost: frozenset[tuple[str, str]]
    # Entries that should be offloaded and are not, and since when there are any.
    software: int
    software_ns: int

    def says_the_same(self, other: "_Table") -> bool:
        """Return whether only the times differ."""
        return (
            self.next_hops == other.next_hops
            and self.dsts == other.dsts
            and self.lost == other.lost
            and self.software == other.software
        )


class FlowTables:
    """The latest flow tables of all hosts.

    Attributes
    ----------
    version
        Grows with each capture.
    content_version
        Grows when a capture says something else than the one before.
    refused
        Tables of hosts beyond the bound.
    """

    def __init__(self, topology: Topology, max_tables: int = MAX_TABLES) -> None:
        self.version = 0
        self.content_version = 0
        self.refused = 0
        self._max_tables = max_tables
        self._topology = topology
        self._tables: dict[str, _Table] = {}
        self._host_of_node: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._tables)

    def set_table(self, table: FlowTable) -> None:
        """Replace the tables of one host."""
        before = self._tables.get(table.host_id)
        if before is None and len(self._tables) >= self._max_tables:
            self.refused += 1
            return
        self._drop_table(table.host_id)
        nodes = frozenset(entry.node for entry in table.entries)
        dsts = frozenset(entry.dst for entry in table.entries)
        next_hops = {(entry.node, entry.dst): entry.next_hop for entry in table.entries}
        lost = frozenset[tuple[str, str]]()
        if before is not None:
            gone = before.lost.union(before.next_hops) - next_hops.keys()
            lost = frozenset(entry for entry in gone if entry[1] in dsts)
        captured_ns = us_to_ns(table.captured_at)
        lasts = before is not None and before.software > 0
        now = self._tables[table.host_id] = _Table(
            captured_ns,
            next_hops,
            nodes,
            dsts,
            lost,
            sum(entry.offloaded is False for entry in table.entries),
            before.software_ns if before is not None and lasts else captured_ns,
        )
        for node in nodes:
            self._host_of_node[node] = table.host_id
        self.version += 1
        self.content_version += before is None or not now.says_the_same(before)

    def remove_table(self, host_id: str) -> None:
        """Forget the tables of one host."""
        if self._drop_table(host_id):
            self.version += 1
            self.content_version += 1

    def _drop_table(self, host_id: str) -> bool:
        table = self._tables.pop(host_id, None)
        for node in () if table is None else table.nodes:
            if self._host_of_node.get(node) == host_id:
                del self._host_of_node[node]
        return table is not None

    def replay(self, src: str, dst: str) -> ChainFault | None:
        """Follow the chain from `src` to `dst`; None: it arrives, or tables are missing."""
        node, met = src, [src]
        while node != dst and len(met) <= MAX_STEPS:
            table = self._table_of(node)
            if table is None or dst not in table.dsts:
                return None
            following = table.next_hops.get((node, dst))
            if following is None:
                # An entry without a next hop drops what it matches.
                lost = (node, dst) in table.next_hops or (node, dst) in table.lost
                return ChainFault(Break.MISSING, node, (), dst, table.captured_ns, lost)
            if following in met:
                members = met[met.index(following) :]
                others = tuple(member for member in members if member != node)
                return ChainFault(Break.LOOP, node, others, dst, table.captured_ns)
            met.append(following)
            node = following
        return None

    def round_trip(self, src: str, dst: str) -> ChainFault | None:
        """Return where the chain of the request breaks, or else that of the reply.

        One that lost its entry comes before one that never had any.
        """
        request, reply = self.replay(src, dst), self.replay(dst, src)
        if request is None or (reply is not None and reply.lost and not request.lost):
            return reply
        return request

    def not_offloaded(self, node: str) -> tuple[int, int] | None:
        """Return how many entries of a node's host are not offloaded, and since when (ns)."""
        table = self._table_of(node)
        return None if table is None or not table.software else (table.software, table.software_ns)

    def _table_of(self, node: str) -> _Table | None:
        host = self._host_of_node.get(node)
        if host is None:
            # A node without any entry is in no table; its host may still have been read.
            host = next((p for p in self._topology.parents(node) if p in self._tables), None)
        return None if host is None else self._tables[host]
