"""The responder's side of RDMA: replies, and follow-ups where the RNIC stamps completions."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from probers.clock import Clock, Instant
from probers.packet import HEADER_BYTES, Packet, Packets, PacketType
from probers.transports.base import PacketCounts
from probers.transports.rdma.arrivals import Arrivals
from probers.transports.rdma.handles import Handles
from probers.transports.rdma.port import RESPONDER, Event, Port
from probers.transports.responder import Responder
from schemas.enums import ProbeStatus

# Replies to one prober are spread over this many flow labels, so that each of its queue pairs has
# its own way back. It also bounds the address handles that one GID can make us keep.
REPLY_LABELS: Final = 16


@dataclass(frozen=True, slots=True)
class _PendingFollowUp:
    """A reply on its way out whose follow-up waits for the stamp of its leaving."""

    nonce: int
    arrived_stamp: int
    handle: Any
    to: tuple[int, int]


class RdmaResponder:
    """Answers probes that arrive at the responder's queue pair of one port."""

    def __init__(
        self,
        clock: Clock,
        counts: PacketCounts,
        packets: Packets,
        *,
        port: Port,
        handles: Handles,
        arrivals: Arrivals | None,
    ) -> None:
        self._counts = counts
        self._packets = packets
        self._responder = Responder(clock, counts, packets)
        self._port = port
        self._handles = handles
        self._arrivals = arrivals
        self._tag = 0
        self._pending: dict[int, _PendingFollowUp] = {}

    def probed(self, probe: Packet, event: Event, gid: bytes) -> None:
        """Answer a probe as soon as its sender is resolved."""
        kernel_ns = None if self._arrivals is None else self._arrivals.take_arrival_ns(
            PacketType.PROBE, probe.nonce
        )  # fmt: skip

        def go(handle: Any | None, _: ProbeStatus) -> None:
            if handle is None:
                self._counts.unanswered += 1
                return
            self._tag += 1
            to, tag = (event.source, probe.reply_key), self._tag
            posted = self._send(size_bytes, make, handle, to, tag=tag)
            if posted is None:
                return
            self._responder.left(posted.monotonic_ns)
            if event.stamp is not None:
                self._pending[tag] = _PendingFollowUp(probe.nonce, event.stamp, handle, to)

        def make() -> bytes | None:
            return self._responder.answer(
                probe,
                event.polled.realtime_ns if kernel_ns is None else kernel_ns,
                by_kernel=kernel_ns is not None,
                follows=event.stamp is not None,
            )

        size_bytes = HEADER_BYTES + len(probe.padding)
        self._handles.with_handle(gid, event.source % REPLY_LABELS, event.polled.monotonic_ns, go)

    def departed(self, event: Event) -> None:
        """Send the follow-up of a reply that has left."""
        pending = self._pending.pop(event.tag, None)
        clock = self._port.clock
        if pending is None or clock is None or event.stamp is None or not event.ok:
            return
        hold_ns = clock.between_ns(pending.arrived_stamp, event.stamp)
        follow_up = self._packets.follow_up(pending.nonce, hold_ns=hold_ns)
        self._send(len(follow_up), lambda: follow_up, pending.handle, pending.to)

    def _send(
        self,
        size_bytes: int,
        make: Callable[[], bytes | None],
        handle: Any,
        to: tuple[int, int],
        *,
        tag: int = 0,
    ) -> Instant | None:
        try:
            return self._port.send(RESPONDER, size_bytes, make, handle, to, tag=tag)
        except OSError:
            self._counts.unanswered += 1
            return None
