"""Runs the server at an address."""

import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvicorn

from ops.web.actions import Writer
from ops.web.security import LOCAL_NAMES, Access, Login, is_loopback
from ops.web.server import build
from ops.web.source import Source

# Browsers that look keep their streams open: they are not waited for.
END_S: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where to serve; with a certificate and its key over TLS. Port 0: any that is free."""

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None

    @property
    def tls(self) -> bool:
        """Whether it is served over TLS."""
        return self.certificate is not None


def bound_socket(address: Address) -> socket.socket:
    """Return a socket that listens there.

    Raises
    ------
    OSError
        If the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    return socket.create_server((address.host.strip("[]"), address.port), family=family)


def serve(
    source: Source,
    address: Address,
    logins: tuple[Login, ...],
    writer: Writer | None,
    listening: Callable[[str], None],
) -> None:
    """Serve the pages until a signal ends it.

    Parameters
    ----------
    logins
        Of which a browser must know one; none: whoever reaches the address may look.
    writer
        Writes what people do about faults; None: they may not.
    listening
        Told the address for a browser.

    Raises
    ------
    OSError
        If the address cannot be had, or certificate and key cannot be read.
    """
    with bound_socket(address) as own:
        access = Access(
            logins=logins,
            hosts=LOCAL_NAMES if is_loopback(address.host) and not logins else (),
            tls=address.tls,
        )
        config = uvicorn.Config(
            build(source, access, writer),
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=END_S,
            ssl_certfile=address.certificate,
            ssl_keyfile=address.key,
        )
        try:
            config.load()
        except ssl.SSLError as error:
            raise OSError(f"--tls-cert and --tls-key: {error.reason or error}") from error
        scheme = "https" if address.tls else "http"
        host = f"[{address.host}]" if ":" in address.host else address.host
        listening(f"{scheme}://{host}:{own.getsockname()[1]}/")
        uvicorn.Server(config).run(sockets=[own])
