"""Timestamps to round-trip time, or the reason why there is none. Pure.

Two clocks meet here, the prober's and the responder's, and never are they
compared: only differences within one clock are used, so neither needs to be
right.

    R-Pingmesh (SIGCOMM'24), RDMA          here
    t1  host: posted                       posted_ns
    t2  RNIC: on the wire (CQE)            sent_ns
    t5  RNIC: reply arrived (CQE)          received_ns
    t6  host: handled                      handled_ns
    t4 - t3  responder's delay             hold_ns

    network round trip  (t5 - t2) - (t4 - t3)
    prober's own delay  (t6 - t1) - (t5 - t2)

UDP has no send stamp of its own, so posted_ns = sent_ns = t1, received_ns = t4 of
the kernel, hold_ns = t3 - t2, and the same two formulas give
(t4 - t1) - (t3 - t2) and the time from the kernel to the program.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from probers.clock import Instant
from schemas.enums import ClockSource

# The two clocks drift apart between two readings only when one is set; a
# preempted reader may see some hundred microseconds. A kernel stamp is not used
# when the difference moved by more.
STEP_TOLERANCE_NS: Final = 1_000_000
# A host's clock and an RNIC's may differ in rate by some 100 ppm (crystals of
# both at their worst); what is negative by no more than that is zero.
DRIFT_PPM: Final = 200
# No probe waits this long: the settings allow timeouts of up to 30 s.
ABSURD_NS: Final = 120 * 10**9


class Timestamps(NamedTuple):
    """When things happened to one probe, nanoseconds; a tuple, since one is built for each answer.

    posted_ns and handled_ns are of one clock, sent_ns and received_ns of one
    clock (for UDP all four of the same). hold_ns is None where the responder's
    kernel answers and does not measure it (TCP).
    """

    posted_ns: int
    sent_ns: int
    received_ns: int
    handled_ns: int
    hold_ns: int | None = None


class Measurement(NamedTuple):
    """What the timestamps say, nanoseconds, all zero or more."""

    rtt_ns: int
    prober_delay_ns: int
    responder_delay_ns: int | None


@dataclass(frozen=True, slots=True)
class Implausible:
    """The timestamps contradict themselves."""

    reason: str


def measure(times: Timestamps) -> Measurement | Implausible:
    """Return round trip and delays.

    Source: Liu et al., R-Pingmesh, SIGCOMM 2024, section 4.2.

    >>> measure(Timestamps(posted_ns=0, sent_ns=0, received_ns=50, handled_ns=60, hold_ns=10))
    Measurement(rtt_ns=40, prober_delay_ns=10, responder_delay_ns=10)
    """
    hold_ns = times.hold_ns if times.hold_ns is not None else 0
    if hold_ns < 0:
        return Implausible(f"the responder held the probe for {hold_ns} ns")
    away_ns = times.received_ns - times.sent_ns
    rtt_ns = away_ns - hold_ns
    total_ns = times.handled_ns - times.posted_ns
    if not 0 <= total_ns <= ABSURD_NS:
        return Implausible(f"{total_ns} ns from posting to handling")
    if not 0 <= away_ns <= ABSURD_NS:
        return Implausible(f"{away_ns} ns from sending to receiving")
    if rtt_ns < 0:
        return Implausible(f"the responder held the probe for {hold_ns} ns of {away_ns} ns")
    delay_ns = total_ns - away_ns
    if delay_ns < 0:
        if -delay_ns > total_ns * DRIFT_PPM // 10**6 + 1:
            return Implausible(f"handled {-delay_ns} ns before it arrived")
        delay_ns = 0
    return Measurement(rtt_ns, delay_ns, times.hold_ns)


def place_arrival(
    kernel_ns: int | None, *, now: Instant, posted: Instant
) -> tuple[int, ClockSource]:
    """Return when a datagram arrived, on the monotonic clock, and which clock says so.

    The kernel stamps by the wall clock. How long the datagram has waited is the
    wall clock's reading less the stamp, and the monotonic clock less that wait is
    the arrival: a clock set between sending and receiving changes nothing. A clock
    set during the wait itself shows as a changed offset between the two clocks, or as an
    impossible wait; then the moment of handling is used instead.
    """
    if kernel_ns is None:
        return now.monotonic_ns, ClockSource.SOFTWARE
    waited_ns = now.realtime_ns - kernel_ns
    stepped = abs(now.offset_ns - posted.offset_ns) > STEP_TOLERANCE_NS
    if stepped or not 0 <= waited_ns <= now.monotonic_ns - posted.monotonic_ns:
        return now.monotonic_ns, ClockSource.SOFTWARE
    return now.monotonic_ns - waited_ns, ClockSource.KERNEL
