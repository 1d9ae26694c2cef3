"""What a UDP transport does per packet: it parses, answers probes and matches replies.

`PythonDatagrams` does it here; `_datagrams.c` does the same a tenth as dearly where it was
compiled, and is held to this class packet by packet (tests/unit/probers/transports/
test_datagrams.py). What is rare is in neither: error queues, filters, floods, opening sockets.
See docs/adr/0016-packets-in-c.md.
"""

import socket
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from probers import packet
from probers.clock import Clock, SystemClock
from probers.packet import PacketError, Packets, PacketType
from probers.transports import sockets
from probers.transports.base import Completion, PacketCounts, Probe
from probers.transports.exchange import Exchange, nonces_with
from probers.transports.packet_filter import SECRET_BITS, SourceHash
from probers.transports.responder import Responder
from probers.transports.sockets import Readiness
from schemas.enums import ProbeStatus

if TYPE_CHECKING:
    from probers.transports import _datagrams

    native = _datagrams
else:
    try:
        from probers.transports import _datagrams as native
    except ImportError:  # no compiler when this was installed, or not Linux
        native = None

# Datagrams taken from one socket in one turn, so that a flood at one socket does
# not keep the loop from its timers.
MAX_DATAGRAMS_AT_ONCE: Final = 256


class Role(IntEnum):
    """What a socket is for."""

    PROBES = 0
    ANSWERS = 1
    # Its owner reads it; it is only watched.
    FOREIGN = 2


class Observation(NamedTuple):
    """Who sent something to the socket that answers; see `Admission.observe_probe`."""

    source: int
    now_ns: int
    genuine: bool
    token: bool


Sender = tuple[str, int] | tuple[str, int, int, int]


class Datagrams(sockets.Reported, Protocol):
    """The per-packet work of one transport."""

    @property
    def counts(self) -> PacketCounts:
        """Packets so far; always the same object."""
        ...

    def fileno(self) -> int:
        """Return a descriptor that is readable when one of the sockets is."""
        ...

    def watch(self, sock: socket.socket, role: int, /) -> None:
        """Read a socket from now on; it stays its owner's."""
        ...

    def send(self, sock: socket.socket, probe: Probe, /) -> int:
        """Send a probe; return 0, or the errno of why it was not sent."""
        ...

    def not_sent(self, token: int, status: ProbeStatus, /) -> None:
        """Complete a probe that could not be sent."""
        ...

    def poll(self) -> list[int]:
        """Process what has arrived; return the descriptors whose errors are to be read."""
        ...

    def take_completions(self) -> list[Completion]:
        """Return the probes that are over since the last call, expired ones among them."""
        ...

    def take_observations(self) -> tuple[list[Observation], bool]:
        """Return who sent what since the last call, and whether more waits than was read."""
        ...

    def close(self) -> None:
        """Watch nothing any more; the sockets stay open."""
        ...


