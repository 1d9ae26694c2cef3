"""When packets of Soft-RoCE arrived, by the kernel's timestamps: a packet socket beside the RNIC.

For a device that does not stamp completions, only the moment is known at which the program polls,
and a responder that was not scheduled would look like a slow network. Soft-RoCE's packets are UDP
datagrams of an ordinary interface, so a packet socket sees them, too, with timestamps. It needs
CAP_NET_RAW; without it the program's own clock is used.
"""

import ctypes
import socket
import struct
from collections import OrderedDict
from pathlib import Path
from typing import Final, Self

from probers import packet
from probers.packet import PacketType
from probers.transports import sockets
from probers.transports.rdma.gids import Gid

# RoCE v2 (IBTA annex A17).
ROCE_PORT: Final = 4_791
_UDP: Final = 17
_IPV4: Final = 0x0800
_IPV6: Final = 0x86DD
# Base Transport Header and Datagram Extended Transport Header (IBTA volume 1, chapter 9).
_ROCE_BYTES: Final = 12 + 8
_UDP_BYTES: Final = 8
# linux/if_packet.h, linux/filter.h, asm-generic/socket.h; Python names none of them.
_SOL_PACKET: Final = 263
_PACKET_IGNORE_OUTGOING: Final = 23
_SO_ATTACH_FILTER: Final = 26
_INSTRUCTION: Final = struct.Struct("=HBBI")
_LOAD_BYTE, _LOAD_HALF, _LOAD_WORD = 0x30, 0x28, 0x20
_JUMP_EQUAL, _RETURN = 0x15, 0x06
_SNAP_BYTES: Final = 128
MAX_KEPT: Final = 4_096
MAX_READ: Final = 1_024


class Arrivals:
    """Arrival times of probes and replies at one interface, nanoseconds since the epoch."""

    def __init__(self, interface: str, *, ipv6: bool) -> None:
        self._payload_at = (40 if ipv6 else 20) + _UDP_BYTES + _ROCE_BYTES
        self._kept: OrderedDict[tuple[int, int], int] = OrderedDict()
        # Nothing is received before the filter is in place: protocol 0.
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
        try:
            self._socket.setblocking(False)
            self._attach(ipv6=ipv6)
            self._socket.setsockopt(socket.SOL_SOCKET, sockets.SO_TIMESTAMPNS, 1)
            self._socket.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
            self._socket.bind((interface, _IPV6 if ipv6 else _IPV4))
        except OSError:
            self._socket.close()
            raise

    @classmethod
    def of(cls, port: Path, gid: Gid) -> Self | None:
        """Return those of the interface behind a GID; None where that may not be listened to."""
        try:
            name = (port / "gid_attrs" / "ndevs" / str(gid.index)).read_text("ascii").strip()
            return cls(name, ipv6=gid.address.ipv4_mapped is None)
        except OSError:
            return None

    def read(self) -> None:
        """Read what has arrived; to be called before `take_arrival_ns`."""
        for _ in range(MAX_READ):
            try:
                data, ancillary, _, _ = self._socket.recvmsg(_SNAP_BYTES, sockets.ANCILLARY_BYTES)
            except OSError:  # nothing left, or the interface is down
                return
            stamp_ns = sockets.kernel_time_ns(ancillary)
            payload = data[self._payload_at :]
            nonce = packet.quoted_nonce(payload)
            if nonce is None or stamp_ns is None:
                continue
            # The first of a duplicate counts.
            self._kept.setdefault((payload[len(packet.MAGIC) + 1], nonce), stamp_ns)
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)

    def take_arrival_ns(self, kind: PacketType, nonce: int) -> int | None:
        """Return when a packet arrived, nanoseconds since the epoch; None where it is not known."""
        return self._kept.pop((int(kind), nonce), None)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _attach(self, *, ipv6: bool) -> None:
        """Let only our packets through: UDP to RoCE's port that begin with our magic."""
        protocol_at, port_at = (6, 42) if ipv6 else (9, 22)
        (magic,) = struct.unpack("!I", packet.MAGIC)
        program = (
            (_LOAD_BYTE, 0, 0, protocol_at),
            (_JUMP_EQUAL, 0, 5, _UDP),
            (_LOAD_HALF, 0, 0, port_at),
            (_JUMP_EQUAL, 0, 3, ROCE_PORT),
            (_LOAD_WORD, 0, 0, self._payload_at),
            (_JUMP_EQUAL, 0, 1, magic),
            (_RETURN, 0, 0, _SNAP_BYTES),
            (_RETURN, 0, 0, 0),
        )
        code = ctypes.create_string_buffer(b"".join(_INSTRUCTION.pack(*line) for line in program))
        # struct sock_fprog: a count, padded to a pointer, and the pointer.
        filter_ = struct.pack("@HP", len(program), ctypes.addressof(code))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, filter_)
