"""Opens the transports of an RNIC as its configuration says."""

import socket
from dataclasses import dataclass, replace

from probers.clock import Clock
from probers.config.rnics import RnicConfig
from probers.host import netns
from probers.packet import UNSEALED, Packets
from probers.transports import sockets
from probers.transports.base import Transport
from probers.transports.gateway import GatewayTransport
from probers.transports.tcp import TcpTransport
from probers.transports.tunnel import open_tunnel
from probers.transports.udp import UdpTransport
from schemas.enums import Transport as TransportKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """What an agent's probes are like: their size, their seal, how many 5-tuples a pair has."""

    probe_bytes: int
    packets: Packets = UNSEALED
    flows: int = 4


def open_transport(
    kind: TransportKind, port: int, config: RnicConfig, clock: Clock, probes: Probes
) -> Transport:
    """Return a transport of an RNIC; `port` 0: any that is free.

    Raises
    ------
    OSError
        If it cannot be opened; `strerror` says why.
    """
    if kind is TransportKind.TCP:
        return TcpTransport(clock, config.address, port)
    size, packets = probes.probe_bytes, probes.packets
    if kind is TransportKind.RDMA_UD and config.rdma is not None:
        # pyverbs, and ctypes, only where they are used.
        from probers.transports.rdma.transport import RdmaTransport  # noqa: PLC0415

        return RdmaTransport(
            clock, config.rdma, flows=probes.flows, probe_bytes=size, packets=packets
        )
    if config.gateway is not None:
        return GatewayTransport(
            clock, config.address, port, config.gateway, probe_bytes=size, packets=packets
        )
    return _udp(port, config, clock, probes)


def _udp(port: int, config: RnicConfig, clock: Clock, probes: Probes) -> UdpTransport:
    namespace = config.netns

    def opener(address: str, port: int) -> tuple[socket.socket, bool]:
        if namespace is None:
            return sockets.open_udp(address, port)
        return netns.inside(namespace, lambda: sockets.open_udp(address, port))

    tunnel = open_tunnel(config)
    try:
        return UdpTransport(
            clock,
            config.address,
            port,
            probe_bytes=probes.probe_bytes,
            packets=probes.packets,
            opener=opener,
            tunnel=tunnel,
        )
    except OSError:
        if tunnel is not None:
            tunnel.close()
        raise


def located(config: RnicConfig) -> RnicConfig:
    """Return the settings with a counters' folder that the agent's own namespace can read.

    Raises
    ------
    OSError
        If the RNIC's namespace cannot be entered.
    """
    folder, namespace = config.counters, config.host_netns
    if folder is None or namespace is None or not folder.is_relative_to(netns.SYSFS):
        return config
    return replace(config, counters=netns.sysfs_folder(namespace, folder))
