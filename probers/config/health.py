"""The setting `health`: the address at which the agent answers questions about its health."""

import ipaddress
from dataclasses import dataclass
from typing import Final

UNIX: Final = "unix:"
# The one word by which others than this host may ask: states name addresses and devices.
EXPOSED: Final = "exposed:"
# struct sockaddr_un: 108 bytes with the closing zero.
MAX_PATH_BYTES: Final = 107
FORMS: Final = "give unix:/PATH, 127.0.0.1:PORT, [::1]:PORT or exposed:ADDRESS:PORT"


@dataclass(frozen=True, slots=True)
class HealthAddress:
    """A unix socket's path, or an address and a port."""

    path: str | None
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        """Return it as people write it."""
        if self.path is not None:
            return f"{UNIX}{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_health(text: str) -> HealthAddress:
    """Return the address that a setting names.

    Raises
    ------
    ValueError
        If it is none, or one that other hosts can reach without `exposed:`.

    Examples
    --------
    >>> str(parse_health("unix:/run/skeletonhunter/agent.sock"))
    'unix:/run/skeletonhunter/agent.sock'
    >>> parse_health("10.0.0.17:9464")
    Traceback (most recent call last):
        ...
    ValueError: health='10.0.0.17:9464': other hosts can reach that; if they may, write exposed:...
    """
    if text.startswith(UNIX):
        path = text.removeprefix(UNIX)
        if not path.startswith("/") or "\0" in path or len(path.encode()) > MAX_PATH_BYTES:
            raise ValueError(
                f"health={text!r}: the path must be absolute and have at most "
                f"{MAX_PATH_BYTES} bytes"
            )
        return HealthAddress(path)
    host, _, port = text.removeprefix(EXPOSED).rpartition(":")
    try:
        address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        raise ValueError(f"health={text!r}: {FORMS}") from None
    if not (port.isascii() and port.isdecimal() and len(port) <= 5 and 1 <= int(port) <= 65_535):
        raise ValueError(f"health={text!r}: the port must be 1 to 65535")
    if not address.is_loopback and not text.startswith(EXPOSED):
        raise ValueError(
            f"health={text!r}: other hosts can reach that; if they may, write {EXPOSED}..."
        )
    return HealthAddress(None, str(address), int(port))
