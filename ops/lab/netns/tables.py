"""Forwarding tables of a host, read from the kernel's bridges and VXLAN devices."""

from collections.abc import Iterable, Iterator

from ops.lab.netns.plan import mac, underlay_address
from ops.lab.shape import EndpointSpec, LabShape
from probers.overlay.address import mac_number
from probers.overlay.fdb import FdbEntry, parse_fdb
from schemas.records import FlowEntry


class Tables:
    """Turns what `bridge -j fdb show` prints into entries of the lab's components."""

    def __init__(self, shape: LabShape) -> None:
        self._shape = shape
        self._by_mac = {mac_number(mac(e)): e for e in shape.endpoints}
        self._rnic_at = {underlay_address(e): e.rnic_id for e in shape.endpoints}

    def entries(self, host: int, text: str) -> tuple[FlowEntry, ...]:
        """Return a host's tables, sorted.

        An endpoint sends all to its virtual switch; an RNIC, being the tunnel's end, gives
        what is for its own endpoint to it: neither is in a table of the kernel.

        Raises
        ------
        ValueError
            If the text is not what `bridge` prints.
        """
        # No device is marked as a VXLAN's; for one, the bridge's own entries are needed as well.
        parsed = parse_fdb(text, ())
        if parsed is None:
            raise ValueError("this is no forwarding table as `bridge` prints it")
        mine = {e.rail: e for e in self._shape.endpoints if e.host == host}
        found = dict(self._always(mine.values()))
        for entry in parsed[0]:
            known = self._entry(mine, entry)
            if known is not None:
                found[known[0], known[1]] = known[2]
        endpoints = {e.endpoint_id for e in mine.values()}
        return tuple(
            FlowEntry(
                node=node,
                dst=dst,
                next_hop=next_hop,
                # These tables are software's; no hardware is there to hold copies.
                offloaded=None if node in endpoints else True,
            )
            for (node, dst), next_hop in sorted(found.items())
        )

    def _always(self, mine: Iterable[EndpointSpec]) -> Iterator[tuple[tuple[str, str], str]]:
        for e in mine:
            yield (e.rnic_id, e.endpoint_id), e.vswitch_id
            for dst in self._shape.endpoints:
                if dst.rail == e.rail and dst is not e:
                    yield (e.endpoint_id, dst.endpoint_id), e.vswitch_id

    def _entry(self, mine: dict[int, EndpointSpec], entry: FdbEntry) -> tuple[str, str, str] | None:
        """Return node, destination and next hop of an entry; None: it is none of the lab's."""
        dst = self._by_mac.get(entry.mac)
        if dst is None or entry.device[1:] != str(dst.rail):
            return None
        e = mine[dst.rail]
        if entry.remote is not None:
            tunnel_end = self._rnic_at.get(entry.remote)
            return None if tunnel_end is None else (e.rnic_id, dst.endpoint_id, tunnel_end)
        if entry.device[0] == "c":
            return e.vswitch_id, dst.endpoint_id, dst.endpoint_id
        return e.vswitch_id, dst.endpoint_id, e.rnic_id
