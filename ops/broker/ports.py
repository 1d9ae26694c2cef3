"""Free TCP ports for servers that must keep theirs over a restart."""

import random
import socket
from typing import Final

LOOPBACK: Final = "127.0.0.1"
# Below the range from which Linux (32768-60999) and macOS (49152-65535) take the
# source ports of connections: there, a client that keeps calling a server that
# is down can get the server's own port, and then the server cannot come back.
FIRST: Final = 20_000
# Endpoints of labs have the ports above, see `ops/lab/ports.py`.
LAST: Final = 22_999
TRIES: Final = 200


def is_free(port: int) -> bool:
    """Return whether a server can listen on this port of the loopback address."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the JVM does; without it, closed connections of an earlier server are in the way.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
            probe.listen(1)
        except OSError:
            return False
    return True


class ClaimedPorts:
    """TCP ports for servers of this process, which no other claim gets until `release`.

    A server binds its port seconds after the port was chosen, and again after each restart.
    Until `release`, a UDP socket holds the same number: only one process can have it, TCP does
    not mind, and the system frees it should the process be killed.
    """

    def __init__(self) -> None:
        self._claims: list[socket.socket] = []

    def claim(self, besides: int | None = None) -> int:
        """Return a port on which nobody listens and that nobody else has claimed.

        Parameters
        ----------
        besides
            Not this port, which somebody has chosen for a server that is not started yet.

        Raises
        ------
        OSError
            If none was found.
        """
        rng = random.SystemRandom()
        for _ in range(TRIES):
            port = rng.randint(FIRST, LAST)
            if port == besides:
                continue
            claim = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            try:
                claim.bind((LOOPBACK, port))
            except OSError:
                claim.close()
                continue
            if is_free(port):
                self._claims.append(claim)
                return port
            claim.close()
        raise OSError(f"no free TCP port found on {LOOPBACK} between {FIRST} and {LAST}")

    def release(self) -> None:
        """Give all claimed ports back."""
        for claim in self._claims:
            claim.close()
        self._claims.clear()
