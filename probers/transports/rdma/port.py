"""One port of an RNIC through pyverbs: queue pairs, buffers and completions. It knows no probes.

Everything that arrives or has been sent is one `Event`, with the device's stamp if it stamps
completions. The first queue pair answers and the others probe, one for each 5-tuple: without a
flow label the number of the queue pair decides the UDP source port, and with it the path. A queue
pair accepts only datagrams that carry its Q_Key.
"""

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from probers.clock import Clock, Instant
from probers.transports.rdma.completions import (
    POLLED_AT_ONCE,
    SENT,
    Completed,
    Completions,
    DeviceClock,
)
from probers.transports.rdma.gids import GRH_BYTES, sender_of
from probers.transports.rdma.library import Library, RdmaError, channel_descriptor, explain

# With the highest bit set they are controlled: only privileged programs may send with them
# (IBTA volume 1, section 10.2.5).
_UNCONTROLLED: Final = (1 << 31) - 1


def random_qkey() -> int:
    """Return a random Q_Key.

    Numbers of queue pairs are reused soon after a program ends. With a new key at each start, a
    prober that still addresses the predecessor reaches nobody instead of a wrong peer.
    """
    return int.from_bytes(os.urandom(4), "big") & _UNCONTROLLED


RESPONDER: Final = 0
# Probes that wait in a queue while the process does not run: R-Pingmesh's busiest RNIC
# sees below 150 a second, and locked memory is dear (a slot of the responder holds an MTU).
ANSWERS_DEPTH: Final = 128
PROBES_DEPTH: Final = 64
# Completions read in one turn, so that a flood does not keep the loop from its timers.
MAX_EVENTS: Final = 512
HOP_LIMIT: Final = 64
_SLOT_BITS: Final = 16
# The kernel's names of active MTUs (enum ibv_mtu).
MTU_BYTES: Final = {1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096}


class Event(NamedTuple):
    """Something that has completed.

    `data` None: a send, `tag` being what the sender called it; else what arrived at queue pair
    `pair` from `gid` (None: unreadable) and its queue pair `source`. `stamp` is the device's, in
    its own ticks; `polled` is when the program got it; `hop_limit` what the way has left of it.
    """

    pair: int
    ok: bool
    tag: int
    data: bytes | None
    gid: bytes | None
    source: int
    stamp: int | None
    polled: Instant
    hop_limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PortSettings:
    """How to open a port.

    `slot_bytes` is the largest datagram that a prober's queue pair gets; the responder's
    takes all that the MTU allows.
    """

    device: str
    port: int
    gid_index: int
    slot_bytes: int
    traffic_class: int = 0
    service_level: int = 0


class _Pair:
    """A queue pair with its buffers: receive slots first, then send slots."""

    def __init__(self, queue: Any, base: int, slot_bytes: int, depth: int, qkey: int) -> None:
        self.queue = queue
        self.base = base
        self.slot_bytes = slot_bytes
        self.depth = depth
        self.qkey = qkey
        self.sent = 0
        self.under_way = 0
        self.broken = False
        self.tags: dict[int, int] = {}
        # Work requests are built once and reused: building one takes pyverbs longer than all the
        # rest of a probe.
        self.receives: list[Any] = []
        self.sends: list[tuple[int, Any]] = [(0, None)] * depth


