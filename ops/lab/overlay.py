"""The overlay: forwarding tables of every host, and the faults that can be put into them."""

from dataclasses import dataclass
from enum import Enum

from ops.lab.shape import EndpointSpec, LabShape
from schemas.records import FlowEntry, FlowTable

Key = tuple[str, str]


class Missing(Enum):
    """Why a node has no next hop for a destination."""

    HOLE = "an entry was removed by a fault"
    UNKNOWN = "the node never had an entry"


@dataclass(frozen=True, slots=True)
class TableChange:
    """What a fault does to tables: entries removed, and entries that point elsewhere."""

    removed: frozenset[Key]
    redirected: dict[Key, str]


class Overlay:
    """Flow tables of all hosts: at `node`, traffic to `dst` goes to a next hop.

    The chain of a pair is endpoint → virtual switch → RNIC (which is the VTEP)
    → remote RNIC → remote virtual switch → endpoint. The RNIC is that of the
    destination's rail, as rail-optimised collectives choose it.
    """

    def __init__(self, shape: LabShape) -> None:
        self._shape = shape
        self._endpoint_ids = frozenset(e.endpoint_id for e in shape.endpoints)
        self._host_of: dict[str, int] = {}
        self._base: dict[Key, str] = {}
        self._changes: dict[str, TableChange] = {}
        self._current: dict[Key, str] = {}
        for host in range(shape.hosts):
            self._build(host)
        self._current.update(self._base)

    def _build(self, host: int) -> None:
        mine = [e for e in self._shape.endpoints if e.host == host]
        for node in (e for own in mine for e in (own.endpoint_id, own.vswitch_id, own.rnic_id)):
            self._host_of[node] = host
        rnics = {e.rail: e.rnic_id for e in mine}
        vswitch = mine[0].vswitch_id
        for dst in self._shape.endpoints:
            for src in mine:
                if src is not dst:
                    self._base[src.endpoint_id, dst.endpoint_id] = vswitch
            local = dst.host == host
            rnic = rnics[dst.rail]
            self._base[vswitch, dst.endpoint_id] = dst.endpoint_id if local else rnic
            self._base[rnic, dst.endpoint_id] = vswitch if local else dst.rnic_id

    def next_hop(self, node: str, dst: str) -> str | Missing:
        """Return the component that gets traffic to `dst` after `node`."""
        found = self._current.get((node, dst))
        if found is not None:
            return found
        return Missing.HOLE if (node, dst) in self._base else Missing.UNKNOWN

    def tunnel_end(self, src: EndpointSpec, dst: EndpointSpec) -> str | None:
        """Return the RNIC to which the source's VTEP sends traffic to `dst`.

        The header on the wire has no outer address, so the switches of the
        underlay learn it here. The tables without faults answer: a packet that
        is under way was encapsulated when its entry was still there.
        """
        if src.host == dst.host:
            return None
        vtep = self._base.get((src.vswitch_id, dst.endpoint_id), "")
        return self._base.get((vtep, dst.endpoint_id))

    def destinations(self, node: str) -> list[str]:
        """Return the endpoints for which the node has an entry when nothing is wrong."""
        return [dst for at, dst in self._base if at == node]

    def hole(self, node: str, dst: str | None) -> TableChange:
        """Return the change that removes a node's entry for `dst`, or all its entries."""
        wanted = self.destinations(node) if dst is None else [dst]
        return TableChange(frozenset((node, d) for d in wanted), {})

    def loop(self, node: str, dst: str | None) -> TableChange:
        """Return the change that makes `node` and its neighbour in the host point at each other."""
        wanted = self.destinations(node) if dst is None else [dst]
        redirected: dict[Key, str] = {}
        for destination in wanted:
            vswitch, rnic = self.loop_members(node, destination)
            redirected[vswitch, destination] = rnic
            redirected[rnic, destination] = vswitch
        return TableChange(frozenset(), redirected)

    def loop_members(self, node: str, dst: str) -> tuple[str, str]:
        """Return virtual switch and RNIC of the node's host that carry traffic to `dst`."""
        host = self._host_of[node]
        rail = next(e.rail for e in self._shape.endpoints if e.endpoint_id == dst)
        at = self._shape.endpoints[host * self._shape.rails + rail]
        return at.vswitch_id, at.rnic_id

    def apply(self, fault_id: str, change: TableChange) -> set[int]:
        """Put a fault into the tables; return the hosts whose tables changed."""
        self._changes[fault_id] = change
        return self._rebuild(change)

    def undo(self, fault_id: str) -> set[int]:
        """Take a fault out of the tables; return the hosts whose tables changed."""
        return self._rebuild(self._changes.pop(fault_id))

    def _rebuild(self, change: TableChange) -> set[int]:
        touched = {*change.removed, *change.redirected}
        for key in touched:
            self._current[key] = self._base[key]
        for other in self._changes.values():
            for key in touched & other.redirected.keys():
                self._current[key] = other.redirected[key]
        # A hole wins over a loop: what is removed cannot point anywhere.
        for other in self._changes.values():
            for key in touched & other.removed:
                self._current.pop(key, None)
        return {self._host_of[node] for node, _ in touched}

    def table(self, host: int, *, cluster: str, captured_at: int) -> FlowTable:
        """Return one host's tables as they are published."""
        return FlowTable(
            cluster=cluster,
            host_id=self._shape.host_ids()[host],
            captured_at=captured_at,
            entries=tuple(
                FlowEntry(
                    node=node,
                    dst=dst,
                    next_hop=next_hop,
                    # Of an endpoint's own entry, no hardware knows.
                    offloaded=None if node in self._endpoint_ids else True,
                )
                for (node, dst), next_hop in sorted(self._current.items())
                if self._host_of[node] == host
            ),
        )
