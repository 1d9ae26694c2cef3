"""The prober's side that transports share: probes under way, and what each reply means.

It knows packets and clocks, but no sockets.
"""

import heapq
import os
import struct
from collections import OrderedDict
from collections.abc import Callable
from enum import Enum, auto
from typing import Final, NamedTuple

from probers import packet
from probers.clock import Clock, Instant
from probers.packet import ForgedError, Packet, PacketError, Packets
from probers.transports.base import Completion, PacketCounts, Probe, Reason
from probers.transports.rtt import Implausible, Timestamps, measure, place_arrival
from schemas.enums import ClockSource, ProbeStatus

# A full receive buffer of ours is read in some milliseconds.
UNDRAINED_NS: Final = 10**9
# Nonces of finished probes that are kept to distinguish duplicate and late replies from foreign
# ones: most of a minute at ten probes a second, a quarter of a second at the highest rate. Eight
# RNICs take 0.6 MB for them (2.4 MB with 2,048 each).
REMEMBERED: Final = 512
# Nonces that are made at once: a call of the system for each took a hundredth of the agent's time.
_NONCES: Final = struct.Struct("@64Q")


class AnswerKind(Enum):
    """What an answer is to the probes of its transport."""

    AWAITED = auto()
    DUPLICATE = auto()
    LATE = auto()
    FOREIGN = auto()


class SentProbe(NamedTuple):
    """A probe under way."""

    nonce: int
    probe: Probe
    posted: Instant

    @property
    def deadline_ns(self) -> int:
        """When it is lost, monotonic nanoseconds."""
        return self.posted.monotonic_ns + self.probe.timeout_ns


class Outstanding:
    """The probes of one transport that are under way."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._remembered = remembered
        self._entries: dict[int, SentProbe] = {}
        self._deadlines: list[tuple[int, int]] = []
        # nonce -> whether it was answered in time
        self._over: OrderedDict[int, bool] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def record_posted(self, nonce: int, probe: Probe, posted: Instant) -> SentProbe:
        """Remember a probe that has been posted."""
        entry = SentProbe(nonce, probe, posted)
        self._entries[nonce] = entry
        heapq.heappush(self._deadlines, (entry.deadline_ns, nonce))
        return entry

    def match_answer(self, nonce: int) -> tuple[AnswerKind, SentProbe | None]:
        """Classify an answer by its nonce; return the probe as well if it is awaited."""
        entry = self._entries.get(nonce)
        if entry is not None:
            return AnswerKind.AWAITED, entry
        answered = self._over.get(nonce)
        if answered is None:
            return AnswerKind.FOREIGN, None
        return (AnswerKind.DUPLICATE if answered else AnswerKind.LATE), None

    def finish(self, entry: SentProbe, *, answered: bool) -> None:
        """Remove a probe; `answered` decides how a further answer is counted."""
        del self._entries[entry.nonce]
        self._over[entry.nonce] = answered
        while len(self._over) > self._remembered:
            self._over.popitem(last=False)

    def expire(self, now_ns: int) -> list[SentProbe]:
        """Remove and return the probes that have timed out, the earliest deadline first."""
        expired = []
        while self._deadlines and self._deadlines[0][0] <= now_ns:
            _, nonce = heapq.heappop(self._deadlines)
            entry = self._entries.get(nonce)
            if entry is not None:
                self.finish(entry, answered=False)
                expired.append(entry)
        return expired


class HardwareStamps(NamedTuple):
    """When a probe left and its reply came, by the RNIC's own clock, nanoseconds."""

    sent_ns: int
    received_ns: int


def random_nonces() -> Callable[[], int]:
    """Return a source of 64 random bits from the operating system, which is asked for many."""
    waiting: list[int] = []

    def next_nonce() -> int:
        if not waiting:
            waiting.extend(_NONCES.unpack(os.urandom(_NONCES.size)))
        return waiting.pop()

    return next_nonce


def nonces_with(secret: int, secret_bits: int) -> Callable[[], int]:
    """Return a source of nonces that begin with a secret; the other bits are random."""
    random_bits = 64 - secret_bits
    source = random_nonces()
    return lambda: secret << random_bits | source() >> secret_bits


