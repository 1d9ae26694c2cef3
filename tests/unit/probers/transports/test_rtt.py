"""Timestamps to round-trip times, and the reasons against."""

import pytest

from probers.clock import Instant
from probers.transports.rtt import Implausible, Measurement, Timestamps, measure, place_arrival
from schemas.enums import ClockSource
from schemas.units import SECOND_NS, US_NS

# An RNIC's clock starts anywhere.
RNIC = 77_000_000_000_000


def test_udp_rtt_is_free_of_the_responders_delay() -> None:
    """(t4 - t1) - (t3 - t2), with the prober's own delay beside it."""
    times = Timestamps(
        posted_ns=0, sent_ns=0, received_ns=100 * US_NS, handled_ns=130 * US_NS, hold_ns=80 * US_NS
    )
    assert measure(times) == Measurement(20 * US_NS, 30 * US_NS, 80 * US_NS)


def test_rdmas_six_timestamps_fit() -> None:
    """R-Pingmesh: RTT = (t5-t2)-(t4-t3), prober delay = (t6-t1)-(t5-t2), two clocks."""
    t1, t6 = 1_000, 1_000 + 55 * US_NS
    t2, t5 = RNIC, RNIC + 40 * US_NS
    t3, t4 = 5, 5 + 30 * US_NS
    times = Timestamps(posted_ns=t1, sent_ns=t2, received_ns=t5, handled_ns=t6, hold_ns=t4 - t3)
    assert measure(times) == Measurement(
        rtt_ns=(t5 - t2) - (t4 - t3),
        prober_delay_ns=(t6 - t1) - (t5 - t2),
        responder_delay_ns=t4 - t3,
    )


def test_a_responder_that_nobody_measures_has_no_delay() -> None:
    """TCP: the kernel answers; the responder's delay is missing, not zero."""
    times = Timestamps(posted_ns=0, sent_ns=0, received_ns=9, handled_ns=10)
    assert measure(times) == Measurement(9, 1, None)


@pytest.mark.parametrize(
    "times",
    [
        Timestamps(posted_ns=0, sent_ns=0, received_ns=10, handled_ns=10, hold_ns=11),
        Timestamps(posted_ns=0, sent_ns=0, received_ns=10, handled_ns=10, hold_ns=-1),
        Timestamps(posted_ns=0, sent_ns=0, received_ns=-1, handled_ns=10, hold_ns=0),
        Timestamps(posted_ns=10, sent_ns=10, received_ns=20, handled_ns=5, hold_ns=0),
        Timestamps(
            posted_ns=0,
            sent_ns=0,
            received_ns=300 * SECOND_NS,
            handled_ns=300 * SECOND_NS,
            hold_ns=0,
        ),
        Timestamps(
            posted_ns=0, sent_ns=RNIC, received_ns=RNIC + SECOND_NS, handled_ns=1, hold_ns=0
        ),
        Timestamps(posted_ns=0, sent_ns=0, received_ns=2**63, handled_ns=10, hold_ns=2**63),
    ],
)
def test_contradictions_are_no_measurement(times: Timestamps) -> None:
    """Negative and absurd differences give a reason instead of a number."""
    outcome = measure(times)
    assert isinstance(outcome, Implausible)
    assert outcome.reason


def test_two_crystals_may_disagree_a_little() -> None:
    """A prober delay negative by less than the clocks' drift is zero, not an error."""
    total = 100_000 * US_NS
    times = Timestamps(
        posted_ns=0,
        sent_ns=RNIC,
        received_ns=RNIC + total + 15 * US_NS,
        handled_ns=total,
        hold_ns=0,
    )
    assert measure(times) == Measurement(total + 15 * US_NS, 0, 0)


POSTED = Instant(monotonic_ns=50 * SECOND_NS, realtime_ns=1_000 * SECOND_NS)


def at(after_ns: int, step_ns: int = 0) -> Instant:
    """Return a moment after posting, the wall clock set by `step_ns` since."""
    return Instant(POSTED.monotonic_ns + after_ns, POSTED.realtime_ns + after_ns + step_ns)


def test_the_kernels_stamp_is_placed_on_the_monotonic_clock() -> None:
    """Arrived 100 us after posting, handled 130 us after it."""
    arrival = place_arrival(POSTED.realtime_ns + 100 * US_NS, now=at(130 * US_NS), posted=POSTED)
    assert arrival == (POSTED.monotonic_ns + 100 * US_NS, ClockSource.KERNEL)


def test_without_a_stamp_the_moment_of_handling_counts() -> None:
    """And the source says so."""
    now = at(130 * US_NS)
    assert place_arrival(None, now=now, posted=POSTED) == (now.monotonic_ns, ClockSource.SOFTWARE)


@pytest.mark.parametrize("step_s", [-3_600, -1, -0.01, 0.01, 1, 3_600])
@pytest.mark.parametrize("stamped_after_step", [False, True])
def test_a_clock_that_is_set_meanwhile_never_gives_a_wrong_time(
    step_s: float, stamped_after_step: bool
) -> None:
    """Whenever the wall clock is set, the arrival lies between posting and handling."""
    step_ns = int(step_s * SECOND_NS)
    stamp_ns = POSTED.realtime_ns + 100 * US_NS + (step_ns if stamped_after_step else 0)
    now = at(130 * US_NS, step_ns)
    received_ns, source = place_arrival(stamp_ns, now=now, posted=POSTED)
    assert received_ns == now.monotonic_ns
    assert source is ClockSource.SOFTWARE
