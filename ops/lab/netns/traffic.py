"""The training job's traffic as real packets: UDP from container to container, scaled down.

What a transfer should have sent by now is sent in datagrams of many segments at once,
which the kernel's interfaces pass on whole where they can: a job costs a few hundred
system calls a second. Nobody reads what arrives; it is there to move the counters.
"""

import socket
import struct
from dataclasses import dataclass
from typing import Final

from ops.lab.events import EventLoop
from ops.lab.netns.plan import Plan, overlay_address
from ops.lab.shape import EndpointSpec
from ops.lab.workload import Transfer, Workload
from probers.config.rnics import namespace_path
from probers.host.netns import inside

# A job of this machine's memory bandwidth instead of a cluster's; bursts are still a
# hundred times what probes move in the same time.
SCALE: Final = 1_024
SINK_PORT: Final = 7_001
TICK_NS: Final = 20_000_000
# linux/udp.h; Python names it not.
_UDP_SEGMENT: Final = 103
SEGMENT_BYTES: Final = 1_400
# The kernel takes at most 64 segments, and 64 KiB with the headers.
DATAGRAM_BYTES: Final = 44 * SEGMENT_BYTES
PAYLOAD: Final = bytes(DATAGRAM_BYTES)
# Less than a full datagram: the sink's buffer is to be full at once, and stay so.
SINK_BUFFER_BYTES: Final = 4_096


@dataclass(slots=True)
class _Stream:
    transfer: Transfer
    source: socket.socket
    target: tuple[str, int]
    sent: int = 0


class Traffic:
    """All transfers of a job between the containers of a lab."""

    def __init__(self, plan: Plan, workload: Workload, loop: EventLoop) -> None:
        self._workload = workload
        self._loop = loop
        self._begin_ns = loop.now_ns()
        self._sinks: list[socket.socket] = []
        self._streams: list[_Stream] = []
        by_id = {e.endpoint_id: e for e in plan.shape.endpoints}
        try:
            sources = {name: self._open(plan, e) for name, e in by_id.items()}
        except OSError:
            self.close()
            raise
        for transfer in workload.transfers:
            target = overlay_address(by_id[transfer.dst]), SINK_PORT
            self._streams.append(_Stream(transfer, sources[transfer.src], target))

    def _open(self, plan: Plan, e: EndpointSpec) -> socket.socket:
        """Open an endpoint's socket, which sends, and receives only to let it be dropped."""

        def open_here() -> socket.socket:
            opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self._sinks.append(opened)
            opened.setblocking(False)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SINK_BUFFER_BYTES)
            opened.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, struct.pack("@i", SEGMENT_BYTES))
            opened.bind((overlay_address(e), SINK_PORT))
            return opened

        return inside(namespace_path(plan.namespace(e.container_id)), open_here)

    def start(self) -> None:
        """Send what is due now, and at every tick after it."""
        elapsed_ns = self._loop.now_ns() - self._begin_ns
        for stream in self._streams:
            due = stream.transfer.sent_bytes(elapsed_ns, self._workload.period_ns) // SCALE
            while due - stream.sent >= SEGMENT_BYTES:
                size = min(due - stream.sent, DATAGRAM_BYTES)
                stream.sent += size
                try:
                    stream.source.sendto(PAYLOAD[:size], stream.target)
                except OSError:
                    # A fault: what a job cannot send now it does not send later in this lab.
                    stream.sent = due
        self._loop.call_later(TICK_NS, self.start)

    def close(self) -> None:
        """Close all sockets."""
        for opened in self._sinks:
            opened.close()
        self._sinks.clear()
        self._streams.clear()
