"""Floods a UDP port with the packets of strangers, in a process of its own.

`python -m ops.bench.agent.flooder HOST PORT RATE_HZ SECONDS KIND SOURCES` prints the packets a
second that it sent.
"""

import contextlib
import ctypes
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from typing import Final

from probers.packet import MIN_PACKET_BYTES, UNSEALED, Packets

# Packets handed to the kernel in one call.
BATCH: Final = 64
ROOM_BYTES: Final = 4 * 2**20


def _garbage(_: int) -> bytes:
    return os.urandom(MIN_PACKET_BYTES)


def _unsealed(index: int) -> bytes:
    return UNSEALED.probe(index)


def _foreign_key(index: int) -> bytes:
    return Packets([b"the key of another cluster"]).probe(index)


# What a stranger may know: nothing; the format; that packets are sealed.
KINDS: Final[Mapping[str, Callable[[int], bytes]]] = {
    "garbage": _garbage,
    "unsealed": _unsealed,
    "foreign-key": _foreign_key,
}


class _Buffer(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _Header(ctypes.Structure):
    """`struct mmsghdr` of Linux."""

    _fields_ = (
        ("name", ctypes.c_void_p), ("name_bytes", ctypes.c_uint32),
        ("buffers", ctypes.POINTER(_Buffer)), ("buffer_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p), ("control_bytes", ctypes.c_size_t),
        ("flags", ctypes.c_int), ("sent_bytes", ctypes.c_uint),
    )  # fmt: skip


def flood(
    target: tuple[str, int], rate_hz: float, seconds: float, kind: str, sources: int
) -> float:
    """Send that many packets a second from that many ports; return how many it were."""
    send = ctypes.CDLL(None, use_errno=True).sendmmsg
    payloads = [ctypes.create_string_buffer(KINDS[kind](n), MIN_PACKET_BYTES) for n in range(BATCH)]
    headers = (_Header * BATCH)()
    buffers = []
    for header, payload in zip(headers, payloads, strict=True):
        buffer = _Buffer(ctypes.addressof(payload), MIN_PACKET_BYTES)
        buffers.append(buffer)
        header.buffers, header.buffer_count = ctypes.pointer(buffer), 1
    socks = []
    for _ in range(sources):
        sock = socket.socket(
            socket.AF_INET6 if ":" in target[0] else socket.AF_INET, socket.SOCK_DGRAM
        )
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ROOM_BYTES)
        sock.connect(target)
        socks.append(sock)
    started = now = time.monotonic()
    sent = turn = 0
    while now < started + seconds:
        turn += 1
        count = send(socks[turn % sources].fileno(), headers, BATCH, 0)
        sent += max(0, count)
        now = time.monotonic()
        ahead_s = sent / rate_hz - (now - started)
        if ahead_s > 0.001:
            time.sleep(ahead_s)
            now = time.monotonic()
    return sent / (now - started)


def main() -> None:
    """Flood what the command line says, before other work of this machine if that is allowed."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    host, port, rate_hz, seconds, kind, sources = sys.argv[1:]
    rate = flood((host, int(port)), float(rate_hz), float(seconds), kind, int(sources))
    print(f"{rate:.0f}")


if __name__ == "__main__":
    main()
