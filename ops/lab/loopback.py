"""The network of UDP relays on loopback: data plane and faults as one."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ops.lab.events import EventLoop
from ops.lab.fabric import LOOPBACK, Fabric
from ops.lab.faultboard import ActiveFault, FaultBoard
from ops.lab.faults import FaultSpec
from ops.lab.impairment import LinkDirection
from ops.lab.shape import LabShape
from ops.lab.truth import Truth
from schemas.records import FlowTable


class LoopbackNetwork:
    """A fabric with its faultboard; `ports` are those at which endpoints listen."""

    def __init__(
        self,
        shape: LabShape,
        ports: Mapping[str, int],
        loop: EventLoop,
        *,
        seed: int,
        write: Callable[[Truth], None],
        publish: Callable[[set[int]], None],
    ) -> None:
        self._ports = ports
        listening = {endpoint_id: (LOOPBACK, port) for endpoint_id, port in ports.items()}
        self.fabric = Fabric(shape, listening, loop, seed=seed)
        self._board = FaultBoard(self.fabric, loop, write=write, publish=publish)

    @property
    def active(self) -> Mapping[str, ActiveFault]:
        """Faults in force by id."""
        return self._board.active

    def addresses(self) -> dict[str, str]:
        """Return addresses of nodes and endpoints."""
        endpoints = {e: f"{LOOPBACK}:{port}" for e, port in self._ports.items()}
        return self.fabric.addresses() | endpoints

    def table(self, host: int, *, cluster: str, captured_at: int) -> FlowTable:
        """Return a host's tables."""
        return self.fabric.overlay.table(host, cluster=cluster, captured_at=captured_at)

    def inject(self, fault_id: str, spec: FaultSpec) -> Truth:
        """Put a fault in."""
        return self._board.inject(fault_id, spec)

    def heal(self, fault_id: str) -> Truth:
        """Take a fault out."""
        return self._board.heal(fault_id)

    def status(self) -> dict[str, Any]:
        """Return the counts of the relays."""
        fabric = self.fabric
        return {
            "relayed": fabric.relayed,
            "dropped": dict(fabric.dropped),
            "answered": dict(fabric.answered),
            "links": impaired_links(fabric.links.values()),
        }

    def close(self) -> None:
        """Close all sockets."""
        self.fabric.close()


def impaired_links(directions: Iterable[LinkDirection]) -> list[dict[str, Any]]:
    """Return the directions that are or were impaired, as `lab status` shows them."""
    return [
        {
            "link_id": d.link_id,
            "sender": d.sender,
            "lost": d.lost,
            "corrupted": d.corrupted,
            "delayed": d.delayed,
        }
        for d in directions
        if d.impaired or d.lost or d.corrupted or d.delayed
    ]
