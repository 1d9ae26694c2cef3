"""One probing round: which probe is sent when, its results, and when the round is over. Pure.

A lost probe is sent again at once on the same 5-tuple, up to `confirm` times in a row, and each
attempt is a result of its own. So a dead 5-tuple shows several losses in a row within a round,
and a single lost packet does not.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from probers.clock import Instant
from probers.probing.plan import FlowTarget
from probers.transports.base import Completion, Reason
from probers.transports.rtt import Measurement, measure
from schemas.enums import ClockSource, ProbeStatus
from schemas.records import ProbeResult

# Offsets and delays are published in whole multiples of this, rounded down. A round's start is
# published to the microsecond, and a delay is that of software, ten to some hundred microseconds.
# The digits below are noise, which no codec compresses: without them a result takes 8 % (lz4) to
# 15 % (zstd) less on the broker. It is a power of two, so that whole bits become zero. Round trips,
# which detectors read, are published to the nanosecond.
RESOLUTION_NS: Final = 1_024


class Order(NamedTuple):
    """A probe to send now; `attempt` 0 is the planned one, 1.. its confirmations."""

    target: FlowTarget
    attempt: int = 0


class _Sent(NamedTuple):
    position: int
    order: Order
    offset_ns: int


class Round:
    """One round of one agent.

    Parameters
    ----------
    plan : offsets from the start in nanoseconds, ascending, and what to probe then
    confirm : how often a lost probe is sent again
    wanted : says whether a target is still to be probed; one that has left in the
        middle of a round is not probed again
    """

    def __init__(
        self,
        *,
        seq: int,
        started: Instant,
        pinglist_version: int | None,
        plan: Sequence[tuple[int, FlowTarget]],
        confirm: int,
        wanted: Callable[[FlowTarget], bool] = lambda _: True,
    ) -> None:
        self.seq = seq
        self.started = started
        self.pinglist_version = pinglist_version
        self._confirm = confirm
        self._wanted = wanted
        self._plan = deque((started.monotonic_ns + offset, target) for offset, target in plan)
        self._awaited: dict[int, _Sent] = {}
        self._results: list[ProbeResult | None] = []
        self._again: list[Order] = []

    @property
    def done(self) -> bool:
        """Whether all probes have been sent and all results are in."""
        return not (self._plan or self._awaited or self._again)

    @property
    def due_ns(self) -> int | None:
        """When the next probe is to be sent, monotonic nanoseconds; None when all are."""
        if self._again:
            return 0
        return self._plan[0][0] if self._plan else None

    def due(self, now_ns: int, *, planned: bool = True) -> list[Order]:
        """Return the probes that are due, once: confirmations, then planned ones if asked for.

        Report each by `sent`, or give it back by `put_back`.
        """
        orders, self._again = self._again, []
        while planned and self._plan and self._plan[0][0] <= now_ns:
            orders.append(Order(self._plan.popleft()[1]))
        return orders

    def put_back(self, orders: Sequence[Order], now_ns: int) -> None:
        """Take back orders that are due but may not be sent yet, in the order of `due`."""
        self._again = [order for order in orders if order.attempt] + self._again
        self._plan.extendleft((now_ns, o.target) for o in reversed(orders) if not o.attempt)

    def drop_planned(self) -> int:
        """Drop the planned probes that were not sent; return how many there were."""
        dropped = len(self._plan)
        self._plan.clear()
        return dropped

    def sent(self, token: int, order: Order, now_ns: int) -> None:
        """Record that a probe is under way as `token`."""
        offset_ns = now_ns - self.started.monotonic_ns
        self._awaited[token] = _Sent(len(self._results), order, offset_ns)
        self._results.append(None)

    def target(self, token: int) -> FlowTarget:
        """Return the target of a probe under way."""
        return self._awaited[token].order.target

    def cancel(self) -> None:
        """Send nothing more; probes under way still complete."""
        self._plan.clear()
        self._again.clear()
        self._confirm = 0

    def completed(self, completion: Completion) -> tuple[FlowTarget, ProbeResult | None]:
        """Return target and result of a completed probe; a lost probe is ordered again.

        A probe whose target was still being resolved has no result and is not repeated.
        """
        sent = self._awaited.pop(completion.token)
        attempt, target = sent.order.attempt, sent.order.target
        if completion.reason is Reason.PENDING:
            return target, None
        result = result_of(target, sent.offset_ns, completion)
        self._results[sent.position] = result
        if result.status is not ProbeStatus.OK and attempt < self._confirm and self._wanted(target):
            self._again.append(Order(target, attempt + 1))
        return target, result

    def results(self) -> tuple[ProbeResult, ...]:
        """Return the results of a round that is done, in the order sent."""
        return tuple(result for result in self._results if result is not None)


def round_down_ns(duration_ns: int) -> int:
    """Return an offset or a delay as it is published."""
    return duration_ns - duration_ns % RESOLUTION_NS


def result_of(target: FlowTarget, offset_ns: int, completion: Completion) -> ProbeResult:
    """Return the result of a completed probe, as a record carries it."""
    measured: Measurement | None = None
    if completion.status is ProbeStatus.OK and completion.times is not None:
        outcome = measure(completion.times)
        measured = outcome if isinstance(outcome, Measurement) else None
    status = completion.status
    if status is ProbeStatus.OK and measured is None:
        status = ProbeStatus.BAD_REPLY
    return ProbeResult(
        src=target.src,
        dst=target.dst,
        flow=target.flow,
        sent_offset_ns=round_down_ns(offset_ns),
        transport=target.transport,
        status=status,
        rtt_ns=measured.rtt_ns if measured else None,
        prober_delay_ns=round_down_ns(measured.prober_delay_ns) if measured else None,
        responder_delay_ns=(
            round_down_ns(measured.responder_delay_ns)
            if measured and measured.responder_delay_ns is not None
            else None
        ),
        clock=completion.clock if measured else ClockSource.SOFTWARE,
    )
