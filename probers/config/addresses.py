"""Addresses that probes may be sent from and to, and the one way to write each. Pure."""

import ipaddress
from typing import Final

# The longest IPv6 address, written with an IPv4 address at its end.
MAX_CHARACTERS: Final = 45


def unicast(text: str) -> str:
    """Return an address of one host as it is usually written (RFC 5952).

    >>> unicast("FD00:0:0::1")
    'fd00::1'

    Raises
    ------
    ValueError
        If it is no address, or none that other hosts can send to: the message says why.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"has {len(text)} characters; at most {MAX_CHARACTERS}")
    if "%" in text:
        raise ValueError("names an interface; give an address that needs none")
    try:
        parsed = ipaddress.ip_address(text)
    except ValueError:
        raise ValueError("must be an IPv4 or IPv6 address") from None
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        raise ValueError(f"write it as {parsed.ipv4_mapped}")
    if parsed.is_unspecified:
        raise ValueError("others must reach it; give the RNIC's own address")
    if parsed.is_multicast or (parsed.is_reserved and not parsed.is_loopback):
        raise ValueError("must be an address of one host")
    if parsed.version == 6 and parsed.is_link_local:
        # It means something only with an interface, which is another one on each host.
        raise ValueError("is link-local; give a global or unique local address")
    return str(parsed)
