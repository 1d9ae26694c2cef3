"""Probes over RDMA: R-Pingmesh's exchange of unreliable datagrams between queue pairs.

    prober                         responder
    t1 posted
    t2 RNIC sends   ── probe ──►   t3 RNIC receives
    t5 RNIC receives ◄─ reply ──   t4 RNIC sends
    t6 handled      ◄─ follow-up   with t4 - t3, once the send has completed

Source: Liu et al., R-Pingmesh, SIGCOMM 2024, section 4.2. Where the devices stamp completions, t2
to t5 are their stamps. Where they do not (Soft-RoCE), t3 and t5 are the kernel's arrival
timestamps if a packet socket is allowed (`arrivals`), else the program's clock. Departures are
then the moments of posting, the reply itself says how long the probe was held, and there is no
follow-up.
"""

import select
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from probers import packet
from probers.clock import Clock
from probers.config.rnics import INFINIBAND, RdmaSettings
from probers.packet import UNSEALED, PacketError, Packets, PacketType
from probers.transports.base import Completion, PacketCounts, Probe
from probers.transports.exchange import Exchange
from probers.transports.rdma.arrivals import Arrivals
from probers.transports.rdma.flows import label_of, pair_of, rule_of
from probers.transports.rdma.gids import ROCE_V2, Gid, choose_gid, read_gid, read_table, shown
from probers.transports.rdma.handles import Handles
from probers.transports.rdma.library import NoDeviceError, NoGidError, load
from probers.transports.rdma.port import (
    HOP_LIMIT,
    RESPONDER,
    Event,
    Port,
    PortSettings,
    random_qkey,
)
from probers.transports.rdma.prober import RdmaProber
from probers.transports.rdma.resolver import Resolver
from probers.transports.rdma.responder import RdmaResponder
from probers.transports.rdma.tracing import Tracing
from schemas.enums import Transport as TransportKind

# Each costs a queue pair with its buffers; ECMP fans are rarely wider.
MAX_PAIRS: Final = 16


