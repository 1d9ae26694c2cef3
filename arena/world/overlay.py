"""The flow tables of the virtual switches, and how a fault damages them.

A packet goes from its endpoint to the host's virtual switch, to the RNIC of the
destination's rail (which encapsulates it), to the remote RNIC, virtual switch, endpoint.
Tables hold the endpoints that a host's own talk to. They are read and published when they
have changed, some seconds late.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from arena.world.cluster import Cluster
from arena.world.topology import endpoint_id, host_id, rnic_id, vswitch_id
from schemas.records import FlowEntry, FlowTable
from schemas.units import US_NS

CAPTURE_NS: Final = 1_500_000_000

Key = tuple[str, str]


class Damage(Enum):
    """What is wrong with an entry."""

    MISSING = "the virtual switch has no entry"
    LOOP = "virtual switch and RNIC send it to each other"
    SOFTWARE = "the entry is not offloaded to the RNIC"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDamage:
    """Entries of a host's tables that are wrong for a time; `dst` RNIC numbers, empty: all."""

    host: int
    damage: Damage
    begin_ns: int
    end_ns: int | None = None
    dst: tuple[int, ...] = ()


class Overlay:
    """Tables of all hosts of a cluster; `name` is the cluster's."""

    def __init__(self, name: str, cluster: Cluster, damages: Sequence[TableDamage] = ()) -> None:
        self._name = name
        self._damages = tuple(damages)
        self._base = base_tables(cluster)

    def due(self, from_ns: int, to_ns: int) -> list[tuple[int, int]]:
        """Return (time, host) at which changed tables are read in a stretch of time."""
        times = {
            (at_ns + CAPTURE_NS, d.host)
            for d in self._damages
            for at_ns in (d.begin_ns, d.end_ns)
            if at_ns is not None
        }
        return sorted(t for t in times if from_ns <= t[0] < to_ns)

    def table(self, host: int, at_ns: int) -> FlowTable:
        """Return a host's tables as they are at a time."""
        wrong = self._wrong(host, at_ns)
        entries = []
        for (node, dst), (hop, number, hardware) in sorted(self._base[host].items()):
            damage = wrong.get(number) or wrong.get(-1)
            following = hop
            if node == vswitch_id(host) and damage is Damage.MISSING:
                continue
            if node != vswitch_id(host) and damage is Damage.LOOP and hardware:
                following = vswitch_id(host)
            offloaded = damage is not Damage.SOFTWARE if hardware else None
            entries.append(FlowEntry(node=node, dst=dst, next_hop=following, offloaded=offloaded))
        return FlowTable(
            cluster=self._name,
            host_id=host_id(host),
            captured_at=at_ns // US_NS,
            entries=tuple(entries),
        )

    def hosts(self) -> list[int]:
        """Return the hosts that have tables."""
        return sorted(self._base)

    def _wrong(self, host: int, at_ns: int) -> dict[int, Damage]:
        found: dict[int, Damage] = {}
        for d in self._damages:
            if d.host == host and d.begin_ns <= at_ns and (d.end_ns is None or at_ns < d.end_ns):
                found.update(dict.fromkeys(d.dst or (-1,), d.damage))
        return found


def base_tables(cluster: Cluster) -> dict[int, dict[Key, tuple[str, int, bool]]]:
    """Return, by host, what entries say: (node, dst) → next hop, RNIC number of dst, hardware."""
    rails = cluster.rails
    tables: defaultdict[int, dict[Key, tuple[str, int, bool]]] = defaultdict(dict)
    flows = cluster.flows
    pairs = {*zip(flows.src.tolist(), flows.dst.tolist(), strict=True)}
    for a, b in sorted(pairs | {(b, a) for a, b in pairs}):
        host, rail = divmod(b, rails)
        near, dst = a // rails, endpoint_id(host, rail)
        via, far = rnic_id(near, rail), rnic_id(host, rail)
        tables[near][endpoint_id(near, a % rails), dst] = (vswitch_id(near), b, False)
        tables[near][vswitch_id(near), dst] = (via, b, True)
        tables[near][via, dst] = (far, b, True)
        tables[host][far, dst] = (vswitch_id(host), b, True)
        tables[host][vswitch_id(host), dst] = (dst, b, True)
    return dict(tables)
