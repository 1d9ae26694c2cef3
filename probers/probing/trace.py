"""Traces of 5-tuples: when to trace one, and which hops it takes. Pure.

Hops are found as Paris traceroute finds them, over any transport whose nodes report expired
probes. All probes of a trace are ordinary probes on the flow's own 5-tuple, so they take the
flow's own ECMP path (Augustin et al., Paris traceroute, IMC 2006). They differ in the TTL alone,
and all TTLs up to the last known distance are sent at once: a trace takes one round trip if its
target answers, and one timeout at most if a known target is dead.

A flow is traced when it becomes active, every few minutes after that, and at once when one of its
probes is lost or when it has become slower. Where more flows lose probes than the budget allows
traces, those are traced first whose pair of endpoints was traced longest ago: different ends tell
more than the other 5-tuples of the same two. `TypicalRtt`, which decides the latter, is no
detector: the stream worker decides what is anomalous, over windows and at a stated false-alarm
rate. But only a trace made while a path is slow shows where the delay arises, and it must exist
by the verdict.
"""

import heapq
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from probers.clock import TokenBucket
from probers.probing.plan import FlowTarget, fraction
from probers.transports.base import Completion, Reason
from schemas.enums import ProbeStatus, TraceCause
from schemas.records import TraceHop

# The CPU of a switch, which answers a trace, varies by some hundred microseconds: a
# smaller rise would not show in a trace.
LEAST_RISE_NS: Final = 500_000
# A single slow answer may come from a process that was not scheduled.
IN_A_ROW: Final = 2
# The typical round trip follows faster answers within some probes and slower ones within
# a minute at 1 Hz. After that time a raised round trip is the new normal.
FALL_SHIFT: Final = 3
RISE_SHIFT: Final = 6


@dataclass(slots=True)
class TypicalRtt:
    """Typical round trip of one 5-tuple, and how many in a row were slower.

    `typical_ns` is an exponential average with a short memory downwards and a long one
    upwards (the estimator of RFC 6298 with two gains); None before the first answer.
    """

    typical_ns: int | None = None
    slow: int = 0

    def answered(self, rtt_ns: int) -> bool:
        """Observe a round trip; return whether the 5-tuple is slower than it typically is."""
        typical_ns = self.typical_ns
        if typical_ns is None:
            self.typical_ns = rtt_ns
            return False
        raised = rtt_ns > typical_ns + max(typical_ns, LEAST_RISE_NS)
        self.slow = self.slow + 1 if raised else 0
        rise_ns = rtt_ns - typical_ns
        shift = RISE_SHIFT if rise_ns > 0 else FALL_SHIFT
        self.typical_ns = typical_ns + (rise_ns >> shift)
        return self.slow >= IN_A_ROW


# As far as a fat tree with an overlay at both ends goes, and what path.trace.v1 holds.
MAX_TTL: Final = 32
# TTLs tried at once when the distance is not known: two servers of one pod with
# virtual switches at both ends are six to eight hops apart.
WAVE: Final = 8
# Probes of traces that may wait for the rate; with more, no trace is made for a cause.
MAX_WAITING: Final = 512
# A trace that came too early (the distance is not known yet) is made again at the flow's next
# answer; if that is too early as well, at the first answer after this time.
AGAIN_NS: Final = 30 * 10**9
# Traces because of slowness are so much fewer than those because of loss.
SLOW_SHARE: Final = 8
NEVER_NS: Final = -(2**62)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSettings:
    """How often and how fast to trace.

    Attributes
    ----------
    timeout_ns : how long a hop may take to answer
    refresh_ns : distance of two traces of a flow without a cause, each varied by a
        quarter so that agents do not trace together
    cause_gap_ns : least distance of two traces of a flow because of loss, or of slowness
    rate_hz : traces begun per second for discovery; for loss, in addition, twice as many,
        for slowness a quarter (on a busy machine everything is slow), unless the list tells a
        budget
    discovery_burst : discoveries begun at once. Ping lists reach all agents of a job at the
        same instant, and a discovery sends a wave of probes: with 32 at once, four agents
        of a lab kept its fabric busy for a second, and healthy probes timed out.
    loss_burst : traces for loss begun at once: a verdict waits for them
    slow_burst : traces for slowness begun at once: its verdict waits for a window anyway
    """

    timeout_ns: int
    refresh_ns: int = 300 * 10**9
    cause_gap_ns: int = 10 * 10**9
    rate_hz: float = 20.0
    discovery_burst: int = 4
    loss_burst: int = 64
    slow_burst: int = 8


