"""The pieces of a flow's text: lists with nested parentheses, pairs, numbers. Pure."""

import re
from typing import Final

# Matches, statistics and actions of one line, or arguments of one of them.
MAX_FIELDS: Final = 512
# set(tunnel(…flags(…))) in check_pkt_len in clone is 6 deep.
MAX_DEPTH: Final = 12
MAX_NUMBER_CHARS: Final = 18
_STRUCTURE: Final = re.compile(r"[(),]")


class MalformedError(Exception):
    """The text breaks off, nests too deep, or is not what it has to be."""


def split(text: str) -> list[str]:
    """Part a list at its commas, but not within parentheses.

    Raises
    ------
    MalformedError
        If parentheses do not pair, or there are more of them or of fields than any flow has.

    Examples
    --------
    >>> split("in_port(2),set(tunnel(dst=10.0.0.9,flags(df|key))),3")
    ['in_port(2)', 'set(tunnel(dst=10.0.0.9,flags(df|key)))', '3']
    """
    parts: list[str] = []
    depth = start = 0
    for found in _STRUCTURE.finditer(text):
        sign, at = found.group(), found.start()
        if sign == "(":
            depth += 1
        elif sign == ")":
            depth -= 1
        elif depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
        if not 0 <= depth <= MAX_DEPTH or len(parts) >= MAX_FIELDS:
            raise MalformedError
    if depth:
        raise MalformedError
    parts.append(text[start:].strip())
    return parts


def pairs(arguments: str) -> dict[str, str]:
    """Return the `name=value` parts of a list.

    >>> pairs("src=10.0.0.1,dst=10.0.0.9/24,flags(+key)")
    {'src': '10.0.0.1', 'dst': '10.0.0.9/24'}
    """
    parts = (field.partition("=") for field in split(arguments)) if arguments else ()
    return {name: value for name, equals, value in parts if equals}


def exact(text: str | None) -> int | None:
    """Return a number that is matched in full; None: it is not looked at."""
    if text is None:
        return None
    value, slash, mask = text.partition("/")
    whole = number(value)
    if whole is None or (slash and number(mask) is None):
        raise MalformedError
    return None if slash and number(mask) == 0 else whole


def number(text: str) -> int | None:
    """Return a decimal number, or a hexadecimal one after 0x."""
    digits = text.strip()
    if not 0 < len(digits) <= MAX_NUMBER_CHARS or not digits.isascii() or not digits.isalnum():
        return None
    try:
        return int(digits, 16 if digits[:2] in ("0x", "0X") else 10)
    except ValueError:
        return None


def seconds(text: str) -> float | None:
    """Return `0.260s` as a number; None for anything else, `never` among it."""
    digits = text.removesuffix("s")
    whole, _, part = digits.partition(".")
    if len(digits) > MAX_NUMBER_CHARS or not (whole + part).isascii() or not whole.isdigit():
        return None
    return float(digits) if not part or part.isdigit() else None
