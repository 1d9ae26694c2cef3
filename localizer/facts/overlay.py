"""Replay of the overlay's forwarding chain over the hosts' flow tables, hop by hop.

A packet from `src` to `dst` starts at its endpoint and follows the entries (node, dst) -> next hop
until it reaches `dst`. A node without an entry loses it; a node that is met twice closes a loop
(SkeletonHunter, SIGCOMM 2025, Algorithm 1). Only captured tables can accuse, and only for
destinations that one of their entries names: a host whose tables nobody has read is unknown, not
broken, and a host's agent knows only the destinations that the host deals with.

An entry that was there once and is gone is a fault. One that never was may be none: the pair may
take another way, or have none at all.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from localizer.facts.states import Finding
from localizer.network.topology import Topology
from schemas.enums import AnomalyFamily, ComponentKind
from schemas.records import FlowEntry, FlowTable
from schemas.units import SECOND_NS, us_to_ns

# Endpoint, virtual switch, VTEP, the same at the other end, and some slack.
MAX_STEPS: Final = 64
# Hosts whose tables are known at once.
MAX_TABLES: Final = 100_000
# Entries that leave the hardware, come back and leave it again within so long are evicted again and
# again: an operator who reinstalls a table does so once.
CHURN_NS: Final = 600 * SECOND_NS
# So many times are remembered of that. A table whose reader's clock stands still has them all.
MAX_LEFT: Final = 64
# Lost entries that are remembered of a host, as many as a table may have. Where nodes come and go,
# each leaves some behind, as long as others still deal with their destinations.
MAX_LOST: Final = 65_536


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
    # By component, what should be offloaded and is not, or was until recently.
    software: Mapping[str, "_Software"]

    def says_the_same(self, other: "_Table") -> bool:
        """Return whether only the times differ."""
        return (
            self.next_hops == other.next_hops
            and self.dsts == other.dsts
            and self.lost == other.lost
            and self.software == other.software
        )


@dataclass(frozen=True, slots=True)
class _Software:
    """Entries of a component that are not offloaded.

    Attributes
    ----------
    entries
        Those that are not offloaded now, as (node, destination).
    before_ns, since_ns
        The readings between which the first of them left the hardware.
    left_ns
        When entries were seen to have left it, each time after some had come back.
    """

    entries: frozenset[tuple[str, str]]
    before_ns: int
    since_ns: int
    left_ns: tuple[int, ...]

    def follow(self, entries: frozenset[tuple[str, str]], read_ns: int, now_ns: int) -> "_Software":
        """Return what the next reading makes of it; `read_ns` is when the last one was made."""
        back = not self.entries or not self.entries <= entries
        left_ns = tuple(at for at in self.left_ns if now_ns - at <= CHURN_NS)
        if back and not entries <= self.entries:
            left_ns = (*left_ns, now_ns)[-MAX_LEFT:]
        if self.entries or not entries or len(left_ns) > 1:
            return _Software(entries, self.before_ns, self.since_ns, left_ns)
        return _Software(entries, read_ns, now_ns, left_ns)


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
            older = before.lost if len(before.lost) < MAX_LOST else frozenset()
            gone = older.union(before.next_hops) - next_hops.keys()
            lost = frozenset(entry for entry in gone if entry[1] in dsts)
        captured_ns = us_to_ns(table.captured_at)
        now = self._tables[table.host_id] = _Table(
            captured_ns,
            next_hops,
            nodes,
            dsts,
            lost,
            self._software(table.entries, before, captured_ns),
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

    def findings(self, component_id: str) -> list[Finding]:
        """Return what the tables say of entries that a component does not forward in hardware.

        At the virtual switch and the VTEPs that hold the entries, and at the RNICs of these VTEPs.
        """
        table = self._table_of(component_id)
        software = None if table is None else table.software.get(component_id)
        if software is None:
            return []
        again = len(software.left_ns) > 1
        if not software.entries and not again:
            return []
        shown = f"{len(software.entries)} entries of its host's tables are not offloaded"
        if again:
            shown = f"entries left the hardware {len(software.left_ns)} times in ten minutes"
        return [
            Finding(
                kind="repetitive_offload" if again else "not_offloaded",
                family=AnomalyFamily.LATENCY,
                component_id=component_id,
                before_ns=software.before_ns,
                since_ns=software.since_ns,
                shown=shown,
            )
        ]

    def _software(
        self, entries: Iterable[FlowEntry], before: _Table | None, captured_ns: int
    ) -> dict[str, _Software]:
        """Return by component which entries are not offloaded, following the table before."""
        now: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        for entry in entries:
            if entry.offloaded is not False:
                continue
            for owner in self._owners(entry):
                now[owner].add((entry.node, entry.dst))
        known = {} if before is None else before.software
        # The first table of a host says nothing of when.
        read_ns = captured_ns if before is None else before.captured_ns
        found = {}
        for owner in sorted(now.keys() | known.keys()):
            last = known.get(owner) or _Software(frozenset(), read_ns, captured_ns, ())
            software = last.follow(frozenset(now.get(owner, ())), read_ns, captured_ns)
            if software.entries or software.left_ns:
                found[owner] = software
        return found

    def _owners(self, entry: FlowEntry) -> set[str]:
        """Return the components to whose entries an entry belongs."""
        found = {entry.node}
        for node in (entry.node, entry.next_hop):
            rnics = [] if node is None else self._topology.parents(node)[:1]
            if node is not None and self._topology.kind(node) is ComponentKind.RNIC:
                rnics = [node]
            found.update(r for r in rnics if self._topology.kind(r) is ComponentKind.RNIC)
        # The next hop of a VTEP is that of another host: its RNIC holds other entries.
        host = self._topology.host_of(entry.node)
        return {c for c in found if c == entry.node or self._topology.host_of(c) == host}

    def _table_of(self, node: str) -> _Table | None:
        host = self._host_of_node.get(node)
        if host is None:
            # A node without any entry is in no table; its host may still have been read.
            host = next((p for p in self._topology.parents(node) if p in self._tables), None)
        return None if host is None else self._tables[host]
