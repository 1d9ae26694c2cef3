"""All transports that an agent has, and what opens each: one row a transport.

What a transport can do is its row in `schemas.transports`. To add one: its symbol in
`schemas.enums`, its row there, its module beside this one, and its row here. All modules but that
of plain UDP are imported when a transport is opened: an agent has no memory to spare for others.
"""

import socket
from collections.abc import Callable, Mapping
from typing import Final

from probers.clock import Clock
from probers.config.rnics import RnicConfig
from probers.host import netns
from probers.transports import sockets
from probers.transports.addresses import own_address
from probers.transports.base import ProbeSettings, Transport
from probers.transports.udp import UdpTransport
from schemas.enums import Transport as TransportKind


def open_transport(
    kind: TransportKind, port: int, config: RnicConfig, clock: Clock, probes: ProbeSettings
) -> Transport:
    """Return a transport of an RNIC; `port` 0: any that is free.

    Raises
    ------
    OSError
        If it cannot be opened; `strerror` says why.
    """
    return OPENERS[kind](port, config, clock, probes)


def _open_tcp(port: int, config: RnicConfig, clock: Clock, _: ProbeSettings) -> Transport:
    from probers.transports.tcp import TcpTransport  # noqa: PLC0415

    return TcpTransport(clock, own_address(config), port)


def _open_rdma(_: int, config: RnicConfig, clock: Clock, probes: ProbeSettings) -> Transport:
    from probers.transports.rdma.transport import RdmaTransport  # noqa: PLC0415

    if config.rdma is None:
        raise OSError(0, "the settings of the RNIC say nothing of verbs")
    return RdmaTransport(
        clock,
        config.rdma,
        flows=probes.flows,
        probe_bytes=probes.probe_bytes,
        packets=probes.packets,
    )


def _open_udp(port: int, config: RnicConfig, clock: Clock, probes: ProbeSettings) -> Transport:
    if config.gateway is not None:
        from probers.transports.gateway import GatewayTransport  # noqa: PLC0415

        return GatewayTransport(
            clock,
            own_address(config),
            port,
            config.gateway,
            probe_bytes=probes.probe_bytes,
            packets=probes.packets,
        )
    namespace = config.netns

    def opener(address: str, port: int) -> tuple[socket.socket, bool]:
        if namespace is None:
            return sockets.open_udp(address, port)
        return netns.inside(namespace, lambda: sockets.open_udp(address, port))

    tunnel = None
    if config.tunnel_address is not None:
        from probers.transports.tunnel import open_tunnel  # noqa: PLC0415

        tunnel = open_tunnel(config.tunnel_address, config.host_netns)
    try:
        return UdpTransport(
            clock,
            own_address(config),
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


Opener = Callable[[int, RnicConfig, Clock, ProbeSettings], Transport]
OPENERS: Final[Mapping[TransportKind, Opener]] = {
    TransportKind.UDP: _open_udp,
    TransportKind.TCP: _open_tcp,
    TransportKind.RDMA_UD: _open_rdma,
}
