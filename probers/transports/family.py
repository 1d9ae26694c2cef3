"""IPv4 and IPv6 as Linux shows them to a socket: where the two differ, and nothing else."""

import socket
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Numbers of one family.

    `level` is that of its options and ancillary data; `receive_errors` and `origin` are those of
    its error queue (linux/in.h, linux/in6.h, linux/errqueue.h), `offender_at` and `offender_bytes`
    say where the address stands in its sockaddr. The types are of its ICMP (RFC 792, RFC 4443).
    """

    number: socket.AddressFamily
    level: int
    receive_errors: int
    hop_limit: int
    traffic_class: int
    origin: int
    offender_at: int
    offender_bytes: int
    time_exceeded: int
    unreachable: int
    port_unreachable: int


IPV4: Final = Family(
    number=socket.AF_INET,
    level=socket.IPPROTO_IP,
    receive_errors=11,
    hop_limit=socket.IP_TTL,
    traffic_class=socket.IP_TOS,
    origin=2,
    offender_at=4,
    offender_bytes=4,
    time_exceeded=11,
    unreachable=3,
    port_unreachable=3,
)
IPV6: Final = Family(
    number=socket.AF_INET6,
    level=socket.IPPROTO_IPV6,
    receive_errors=25,
    # As ancillary data of one datagram; the option of a socket has another number. Python
    # names both only where the C library does.
    hop_limit=52,
    traffic_class=67,
    origin=3,
    offender_at=8,
    offender_bytes=16,
    time_exceeded=3,
    unreachable=1,
    port_unreachable=4,
)
FAMILIES: Final = {int(family.number): family for family in (IPV4, IPV6)}


def family_of(address: str) -> Family:
    """Return the family that an address is written in.

    >>> family_of("fd00::1") is IPV6, family_of("10.0.0.1") is IPV4
    (True, True)
    """
    return IPV6 if ":" in address else IPV4
