"""The HTTP server for questions about health; it runs within the agent's own loop.

A request does not wake the loop. Sockets are read when the loop serves Kafka, four times a second,
so a flood of requests costs no more than a few requests each time.
"""

import contextlib
import os
import socket
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from probers.config.health import HealthAddress
from probers.health.answers import MAX_REQUEST_BYTES, Health, respond

# A supervisor or two ask every few seconds. 16 connections a second are taken at most.
ACCEPTS_PER_TURN: Final = 4
MAX_OPEN: Final = 8
BACKLOG: Final = 16
# A client sends its request with its connection.
PATIENCE_NS: Final = 2 * 10**9
# The owner's group may ask as well, as for other control sockets.
SOCKET_MODE: Final = 0o660
_CONNECT_S: Final = 0.5


@dataclass(slots=True)
class _Client:
    """A connection, and what has come of its request."""

    connection: socket.socket
    since_ns: int
    request: bytearray = field(default_factory=bytearray)


class HealthServer:
    """Listens at one address.

    Raises
    ------
    OSError
        If it cannot listen there; `strerror` says where and why.
    """

    def __init__(self, address: HealthAddress) -> None:
        self._address = address
        self._clients: list[_Client] = []
        try:
            self._listener = _listen(address)
        except OSError as error:
            reason = error.strerror or str(error)
            raise OSError(error.errno or 0, f"health at {address}: {reason}") from error
        self._inode = None if address.path is None else os.lstat(address.path).st_ino

    def serve(self, now_ns: int, look: Callable[[], Health]) -> None:
        """Accept connections, read requests and answer them; never waits."""
        for _ in range(ACCEPTS_PER_TURN):
            try:
                connection, _peer = self._listener.accept()
            except OSError:  # no connection waits, or it was closed already
                break
            connection.setblocking(False)
            self._clients.append(_Client(connection, now_ns))
            if len(self._clients) > MAX_OPEN:
                # The oldest connection without a complete request makes way for the new one.
                self._clients.pop(0).connection.close()
        self._clients = [c for c in self._clients if not self._done(c, now_ns, look)]

    def close(self) -> None:
        """Close all connections, and take the socket's file away."""
        for client in self._clients:
            client.connection.close()
        self._clients.clear()
        self._listener.close()
        path = self._address.path
        with contextlib.suppress(OSError):
            if path is not None and os.lstat(path).st_ino == self._inode:
                os.unlink(path)

    def _done(self, client: _Client, now_ns: int, look: Callable[[], Health]) -> bool:
        """Read and answer a client's request; return whether the connection is over."""
        connection = client.connection
        try:
            data = connection.recv(MAX_REQUEST_BYTES - len(client.request))
        except BlockingIOError:
            data = None
        except OSError:
            data = b""
        if data:
            client.request += data
            response = respond(bytes(client.request), look)
            if response is not None:
                # It fits the socket's buffer; a client who lets that fill gets a part.
                with contextlib.suppress(OSError):
                    connection.send(response)
                    connection.shutdown(socket.SHUT_WR)
                data = b""
        if data == b"" or now_ns - client.since_ns > PATIENCE_NS:
            connection.close()
            return True
        return False


def _listen(address: HealthAddress) -> socket.socket:
    if address.path is None:
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        where: str | tuple[str, int] = (address.host, address.port)
    else:
        family, where = socket.AF_UNIX, address.path
        _clear(address.path)
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        if address.path is None:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
        if address.path is not None:
            # Nobody can connect before it listens.
            os.chmod(address.path, SOCKET_MODE)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _clear(path: str) -> None:
    """Remove the socket of a process that was killed."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return
    except OSError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(_CONNECT_S)
        try:
            asking.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
        except OSError:
            return
