"""Asks the kernel for the TCP connections of network namespaces, by `sock_diag`.

A netlink socket belongs to the namespace in which it was opened: one for each is opened by a thread
that enters it, and used from then on. To enter one takes CAP_SYS_ADMIN; to ask in it, nothing.
"""

import os
import socket
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from probers.collectives.sock_diag import (
    AF_INET,
    AF_INET6,
    NETLINK_SOCK_DIAG,
    DiagError,
    SocketReading,
    connections,
    request,
)
from probers.host.netns import inside

# The kernel writes an answer into datagrams of up to so many bytes.
DATAGRAM_BYTES: Final = 64 * 1024
# It answers from memory within a millisecond; a namespace that is being taken down may not.
TIMEOUT_S: Final = 1.0
# Of one namespace: of a host's own, where other programs have theirs.
MAX_CONNECTIONS: Final = 65_536


class SocketTables:
    """Holds a netlink socket for each namespace that was asked."""

    def __init__(self) -> None:
        self._sockets: dict[int, socket.socket] = {}
        self._own = os.stat("/proc/self/ns/net").st_ino
        self._serial = 0

    def read(self, namespace: int, path: Path) -> list[SocketReading]:
        """Return all connections of a namespace.

        Parameters
        ----------
        namespace
            Its inode.
        path
            Where it can be opened.

        Raises
        ------
        OSError
            If it cannot be entered or asked; the message says what is needed.
        DiagError
            If the answer is none.
        """
        if namespace not in self._sockets:
            self._sockets[namespace] = _open() if namespace == self._own else inside(path, _open)
        found: list[SocketReading] = []
        try:
            for family in (AF_INET, AF_INET6):
                found += self._ask(self._sockets[namespace], family)
        except (OSError, DiagError):
            # What is left of the answer would be taken for that to the next question.
            self._close(namespace)
            raise
        return found

    def keep(self, namespaces: Collection[int]) -> None:
        """Close the sockets of all other namespaces, which would keep these alive."""
        for namespace in self._sockets.keys() - set(namespaces):
            self._close(namespace)

    def close(self) -> None:
        """Close all."""
        self.keep(())

    def _close(self, namespace: int) -> None:
        self._sockets.pop(namespace).close()

    def _ask(self, asked: socket.socket, family: int) -> list[SocketReading]:
        self._serial = self._serial % 2**31 + 1
        asked.send(request(family, self._serial))
        return connections(_datagrams(asked), self._serial, MAX_CONNECTIONS)


def _datagrams(asked: socket.socket) -> Iterator[bytes]:
    while datagram := asked.recv(DATAGRAM_BYTES):
        yield datagram


def _open() -> socket.socket:
    opened = socket.socket(
        socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_SOCK_DIAG
    )
    opened.settimeout(TIMEOUT_S)
    return opened
