"""Parses the texts of sysfs and procfs. Pure: text to value, and None if the text is anything else.

The texts come from drivers, and drivers differ: what does not match the kernel's documentation
exactly is unknown, never a guess.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final

from probers.host.port import NETDEV_UP

# More than any 64-bit counter holds.
_MAX_DIGITS: Final = 20
# Link widths that PCI Express has (base specification, link capabilities register); 0, 63 and
# 255 stand for "not known" in a virtual function or a guest.
_LANES: Final = frozenset({1, 2, 4, 8, 12, 16, 32})
_SPEED: Final = re.compile(r"(\d{1,3}(?:\.\d)?) GT/s")
_RATE: Final = re.compile(r"(\d{1,5}(?:\.\d)?) Gb/sec")
_STATE: Final = re.compile(r"\d{1,2}: ([A-Z_]{1,20})")
_WORD: Final = re.compile(r"[a-z]{1,20}")
_AER_TOTAL: Final = re.compile(r"^TOTAL_ERR_[A-Z]{1,12} (\d{1,20})$", re.MULTILINE)
_GID: Final = re.compile(r"[0-9a-f]{4}(?::[0-9a-f]{4}){7}")
_KERNEL: Final = re.compile(r"(\d{1,3})\.(\d{1,3})")
_VERSION: Final = re.compile(r"[\x21-\x7e][\x20-\x7e]{0,63}")
# PCI Express base specification: extended capabilities begin at 100h and form a list; ACS is
# number 0Dh, its control register stands 6 bytes in.
_EXTENDED_AT: Final = 0x100
_CONFIG_BYTES: Final = 0x1000
_ACS: Final = 0x0D
_ACS_CONTROL: Final = 6
# P2P request redirect, completion redirect, upstream forwarding: each sends packets between
# two devices up to the root. Direct translated P2P lets those with a translated address pass.
_ACS_REDIRECTS: Final = 0b1_1100
_ACS_TRANSLATED_PASS: Final = 0b100_0000
# A list longer than this is a loop.
_MAX_CAPABILITIES: Final = 64


def number(text: str | None) -> int | None:
    """Return a counter's value.

    >>> number("17"), number("-1"), number("N/A (no PMA)")
    (17, None, None)
    """
    if text is None or not text.isascii() or not text.isdecimal() or len(text) > _MAX_DIGITS:
        return None
    return int(text)


def port_state(text: str | None) -> str | None:
    """Return the state of an RDMA port in lower case.

    >>> port_state("4: ACTIVE"), port_state("1: DOWN")
    ('active', 'down')
    """
    found = None if text is None else _STATE.fullmatch(text)
    return None if found is None else found[1].lower()


def operational_state(text: str | None) -> str | None:
    """Return the state of a network device: `up` for all in which frames can leave.

    >>> operational_state("unknown"), operational_state("lowerlayerdown")
    ('up', 'lowerlayerdown')
    """
    if text in NETDEV_UP:
        return "up"
    return text if text is not None and _WORD.fullmatch(text) else None


def lanes(text: str | None) -> int | None:
    """Return the width of a PCIe link.

    >>> lanes("16"), lanes("0"), lanes("63")
    (16, None, None)
    """
    value = number(text)
    return value if value in _LANES else None


def transfers_gts(text: str | None) -> float | None:
    """Return the speed of a PCIe link in GT/s.

    >>> transfers_gts("16.0 GT/s PCIe"), transfers_gts("8 GT/s"), transfers_gts("Unknown")
    (16.0, 8.0, None)
    """
    return _leading(_SPEED, text)


def rate_gbps(text: str | None) -> float | None:
    """Return the rate of an RDMA port in Gb/s.

    >>> rate_gbps("400 Gb/sec (4X NDR)"), rate_gbps("2.5 Gb/sec (1X SDR)")
    (400.0, 2.5)
    """
    return _leading(_RATE, text)


def aer_total(text: str | None) -> int | None:
    r"""Return the total of an AER statistics file.

    >>> aer_total("RxErr 2\nBadTLP 1\nTOTAL_ERR_COR 3")
    3
    """
    found = None if text is None else _AER_TOTAL.search(text)
    return None if found is None else int(found[1])


def gid(text: str | None) -> str | None:
    """Return a GID that is in use; an unused entry is all zeros.

    >>> gid("0000:0000:0000:0000:0000:ffff:0a00:0001")
    '0000:0000:0000:0000:0000:ffff:0a00:0001'
    >>> gid("0000:0000:0000:0000:0000:0000:0000:0000")
    """
    if text is None or not _GID.fullmatch(text):
        return None
    return text if text.strip("0:") else None


def version(text: str | None) -> str | None:
    """Return a version, or any other single line that people read; None if it is none."""
    return text if text is not None and _VERSION.fullmatch(text) else None


def module_names(text: str) -> frozenset[str]:
    r"""Return the names of the modules in `/proc/modules`, less a last line that was cut.

    >>> sorted(module_names("mlx5_core 1 2 - Live 0x0\nnvidia 3 4 - Live 0x0\nnv"))
    ['mlx5_core', 'nvidia']
    """
    lines = text.split("\n")
    return frozenset(name for line in lines if (name := line.partition(" ")[0]) != line)


def kernel_version(release: str) -> tuple[int, int] | None:
    """Return major and minor version of a kernel release.

    >>> kernel_version("5.15.0-91-generic")
    (5, 15)
    """
    found = _KERNEL.match(release)
    return None if found is None else (int(found[1]), int(found[2]))


def flags_on(texts: Sequence[str | None]) -> tuple[bool | None, ...]:
    """Return which switches are on; None for one that does not say.

    >>> flags_on(["1", "0", "0x1", None])
    (True, False, True, None)
    """
    known = {"0": False, "1": True, "0x0": False, "0x1": True}
    return tuple(None if text is None else known.get(text) for text in texts)


def acs_redirects(read: Callable[[int, int], bytes]) -> bool | None:
    """Return whether a PCI bridge sends traffic between devices up to the root.

    Parameters
    ----------
    read : gives `count` bytes at `offset` of the bridge's configuration space

    Returns
    -------
    None if the extended space cannot be read: the kernel shows it to root only.
    """
    at = _EXTENDED_AT
    for _ in range(_MAX_CAPABILITIES):
        header = read(at, 4)
        if len(header) < 4:
            return None
        value = int.from_bytes(header, "little")
        if value in (0, 0xFFFF_FFFF):
            return False if value == 0 else None
        if value & 0xFFFF == _ACS:
            control = read(at + _ACS_CONTROL, 2)
            if len(control) < 2:
                return None
            bits = int.from_bytes(control, "little")
            return bool(bits & _ACS_REDIRECTS) and not bits & _ACS_TRANSLATED_PASS
        at = value >> 20 & 0xFFC
        if not _EXTENDED_AT <= at < _CONFIG_BYTES:
            return False
    return None


def _leading(pattern: re.Pattern[str], text: str | None) -> float | None:
    found = None if text is None else pattern.match(text)
    return None if found is None else float(found[1])