class RdmaTransport:
    """Probes by RDMA from one port.

    Raises
    ------
    OSError
        If verbs, the device or the GID cannot be had; the message says what to do.
    """

    kind = TransportKind.RDMA_UD

    def __init__(
        self,
        clock: Clock,
        settings: RdmaSettings,
        *,
        flows: int,
        probe_bytes: int = packet.MIN_PACKET_BYTES,
        packets: Packets = UNSEALED,
        sysfs: Path = INFINIBAND,
    ) -> None:
        self.counts = PacketCounts()
        self._clock = clock
        self._settings = settings
        self._flows = min(flows, MAX_PAIRS)
        self._probe_bytes = probe_bytes
        self._packets = packets
        self._exchange = Exchange(clock, self.counts, probe_bytes, packets)
        self._folder = sysfs / settings.device / "ports" / str(settings.port)
        self._gid = self._chosen()
        self._rule = rule_of(sysfs / settings.device)
        self._library = load()
        self._open()

    def fileno(self) -> int:
        """Return a descriptor that is readable when something has completed or been resolved."""
        return self._epoll.fileno()

    @property
    def address(self) -> str:
        """The GID, as endpoint.v1 carries it."""
        return shown(self._gid.address)

    @property
    def port(self) -> int:
        """The number of the responder's queue pair."""
        return self._port.number(RESPONDER)

    @property
    def qkey(self) -> int:
        """The Q_Key of the responder's queue pair."""
        return self._port.key(RESPONDER)

    @property
    def untraced(self) -> str | None:
        """Why its pairs cannot be traced; None: they can."""
        if self._gid.kind != ROCE_V2:
            return f"the GID is {self._gid.kind}, and only RoCE v2 is routed"
        if self._gid.address.is_link_local:
            return "the GID is link-local: no router forwards it"
        return self._rule if isinstance(self._rule, str) else None

    def is_current(self) -> bool:
        """Return whether the GID that it speaks with is still the port's right one.

        Raises
        ------
        OSError
            If the GID or the device is gone.
        """
        # The whole table has up to a thousand entries, each a file: only where its own has changed.
        return read_gid(self._folder, self._gid.index) == self._gid or self._chosen() == self._gid

    def packets_per_probe(self, timeout_ns: int) -> int:  # noqa: ARG002 - a datagram is not repeated
        """Return 1."""
        return 1

    def send(self, probe: Probe) -> bool:
        """Send a probe on its flow's queue pair; with a TTL, one of a trace. Return False."""
        if probe.ttl is None or self._tracing is None:
            self._prober.send(probe)
        else:
            self._tracing.send(probe)
        return False  # it may have failed, or its address be unknown

    def poll(self) -> list[Completion]:
        """Process completions and resolved peers; return the probes that are over."""
        ready = [descriptor for descriptor, _ in self._epoll.poll(0)]
        events, drained = self._port.poll(woken=self._port.fileno() in ready)
        if self._arrivals is not None and events:
            self._arrivals.read()
        for event in events:
            if event.data is not None:
                self._arrived(event, event.data)
            elif event.pair == RESPONDER:
                self._responder.departed(event)
            else:
                self._prober.departed(event)
        if self._resolver.fileno() in ready:
            now_ns = self._clock.now().monotonic_ns
            for resolved in self._resolver.take_resolved():
                self._handles.resolved(resolved.gid, resolved.status, now_ns)
        over = self._prober.take_completions(drained=drained)
        if self._tracing is not None and self._tracing.busy:
            over += self._tracing.poll()
        return over

    def close(self) -> None:
        """Close the port; probes under way are forgotten."""
        self._epoll.close()
        if self._tracing is not None:
            self._tracing.close()
        self._handles.forget()
        self._resolver.close()
        if self._arrivals is not None:
            self._arrivals.close()
        self._port.close()

    def _arrived(self, event: Event, data: bytes) -> None:
        if not event.ok:
            return
        try:
            parsed = self._packets.unpack(data)
        except PacketError as error:
            self._exchange.handle_corrupt(error)
            return
        asked = event.pair == RESPONDER
        if event.gid is None:
            self._exchange.count_foreign()
        elif asked and parsed.type is PacketType.PROBE:
            self._responder.probed(parsed, event, event.gid)
        elif not asked and parsed.type is PacketType.REPLY:
            if self._tracing is not None and event.hop_limit is not None:
                self._tracing.observe_reply_ttl(event.gid, event.pair, event.hop_limit)
            self._prober.replied(parsed, event, event.gid)
        elif not asked and parsed.type is PacketType.FOLLOW_UP:
            self._prober.followed(parsed)
        else:
            self._exchange.count_foreign()

    def _chosen(self) -> Gid:
        table = read_table(self._folder)
        settings = self._settings
        if not self._folder.is_dir():
            raise NoDeviceError(f"no port {settings.port} of RDMA device {settings.device!r}")
        chosen = choose_gid(table, settings.address, settings.gid_index)
        if isinstance(chosen, str):
            raise NoGidError(f"{settings.device}: {chosen}")
        return chosen

    def _tracer(self) -> Tracing | None:
        rule, flows, own = self._rule, self._flows, self._gid.address
        if self.untraced is not None or isinstance(rule, str):
            return None

        def source_port(probe: Probe) -> int:
            pair = self._port.number(pair_of(probe.flow, flows))
            return rule(pair, label_of(probe.entropy))

        return Tracing(
            self._clock,
            self.counts,
            self._packets,
            address=str(own.ipv4_mapped or own),
            traffic_class=self._settings.traffic_class,
            source_port=source_port,
            pair=lambda probe: pair_of(probe.flow, flows),
            reach=self._prober.send,
        )

    def _open(self) -> None:
        settings = self._settings
        self._port = Port(
            self._library,
            PortSettings(
                device=settings.device,
                port=settings.port,
                gid_index=self._gid.index,
                slot_bytes=self._probe_bytes,
                traffic_class=settings.traffic_class,
                service_level=settings.service_level,
            ),
            self._clock,
            random_qkey,
            pairs=1 + self._flows,
        )
        # Opening is tried again every second: what was open when it failed must not stay.
        with ExitStack() as undo:
            undo.callback(self._port.close)
            self._resolver = Resolver(
                settings.device,
                port=settings.port,
                gid_index=self._gid.index,
                hop_limit=HOP_LIMIT,
            )
            undo.callback(self._resolver.close)
            self._join(undo)
            undo.pop_all()

    def _join(self, undo: ExitStack) -> None:
        """Open what needs port and resolver; `undo` collects what closes it."""
        self._arrivals = None if self._port.hardware else Arrivals.of(self._folder, self._gid)
        if self._arrivals is not None:
            undo.callback(self._arrivals.close)
        self._handles = Handles(self._resolver, self._port.handle)
        self._prober = RdmaProber(
            self._clock,
            self._exchange,
            port=self._port,
            handles=self._handles,
            arrivals=self._arrivals,
            flows=self._flows,
        )
        self._responder = RdmaResponder(
            self._clock,
            self.counts,
            self._packets,
            port=self._port,
            handles=self._handles,
            arrivals=self._arrivals,
        )
        self._tracing = self._tracer()
        if self._tracing is not None:
            undo.callback(self._tracing.close)
        self._epoll = select.epoll()
        undo.callback(self._epoll.close)
        if self._tracing is not None:
            self._epoll.register(self._tracing.fileno(), select.EPOLLIN)
        self._epoll.register(self._port.fileno(), select.EPOLLIN)
        self._epoll.register(self._resolver.fileno(), select.EPOLLIN)