class Exchange:
    """The prober's side of one transport.

    Parameters
    ----------
    size_bytes : size of the probes sent
    packets : how they are sealed
    nonces : source of unguessable 64-bit numbers
    """

    def __init__(
        self,
        clock: Clock,
        counts: PacketCounts,
        size_bytes: int,
        packets: Packets = packet.UNSEALED,
        nonces: Callable[[], int] | None = None,
    ) -> None:
        self._clock = clock
        self._counts = counts
        self._size_bytes = packet.check_size(size_bytes)
        self._packets = packets
        self._nonces = nonces or random_nonces()
        self._outstanding = Outstanding()
        self._completions: list[Completion] = []

    def now(self) -> Instant:
        """Return this moment; to be called right before a probe is sent."""
        return self._clock.now()

    def prepare(self, reply_key: int = 0) -> tuple[int, bytes]:
        """Return a fresh nonce and the probe that carries it."""
        nonce = self._nonces()
        return nonce, self._packets.probe(nonce, self._size_bytes, reply_key=reply_key)

    def record_posted(self, nonce: int, probe: Probe, at: Instant) -> None:
        """Await the answer to a probe posted at that moment."""
        self._outstanding.record_posted(nonce, probe, at)

    def not_sent(self, token: int, status: ProbeStatus) -> None:
        """Complete a probe that the system refused to send."""
        self._completions.append(Completion(token=token, status=status, reason=Reason.NOT_SENT))

    def handle_corrupt(self, error: PacketError) -> None:
        """Count bytes that are no packet, and complete the probe whose reply they may be."""
        if isinstance(error, ForgedError):
            self._counts.forged += 1
            return
        self._counts.malformed += 1
        if error.nonce is None:
            return
        _, entry = self._outstanding.match_answer(error.nonce)
        if entry is not None:
            self._finish(entry, ProbeStatus.BAD_REPLY, Reason.CORRUPT)

    def handle_reply(
        self, reply: Packet, kernel_ns: int | None, sender: str, handled: Instant | None = None
    ) -> None:
        """Complete the probe that a reply answers.

        `kernel_ns` is the kernel's stamp, nanoseconds since the epoch, `handled` when the program
        got it, if not now.
        """
        now = self._clock.now() if handled is None else handled
        entry = self._awaited(reply.nonce)
        if entry is None:
            return
        received_ns, source = place_arrival(kernel_ns, now=now, posted=entry.posted)
        late = received_ns > entry.deadline_ns
        times = _times(entry, now, received_ns, reply.hold_ns)
        self._answered(entry, times, source, sender, late=late)

    def handle_stamped_reply(
        self, nonce: int, wire: HardwareStamps, hold_ns: int, *, handled: Instant, sender: str
    ) -> None:
        """Complete the probe that a reply answers, by the RNIC's own stamps."""
        entry = self._awaited(nonce)
        if entry is None:
            return
        times = Timestamps(
            posted_ns=entry.posted.monotonic_ns,
            sent_ns=wire.sent_ns,
            received_ns=wire.received_ns,
            handled_ns=handled.monotonic_ns,
            hold_ns=hold_ns,
        )
        late = wire.received_ns - wire.sent_ns > entry.probe.timeout_ns
        self._answered(entry, times, ClockSource.HARDWARE, sender, late=late)

    def handle_send_failure(self, nonce: int, status: ProbeStatus) -> None:
        """Complete a probe that was posted but could not be sent."""
        _, entry = self._outstanding.match_answer(nonce)
        if entry is not None:
            self._finish(entry, status, Reason.NOT_SENT)

    def handle_node_report(
        self,
        nonce: int,
        *,
        status: ProbeStatus,
        reason: Reason,
        reporter: str | None,
        kernel_ns: int | None,
    ) -> None:
        """Complete a probe that a node reports as not delivered."""
        now = self._clock.now()
        entry = self._awaited(nonce)
        if entry is None:
            return
        received_ns, source = place_arrival(kernel_ns, now=now, posted=entry.posted)
        times = _times(entry, now, received_ns, None)
        self._finish(entry, status, reason, clock=source, times=times, reporter=reporter)

    def count_foreign(self) -> None:
        """Count a packet that is not for us."""
        self._counts.foreign += 1

    def take_completions(self, *, drained: bool = True) -> list[Completion]:
        """Return the probes that are over since the last call, expired ones among them.

        While the sockets are not `drained`, a reply may still wait in one of them, so its probe
        gets a little longer. That time is limited: a flood of foreign packets must not keep lost
        probes from being reported.
        """
        now_ns = self._clock.now().monotonic_ns
        for entry in self._outstanding.expire(now_ns if drained else now_ns - UNDRAINED_NS):
            self._completions.append(
                Completion(token=entry.probe.token, status=ProbeStatus.TIMEOUT)
            )
        completions, self._completions = self._completions, []
        return completions

    def _awaited(self, nonce: int) -> SentProbe | None:
        answer, entry = self._outstanding.match_answer(nonce)
        if answer is AnswerKind.DUPLICATE:
            self._counts.duplicate += 1
        elif answer is AnswerKind.LATE:
            self._counts.late += 1
        elif answer is AnswerKind.FOREIGN:
            self._counts.foreign += 1
        return entry

    def _answered(
        self, entry: SentProbe, times: Timestamps, source: ClockSource, sender: str, *, late: bool
    ) -> None:
        if late:
            self._counts.late += 1
            self._finish(entry, ProbeStatus.TIMEOUT, Reason.ARRIVED_LATE)
            return
        if isinstance(measure(times), Implausible):
            self._finish(
                entry, ProbeStatus.BAD_REPLY, Reason.IMPLAUSIBLE, clock=source, times=times
            )
        else:
            self._finish(
                entry, ProbeStatus.OK, Reason.NONE, clock=source, times=times, reporter=sender
            )

    def _finish(
        self,
        entry: SentProbe,
        status: ProbeStatus,
        reason: Reason,
        *,
        clock: ClockSource = ClockSource.SOFTWARE,
        times: Timestamps | None = None,
        reporter: str | None = None,
    ) -> None:
        self._outstanding.finish(entry, answered=status is not ProbeStatus.TIMEOUT)
        self._completions.append(
            Completion(
                token=entry.probe.token,
                status=status,
                reason=reason,
                clock=clock,
                times=times,
                reporter=reporter,
            )
        )


def _times(entry: SentProbe, now: Instant, received_ns: int, hold_ns: int | None) -> Timestamps:
    posted_ns = entry.posted.monotonic_ns
    return Timestamps(
        posted_ns=posted_ns,
        sent_ns=posted_ns,
        received_ns=received_ns,
        handled_ns=now.monotonic_ns,
        hold_ns=hold_ns,
    )
