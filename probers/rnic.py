"""One RNIC at work: its transports, whether its port is up, whether it is there at all."""

from enum import Enum, auto
from typing import Final

from probers.clock import Clock, Instant
from probers.config_rnics import RnicConfig
from probers.counters import CounterFiles
from probers.gateway import GatewayTransport
from probers.link import Link, LinkFiles
from probers.packet import UNSEALED, Packets
from probers.tcp import TcpTransport
from probers.transport import PacketCounts, Transport
from probers.udp import UdpTransport
from schemas.enums import Transport as TransportKind
from schemas.eventlog import EventLog

# An RNIC that vanishes under a running agent is a fault first: its peers are to see
# it lost, for longer than a fault takes to be opened, before its endpoint leaves and
# nobody probes it any more.
GONE_AFTER_NS: Final = 30 * 10**9


class Change(Enum):
    """What a look at the RNIC brought."""

    NONE = auto()
    CAME = auto()
    LEFT = auto()


class Rnic:
    """The RNIC of one configuration entry."""

    def __init__(
        self,
        config: RnicConfig,
        clock: Clock,
        *,
        probe_bytes: int,
        log: EventLog,
        packets: Packets = UNSEALED,
    ) -> None:
        self.config = config
        self._clock = clock
        self._probe_bytes = probe_bytes
        self._packets = packets
        self._log = log
        self._links = None if config.counters is None else LinkFiles(config.counters)
        self._transports: dict[TransportKind, Transport] = {}
        self._past = PacketCounts()
        self._gone_ns: int | None = None
        self._trouble: str | None = None
        self.link = Link.UP
        self.counters = None if config.counters is None else CounterFiles(config.counters)

    @property
    def endpoint_id(self) -> str:
        """Id of its endpoint."""
        return self.config.endpoint_id

    @property
    def open(self) -> bool:
        """Whether it answers probes."""
        return self.config.transport in self._transports

    @property
    def trouble(self) -> str | None:
        """Why it does not work, for the heartbeat; None: it does."""
        if self._trouble is not None:
            return f"{self.endpoint_id}: {self._trouble}"
        if self.link is not Link.UP:
            return f"{self.endpoint_id}: link {self.link.name.lower()}"
        return None

    @property
    def transports(self) -> list[Transport]:
        """Those that are open."""
        return list(self._transports.values())

    @property
    def responder(self) -> Transport:
        """The transport whose address the endpoint registers; only while `open`."""
        return self._transports[self.config.transport]

    def transport(self, kind: TransportKind) -> Transport | None:
        """Return the transport that probes targets of that kind; None where there is none."""
        found = self._transports.get(kind)
        if found is None and self.open and self.config.gateway is None:
            found = self._open(kind, 0)
        return found

    def read_link(self) -> Link:
        """Read the state of the port."""
        if self._links is not None:
            link = self._links.read()
            if link is not self.link:
                self._log.warning(
                    "link.changed", endpoint_id=self.endpoint_id, link=link.name.lower()
                )
            self.link = link
        return self.link

    def look(self, now: Instant) -> Change:
        """Open what is closed, say what is gone; to be called about once a second.

        After LEFT the caller is to `close` it.
        """
        if self.read_link() is not Link.GONE:
            self._gone_ns = None
            if self.open:
                return Change.NONE
            return (
                Change.NONE
                if self._open(self.config.transport, self.config.port) is None
                else Change.CAME
            )
        if self._gone_ns is None:
            self._gone_ns = now.monotonic_ns
        if self.open and now.monotonic_ns - self._gone_ns >= GONE_AFTER_NS:
            return Change.LEFT
        return Change.NONE

    def close(self) -> None:
        """Close all sockets and files."""
        for transport in self._transports.values():
            _add(self._past, transport.counts)
            transport.close()
        self._transports.clear()
        if self.counters is not None:
            self.counters.close()

    def counts(self) -> PacketCounts:
        """Return the packet counts of all its transports since the start."""
        total = PacketCounts()
        _add(total, self._past)
        for transport in self._transports.values():
            _add(total, transport.counts)
        return total

    def _open(self, kind: TransportKind, port: int) -> Transport | None:
        try:
            transport = self._make(kind, port)
        except OSError as error:
            trouble = f"{self.config.address}:{port}: {error.strerror}"
            if trouble != self._trouble:
                self._log.error("rnic.unusable", endpoint_id=self.endpoint_id, reason=trouble)
            self._trouble = trouble
            return None
        self._trouble = None
        self._transports[kind] = transport
        return transport

    def _make(self, kind: TransportKind, port: int) -> Transport:
        address, gateway = self.config.address, self.config.gateway
        if kind is TransportKind.TCP:
            return TcpTransport(self._clock, address, port)
        if gateway is not None:
            return GatewayTransport(
                self._clock,
                address,
                port,
                gateway,
                probe_bytes=self._probe_bytes,
                packets=self._packets,
            )
        return UdpTransport(
            self._clock, address, port, probe_bytes=self._probe_bytes, packets=self._packets
        )


def _add(total: PacketCounts, part: PacketCounts) -> None:
    total.duplicate += part.duplicate
    total.late += part.late
    total.foreign += part.foreign
    total.malformed += part.malformed
    total.forged += part.forged
    total.answered += part.answered
    total.unanswered += part.unanswered
