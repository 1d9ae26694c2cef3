"""Ports for endpoints, whose sockets other processes will open."""

import random
import socket
from typing import Final

from ops.broker.ports import LAST as LAST_OF_BROKERS
from ops.lab.fabric import LOOPBACK

# A broker's claim of a port is a UDP socket too: it must not get that of an agent that is being
# restarted. Below the ephemeral ranges of Linux (32,768 on) and macOS (49,152 on): no other
# socket gets one of these by chance between our look and the agent's bind.
FIRST_PORT: Final = LAST_OF_BROKERS + 1
LAST_PORT: Final = 32_000


class NoPortsError(OSError):
    """Not enough free UDP ports."""


def free_udp_ports(count: int, rng: random.Random | None = None) -> list[int]:
    """Return distinct UDP ports on which nobody listens, in random order.

    Raises
    ------
    NoPortsError
        If there are fewer.
    """
    # Random so that two labs seldom try the same ones; no secret.
    rng = rng or random.Random()  # noqa: S311
    found: list[int] = []
    for port in rng.sample(range(FIRST_PORT, LAST_PORT), LAST_PORT - FIRST_PORT):
        if len(found) == count:
            break
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
        found.append(port)
    if len(found) < count:
        raise NoPortsError(f"{len(found)} free UDP ports, {count} needed")
    return found
