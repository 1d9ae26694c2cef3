"""Free TCP ports for servers that must keep theirs over a restart."""

import random
import socket
from collections.abc import Collection
from typing import Final

LOOPBACK: Final = "127.0.0.1"
# Below the range from which Linux (32768-60999) and macOS (49152-65535) take the
# source ports of connections: there, a client that keeps calling a server that
# is down can get the server's own port, and then the server cannot come back.
FIRST: Final = 20_000
LAST: Final = 32_000
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


def free_port(taken: Collection[int] = ()) -> int:
    """Return a free port that is not in `taken`.

    Raises
    ------
    OSError
        If none was found.
    """
    rng = random.SystemRandom()
    for _ in range(TRIES):
        port = rng.randint(FIRST, LAST)
        if port not in taken and is_free(port):
            return port
    raise OSError(f"no free TCP port found on {LOOPBACK} between {FIRST} and {LAST}")
