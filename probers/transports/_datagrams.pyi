"""The C code of `probers.transports.datagrams`: its names and types."""

from collections.abc import Callable
from socket import socket

from probers.clock import Clock
from probers.host.sampling import Tick, Ticks
from probers.transports.base import Completion, PacketCounts, Probe, Reason
from probers.transports.datagrams import Observation
from schemas.enums import ProbeStatus

class Datagrams:
    def __init__(
        self,
        *,
        clock: Clock | None,
        nonces: Callable[[], int] | None,
        family: int,
        secret: int,
        factor: int,
        keys: tuple[bytes, ...],
        tokens: tuple[int, ...],
        probe_bytes: int,
        counts: PacketCounts,
    ) -> None: ...
    @property
    def counts(self) -> PacketCounts: ...
    def fileno(self) -> int: ...
    def watch(self, sock: socket, role: int, /) -> None: ...
    def send(self, sock: socket, probe: Probe, /) -> int: ...
    def not_sent(self, token: int, status: ProbeStatus, /) -> None: ...
    def poll(self) -> list[int]: ...
    def take_completions(self) -> list[Completion]: ...
    def take_observations(self) -> tuple[list[Observation], bool]: ...
    def take_in(
        self, role: int, data: bytes, kernel_ns: int | None, address: str, port: int, /
    ) -> bytes | None: ...
    def handle_node_report(
        self,
        nonce: int,
        *,
        status: ProbeStatus,
        reason: Reason,
        reporter: str | None,
        kernel_ns: int | None,
    ) -> None: ...
    def close(self) -> None: ...

def wait(
    epoll: int, transports: dict[int, Datagrams], timeout_ns: int, ticks: Ticks | None, /
) -> tuple[list[int], list[Tick]]: ...
