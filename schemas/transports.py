"""What each transport of probes can do: one row for each symbol of `Transport` but UNKNOWN.

The agent's settings, ping list and tracer and the latency detector read this table instead of
asking which transport it is. What opens a transport's sockets is in `probers.transports.registry`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from schemas.enums import Transport


class AddressForm(Enum):
    """What `address` and `port` of a registered endpoint are."""

    # An IP address and a port.
    IP_PORT = auto()
    # A GID and the number of a queue pair; the registration has its Q_Key as well.
    QUEUE_PAIR = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportCapabilities:
    """What probes over one transport can do.

    Attributes
    ----------
    word : name of the transport in an agent's settings
    address_form : of endpoints that answer over it. An agent opens a transport with IP_PORT by
        itself when a target needs it; one with QUEUE_PAIR only where the RNIC's settings name it
    untraced : why it is never traced; None: probes with a TTL name the node where it ran out
    fallback : transport that may answer while this one cannot be opened; None: there is none
    gateway : whether the lab's gateway carries it
    namespaces : whether its sockets may be in another network namespace, or behind a tunnel
    kernel_bypass : whether probes do not pass through the kernel of their hosts. Round trips
        then scatter so little that a small rise counts: `min_effect_rdma_us` of the worker's
        settings, and `min_effect_ms` for all others
    """

    word: str
    address_form: AddressForm = AddressForm.IP_PORT
    untraced: str | None = None
    fallback: Transport | None = None
    gateway: bool = False
    namespaces: bool = False
    kernel_bypass: bool = False


CAPABILITIES: Final[Mapping[Transport, TransportCapabilities]] = {
    Transport.UDP: TransportCapabilities(word="udp", gateway=True, namespaces=True),
    Transport.TCP: TransportCapabilities(word="tcp", untraced="TCP connections are not traced"),
    Transport.RDMA_UD: TransportCapabilities(
        word="rdma",
        address_form=AddressForm.QUEUE_PAIR,
        fallback=Transport.UDP,
        kernel_bypass=True,
    ),
}
BY_WORD: Final[Mapping[str, Transport]] = {row.word: kind for kind, row in CAPABILITIES.items()}
