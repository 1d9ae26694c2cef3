"""Checks of single settings: each notes what is wrong and goes on, so that all is told at once."""

import ipaddress
from typing import Any

from probers.config.addresses import unicast
from schemas.ids import check_id


def whole_number(source: str, value: Any, bounds: tuple[int, int], wrong: list[str]) -> int:
    """Return a number within the bounds; the lower one where it is none."""
    low, high = bounds
    try:
        if isinstance(value, bool | float):
            raise ValueError
        number = int(value)
    except (TypeError, ValueError):
        wrong.append(f"{source}={value!r} must be a whole number")
        return low
    if not low <= number <= high:
        wrong.append(f"{source}={number} must be {low} to {high}")
    return number


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
