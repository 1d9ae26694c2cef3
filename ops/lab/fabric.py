"""The data plane: every node has a UDP socket, and packets really travel from socket to socket.

One thread serves all of them. A packet that was handed to the next node is read
there at once, without asking the selector first: on loopback it has arrived by
then, so a hop costs two system calls, and a packet is not held up between hops.
"""

import random
import socket
from collections import Counter, deque
from collections.abc import Mapping
from typing import Final

from ops.lab.events import EventLoop
from ops.lab.impairment import LinkDirection, corrupt_payload
from ops.lab.overlay import Missing, Overlay
from ops.lab.routing import Router, flow_hash
from ops.lab.shape import EndpointSpec, LabShape
from probers.transports.encap import HEADER_BYTES, MAGIC, EncapType, pack_report

LOOPBACK: Final = "127.0.0.1"
BUFFER_BYTES: Final = 65_536
# A round of all agents at once must fit while the thread does something else.
SOCKET_BUFFER_BYTES: Final = 1 << 20
# Packets taken from one socket before the others get their turn.
BURST: Final = 32
# 5-tuples whose next hop a node remembers; what a stranger sends cannot grow it further.
MAX_CACHED_FLOWS: Final = 65_536

# Places in the header that the fast path reads and writes (see probers.transports.encap).
TYPE_AT: Final = 4
TTL_AT: Final = 5
FLOW: Final = slice(6, 20)
ENTROPY: Final = slice(0, 2)
SRC: Final = slice(2, 8)
DST: Final = slice(8, 14)

Address = tuple[str, int]


class Hop:
    """What a node does with one 5-tuple: where to send, over which link; or why not."""

    __slots__ = ("address", "link", "missing", "node")

    def __init__(
        self,
        address: Address | None = None,
        node: "Node | None" = None,
        link: LinkDirection | None = None,
        missing: Missing | None = None,
    ) -> None:
        self.address = address
        self.node = node
        self.link = link
        self.missing = missing


class Node:
    """A forwarding node and its socket."""

    __slots__ = ("address", "cache", "node_id", "off", "relayed", "report", "socket")

    def __init__(self, node_id: str) -> None:
        self.node_id = node_id
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER_BYTES)
        self.socket.bind((LOOPBACK, 0))
        self.address: Address = self.socket.getsockname()
        self.report = f"{self.address[0]}:{self.address[1]}"
        self.off = False
        self.cache: dict[bytes, Hop] = {}
        self.relayed = 0


def wire_address(address: Address) -> bytes:
    """Return address and port as they stand in the header."""
    return socket.inet_aton(address[0]) + address[1].to_bytes(2)


