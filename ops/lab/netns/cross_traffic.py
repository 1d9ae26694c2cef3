"""Cross traffic on a port: frames that use its queue, and end at the other end of the cable.

They go out by a packet socket of the port's namespace, so through its queueing discipline, as
what a switch forwards does. Their EtherType is one for local experiments (IEEE 802, section 9.2),
which no kernel takes: the other end drops each frame as soon as it has arrived.
"""

import socket
from typing import Final

from ops.lab.events import EventLoop
from probers.config.rnics import namespace_path
from probers.host.netns import inside
from schemas.units import SECOND_NS

# asm-generic/socket.h; Python names it not.
_SO_SNDBUFFORCE: Final = 32
ETHER_TYPE: Final = 0x88B5
FRAME_BYTES: Final = 1_500
BROADCAST: Final = b"\xff" * 6
SOURCE: Final = b"\x02" + b"\0" * 5
FRAME: Final = (BROADCAST + SOURCE + ETHER_TYPE.to_bytes(2, "big")).ljust(FRAME_BYTES, b"\0")
TICK_NS: Final = 5_000_000
# What this process could not send in time is not sent later: a burst of it would be no traffic
# of that rate.
LATEST_NS: Final = 10 * TICK_NS
# What waits in a port's queue counts as the socket's: enough for the longest queue of a lab.
BUFFER_BYTES: Final = 64 << 20


class CrossTraffic:
    """Frames at an even rate on one port, from construction to `close`."""

    def __init__(self, namespace: str, port: str, rate_mbit: float, loop: EventLoop) -> None:
        self._port = port
        self._loop = loop
        self._interval_ns = round(FRAME_BYTES * 8 / (rate_mbit * 1e6) * SECOND_NS)
        self._wire: socket.socket | None = inside(namespace_path(namespace), self._open)
        self._due_ns = loop.now_ns()
        self.sent = 0
        self._send()

    def _open(self) -> socket.socket:
        wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        try:
            wire.bind((self._port, 0))
            wire.setblocking(False)
            wire.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, BUFFER_BYTES)
        except OSError:
            wire.close()
            raise
        return wire

    def _send(self) -> None:
        """Send what is due by now, and go on at the next tick."""
        if self._wire is None:
            return
        now_ns = self._loop.now_ns()
        self._due_ns = max(self._due_ns, now_ns - LATEST_NS)
        while self._due_ns <= now_ns:
            self._due_ns += self._interval_ns
            try:
                self._wire.send(FRAME)
                self.sent += 1
            except OSError:
                # The queue dropped it, or the port is down: lost, as traffic is.
                continue
        self._loop.call_later(TICK_NS, self._send)

    def close(self) -> None:
        """Send nothing more."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None
