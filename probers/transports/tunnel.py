"""Reads the ICMP errors that routers send to a tunnel's host about the tunnel's packets.

A probe from a container travels inside a VXLAN packet of its host. If the tunnel copies the inner
TTL to the outer header (`ttl inherit` of Linux, `options:ttl=inherit` of Open vSwitch), a trace's
probe expires at the intended router. The router's answer goes to the host and quotes the packet:
outer headers, VXLAN, the inner frame, and in it the probe with its nonce. The probe may be IPv6;
the tunnel is IPv4.
"""

import socket
import struct
from pathlib import Path
from typing import Final

from probers.host import netns
from probers.transports import sockets
from probers.transports.sockets import IPV4, SocketError

# linux/icmp.h: a bit that is set keeps that type away.
_SOL_RAW: Final = 255
_ICMP_FILTER: Final = 1
_WANTED_TYPES: Final = (IPV4.unreachable, IPV4.time_exceeded)
_NOT_WANTED: Final = 0xFFFF_FFFF & ~sum(1 << kind for kind in _WANTED_TYPES)
# Routers quote what fits 576 bytes (RFC 1812, 4.3.2.3); more is not needed.
_READ_BYTES: Final = 1_024
_ICMP_BYTES: Final = 8
_UDP_BYTES: Final = 8
_VXLAN_BYTES: Final = 8
_ETHERNET: Final = struct.Struct("!12sH")
_IPV4_BYTES: Final = 20
_IPV6_BYTES: Final = 40


def _after_ipv4(data: bytes, protocol: int) -> bytes | None:
    """Return what follows an IPv4 header that says `protocol`; None where there is none."""
    if len(data) < _IPV4_BYTES or data[0] >> 4 != 4 or data[9] != protocol:
        return None
    length = (data[0] & 15) * 4
    return data[length:] if _IPV4_BYTES <= length <= len(data) else None


def _after_ipv6(data: bytes, protocol: int) -> bytes | None:
    """Return what follows an IPv6 header that says `protocol`; probes have no other headers."""
    if len(data) < _IPV6_BYTES or data[0] >> 4 != 6 or data[6] != protocol:
        return None
    return data[_IPV6_BYTES:]


# By Ethertype.
_AFTER: Final = {0x0800: _after_ipv4, 0x86DD: _after_ipv6}


def quoted_payload(quote: bytes) -> bytes | None:
    """Return the start of the inner UDP payload of a quoted VXLAN packet.

    None where the quote is of something else, or too short.
    """
    outer = _after_ipv4(quote, socket.IPPROTO_UDP)
    if outer is None:
        return None
    frame = outer[_UDP_BYTES + _VXLAN_BYTES :]
    if len(frame) < _ETHERNET.size:
        return None
    after = _AFTER.get(_ETHERNET.unpack_from(frame)[1])
    inner = None if after is None else after(frame[_ETHERNET.size :], socket.IPPROTO_UDP)
    return None if inner is None or len(inner) < _UDP_BYTES else inner[_UDP_BYTES:]


def parse_report(datagram: bytes, reporter: str, kernel_ns: int | None) -> SocketError | None:
    """Return the error that an ICMP datagram, from its IP header on, reports about a probe."""
    message = _after_ipv4(datagram, socket.IPPROTO_ICMP)
    if message is None or len(message) < _ICMP_BYTES or message[0] not in _WANTED_TYPES:
        return None
    payload = quoted_payload(message[_ICMP_BYTES:])
    if payload is None:
        return None
    return SocketError(0, message[0], message[1], reporter, payload, kernel_ns)


class TunnelErrors:
    """The ICMP errors that come to a tunnel's end.

    Raises
    ------
    OSError
        If the address is not of that host, or CAP_NET_RAW is missing.
    """

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        try:
            self.socket.setblocking(False)
            self.socket.setsockopt(_SOL_RAW, _ICMP_FILTER, struct.pack("@I", _NOT_WANTED))
            self.socket.setsockopt(socket.SOL_SOCKET, sockets.SO_TIMESTAMPNS, 1)
            # If a host has several tunnel ends, each receives the errors about its own packets.
            self.socket.bind((address, 0))
        except OSError:
            self.socket.close()
            raise

    def read(self) -> list[SocketError]:
        """Return the errors that have arrived, a bounded number at a time."""
        errors: list[SocketError] = []
        for _ in range(sockets.MAX_ERRORS_AT_ONCE):
            try:
                data, ancillary, _, sender = self.socket.recvmsg(
                    _READ_BYTES, sockets.ANCILLARY_BYTES
                )
            except OSError:
                break
            error = parse_report(data, sender[0], sockets.kernel_time_ns(ancillary))
            if error is not None:
                errors.append(error)
        return errors

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


def open_tunnel(address: str, namespace: Path | None) -> TunnelErrors:
    """Open the tunnel's end at an address, in another namespace if one is named.

    Raises
    ------
    OSError
        As `TunnelErrors`, and if the namespace cannot be entered.
    """
    if namespace is None:
        return TunnelErrors(address)
    return netns.inside(namespace, lambda: TunnelErrors(address))
