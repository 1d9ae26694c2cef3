"""Which GID a port sends from, and whose GID a datagram came from.

A RoCE port has a table of GIDs: one of RoCE v1 and one of RoCE v2 for each address of its
interface. Only RoCE v2 is routed, and its IPv4 addresses are mapped into IPv6 (RFC 4291, section
2.5.5.2). The table changes with the host's addresses, so an index may name another GID a moment
later.

The receiver of an unreliable datagram gets 40 bytes before the payload. Over IPv6 and InfiniBand
they are the Global Route Header (IBTA volume 1, section 8.3); over IPv4 their last 20 bytes are
the IPv4 header (IBTA annex A17, RoCE v2).
"""

import functools
import ipaddress
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from probers.host.sysfs import read_text

# Devices have up to 256 entries; what is beyond is not looked at.
MAX_GIDS: Final = 512
_READ_BYTES: Final = 64
ROCE_V2: Final = "RoCE v2"
_NONE: Final = ipaddress.IPv6Address(0)


@dataclass(frozen=True, slots=True)
class Gid:
    """An entry of a port's table; `kind` as sysfs names it."""

    index: int
    address: ipaddress.IPv6Address
    kind: str

    @property
    def raw(self) -> bytes:
        """Its 16 bytes."""
        return self.address.packed


# Of all peers that an RNIC probes, or answers.
_remembered = functools.lru_cache(maxsize=4_096)


@_remembered
def gid_of(text: str) -> ipaddress.IPv6Address:
    """Return the GID of an IPv4 or IPv6 address.

    >>> gid_of("10.0.0.1")
    IPv6Address('::ffff:a00:1')

    Raises
    ------
    ValueError
        If the text is no address.
    """
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv4Address):
        return ipaddress.IPv6Address(f"::ffff:{address}")
    return address


def shown(address: ipaddress.IPv6Address) -> str:
    """Return a GID as records carry it: an IPv4 address mapped, in dots.

    >>> shown(gid_of("10.0.0.1"))
    '::ffff:10.0.0.1'
    """
    mapped = address.ipv4_mapped
    return str(address) if mapped is None else f"::ffff:{mapped}"


@_remembered
def shown_raw(raw: bytes) -> str:
    """Return a GID of 16 bytes as records carry it."""
    return shown(ipaddress.IPv6Address(raw))


def choose_gid(table: Sequence[Gid], address: str | None, index: int | None) -> Gid | str:
    """Return the entry to speak with, or why there is none.

    Parameters
    ----------
    address : of the RNIC: the RoCE v2 entry that has it; None: the first that routers forward,
        of an IPv4 address where there is one
    index : the entry with this index instead, whatever it is
    """
    if index is not None:
        for gid in table:
            if gid.index == index:
                return gid
        return f"no GID at index {index}; {_shown_table(table)}"
    if address is None:
        routed = [g for g in table if g.kind == ROCE_V2 and not g.address.is_link_local]
        if routed:
            return min(routed, key=lambda gid: (gid.address.ipv4_mapped is None, gid.index))
        return f"no RoCE v2 GID that routers forward; {_shown_table(table)}"
    wanted = gid_of(address)
    fitting = [gid for gid in table if gid.address == wanted and gid.kind == ROCE_V2]
    if fitting:
        return min(fitting, key=lambda gid: gid.index)
    return f"no RoCE v2 GID for {address}; {_shown_table(table)}"


def _shown_table(table: Sequence[Gid]) -> str:
    if not table:
        return "the port's table is empty"
    several = ", ".join(f"{g.index}: {shown(g.address)} ({g.kind})" for g in table[:8])
    return f"the port has {several}" + (" …" if len(table) > 8 else "")


def read_table(port: Path) -> list[Gid]:
    """Return the GIDs of a port's folder (`…/mlx5_0/ports/1`), by index; empty where it is gone."""
    try:
        indices = sorted(int(p.name) for p in (port / "gids").iterdir() if p.name.isdecimal())
    except OSError:
        return []
    found = (read_gid(port, index) for index in indices[:MAX_GIDS])
    return [gid for gid in found if gid is not None]


def read_gid(port: Path, index: int) -> Gid | None:
    """Return one entry of a port's table; None where it is not used, or gone."""
    text = read_text(str(port / "gids" / str(index)), _READ_BYTES) or ""
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return None
    if address == _NONE:
        return None
    # The type of an entry that is not used cannot be read.
    kind = read_text(str(port / "gid_attrs" / "types" / str(index)), _READ_BYTES)
    return Gid(index, address, kind) if kind else None


GRH_BYTES: Final = 40
_IPV4_AT: Final = 20
_WORDS: Final = struct.Struct("!10H")
_MAPPED: Final = bytes(10) + b"\xff\xff"


class Sender(NamedTuple):
    """The sender of a datagram: its GID (16 bytes), and the hop limit (TTL) left on arrival."""

    gid: bytes
    hop_limit: int


def sender_of(grh: bytes) -> Sender | None:
    """Return the sender; None where the bytes are no such header.

    Over IPv4 the first 20 bytes are undefined, so the IPv4 header is tried first; its checksum
    decides whether it is one.
    """
    if len(grh) < GRH_BYTES:
        return None
    ipv4 = grh[_IPV4_AT:GRH_BYTES]
    if ipv4[0] == 0x45 and _sums_up(ipv4):
        return Sender(_MAPPED + ipv4[12:16], ipv4[8])
    if grh[0] >> 4 == 6:
        return Sender(grh[8:24], grh[7])
    return None


def _sums_up(header: bytes) -> bool:
    """Return whether the Internet check sum of a header is right (RFC 1071)."""
    total: int = sum(_WORDS.unpack(header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total == 0xFFFF