Pair = tuple[str, str]
# A 5-tuple.
Key = tuple[str, str, int]


@dataclass(slots=True)
class _Flow:
    """A 5-tuple, and when it is traced."""

    target: FlowTarget
    due_ns: int
    distance: int | None = None
    # When it was last traced for each cause.
    asked_ns: dict[TraceCause, int] = field(default_factory=dict)
    pace: TypicalRtt = field(default_factory=TypicalRtt)
    running: bool = False
    lost_while_running: bool = False
    # From this time on an answer repeats a trace that came too early; None: none did.
    again_ns: int | None = None
    dropped: bool = False


@dataclass(slots=True)
class _Trace:
    """A trace under way."""

    flow: _Flow
    cause: TraceCause
    known: bool
    last_ttl: int
    hops: dict[int, TraceHop] = field(default_factory=dict)
    silent: set[int] = field(default_factory=set)
    target_ttl: int | None = None
    obstacle: str | None = None
    over: bool = False


@dataclass(frozen=True, slots=True)
class TraceOrder:
    """A probe to send with that TTL."""

    target: FlowTarget
    ttl: int
    trace: _Trace


@dataclass(frozen=True, slots=True)
class FinishedTrace:
    """What `path.trace.v1` says of one trace."""

    target: FlowTarget
    cause: TraceCause
    complete: bool
    incomplete_reason: str | None
    hops: tuple[TraceHop, ...]


def in_turn(asked_ns: Mapping[Key, int], pairs_ns: Mapping[Pair, int]) -> list[Key]:
    """Return flows in the order in which they are traced: one of each pair first.

    Parameters
    ----------
    asked_ns
        When each was last traced for this cause; those longest ago go first in their pair.
    pairs_ns
        The same of any flow of a pair; the pair longest ago goes first.
    """
    rank: Counter[Pair] = Counter()
    turns: dict[Key, tuple[int, int]] = {}
    for key in sorted(asked_ns, key=asked_ns.__getitem__):
        pair = key[:2]
        turns[key] = rank[pair], pairs_ns.get(pair, NEVER_NS)
        rank[pair] += 1
    return sorted(turns, key=turns.__getitem__)


