"""Runs rounds and traces over the transports.

It sends what is due, and hands each completion to the round or trace that the probe is of.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from probers.clock import Clock, Instant
from probers.config.settings import AgentConfig
from probers.host.port import Link
from probers.probing.plan import FlowTarget, Plan, next_start_ns, stagger_ns
from probers.probing.rounds import Order, Round
from probers.probing.trace import FinishedTrace, TraceOrder, Tracer, TraceSettings
from probers.transports.base import Completion, Probe, Reason, Transport
from schemas.enums import ProbeStatus
from schemas.enums import Transport as TransportKind
from schemas.transports import CAPABILITIES


class ProbingRnic(Protocol):
    """What probing needs of an RNIC."""

    @property
    def refused(self) -> ProbeStatus | None:
        """Status of probes that cannot be sent from it; None: they can be sent."""
        ...

    def transport(self, kind: TransportKind) -> Transport | None:
        """Return the transport for targets of that kind."""
        ...

    def read_link(self) -> Link:
        """Read the state of the port."""
        ...


class ProbeScheduler:
    """Runs the rounds of one agent.

    Parameters
    ----------
    publish_round, publish_trace : called with each round or trace that is over
    delay : called with the prober's own delay of each answered probe, nanoseconds
    """

    def __init__(
        self,
        config: AgentConfig,
        clock: Clock,
        rnics: Mapping[str, ProbingRnic],
        *,
        publish_round: Callable[[Round], None],
        publish_trace: Callable[[FinishedTrace], None],
        delay: Callable[[int], None],
    ) -> None:
        self._config = config
        self._clock = clock
        self._rnics = rnics
        self._publish_round = publish_round
        self._publish_trace = publish_trace
        self._delay = delay
        self.plan = Plan(
            config.id,
            interval_ns=config.interval_ns,
            spread_ns=config.spread_ns,
            max_rate_hz=config.max_rate_hz,
        )
        self._tracer = Tracer(
            TraceSettings(timeout_ns=config.timeout_ns, refresh_ns=config.trace_refresh_ns)
        )
        self._stagger_ns = stagger_ns(config.id, config.interval_ns)
        self._version: int | None = None
        self._rounds: list[Round] = []
        self._seq = 0
        self._next_ns: int | None = None
        self._token = 0
        # By token, the round that awaits the probe; None: the tracer does.
        self._owners: dict[int, Round | None] = {}
        self._deadlines: deque[tuple[int, int, Transport]] = deque()

    @property
    def idle(self) -> bool:
        """Whether no round is under way."""
        return not self._rounds

    def follow(self, flows: tuple[FlowTarget, ...], version: int | None, now: Instant) -> None:
        """Probe these flows from the next round on; none: no more rounds."""
        self._version = version
        if not self.plan.wanted:
            self._next_ns = None  # nothing kept the time meanwhile
        if self.plan.follow(flows):
            traced = tuple(f for f in flows if CAPABILITIES[f.transport].untraced is None)
            self._tracer.follow(traced, now.monotonic_ns)

    def due_ns(self, now: Instant) -> int | None:
        """Return when `run` is to be called, monotonic nanoseconds; None: nothing is planned."""
        while self._deadlines and self._deadlines[0][1] not in self._owners:
            self._deadlines.popleft()
        times = [r.due_ns for r in self._rounds]
        times.append(self._tracer.due_ns(now.monotonic_ns))
        if self._deadlines:
            times.append(self._deadlines[0][0])
        if self.plan.wanted:
            times.append(now.monotonic_ns if self._next_ns is None else self._next_ns)
        return min((t for t in times if t is not None), default=None)

    def run(self) -> None:
        """Begin a round if it is time, send the probes that are due, and expire those timed out."""
        now = self._clock.now()
        self._begin(now)
        late: set[Transport] = set()
        while self._deadlines and self._deadlines[0][0] <= now.monotonic_ns:
            late.add(self._deadlines.popleft()[2])
        for transport in late:
            self.poll(transport)
        used: set[Transport] = set()
        # A probe that cannot be sent is confirmed at once, so this repeats `confirm` times.
        while orders := [(r, o) for r in self._rounds for o in r.due(now.monotonic_ns)]:
            for owner, order in orders:
                self._send(owner, order, used)
            self._poll_all(used)
        for trace in self._tracer.due(now.monotonic_ns):
            self._send_trace(trace, used)
        self._poll_all(used)
        self._settle()

    def poll(self, transport: Transport) -> None:
        """Process the completions of a transport."""
        for completion in transport.poll():
            self._completed(completion)
        self._settle()

    def forget(self, transports: list[Transport]) -> None:
        """End what is under way on transports that are being closed."""
        orphans = [token for _, token, t in self._deadlines if t in transports]
        self._deadlines = deque(d for d in self._deadlines if d[2] not in transports)
        for token in orphans:
            self._completed(
                Completion(token=token, status=ProbeStatus.LINK_DOWN, reason=Reason.NOT_SENT)
            )
        self._settle()

    def finish(self) -> None:
        """Send nothing more; what is under way still ends."""
        self.follow((), self._version, self._clock.now())
        for each in self._rounds:
            each.cancel()
        self._settle()

    def _begin(self, now: Instant) -> None:
        if self._next_ns is not None and now.monotonic_ns < self._next_ns:
            return
        begin = self._next_ns is not None and bool(self.plan.wanted)
        start_ns = next_start_ns(now.realtime_ns, self._config.interval_ns, self._stagger_ns)
        # Computed from the wall clock each time: setting the clock moves a single round.
        self._next_ns = now.monotonic_ns + start_ns - now.realtime_ns
        if not begin:
            return
        self._rounds.append(
            Round(
                seq=self._seq,
                started=now,
                pinglist_version=self._version,
                plan=self.plan.next_round(),
                confirm=self._config.confirm,
                wanted=lambda target: target in self.plan.wanted,
            )
        )
        self._seq += 1

    def _send(self, owner: Round, order: Order, used: set[Transport]) -> None:
        token, transport, refused = self._prepare(order.target)
        self._owners[token] = owner
        owner.sent(token, order, self._clock.now().monotonic_ns)
        if transport is None:
            self._completed(Completion(token=token, status=refused, reason=Reason.NOT_SENT))
        else:
            self._transmit(token, transport, order.target, None)
            used.add(transport)

    def _send_trace(self, order: TraceOrder, used: set[Transport]) -> None:
        token, transport, refused = self._prepare(order.target)
        self._owners[token] = None
        self._tracer.sent(token, order)
        if transport is None:
            self._completed(Completion(token=token, status=refused, reason=Reason.NOT_SENT))
        elif transport.untraced is not None:
            self._completed(
                Completion(token=token, status=ProbeStatus.UNKNOWN, reason=Reason.UNTRACED)
            )
        else:
            self._transmit(token, transport, order.target, order.ttl)
            used.add(transport)

    def _prepare(self, target: FlowTarget) -> tuple[int, Transport | None, ProbeStatus]:
        self._token += 1
        rnic = self._rnics.get(target.src)
        if rnic is None:
            return self._token, None, ProbeStatus.LINK_DOWN
        refused = rnic.refused
        if refused is not None:
            return self._token, None, refused
        transport = rnic.transport(target.transport)
        return self._token, transport, ProbeStatus.NO_ROUTE

    def _transmit(
        self, token: int, transport: Transport, target: FlowTarget, ttl: int | None
    ) -> None:
        transport.send(
            Probe(
                token=token,
                address=target.address,
                port=target.port,
                flow=target.flow,
                entropy=target.entropy,
                timeout_ns=self._config.timeout_ns,
                ttl=ttl,
                qkey=target.qkey,
            )
        )
        deadline_ns = self._clock.now().monotonic_ns + self._config.timeout_ns
        self._deadlines.append((deadline_ns, token, transport))

    def _poll_all(self, used: set[Transport]) -> None:
        for transport in used:
            for completion in transport.poll():
                self._completed(completion)
        used.clear()

    def _completed(self, completion: Completion) -> None:
        if completion.token not in self._owners:
            return
        owner = self._owners.pop(completion.token)
        now_ns = self._clock.now().monotonic_ns
        if owner is None:
            self._tracer.completed(completion, now_ns)
            return
        if completion.status is ProbeStatus.TIMEOUT:
            completion = self._excused(owner, completion)
        target, result = owner.completed(completion)
        if result is None:
            return
        if result.prober_delay_ns is not None:
            self._delay(result.prober_delay_ns)
        if result.status is ProbeStatus.OK:
            if result.rtt_ns is not None:
                self._tracer.answered(target, result.rtt_ns, now_ns)
        elif result.status is not ProbeStatus.LINK_DOWN:
            self._tracer.lost(target, now_ns)

    def _excused(self, owner: Round, completion: Completion) -> Completion:
        """Report a lost probe as LINK_DOWN if the RNIC's own link is down."""
        rnic = self._rnics.get(owner.target(completion.token).src)
        if rnic is not None and rnic.read_link() is not Link.UP:
            return replace(completion, status=ProbeStatus.LINK_DOWN)
        return completion

    def _settle(self) -> None:
        for trace in self._tracer.finished():
            self._publish_trace(trace)
        for done in [r for r in self._rounds if r.done]:
            self._rounds.remove(done)
            self._publish_round(done)
