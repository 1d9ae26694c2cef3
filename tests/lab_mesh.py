"""A fabric with echoing endpoints, for tests: in one thread, or around a real fabric process."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ops.lab.control import request, wait_for
from ops.lab.events import EventLoop
from ops.lab.fabric import LOOPBACK, Fabric
from ops.lab.faultboard import FaultBoard
from ops.lab.faults import check_fault
from ops.lab.ports import free_udp_ports
from ops.lab.server import SOCKET_FILE, FabricConfig
from ops.lab.shape import LabShape
from ops.lab.truth import Truth
from ops.running.processes import ProcessGroup
from tests.lab_echo import EchoMesh

READY_TIMEOUT_S = 60.0


def endpoint_ports(shape: LabShape) -> dict[str, int]:
    """Return a free port for each endpoint."""
    found = free_udp_ports(len(shape.endpoints))
    return {e.endpoint_id: port for e, port in zip(shape.endpoints, found, strict=True)}


@dataclass
class ThreadMesh:
    """Fabric and endpoints that share a loop: every packet crosses real sockets."""

    shape: LabShape
    fabric: Fabric
    mesh: EchoMesh
    board: FaultBoard
    truth: list[Truth]
    published: list[set[int]]

    def fault(self, kind: str, target: str, **params: Any) -> str:
        """Put a fault in, return its id."""
        fault_id = f"f{len(self.truth)}"
        self.board.inject(fault_id, check_fault(kind, target, params, self.shape))
        return fault_id


@contextmanager
def thread_mesh(shape: LabShape, *, seed: int = 1) -> Iterator[ThreadMesh]:
    """Give a fabric with endpoints in this thread."""
    ports = endpoint_ports(shape)
    loop = EventLoop()
    fabric = Fabric(shape, {e: (LOOPBACK, port) for e, port in ports.items()}, loop, seed=seed)
    mesh = EchoMesh(shape, ports, fabric.addresses(), loop)
    truth: list[Truth] = []
    published: list[set[int]] = []
    board = FaultBoard(fabric, loop, write=truth.append, publish=published.append)
    try:
        yield ThreadMesh(shape, fabric, mesh, board, truth, published)
    finally:
        mesh.close()
        fabric.close()
        loop.close()


@dataclass
class ProcessMesh:
    """Endpoints here, the fabric in a process of its own."""

    shape: LabShape
    folder: Path
    group: ProcessGroup
    mesh: EchoMesh
    addresses: Mapping[str, str]
    injected: int = 0

    def ask(self, **command: Any) -> Any:
        """Send the fabric a command."""
        return request(self.folder / SOCKET_FILE, command)

    def fault(self, kind: str, target: str, **params: Any) -> str:
        """Put a fault in, return its id."""
        self.injected += 1
        fault_id = f"f{self.injected}"
        self.ask(op="inject", fault_id=fault_id, kind=kind, target=target, params=params)
        return fault_id

    def heal(self, fault_id: str) -> None:
        """Take a fault out."""
        self.ask(op="heal", fault_id=fault_id)


@contextmanager
def process_mesh(folder: Path, shape: LabShape, **config: Any) -> Iterator[ProcessMesh]:
    """Give a fabric process and endpoints around it; the folder's path must be short."""
    ports = endpoint_ports(shape)
    path = FabricConfig(folder=folder, shape=shape, endpoints=ports, **config).write()
    with ProcessGroup(folder / "logs") as group:
        group.start("fabric", [sys.executable, "-m", "ops.lab.server", "--config", str(path)])
        status = wait_for(
            folder / SOCKET_FILE,
            timeout_s=READY_TIMEOUT_S,
            check=group.check,
            command={"op": "status"},
        )
        mesh = EchoMesh(shape, ports, status["addresses"])
        try:
            yield ProcessMesh(shape, folder, group, mesh, status["addresses"])
        finally:
            mesh.close()
            mesh.loop.close()