class Fabric:
    """All nodes of a lab.

    Parameters
    ----------
    shape
        What to build.
    endpoints
        Address and port of each endpoint, by endpoint id.
    loop
        The loop that waits for packets and for delayed ones' time.
    seed
        Of the generator that decides on loss, corruption and jitter.
    """

    def __init__(
        self,
        shape: LabShape,
        endpoints: Mapping[str, Address],
        loop: EventLoop,
        *,
        seed: int = 1,
    ) -> None:
        self.shape = shape
        self.overlay = Overlay(shape)
        self.router = Router(shape, self.overlay)
        self.dropped: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self._loop = loop
        # Faults need repeatable draws, not secret ones.
        self._rng = random.Random(seed)  # noqa: S311
        self._buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._pending: deque[Node] = deque()
        self._addresses = dict(endpoints)
        self._endpoints = {wire_address(endpoints[e.endpoint_id]): e for e in shape.endpoints}
        self.links = {
            (a, b): LinkDirection(link.link_id, a, b)
            for link in shape.links
            for a, b in ((link.a, link.b), (link.b, link.a))
        }
        self.nodes: dict[str, Node] = {}
        try:
            for node_id in shape.node_ids():
                self.nodes[node_id] = Node(node_id)
        except OSError:
            self.close()
            raise
        for node in self.nodes.values():
            loop.add_reader(node.socket, lambda node=node: self._readable(node))  # type: ignore[misc]

    def close(self) -> None:
        """Close all sockets; packets that are delayed are lost."""
        for node in self.nodes.values():
            node.socket.close()
        self.nodes.clear()

    def addresses(self) -> dict[str, str]:
        """Return `address:port` of every node, by component id."""
        return {node_id: node.report for node_id, node in self.nodes.items()}

    @property
    def relayed(self) -> int:
        """Packet-hops so far."""
        return sum(node.relayed for node in self.nodes.values())

    def forget_routes(self, hosts: set[int]) -> None:
        """Make the virtual nodes of some hosts consult their tables anew."""
        for e in self.shape.endpoints:
            if e.host in hosts:
                self.nodes[e.vswitch_id].cache.clear()
                self.nodes[e.rnic_id].cache.clear()

    def _readable(self, node: Node) -> None:
        pending = self._pending
        for _ in range(BURST):
            if not self._relay(node):
                return
            while pending:
                self._relay(pending.popleft())

    def _relay(self, node: Node) -> bool:
        """Move one packet on from `node`; return whether there was one."""
        try:
            size = node.socket.recv_into(self._buffer)
        except OSError:
            return False  # nothing there; or an error report of the kernel, consumed by this
        buffer = self._buffer
        if size < HEADER_BYTES or buffer[:4] != MAGIC or buffer[TYPE_AT] != EncapType.DATA:
            self.dropped["malformed"] += 1
            return True
        if node.off:
            self.dropped["switched off"] += 1
            return True
        ttl = buffer[TTL_AT]
        flow = bytes(self._view[FLOW])
        if ttl <= 1:
            self._answer(node, EncapType.TTL_EXCEEDED, flow, size)
            return True
        buffer[TTL_AT] = ttl - 1
        hop = node.cache.get(flow)
        if hop is None:
            hop = self._resolve(node, flow)
        if hop.address is None:
            self._no_way(node, hop, flow, size)
            return True
        link = hop.link
        if link is not None and link.impaired:
            self._cross_impaired(node, hop, link, size)
        else:
            self._send(node, hop, self._view[:size])
        return True

    def _send(self, node: Node, hop: Hop, datagram: memoryview | bytes) -> None:
        try:
            # Only called for hops with an address.
            node.socket.sendto(datagram, hop.address)  # type: ignore[arg-type]
        except OSError:
            self.dropped["not sent"] += 1
            return
        node.relayed += 1
        if hop.node is not None:
            self._pending.append(hop.node)

    def _cross_impaired(self, node: Node, hop: Hop, link: LinkDirection, size: int) -> None:
        fate = link.fate(self._rng)
        if fate.lost:
            self.dropped["lost on a link"] += 1
            return
        datagram = self._view[:size]
        if fate.corrupt:
            corrupt_payload(datagram, HEADER_BYTES, self._rng)
        if fate.delay_ns == 0:
            self._send(node, hop, datagram)
            return
        copy = bytes(datagram)
        self._loop.call_later(fate.delay_ns, lambda: self._send_late(node, hop, copy))

    def _send_late(self, node: Node, hop: Hop, datagram: bytes) -> None:
        self._send(node, hop, datagram)
        while self._pending:
            self._relay(self._pending.popleft())

    def _resolve(self, node: Node, flow: bytes) -> Hop:
        if len(node.cache) >= MAX_CACHED_FLOWS:
            node.cache.clear()
        hop = node.cache[flow] = self._route(node, flow)
        return hop

    def _route(self, node: Node, flow: bytes) -> Hop:
        src = self._endpoints.get(flow[SRC])
        dst = self._endpoints.get(flow[DST])
        if src is None or dst is None:
            return Hop(missing=Missing.UNKNOWN)
        step = self.router.step(
            node.node_id, src, dst, flow_hash(flow[SRC], flow[DST], flow[ENTROPY])
        )
        if isinstance(step, Missing):
            return Hop(missing=step)
        next_node = self.nodes.get(step.next_id)
        if next_node is None:
            return Hop(self._addresses[step.next_id])
        link = self.links[node.node_id, step.next_id] if step.cabled else None
        return Hop(next_node.address, next_node, link)

    def _no_way(self, node: Node, hop: Hop, flow: bytes, size: int) -> None:
        if hop.missing is Missing.HOLE:
            self.dropped["flow table hole"] += 1
            return
        self._answer(node, EncapType.UNREACHABLE, flow, size)

    def _answer(self, node: Node, kind: EncapType, flow: bytes, size: int) -> None:
        """Tell the sender, through its own gateway, that `node` could not forward."""
        src: EndpointSpec | None = self._endpoints.get(flow[SRC])
        if src is None:
            # Answering would make the fabric a reflector towards anybody.
            self.dropped["unknown sender"] += 1
            return
        report = pack_report(node.report, bytes(self._view[HEADER_BYTES:size]))
        header = self._buffer[:HEADER_BYTES]
        header[TYPE_AT] = kind
        gateway = self.nodes[src.vswitch_id]
        try:
            gateway.socket.sendto(bytes(header) + report, self._addresses[src.endpoint_id])
        except OSError:
            self.dropped["not sent"] += 1
            return
        self.answered[kind.name] += 1
