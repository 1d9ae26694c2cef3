"""IPv4 and Ethernet addresses as integers with masks, parsed from texts that may be wrong. Pure."""

from typing import Final, NamedTuple

IPV4_ONES: Final = 2**32 - 1
MAC_ONES: Final = 2**48 - 1


class Masked(NamedTuple):
    """A value of which only the bits of the mask count."""

    value: int
    mask: int

    def covers(self, number: int) -> bool:
        """Whether a packet with that address matches."""
        return (self.value ^ number) & self.mask == 0


def ipv4_number(text: str) -> int | None:
    """Return a dotted address as a number; None where it is none.

    >>> ipv4_number("10.0.0.9") == 10 * 2**24 + 9, ipv4_number("10.0.0")
    (True, None)
    """
    parts = text.split(".")
    if len(parts) != 4:
        return None
    number = 0
    for part in parts:
        if not 1 <= len(part) <= 3 or not part.isascii() or not part.isdigit() or int(part) > 255:
            return None
        number = number << 8 | int(part)
    return number


def ipv4_text(number: int) -> str:
    """Return the dotted address.

    >>> ipv4_text(10 * 2**24 + 9)
    '10.0.0.9'
    """
    return ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))


def mac_number(text: str) -> int | None:
    """Return an Ethernet address as a number; None where it is none.

    >>> mac_number("02:00:00:00:00:09") == 2 * 2**40 + 9, mac_number("02:00")
    (True, None)
    """
    parts = text.split(":")
    if len(parts) != 6 or any(len(part) != 2 for part in parts):
        return None
    try:
        return int.from_bytes(bytes.fromhex("".join(parts)), "big")
    except ValueError:
        return None


def mac_text(number: int) -> str:
    """Return the Ethernet address with colons.

    >>> mac_text(2 * 2**40 + 9)
    '02:00:00:00:00:09'
    """
    return number.to_bytes(6, "big").hex(":")


def masked_ipv4(text: str) -> Masked | None:
    """Return `10.0.0.0/255.255.255.0`, `10.0.0.0/24` or a plain address; None: neither.

    >>> masked_ipv4("48.0.0.3/255.0.0.0").covers(ipv4_number("48.9.9.9"))
    True
    """
    value_text, slash, mask_text = text.partition("/")
    value = ipv4_number(value_text)
    mask: int | None = IPV4_ONES
    if slash and mask_text.isascii() and mask_text.isdigit() and len(mask_text) <= 2:
        bits = int(mask_text)
        mask = IPV4_ONES >> 32 - bits << 32 - bits if bits <= 32 else None
    elif slash:
        mask = ipv4_number(mask_text)
    return None if value is None or mask is None else Masked(value, mask)


def masked_mac(text: str) -> Masked | None:
    """Return an Ethernet address with or without a mask; None: neither."""
    value_text, slash, mask_text = text.partition("/")
    value = mac_number(value_text)
    mask = mac_number(mask_text) if slash else MAC_ONES
    return None if value is None or mask is None else Masked(value, mask)
