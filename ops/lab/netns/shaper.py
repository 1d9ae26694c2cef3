"""Loss, delay and damage of frames on a port: a detour through this process.

`tc` redirects what leaves the port to a tap device that we read; what survives is put on
the wire by a packet socket, which passes by that redirection. So kernels without netem
can do it too, a fault has one meaning in all kinds of lab, and what happened to how many
frames is counted. A healthy port has no detour.
"""

import fcntl
import os
import random
import socket
import struct
from typing import Final

from ops.lab.events import EventLoop
from ops.lab.impairment import LinkDirection, corrupt_payload
from ops.lab.netns.commands import run
from probers.config.rnics import namespace_path
from probers.host.netns import inside

# linux/if_tun.h, linux/if_packet.h
_TUNSETIFF: Final = 0x400454CA
_IFF_TAP: Final = 2
_IFF_NO_PI: Final = 0x1000
_SOL_PACKET: Final = 263
_PACKET_QDISC_BYPASS: Final = 20
_IFREQ: Final = struct.Struct("@16sH22x")
FRAME_BYTES: Final = 65_536
# Damage is within the IPv4 header, behind the one of Ethernet. The kernel at the end of the
# cable checks it, and drops the frame there, as a port does whose check of the frame fails.
# Further behind, it would cross switches, which do not look, and be dropped by the host: no
# trace could tell which cable on the way had done it.
DAMAGE_BEGIN: Final = 14
DAMAGE_END: Final = 34
BURST: Final = 64


class Detour:
    """The detour of one port; it exists from construction to `close`."""

    def __init__(
        self,
        namespace: str,
        port: str,
        direction: LinkDirection,
        loop: EventLoop,
        rng: random.Random,
    ) -> None:
        self._namespace = namespace
        self._port = port
        self._direction = direction
        self._loop = loop
        self._rng = rng
        self._tap = f"t.{port}"[:15]
        self._waiting = 0
        self._closed = False
        self._descriptor, self._wire = inside(namespace_path(namespace), self._open)
        loop.add_reader(self, self._readable)
        run("ip", "-n", namespace, "link", "set", self._tap, "mtu", "65000", "up")
        run("tc", "-n", namespace, "qdisc", "replace", "dev", port, "clsact")
        run(
            "tc", "-n", namespace, "filter", "replace", "dev", port, "egress", "pref", "1",
            "protocol", "all", "u32", "match", "u32", "0", "0",
            "action", "mirred", "egress", "redirect", "dev", self._tap,
        )  # fmt: skip

    def _open(self) -> tuple[int, socket.socket]:
        wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        try:
            wire.bind((self._port, 0))
            wire.setsockopt(_SOL_PACKET, _PACKET_QDISC_BYPASS, 1)
            descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            request = _IFREQ.pack(self._tap.encode(), _IFF_TAP | _IFF_NO_PI)
            try:
                fcntl.ioctl(descriptor, _TUNSETIFF, request)
            except OSError:
                os.close(descriptor)
                raise
        except OSError:
            wire.close()
            raise
        return descriptor, wire

    def fileno(self) -> int:
        """Return the tap's descriptor."""
        return self._descriptor

    def _readable(self) -> None:
        for _ in range(BURST):
            try:
                frame = bytearray(os.read(self._descriptor, FRAME_BYTES))
            except OSError:
                return
            fate = self._direction.fate(self._rng)
            if fate.lost:
                continue
            if fate.corrupt:
                corrupt_payload(memoryview(frame)[:DAMAGE_END], DAMAGE_BEGIN, self._rng)
            if fate.delay_ns:
                self._waiting += 1
                self._loop.call_later(fate.delay_ns, lambda late=frame: self._send_late(late))  # type: ignore[misc]
            else:
                self._send(frame)

    def _send_late(self, frame: bytearray) -> None:
        self._send(frame)
        self._waiting -= 1
        if self._closed and not self._waiting:
            self._wire.close()

    def _send(self, frame: bytearray) -> None:
        try:
            self._wire.send(frame)
        except OSError:
            self._direction.lost += 1  # the port is down

    def close(self) -> None:
        """Let frames go straight again; those that still wait are sent when they are due.

        Otherwise a delay that comes and goes would lose some frames each time.
        """
        run("tc", "-n", self._namespace, "qdisc", "del", "dev", self._port, "clsact")
        self._readable()
        self._loop.remove_reader(self)
        os.close(self._descriptor)
        self._closed = True
        if not self._waiting:
            self._wire.close()