class PythonDatagrams:
    """The work in Python, for systems where the C code is not there, and its oracle.

    Parameters
    ----------
    secret : how nonces begin, as the filters of the sockets expect it
    source : hashes senders
    nonces : for tests, where nonces come from
    """

    def __init__(
        self,
        clock: Clock,
        *,
        packets: Packets,
        probe_bytes: int,
        secret: int,
        source: SourceHash,
        nonces: Callable[[], int] | None = None,
    ) -> None:
        self.counts = PacketCounts()
        if nonces is None:
            nonces = nonces_with(secret, SECRET_BITS)
        self._exchange = Exchange(clock, self.counts, probe_bytes, packets, nonces)
        self._answers = Responder(clock, self.counts, packets)
        self._packets = packets
        self._tokens = packets.tokens
        self._source = source
        self._readiness = Readiness()
        self._roles: dict[int, Role] = {}
        self._observed: list[Observation] = []
        self._overfull = False
        self._drained = True
        self.handle_node_report = self._exchange.handle_node_report

    def fileno(self) -> int:
        """Return a descriptor that is readable when one of the sockets is."""
        return self._readiness.fileno()

    def watch(self, sock: socket.socket, role: int, /) -> None:
        """Read a socket from now on."""
        self._roles[sock.fileno()] = Role(role)
        self._readiness.watch(sock)

    def send(self, sock: socket.socket, probe: Probe, /) -> int:
        """Send a probe; return 0, or the errno of why it was not sent."""
        nonce, payload = self._exchange.prepare(self._tokens[0] if self._tokens else 0)
        posted = self._exchange.now()
        try:
            if probe.ttl is None:
                sock.sendto(payload, (probe.address, probe.port))
            else:
                ttl = sockets.ttl_message(sockets.FAMILIES[sock.family], probe.ttl)
                sock.sendmsg([payload], ttl, 0, (probe.address, probe.port))
        except OSError as error:
            return sockets.send_errno(error)
        self._exchange.record_posted(nonce, probe, posted)
        return 0

    def not_sent(self, token: int, status: ProbeStatus, /) -> None:
        """Complete a probe that could not be sent."""
        self._exchange.not_sent(token, status)

    def poll(self) -> list[int]:
        """Process what has arrived; return the descriptors whose errors are to be read."""
        erroneous = []
        self._drained = True
        for sock, failed in self._readiness.ready():
            descriptor = sock.fileno()
            foreign = self._roles[descriptor] is Role.FOREIGN
            if foreign or self._read(sock, self._roles[descriptor]) or failed:
                erroneous.append(descriptor)
        return erroneous

    def take_completions(self) -> list[Completion]:
        """Return the probes that are over since the last call, expired ones among them."""
        # A reply that waits in a socket is not lost: its kernel timestamp decides.
        return self._exchange.take_completions(drained=self._drained)

    def take_observations(self) -> tuple[list[Observation], bool]:
        """Return who sent what since the last call, and whether more waits than was read."""
        taken = self._observed, self._overfull
        self._observed, self._overfull = [], False
        return taken

    def close(self) -> None:
        """Watch nothing any more."""
        self._readiness.close()

    def take_in(
        self, role: int, data: bytes, kernel_ns: int | None, address: str, port: int, /
    ) -> bytes | None:
        """Process a datagram; return the reply to send, if there is one."""
        answers = role == Role.ANSWERS
        try:
            parsed = self._packets.unpack(data)
        except PacketError as error:
            if answers:
                self._observe(address, port, data, genuine=False)
            self._exchange.handle_corrupt(error)
            return None
        if answers:
            self._observe(address, port, data, genuine=parsed.type is PacketType.PROBE)
        if parsed.type is PacketType.REPLY:
            self._exchange.handle_reply(parsed, kernel_ns, address)
        elif not answers or parsed.type is not PacketType.PROBE:
            # Only the listener's address is registered; no agent probes a flow's socket.
            self._exchange.count_foreign()
        else:
            reply = self._answers.answer(parsed, kernel_ns)
            if reply is not None:
                self._answers.left(self._exchange.now().monotonic_ns)
            return reply
        return None

    def _read(self, sock: socket.socket, role: Role) -> bool:
        """Read what waits at a socket; return whether it has errors as well."""
        failed = False
        for _ in range(MAX_DATAGRAMS_AT_ONCE):
            try:
                data, ancillary, _, sender = sock.recvmsg(
                    packet.MAX_PACKET_BYTES + 1, sockets.ANCILLARY_BYTES
                )
            except BlockingIOError:
                return failed
            except OSError:
                failed = True  # an ICMP error shows here once, too; the queue has the details
                continue
            kernel_ns = sockets.kernel_time_ns(ancillary)
            reply = self.take_in(role, data, kernel_ns, sender[0], sender[1])
            if reply is not None:
                try:
                    sock.sendto(reply, sender)
                except OSError:
                    failed = True  # the prober sees a timeout
        self._drained = False
        self._overfull = self._overfull or role is Role.ANSWERS
        return failed

    def _observe(self, address: str, port: int, data: bytes, *, genuine: bool) -> None:
        self._observed.append(
            Observation(
                self._source.of(address, port),
                self._exchange.now().monotonic_ns,
                genuine,
                packet.reply_key_of(data) in self._tokens,
            )
        )


def open_datagrams(
    clock: Clock, *, packets: Packets, probe_bytes: int, secret: int, source: SourceHash
) -> Datagrams:
    """Return the work in C where it was compiled, else in Python."""
    make = PythonDatagrams if native is None else native_datagrams
    return make(clock, packets=packets, probe_bytes=probe_bytes, secret=secret, source=source)


def native_datagrams(
    clock: Clock,
    *,
    packets: Packets,
    probe_bytes: int,
    secret: int,
    source: SourceHash,
    nonces: Callable[[], int] | None = None,
) -> "native.Datagrams":
    """Return the work in C, with the parameters of `PythonDatagrams`."""
    return native.Datagrams(
        clock=None if type(clock) is SystemClock else clock,
        nonces=nonces,
        family=int(source.family),
        secret=secret,
        factor=source.factor,
        keys=packets.keys,
        tokens=packets.tokens,
        probe_bytes=packet.check_size(probe_bytes),
        counts=PacketCounts(),
    )
