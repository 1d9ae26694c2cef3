"""The prober's side of RDMA: sends each probe on the queue pair of its flow, matches replies."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

from probers.clock import Clock, Instant
from probers.packet import Packet, PacketType
from probers.transports.base import Completion, Probe, Reason
from probers.transports.exchange import Exchange, HardwareStamps
from probers.transports.rdma.arrivals import Arrivals
from probers.transports.rdma.flows import label_of, pair_of
from probers.transports.rdma.gids import gid_of, shown_raw
from probers.transports.rdma.handles import Handles
from probers.transports.rdma.port import Event, Port
from schemas.enums import ProbeStatus

# A follow-up leaves some microseconds after its reply; one that is not here by now is lost,
# and the hold that the reply itself states is used.
FOLLOW_UP_NS: Final = 20 * 10**6
# Probes under way that are remembered: a second's at the highest rate.
REMEMBERED: Final = 20_000


@dataclass(frozen=True, slots=True)
class _StampedReply:
    """A reply whose follow-up is awaited."""

    hold_ns: int
    wire: HardwareStamps
    handled: Instant
    sender: str


class RdmaProber:
    """Sends probes from one port and matches their replies.

    Parameters
    ----------
    flows : queue pairs to probe from; the flows of a ping list are spread over them
    """

    def __init__(
        self,
        clock: Clock,
        exchange: Exchange,
        *,
        port: Port,
        handles: Handles,
        arrivals: Arrivals | None,
        flows: int,
    ) -> None:
        self._clock = clock
        self._exchange = exchange
        self._port = port
        self._handles = handles
        self._arrivals = arrivals
        self._flows = flows
        # Deadlines of probes whose target is being resolved, by token.
        self._waiting: dict[int, int] = {}
        # By token: GID of the target. By nonce: the device's send stamp; a reply that waits for
        # its follow-up.
        self._gids: dict[int, bytes] = {}
        self._sent: OrderedDict[int, int] = OrderedDict()
        self._awaiting_follow_up: OrderedDict[int, _StampedReply] = OrderedDict()

    def send(self, probe: Probe) -> None:
        """Post a probe as soon as its target is resolved."""
        if probe.qkey is None:
            self._exchange.not_sent(probe.token, ProbeStatus.NO_ROUTE)
            return
        now_ns = self._clock.now().monotonic_ns
        gid, qkey = gid_of(probe.address).packed, probe.qkey
        self._waiting[probe.token] = now_ns + probe.timeout_ns

        def go(handle: Any | None, status: ProbeStatus) -> None:
            if self._waiting.pop(probe.token, None) is None:
                return  # reported as lost already
            if handle is None:
                self._exchange.not_sent(probe.token, status)
            else:
                self._post(probe, gid, qkey, handle)

        self._handles.with_handle(gid, label_of(probe.entropy), now_ns, go)

    def departed(self, event: Event) -> None:
        """Process the send completion of a probe."""
        if not event.ok:
            self._exchange.handle_send_failure(event.tag, ProbeStatus.LINK_DOWN)
        elif event.stamp is not None:
            self._sent[event.tag] = event.stamp
            if len(self._sent) > REMEMBERED:
                self._sent.popitem(last=False)

    def replied(self, reply: Packet, event: Event, gid: bytes) -> None:
        """Process a reply."""
        sender = shown_raw(gid)
        sent, clock = self._sent.pop(reply.nonce, None), self._port.clock
        if sent is None or event.stamp is None or clock is None:
            kernel_ns = None if self._arrivals is None else self._arrivals.take_arrival_ns(
                PacketType.REPLY, reply.nonce
            )  # fmt: skip
            self._exchange.handle_reply(reply, kernel_ns, sender, event.polled)
            return
        wire = HardwareStamps(0, clock.between_ns(sent, event.stamp))
        stamped = _StampedReply(reply.hold_ns, wire, event.polled, sender)
        if reply.follows:
            self._awaiting_follow_up[reply.nonce] = stamped
        else:
            self._complete(reply.nonce, stamped, stamped.hold_ns)

    def followed(self, follow_up: Packet) -> None:
        """Process a follow-up, which completes its reply."""
        stamped = self._awaiting_follow_up.pop(follow_up.nonce, None)
        if stamped is None:
            self._exchange.count_foreign()
        else:
            self._complete(follow_up.nonce, stamped, follow_up.hold_ns)

    def take_completions(self, *, drained: bool) -> list[Completion]:
        """Return the probes that are over since the last call."""
        if self._awaiting_follow_up:
            self._end_awaiting_follow_up(self._clock.now().monotonic_ns)
        over = self._exchange.take_completions(drained=drained)
        if self._waiting:
            over += self._end_waiting(self._clock.now().monotonic_ns)
        for completion in over:
            gid = self._gids.pop(completion.token, None)
            if gid is not None and completion.status is ProbeStatus.TIMEOUT:
                self._handles.suspect(gid, self._clock.now().monotonic_ns)
        return over

    def _end_awaiting_follow_up(self, now_ns: int) -> None:
        while self._awaiting_follow_up:
            nonce, stamped = next(iter(self._awaiting_follow_up.items()))
            if now_ns - stamped.handled.monotonic_ns < FOLLOW_UP_NS:
                break
            del self._awaiting_follow_up[nonce]
            self._complete(nonce, stamped, stamped.hold_ns)

    def _end_waiting(self, now_ns: int) -> list[Completion]:
        late = [token for token, deadline_ns in self._waiting.items() if deadline_ns <= now_ns]
        for token in late:
            del self._waiting[token]
        # Resolving a new target may take a second; that is no loss.
        return [
            Completion(token=token, status=ProbeStatus.UNKNOWN, reason=Reason.PENDING)
            for token in late
        ]

    def _post(self, probe: Probe, gid: bytes, qkey: int, handle: Any) -> None:
        pair = pair_of(probe.flow, self._flows)
        nonce, payload = self._exchange.prepare(self._port.key(pair))
        to = (probe.port, qkey)
        try:
            posted = self._port.send(pair, len(payload), lambda: payload, handle, to, tag=nonce)
        except OSError:
            posted = None
        if posted is None:
            self._exchange.not_sent(probe.token, ProbeStatus.LINK_DOWN)
            return
        self._exchange.record_posted(nonce, probe, posted)
        self._gids[probe.token] = gid

    def _complete(self, nonce: int, stamped: _StampedReply, hold_ns: int) -> None:
        self._exchange.handle_stamped_reply(
            nonce, stamped.wire, hold_ns, handled=stamped.handled, sender=stamped.sender
        )