class Tracer:
    """Decides what to trace, and assembles traces from the completions of their probes."""

    def __init__(self, settings: TraceSettings) -> None:
        self._settings = settings
        self._flows: dict[Key, _Flow] = {}
        self._calendar: list[tuple[int, Key]] = []
        self._discovery = TokenBucket(settings.rate_hz, settings.discovery_burst)
        self._budget: int | None = None
        self._losses = TokenBucket(settings.rate_hz * 2, settings.loss_burst)
        self._slow = TokenBucket(settings.rate_hz / 4, settings.slow_burst)
        # Flows with a loss that wait for their turn, and when each pair was last traced for one.
        self._lost: dict[Key, _Flow] = {}
        self._pairs_ns: dict[Pair, int] = {}
        self._orders: list[TraceOrder] = []
        self._awaited: dict[int, TraceOrder] = {}
        self._finished: list[FinishedTrace] = []
        # Losses and slow answers that were not traced: one was too recent, or too many ran.
        self.suppressed = 0

    def set_budget(self, budget: int | None) -> None:
        """Begin so many traces at once because of loss, and again in each `cause_gap_ns`.

        Because of slowness an eighth of it, as without: then the settings' own limits hold.
        """
        if budget == self._budget:
            return
        self._budget, settings = budget, self._settings
        rate_hz, slow_hz = settings.rate_hz * 2, settings.rate_hz / 4
        losses, slow = settings.loss_burst, settings.slow_burst
        if budget is not None:
            losses, slow = budget, max(1, budget // SLOW_SHARE)
            rate_hz, slow_hz = (n * 1e9 / settings.cause_gap_ns for n in (losses, slow))
        self._losses, self._slow = TokenBucket(rate_hz, losses), TokenBucket(slow_hz, slow)

    def follow(self, flows: tuple[FlowTarget, ...], now_ns: int) -> None:
        """Replace the flows to trace; new ones, and those that moved, are traced soon."""
        current = {flow.key: flow for flow in flows}
        for key in [k for k in self._flows if k not in current]:
            del self._flows[key]
        pairs = {key[:2] for key in current}
        self._pairs_ns = {pair: ns for pair, ns in self._pairs_ns.items() if pair in pairs}
        # Probes of traces that still wait for the rate leave with their flow.
        self._orders = [order for order in self._orders if order.target.key in current]
        for key, target in current.items():
            known = self._flows.get(key)
            if known is None or known.target != target:
                self._flows[key] = _Flow(target, now_ns)
                heapq.heappush(self._calendar, (now_ns, key))
        # Those that moved are discovered where they are now.
        self._lost = {k: flow for k, flow in self._lost.items() if self._flows.get(k) is flow}

    def lost(self, target: FlowTarget, now_ns: int) -> None:
        """Trace a flow that has lost a probe, unless it was traced for that just now."""
        flow = self._flows.get(target.key)
        if flow is None:
            return
        if target.key in self._lost or self._is_recent(flow, TraceCause.LOSS, now_ns):
            self.suppressed += 1
        elif flow.running:
            flow.lost_while_running = True
        else:
            self._lost[target.key] = flow

    def answered(self, target: FlowTarget, rtt_ns: int, now_ns: int) -> None:
        """Observe a round trip; trace the flow if it has become slower."""
        flow = self._flows.get(target.key)
        if flow is None:
            return
        if self._lost and self._lost.pop(target.key, None) is not None:
            # What waits for its turn gets through again: a trace would no longer show the loss.
            self.suppressed += 1
        if flow.again_ns is not None and now_ns >= flow.again_ns:
            flow.again_ns, flow.due_ns = None, now_ns
            heapq.heappush(self._calendar, (now_ns, target.key))
        if flow.pace.answered(rtt_ns):
            self._slower(flow, now_ns)

    def _is_recent(self, flow: _Flow, cause: TraceCause, now_ns: int) -> bool:
        before_ns = flow.asked_ns.get(cause)
        return before_ns is not None and now_ns - before_ns < self._settings.cause_gap_ns

    def _slower(self, flow: _Flow, now_ns: int) -> None:
        """Trace a flow that has become slower, unless it is being traced or there are too many."""
        recent = self._is_recent(flow, TraceCause.LATENCY, now_ns)
        if not recent and flow.running:
            return
        waiting = len(self._orders) >= MAX_WAITING
        if recent or waiting or not self._slow.take_token(now_ns):
            self.suppressed += 1
            return
        flow.asked_ns[TraceCause.LATENCY] = now_ns
        self._begin(flow, TraceCause.LATENCY)

    def _begin_lost(self, now_ns: int) -> None:
        """Trace flows with a loss, as many as may be."""
        asked_ns = {
            key: flow.asked_ns.get(TraceCause.LOSS, NEVER_NS) for key, flow in self._lost.items()
        }
        for key in in_turn(asked_ns, self._pairs_ns):
            flow = self._lost[key]
            if flow.running:
                # It was discovered meanwhile.
                flow.lost_while_running = True
            elif len(self._orders) >= MAX_WAITING or not self._losses.take_token(now_ns):
                return
            else:
                flow.asked_ns[TraceCause.LOSS] = self._pairs_ns[key[:2]] = now_ns
                self._begin(flow, TraceCause.LOSS)
            del self._lost[key]

    def due_ns(self, now_ns: int) -> int | None:
        """Return when there is something to send, monotonic nanoseconds; None when never."""
        if self._orders:
            return now_ns
        times: list[int] = []
        if self._lost:
            times.append(now_ns + self._losses.wait_ns(now_ns))
        if self._calendar:
            times.append(max(self._calendar[0][0], now_ns + self._discovery.wait_ns(now_ns)))
        return min(times, default=None)

    def due(self, now_ns: int) -> list[TraceOrder]:
        """Return the probes to send now, once; report each by `sent`."""
        if self._lost and not self._losses.wait_ns(now_ns):
            self._begin_lost(now_ns)
        while self._calendar and self._calendar[0][0] <= now_ns:
            due_ns, key = self._calendar[0]
            flow = self._flows.get(key)
            if flow is None or flow.due_ns != due_ns:
                heapq.heappop(self._calendar)  # of a flow that has left or moved since
                continue
            if not flow.running:
                waiting = len(self._orders) >= MAX_WAITING
                if waiting or not self._discovery.take_token(now_ns):
                    break
                self._begin(flow, TraceCause.DISCOVERY)
            flow.due_ns = now_ns + self._refresh_ns(flow.target)
            heapq.heapreplace(self._calendar, (flow.due_ns, key))
        orders, self._orders = self._orders, []
        return orders

    def put_back(self, orders: list[TraceOrder]) -> None:
        """Take back orders that may not be sent yet."""
        self._orders = orders + self._orders

    def sent(self, token: int, order: TraceOrder) -> None:
        """Record that a probe of a trace is under way as `token`."""
        self._awaited[token] = order

    def completed(self, completion: Completion, now_ns: int) -> None:
        """Process the completion of a probe of a trace."""
        order = self._awaited.pop(completion.token, None)
        if order is None:
            return
        trace = order.trace
        if trace.over:
            return  # a TTL beyond the target
        if completion.reason in (Reason.PENDING, Reason.UNTRACED):
            self._drop(trace, completion.reason, now_ns)
            return
        _note(trace, order.ttl, completion)
        if self._over(trace):
            self._finish(trace, now_ns)

    def finished(self) -> list[FinishedTrace]:
        """Return the traces that are over, once."""
        finished, self._finished = self._finished, []
        return finished

    def _refresh_ns(self, target: FlowTarget) -> int:
        refresh_ns = self._settings.refresh_ns
        return refresh_ns - refresh_ns // 8 + fraction(f"refresh|{target}", refresh_ns // 4)

    def _begin(self, flow: _Flow, cause: TraceCause) -> None:
        flow.running = True
        known = flow.distance is not None
        trace = _Trace(flow, cause, known, flow.distance or WAVE)
        self._send_wave(trace, 1)

    def _send_wave(self, trace: _Trace, first: int) -> None:
        self._orders.extend(
            TraceOrder(trace.flow.target, ttl, trace) for ttl in range(first, trace.last_ttl + 1)
        )

    def _over(self, trace: _Trace) -> bool:
        """Return whether the trace is complete; if not, order the next wave of probes."""
        end = trace.last_ttl if trace.target_ttl is None else trace.target_ttl - 1
        if any(t not in trace.hops and t not in trace.silent for t in range(1, end + 1)):
            return False
        if trace.target_ttl is not None or trace.obstacle is not None:
            return True
        wave = range(max(1, trace.last_ttl - WAVE + 1), trace.last_ttl + 1)
        quiet = not any(ttl in trace.hops for ttl in wave)
        if quiet or trace.last_ttl >= MAX_TTL or (trace.known and trace.cause is TraceCause.LOSS):
            return True
        first, trace.last_ttl = trace.last_ttl + 1, min(trace.last_ttl + WAVE, MAX_TTL)
        self._send_wave(trace, first)
        return False

    def _drop(self, trace: _Trace, reason: Reason, now_ns: int) -> None:
        """End a trace without a result; one that came too early is made again later."""
        trace.over = True
        flow = trace.flow
        flow.running = flow.lost_while_running = False
        if reason is Reason.PENDING and flow.again_ns is None:
            flow.again_ns = now_ns + (AGAIN_NS if flow.dropped else 0)
            flow.dropped = True

    def _finish(self, trace: _Trace, now_ns: int) -> None:
        flow = trace.flow
        trace.over = True
        flow.running = flow.dropped = False
        complete = trace.target_ttl is not None and trace.obstacle is None
        if complete:
            flow.distance = trace.target_ttl
        self._finished.append(
            FinishedTrace(
                flow.target, trace.cause, complete, None if complete else _why(trace), _hops(trace)
            )
        )
        if flow.lost_while_running:
            flow.lost_while_running = False
            self.lost(flow.target, now_ns)


def _note(trace: _Trace, ttl: int, completion: Completion) -> None:
    times = completion.times
    if completion.reporter is None or times is None:
        trace.silent.add(ttl)
        if completion.reason is Reason.NOT_SENT:
            trace.obstacle = f"not sent: {completion.status.value}"
        return
    rtt_ns = max(0, times.received_ns - times.sent_ns - (times.hold_ns or 0))
    trace.hops[ttl] = TraceHop(ttl=ttl, address=completion.reporter, rtt_ns=rtt_ns)
    if completion.reason is Reason.TTL_EXCEEDED:
        return
    if trace.target_ttl is None or ttl < trace.target_ttl:
        trace.target_ttl = ttl
        trace.obstacle = (
            None
            if completion.status is ProbeStatus.OK
            else f"{completion.reporter} reports {completion.status.value}"
        )


def _hops(trace: _Trace) -> tuple[TraceHop, ...]:
    """Return the hops up to the target, else up to the first silence after the last answer."""
    end = trace.target_ttl
    if end is None:
        end = min(max(trace.hops, default=0) + 1, trace.last_ttl)
    return tuple(
        trace.hops.get(ttl) or TraceHop(ttl=ttl, address=None, rtt_ns=None)
        for ttl in range(1, end + 1)
    )


def _why(trace: _Trace) -> str:
    if trace.obstacle is not None:
        return trace.obstacle
    if not trace.hops:
        return "no hop answered"
    last = trace.hops[max(trace.hops)]
    return f"no answer after hop {last.ttl} ({last.address})"