class Port:
    """An open port.

    Parameters
    ----------
    clock : stamps what is polled
    qkey : returns a fresh Q_Key for each queue pair

    Raises
    ------
    RdmaError
        If it cannot be opened; the message says what to do.
    """

    def __init__(
        self,
        library: Library,
        settings: PortSettings,
        clock: Clock,
        qkey: Callable[[], int],
        *,
        pairs: int,
    ) -> None:
        self._lib = library
        self._now = clock.now
        self._settings = settings
        self._qkey = qkey
        self._events: list[Event] = []
        self._pairs: list[_Pair] = []
        wanted_bytes = 0
        try:
            self._context = library.device.Context(name=settings.device)
        except Exception as error:
            raise explain(error, device=settings.device, wanted_bytes=0) from error
        try:
            self.mtu_bytes = self._active_mtu()
            wanted_bytes = self._memory_bytes(pairs)
            self._open(pairs, wanted_bytes)
        except RdmaError:
            self._context.close()
            raise
        except Exception as error:
            self._context.close()
            raise explain(error, device=settings.device, wanted_bytes=wanted_bytes) from error

    def fileno(self) -> int:
        """Return the completion channel's descriptor."""
        return self._fd

    @property
    def hardware(self) -> bool:
        """Whether the device stamps completions."""
        return self.clock is not None

    def number(self, pair: int) -> int:
        """Return the number of a queue pair."""
        return int(self._pairs[pair].queue.qp_num)

    def key(self, pair: int) -> int:
        """Return the Q_Key of a queue pair."""
        return self._pairs[pair].qkey

    def handle(self, gid: bytes, label: int) -> Any:
        """Return an address handle; at once where the kernel knows the way.

        Raises
        ------
        OSError
            If there is none.
        """
        addr = self._lib.addr
        route = addr.GlobalRoute(
            dgid=addr.GID(gid.hex(":", 2)),
            sgid_index=self._settings.gid_index,
            hop_limit=HOP_LIMIT,
            flow_label=label,
            traffic_class=self._settings.traffic_class,
        )
        attributes = addr.AHAttr(
            gr=route, is_global=1, port_num=self._settings.port, sl=self._settings.service_level
        )
        try:
            return addr.AH(self._pd, attr=attributes)
        except self._lib.error as error:
            raise explain(error, device=self._settings.device, wanted_bytes=0) from error

    def send(
        self,
        pair: int,
        size_bytes: int,
        make: Callable[[], bytes | None],
        handle: Any,
        to: tuple[int, int],
        *,
        tag: int = 0,
    ) -> Instant | None:
        """Post a datagram to a queue pair and Q_Key; its end is an event with that tag.

        Returns the moment at which it was handed to the device. `make` is called when all but
        copying is done, so that what it stamps is near the wire; where it returns None nothing
        is sent, and the result is None.

        Raises
        ------
        OSError
            If the queue is full, or the device refuses.
        """
        own = self._pairs[pair]
        if own.under_way >= own.depth:
            # Many sends at once: read their completions now; the next poll returns them.
            self._read_completions()
        if own.under_way >= own.depth:
            raise RdmaError("the send queue is full", errno.ENOBUFS)
        slot = own.sent % own.depth
        offset = own.base + (own.depth + slot) * own.slot_bytes
        made_for, request = own.sends[slot]
        if made_for != size_bytes:
            request = self._send_request(pair, slot, size_bytes, offset)
            own.sends[slot] = size_bytes, request
        request.set_wr_ud(handle, *to)
        data = make()
        if data is None:
            return None
        self._memory.write(data, size_bytes, offset)
        posted = self._now()
        try:
            own.queue.post_send(request)
        except self._lib.error as error:
            raise explain(error, device=self._settings.device, wanted_bytes=0) from error
        own.tags[slot] = tag
        own.sent += 1
        own.under_way += 1
        return posted

    def poll(self, *, woken: bool) -> tuple[list[Event], bool]:
        """Return what has completed, and whether that was all; `woken`: `fileno` is readable."""
        # The completions that have woken the process are timestamped first.
        self._read_completions()
        if woken:
            # One event says that there are completions; asking for the next before polling
            # once more leaves no gap between the two.
            self._channel.get_cq_event(self._queue)
            self._queue.ack_events(1)
            self._queue.req_notify()
        drained = self._read_completions()
        if drained:
            self._renew_broken()
        events, self._events = self._events, []
        return events, drained

    def close(self) -> None:
        """Give everything back."""
        for pair in self._pairs:
            pair.queue.close()
        self._memory.close()
        self._queue.close()
        self._channel.close()
        self._pd.close()
        self._context.close()

    def _read_completions(self) -> bool:
        """Read completions from the queue; return whether none is left."""
        while len(self._events) < MAX_EVENTS:
            batch = self._completions.poll()
            if not batch:
                return True
            polled = self._now()
            self._events.extend(self._event(each, polled) for each in batch)
            if len(batch) < POLLED_AT_ONCE:
                return True
        return False

    def _event(self, completion: Completed, polled: Instant) -> Event:
        wr_id, ok, size, source, stamp = completion
        pair_number, slot = (wr_id & ~SENT) >> _SLOT_BITS, wr_id & ((1 << _SLOT_BITS) - 1)
        pair = self._pairs[pair_number]
        if wr_id & SENT:
            pair.under_way -= 1
            tag = pair.tags.pop(slot, 0)
            pair.broken |= not ok
            return Event(pair_number, ok, tag, None, None, 0, stamp, polled)
        pair.broken |= not ok
        data, gid, hop_limit = b"", None, None
        if ok and size >= GRH_BYTES:
            offset = pair.base + slot * pair.slot_bytes
            received = self._memory.read(size, offset)
            sender, data = sender_of(received[:GRH_BYTES]), received[GRH_BYTES:]
            gid, hop_limit = sender or (None, None)
        if ok:
            try:
                pair.queue.post_recv(pair.receives[slot])
            except self._lib.error:
                pair.broken = True
        return Event(pair_number, ok, 0, data, gid, source, stamp, polled, hop_limit)

    def _renew_broken(self) -> None:
        """Bring queue pairs from their error state back to work; they keep their numbers.

        What was under way on one comes back in error first. One that cannot be brought back (its
        device is being reset, or is gone) is tried again at the next poll.
        """
        enums = self._lib.enums
        for pair in self._pairs:
            if not pair.broken or pair.under_way:
                continue
            attributes = self._lib.qp.QPAttr(qp_state=enums.IBV_QPS_RESET)
            try:
                pair.queue.modify(attributes, enums.IBV_QP_STATE)
                pair.queue.to_rts(self._attributes(pair.qkey))
                pair.sent = 0
                self._fill(pair)
            except self._lib.error:
                continue
            pair.broken = False

    def _open(self, pairs: int, wanted_bytes: int) -> None:
        lib, settings = self._lib, self._settings
        self._pd = lib.pd.PD(self._context)
        self._channel, self._fd = channel_descriptor(lib, self._context)
        self.clock = DeviceClock.of(lib, self._context)
        # Room for all that can be under way on all queue pairs, both ways.
        entries = 2 * (ANSWERS_DEPTH + (pairs - 1) * PROBES_DEPTH)
        self._completions = Completions(
            lib, self._context, self._channel, entries, stamped=self.clock is not None
        )
        self._queue = self._completions.queue
        self._queue.req_notify()
        self._memory = lib.mr.MR(self._pd, wanted_bytes, lib.enums.IBV_ACCESS_LOCAL_WRITE)
        base = 0
        for number in range(pairs):
            slot_bytes, depth = self._slots(number)
            qkey = self._qkey()
            capacity = lib.qp.QPCap(
                max_send_wr=depth, max_recv_wr=depth, max_send_sge=1, max_recv_sge=1
            )
            wanted_qp = lib.qp.QPInitAttr(
                qp_type=lib.enums.IBV_QPT_UD, scq=self._queue, rcq=self._queue, cap=capacity
            )
            made = lib.qp.QP(self._pd, wanted_qp, self._attributes(qkey))
            pair = _Pair(made, base, slot_bytes, depth, qkey)
            self._pairs.append(pair)
            pair.receives = [self._receive_request(pair, number, slot) for slot in range(depth)]
            self._fill(pair)
            base += 2 * depth * slot_bytes
        if settings.slot_bytes > self.mtu_bytes:
            raise RdmaError(
                f"probe_bytes={settings.slot_bytes}: the MTU of {settings.device} is "
                f"{self.mtu_bytes}; give at most that",
                errno.EMSGSIZE,
            )

    def _attributes(self, qkey: int) -> Any:
        attributes = self._lib.qp.QPAttr(port_num=self._settings.port)
        attributes.qkey = qkey
        return attributes

    def _slots(self, number: int) -> tuple[int, int]:
        """Return size and number of a queue pair's slots."""
        if number == RESPONDER:
            return GRH_BYTES + self.mtu_bytes, ANSWERS_DEPTH
        # Replies to our own probes: as long as these.
        return GRH_BYTES + self._settings.slot_bytes, PROBES_DEPTH

    def _memory_bytes(self, pairs: int) -> int:
        slots = (self._slots(number) for number in range(pairs))
        return sum(2 * size * depth for size, depth in slots)

    def _fill(self, pair: _Pair) -> None:
        for request in pair.receives:
            pair.queue.post_recv(request)

    def _receive_request(self, pair: _Pair, number: int, slot: int) -> Any:
        wr = self._lib.wr
        address = self._memory.buf + pair.base + slot * pair.slot_bytes
        element = wr.SGE(address, pair.slot_bytes, self._memory.lkey)
        return wr.RecvWR(wr_id=number << _SLOT_BITS | slot, num_sge=1, sg=[element])

    def _send_request(self, number: int, slot: int, size_bytes: int, offset: int) -> Any:
        wr, enums = self._lib.wr, self._lib.enums
        element = wr.SGE(self._memory.buf + offset, size_bytes, self._memory.lkey)
        return wr.SendWR(
            wr_id=SENT | number << _SLOT_BITS | slot,
            num_sge=1,
            sg=[element],
            opcode=enums.IBV_WR_SEND,
            send_flags=enums.IBV_SEND_SIGNALED,
        )

    def _active_mtu(self) -> int:
        port = self._context.query_port(self._settings.port)
        return MTU_BYTES.get(int(port.active_mtu), MTU_BYTES[3])
