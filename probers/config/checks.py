"""Checks of single settings. Pure.

Each appends what is wrong to a list, so that all mistakes are reported at once.
"""

import ipaddress
from collections.abc import Mapping
from typing import Any, Final

from schemas.ids import check_id
from schemas.process.settings import checked_number

# The longest IPv6 address, written with an IPv4 address at its end.
MAX_CHARACTERS: Final = 45
# More than any number of hugepages has.
_MAX_DIGITS: Final = 20


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


def whole_number(source: str, value: Any, bounds: tuple[int, int], wrong: list[str]) -> int:
    """Return a number within the bounds; the lower one where it is none."""
    return int(checked_number(source, value, int, bounds, wrong))


def checked_id(what: str, value: str, wrong: list[str]) -> str:
    """Return the text, which should do as an id."""
    try:
        return check_id(what, value)
    except ValueError as error:
        wrong.append(str(error))
        return value


def ipv4_address(what: str, text: str, wrong: list[str]) -> str:
    """Return the text, which should be an IPv4 address that others can reach."""
    try:
        if ipaddress.IPv4Address(text).is_unspecified:
            wrong.append(f"{what}={text}: others must reach it; give the RNIC's own address")
    except ValueError:
        wrong.append(f"{what}={text!r} must be an IPv4 address")
    return text


def ip_address(what: str, text: str, wrong: list[str]) -> str:
    """Return the usual spelling of the text, which should be an address others can reach."""
    try:
        return unicast(text)
    except ValueError as error:
        wrong.append(f"{what}={text!r}: {error}")
        return text


def pages_of(text: str) -> Mapping[int, int] | None:
    """Return numbers of hugepages by their size in kB, from a setting; None if it is none.

    >>> pages_of("2048kB=1024,1048576kB=16")
    {2048: 1024, 1048576: 16}
    >>> pages_of("many")
    """
    pages: dict[int, int] = {}
    for part in text.split(","):
        size, equals, count = part.strip().partition("=")
        size_kb, pages_count = _number(size.removesuffix("kB")), _number(count)
        if not equals or not size.endswith("kB") or size_kb is None or pages_count is None:
            return None
        pages[size_kb] = pages_count
    return pages


def _number(text: str) -> int | None:
    decimal = text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS
    return int(text) if decimal else None
