"""An independent ping: unreliable datagrams through pyverbs, and nothing of the project's.

What it measures is what the project's prober is compared with: from posting to arrival, there
and back, an arrival being when the kernel has stamped the packet at the interface; the time in
between is the responder's. A child answers. Both can be made to compute before they send.
"""

import os
import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pyverbs import enums as e
from pyverbs.addr import AH, GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ, CompChannel
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

QKEY = 0x0BADCAFE
GRH_BYTES = 40
SLOT_BYTES = 128
SO_TIMESTAMPNS = 35
DEPTH = 32
MESSAGE = struct.Struct("!QQQ")
MESSAGE_BYTES = 50


def event_descriptors() -> set[int]:
    """Return the descriptors of this process's completion channels: pyverbs tells them not."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if "infinibandevent" in os.readlink(f"/proc/self/fd/{name}"):
                found.add(int(name))
    return found


class Stamps:
    """When RoCE packets came to an interface: all IPv4 packets are looked at, none filtered."""

    def __init__(self, interface: str) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
        self._socket.bind((interface, 0x0800))
        self._socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._socket.settimeout(1.0)

    def of(self, payload: bytes) -> int:
        """Return when the packet with that payload came, nanoseconds since the epoch."""
        while True:
            frame, ancillary, _, sender = self._socket.recvmsg(512, 128)
            if sender[2] == socket.PACKET_HOST and payload in frame:
                seconds, nanoseconds = struct.unpack("@ll", ancillary[0][2][:16])
                return int(seconds) * 10**9 + int(nanoseconds)


def nothing() -> None:
    """Do nothing."""


class End:
    """A queue pair on one RNIC that sends to one other; `before` is called before each send."""

    def __init__(self, device: str, before: Callable[[], None]) -> None:
        self._before = before
        self.stamps = Stamps(device.replace("rxe", "e"))
        self.context = Context(name=device)
        self.pd = PD(self.context)
        known = event_descriptors()
        self.channel = CompChannel(self.context)
        (self.descriptor,) = event_descriptors() - known
        self.arrivals = CQ(self.context, DEPTH, None, self.channel, 0)
        self.departures = CQ(self.context, DEPTH)
        room = QPCap(max_send_wr=DEPTH, max_recv_wr=DEPTH, max_send_sge=1, max_recv_sge=1)
        wanted = QPInitAttr(qp_type=e.IBV_QPT_UD, scq=self.departures, rcq=self.arrivals, cap=room)
        attributes = QPAttr(port_num=1)
        attributes.qkey = QKEY
        self.pair = QP(self.pd, wanted, attributes)
        self.memory = MR(self.pd, SLOT_BYTES * (DEPTH + 1), e.IBV_ACCESS_LOCAL_WRITE)
        self.arrivals.req_notify()
        for slot in range(DEPTH):
            self._receive(slot)

    def towards(self, address: str) -> Any:
        """Return a handle to an IPv4 address."""
        raw = bytes(10) + b"\xff\xff" + bytes(int(part) for part in address.split("."))
        route = GlobalRoute(dgid=GID(raw.hex(":", 2)), sgid_index=1, hop_limit=64)
        return AH(self.pd, attr=AHAttr(gr=route, is_global=1, port_num=1))

    def send(self, sequence: int, arrived_ns: int, handle: Any, number: int) -> int:
        """Send a message to a queue pair; return when, nanoseconds since the epoch."""
        self._before()
        self.departures.poll(DEPTH)
        offset = SLOT_BYTES * DEPTH
        element = SGE(self.memory.buf + offset, MESSAGE_BYTES, self.memory.lkey)
        request = SendWR(
            num_sge=1, sg=[element], opcode=e.IBV_WR_SEND, send_flags=e.IBV_SEND_SIGNALED
        )
        request.set_wr_ud(handle, number, QKEY)
        now_ns = time.time_ns()
        message = MESSAGE.pack(sequence, arrived_ns, now_ns).ljust(MESSAGE_BYTES, b"\0")
        self.memory.write(message, MESSAGE_BYTES, offset)
        self.pair.post_send(request)
        return now_ns

    def receive(self, within_s: float) -> tuple[bytes, int, int] | None:
        """Return a message, its sender's queue pair and when it came; None: none came."""
        end = time.monotonic() + within_s
        while True:
            count, found = self.arrivals.poll(1)
            if count:
                slot = found[0].wr_id
                offset = SLOT_BYTES * slot + GRH_BYTES
                message = self.memory.read(found[0].byte_len - GRH_BYTES, offset)
                self._receive(slot)
                return message, found[0].src_qp, self.stamps.of(message[: MESSAGE.size])
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.descriptor], [], [], left)[0]:
                return None
            self.channel.get_cq_event(self.arrivals)
            self.arrivals.ack_events(1)
            self.arrivals.req_notify()

    def _receive(self, slot: int) -> None:
        element = SGE(self.memory.buf + SLOT_BYTES * slot, SLOT_BYTES, self.memory.lkey)
        self.pair.post_recv(RecvWR(wr_id=slot, num_sge=1, sg=[element]))


class Ping:
    """Pings a child's queue pair."""

    def __init__(self, end: End, peer: str, number: int) -> None:
        self._end = end
        self._handle = self._end.towards(peer)
        self._number = number

    def rtts_ns(self, count: int) -> list[int]:
        """Return so many round trips, one after another."""
        found: list[int] = []
        for sequence in range(count):
            sent_ns = self._end.send(sequence, 0, self._handle, self._number)
            answer = self._end.receive(2.0)
            if answer is not None:
                _, came_ns, left_ns = MESSAGE.unpack_from(answer[0])
                found.append(answer[2] - sent_ns - (left_ns - came_ns))
        return found


@contextmanager
def pinging(
    devices: tuple[str, str], addresses: tuple[str, str], before: Callable[[], None] = nothing
) -> Iterator[Ping]:
    """Start a child that answers on the second device; give what pings it from the first."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _answer(End(devices[1], before), addresses[0], tell)
        finally:
            os._exit(0)
    os.close(tell)
    number = int(os.read(told, 16))
    try:
        yield Ping(End(devices[0], before), addresses[1], number)
    finally:
        os.close(told)
        os.kill(child, 9)
        os.waitpid(child, 0)


def _answer(end: End, prober: str, tell: int) -> None:
    handle = end.towards(prober)
    os.write(tell, str(end.pair.qp_num).encode())
    while True:
        got = end.receive(60.0)
        if got is None:
            sys.exit(0)
        (sequence, _, _), number = MESSAGE.unpack_from(got[0]), got[1]
        end.send(sequence, got[2], handle, number)
