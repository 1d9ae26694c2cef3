"""Runs rounds and traces over the transports.

It sends what is due, and hands each completion to the round or trace that the probe is of.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from probers.clock import Clock, Instant, SecondLimit
from probers.config.settings import AgentConfig
from probers.host.port import Link
from probers.probing.plan import FlowTarget, Plan, next_start_ns, stagger_ns
from probers.probing.rounds import Order, Round
from probers.probing.trace import FinishedTrace, TraceOrder, Tracer, TraceSettings
from probers.transports.base import Completion, Probe, Reason, Transport
from schemas.enums import ProbeStatus
from schemas.enums import Transport as TransportKind
from schemas.transports import CAPABILITIES

# Share of the rate that traces may use: they must not displace the probes that call for them.
TRACE_SHARE: Final = 4


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
        # All packets count: confirmations go first, then traces, then planned probes.
        self._rate = SecondLimit(config.max_rate_hz)
        self._trace_rate = SecondLimit(max(1, config.max_rate_hz // TRACE_SHARE))
        # Until when the rate allows no probes, or no traces, monotonic nanoseconds.
        self._probes_held_ns = 0
        self._traces_held_ns = 0

    @property
    def idle(self) -> bool:
        """Whether no round is under way."""
        return not self._rounds

    def follow(
        self,
        flows: tuple[FlowTarget, ...],
        version: int | None,
        now: Instant,
        *,
        trace_budget: int | None = None,
    ) -> None:
        """Probe these flows from the next round on; none: no more rounds.

        Parameters
        ----------
        version, trace_budget
            Of the list in force (`schemas.trace_budget`).
        """
        self._version = version
        self._tracer.set_budget(trace_budget)
        if not self.plan.wanted:
            self._next_ns = None  # nothing kept the time meanwhile
        if self.plan.follow(flows):
            traced = tuple(f for f in flows if CAPABILITIES[f.transport].untraced is None)
            self._tracer.follow(traced, now.monotonic_ns)

    def due_ns(self, now: Instant) -> int | None:
        """Return when `run` is to be called, monotonic nanoseconds; None: nothing is planned."""
        while self._deadlines and self._deadlines[0][1] not in self._owners:
            self._deadlines.popleft()
        probes_ns = [
            max(d, self._probes_held_ns) for r in self._rounds if (d := r.due_ns) is not None
        ]
        traces_ns = self._tracer.due_ns(now.monotonic_ns)
        times = [*probes_ns, traces_ns and max(traces_ns, self._traces_held_ns)]
        if self._deadlines:
            times.append(self._deadlines[0][0])
        if self.plan.wanted:
            times.append(now.monotonic_ns if self._next_ns is None else self._next_ns)
        return min((t for t in times if t is not None), default=None)

    def run(self) -> None:
        """Expire probes, send those that are due, and begin a round if it is time."""
        now = self._clock.now()
        late: set[Transport] = set()
        while self._deadlines and self._deadlines[0][0] <= now.monotonic_ns:
            late.add(self._deadlines.popleft()[2])
        if late:
            self.poll(late)
        if self._is_round_due(now):
            # What was due before and is not sent now was held back by the rate.
            self._send_due(now)
            self._begin(self._clock.now())
        self._send_due(now)
        self._settle()

    def poll(self, transports: Iterable[Transport]) -> None:
        """Process the completions of transports."""
        for transport in transports:
            self._take(transport)
        self._settle()

    def forget(self, transports: list[Transport]) -> None:
        """End what is under way on transports that are being closed."""
        orphans = [token for _, token, t in self._deadlines if t in transports]
        self._deadlines = deque(d for d in self._deadlines if d[2] not in transports)
        for token in orphans:
            self._not_sent(token, ProbeStatus.LINK_DOWN)
        self._settle()

    def finish(self) -> None:
        """Send nothing more; what is under way still ends."""
        self.follow((), self._version, self._clock.now())
        for each in self._rounds:
            each.cancel()
        self._settle()

    def _send_due(self, now: Instant) -> None:
        """Send what is due, as far as the rate allows."""
        self._probes_held_ns = self._traces_held_ns = 0
        failed: set[Transport] = set()
        self._send_probes(now.monotonic_ns, failed, planned=False)
        self._send_traces(now.monotonic_ns, failed)
        self._send_probes(now.monotonic_ns, failed, planned=True)

    def _send_probes(self, now_ns: int, failed: set[Transport], *, planned: bool) -> None:
        """Send the probes of all rounds that are due; confirmations only unless `planned`."""
        # A probe that cannot be sent is confirmed at once, so this repeats `confirm` times.
        while not self._probes_held_ns:
            sent = False
            for owner in self._rounds:
                orders = owner.due(now_ns, planned=planned)
                sent = sent or bool(orders)
                for index, order in enumerate(orders):
                    if not self._send(owner, order, failed):
                        owner.put_back(orders[index:], now_ns)
                        break
            self._poll_all(failed)
            if not sent:
                return

    def _send_traces(self, now_ns: int, failed: set[Transport]) -> None:
        orders = self._tracer.due(now_ns)
        for index, order in enumerate(orders):
            if not self._send_trace(order, failed):
                self._tracer.put_back(orders[index:])
                break
        self._poll_all(failed)

    def _is_round_due(self, now: Instant) -> bool:
        return self._next_ns is None or now.monotonic_ns >= self._next_ns

    def _begin(self, now: Instant) -> None:
        begin = self._next_ns is not None and bool(self.plan.wanted)
        start_ns = next_start_ns(now.realtime_ns, self._config.interval_ns, self._stagger_ns)
        # Computed from the wall clock each time: setting the clock moves a single round.
        self._next_ns = now.monotonic_ns + start_ns - now.realtime_ns
        if not begin:
            return
        self.plan.postpone(sum(each.drop_planned() for each in self._rounds))
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

    def _send(self, owner: Round, order: Order, failed: set[Transport]) -> bool:
        """Send a probe; return False if the rate does not allow it yet."""
        token, transport, refused = self._prepare(order.target)
        now_ns = self._clock.now().monotonic_ns
        packets = 0
        if transport is not None:
            packets = transport.packets_per_probe(self._config.timeout_ns)
            wait_ns = self._rate.wait_ns(packets, now_ns)
            if wait_ns:
                self._probes_held_ns = now_ns + wait_ns
                return False
        self._owners[token] = owner
        owner.sent(token, order, now_ns)
        if transport is None:
            self._not_sent(token, refused)
        else:
            self._transmit(token, transport, order.target, None, packets=packets, failed=failed)
        return True

    def _send_trace(self, order: TraceOrder, failed: set[Transport]) -> bool:
        """Send a probe of a trace; return False if the rate does not allow it yet."""
        token, transport, refused = self._prepare(order.target)
        packets = 0
        if transport is not None and transport.untraced is None:
            now_ns = self._clock.now().monotonic_ns
            packets = transport.packets_per_probe(self._config.timeout_ns)
            wait_ns = max(
                limit.wait_ns(packets, now_ns) for limit in (self._rate, self._trace_rate)
            )
            if wait_ns:
                self._traces_held_ns = now_ns + wait_ns
                return False
        self._owners[token] = None
        self._tracer.sent(token, order)
        if transport is None:
            self._not_sent(token, refused)
        elif transport.untraced is not None:
            self._not_sent(token, ProbeStatus.UNKNOWN, Reason.UNTRACED)
        else:
            sent_ns = self._transmit(
                token, transport, order.target, order.ttl, packets=packets, failed=failed
            )
            self._trace_rate.record_sent(packets, sent_ns)
        return True

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
        self,
        token: int,
        transport: Transport,
        target: FlowTarget,
        ttl: int | None,
        *,
        packets: int,
        failed: set[Transport],
    ) -> int:
        """Send a probe of that many packets at most; return when that was done, monotonic.

        A transport on which it may have failed at once goes to `failed`.
        """
        timeout_ns = self._config.timeout_ns
        under_way = transport.send(
            Probe(
                token=token,
                address=target.address,
                port=target.port,
                flow=target.flow,
                entropy=target.entropy,
                timeout_ns=timeout_ns,
                ttl=ttl,
                qkey=target.qkey,
            )
        )
        if not under_way:
            failed.add(transport)
        now_ns = self._clock.now().monotonic_ns
        self._rate.record_sent(packets, now_ns)
        self._deadlines.append((now_ns + timeout_ns, token, transport))
        return now_ns

    def _poll_all(self, failed: set[Transport]) -> None:
        """Process what may have failed at once."""
        for transport in failed:
            self._take(transport)
        failed.clear()

    def _take(self, transport: Transport) -> None:
        completions = transport.poll()
        if completions:
            now_ns = self._clock.now().monotonic_ns
            for completion in completions:
                self._completed(completion, now_ns)

    def _not_sent(self, token: int, status: ProbeStatus, reason: Reason = Reason.NOT_SENT) -> None:
        completion = Completion(token=token, status=status, reason=reason)
        self._completed(completion, self._clock.now().monotonic_ns)

    def _completed(self, completion: Completion, now_ns: int) -> None:
        if completion.token not in self._owners:
            return
        owner = self._owners.pop(completion.token)
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
            return completion._replace(status=ProbeStatus.LINK_DOWN)
        return completion

    def _settle(self) -> None:
        for trace in self._tracer.finished():
            self._publish_trace(trace)
        for done in [r for r in self._rounds if r.done]:
            self._rounds.remove(done)
            self._publish_round(done)
