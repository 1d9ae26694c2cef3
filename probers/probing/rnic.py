"""One RNIC at work: opens its transports, and watches its port and whether it is there at all."""

import errno
from enum import Enum, auto
from typing import Final

from probers.clock import Clock, Instant
from probers.config.rnics import RnicConfig
from probers.host.counters import CounterFiles
from probers.host.port import Link, LinkFiles
from probers.host.states import Value, missing
from probers.transports.base import PacketCounts, ProbeSettings, Transport
from probers.transports.registry import open_transport
from schemas.enums import ProbeStatus
from schemas.enums import Transport as TransportKind
from schemas.process.eventlog import EventLog
from schemas.transports import CAPABILITIES, AddressForm

# An RNIC that vanishes from a running agent is a fault. Its peers have to see it lost for longer
# than it takes to open a fault; only then its endpoint leaves and is probed no more.
GONE_AFTER_NS: Final = 30 * 10**9
# While the fallback answers, the configured transport is tried again this often.
VERBS_AGAIN_NS: Final = 60 * 10**9


class Change(Enum):
    """What has changed at a look at the RNIC."""

    NONE = auto()
    # It answers now: the caller registers it.
    CAME = auto()
    # Its address has changed: the caller closes it and looks again, which opens it anew.
    MOVED = auto()
    # It has been gone for long: the caller closes it and unregisters its endpoint.
    LEFT = auto()


class Rnic:
    """The RNIC of one configuration entry."""

    def __init__(
        self, config: RnicConfig, clock: Clock, *, probes: ProbeSettings, log: EventLog
    ) -> None:
        self.config = config
        self._clock = clock
        self._probes = probes
        self._log = log
        self._links = None if config.counters is None else LinkFiles(config.counters)
        self._transports: dict[TransportKind, Transport] = {}
        self._past = PacketCounts()
        self._gone_ns: int | None = None
        self._trouble: str | None = None
        # The transport that answers probes: the fallback while the configured one is not usable.
        self._answering = config.transport
        self._verbs_due_ns: int | None = None
        self._missing: ProbeStatus | None = None
        self.link = Link.UP
        self.counters = None if config.counters is None else CounterFiles(config.counters)

    @property
    def endpoint_id(self) -> str:
        """Id of its endpoint."""
        return self.config.endpoint_id

    @property
    def open(self) -> bool:
        """Whether it answers probes."""
        return self._answering in self._transports

    @property
    def refused(self) -> ProbeStatus | None:
        """Status of probes that cannot be sent from it; None: they can be sent."""
        if self.link is Link.GONE:
            return ProbeStatus.NO_DEVICE
        if self._missing is not None:
            return self._missing
        return None if self.open and self.link is Link.UP else ProbeStatus.LINK_DOWN

    @property
    def trouble(self) -> str | None:
        """Why it does not work, for the heartbeat; None: it works."""
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
        return self._transports[self._answering]

    def transport(self, kind: TransportKind) -> Transport | None:
        """Return the transport that probes targets of that kind; None where there is none."""
        found = self._transports.get(kind)
        elsewhere = self.config.gateway is not None or self.config.netns is not None
        capabilities = CAPABILITIES.get(kind)
        possible = (
            capabilities is not None
            and capabilities.address_form is AddressForm.IP_PORT
            and not elsewhere
        )
        if found is None and self.open and possible:
            found = self._open(kind, 0)
        return found

    def answering_transport(self) -> Value:
        """Return the transport that answers its probes, as `component.state.v1` has it."""
        if not self.open:
            return missing("nothing answers its probes")
        return Value(CAPABILITIES[self._answering].word)

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
        """Open what is closed and notice what is gone; to be called about once a second.

        After MOVED and LEFT the caller is to `close` it.
        """
        if self.read_link() is not Link.GONE:
            if not self.open:
                return self._come(now)
            current = self._is_current()
            if current is not None:
                self._gone_ns = None
                return self._verbs_again(now) if current else Change.MOVED
        if self._gone_ns is None:
            self._gone_ns = now.monotonic_ns
        if self.open and now.monotonic_ns - self._gone_ns >= GONE_AFTER_NS:
            return Change.LEFT
        return Change.NONE

    def close(self) -> None:
        """Close all sockets and files."""
        for transport in self._transports.values():
            self._past.add(transport.counts)
            transport.close()
        self._transports.clear()
        if self.counters is not None:
            self.counters.close()

    def counts(self) -> PacketCounts:
        """Return the packet counts of all its transports since the start."""
        total = PacketCounts()
        total.add(self._past)
        for transport in self._transports.values():
            total.add(transport.counts)
        return total

    def _come(self, now: Instant) -> Change:
        """Open the configured transport, or its fallback."""
        self._gone_ns = None
        self._answering = self.config.transport
        if self._open(self.config.transport, self.config.port) is not None:
            return Change.CAME
        fallback = CAPABILITIES[self.config.transport].fallback
        if not self.config.fallback or fallback is None:
            return Change.NONE
        why = self._trouble
        self._answering = fallback
        if self._open(fallback, self.config.port) is None:
            return Change.NONE
        self._trouble = f"not using RDMA: {why}"
        self._missing = None
        self._verbs_due_ns = now.monotonic_ns + VERBS_AGAIN_NS
        self._log.warning("rnic.fallback", endpoint_id=self.endpoint_id, reason=self._trouble)
        return Change.CAME

    def _is_current(self) -> bool | None:
        """Return whether it still answers where it says; None: it cannot answer anywhere."""
        try:
            current = self.responder.is_current()
        except OSError as error:
            self._note(error)
            return None
        self._missing = None
        if self._answering is self.config.transport:
            self._trouble = None
        return current

    def _verbs_again(self, now: Instant) -> Change:
        """While the fallback answers, return MOVED when the configured transport can be opened."""
        due = self._answering is not self.config.transport and self._verbs_due_ns is not None
        if not due or now.monotonic_ns < (self._verbs_due_ns or 0):
            return Change.NONE
        self._verbs_due_ns = now.monotonic_ns + VERBS_AGAIN_NS
        trouble, self._trouble = self._trouble, None
        found = self._open(self.config.transport, self.config.port)
        if found is None:
            self._trouble, self._missing = trouble, None
            return Change.NONE
        return Change.MOVED

    def _open(self, kind: TransportKind, port: int) -> Transport | None:
        try:
            transport = open_transport(kind, port, self.config, self._clock, self._probes)
        except OSError as error:
            self._note(error, port)
            return None
        self._trouble = self._missing = None
        self._transports[kind] = transport
        if transport.untraced is not None:
            self._log.info("rnic.untraced", endpoint_id=self.endpoint_id, reason=transport.untraced)
        return transport

    def _note(self, error: OSError, port: int | None = None) -> None:
        """Remember and log why it cannot be used."""
        address = None if self.config.rdma is not None else self.config.address
        trouble = f"{error.strerror}" if address is None else f"{address}:{port}: {error.strerror}"
        if trouble != self._trouble:
            self._log.error("rnic.unusable", endpoint_id=self.endpoint_id, reason=trouble)
        self._trouble = trouble
        self._missing = _MISSING.get(error.errno or 0)


# The status of probes from an RNIC whose transport failed to open, by errno.
_MISSING: Final = {
    errno.ENODEV: ProbeStatus.NO_DEVICE,
    errno.EADDRNOTAVAIL: ProbeStatus.NO_GID,
}
