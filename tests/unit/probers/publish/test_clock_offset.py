"""The offset of the agent's clock from the broker's, by confirmations."""

import pytest

from probers.clock import Instant
from probers.publish.clock_offset import (
    LEAST_SAMPLES,
    MAX_ROUND_TRIP_NS,
    SAMPLE_EVERY_NS,
    WINDOW_NS,
    ClockOffset,
)
from schemas.units import MS_NS, SECOND_NS

START_NS = 1_700_000_000 * SECOND_NS


class Host:
    """A host whose clock is off, and its broker."""

    def __init__(self, offset_ns: int) -> None:
        self.offset_ns = offset_ns
        self.monotonic_ns = 50 * SECOND_NS
        self.offset = ClockOffset()

    def now(self) -> Instant:
        """Return this moment, as the host has it."""
        return Instant(self.monotonic_ns, START_NS + self.monotonic_ns + self.offset_ns)

    def send(self, there_ns: int = 4 * MS_NS, back_ns: int = 4 * MS_NS) -> None:
        """Send a record and learn when it was appended."""
        appended_ms = (START_NS + self.monotonic_ns + there_ns) // MS_NS
        self.offset.record_confirmed(self.now(), there_ns + back_ns, appended_ms)
        self.monotonic_ns += SAMPLE_EVERY_NS


@pytest.mark.parametrize("offset_ns", [0, 40 * SECOND_NS, -3_600 * SECOND_NS, 7 * MS_NS])
def test_the_offset_is_found_within_its_error(offset_ns: int) -> None:
    """Whatever it is, and however the way is divided."""
    host = Host(offset_ns)
    for there_ns in (1, 7, 4, 2, 6):
        host.send(there_ns * MS_NS, (8 - there_ns) * MS_NS)
    found = host.offset.estimate(host.now())
    assert found.offset_ns is not None
    assert found.error_ns == (8 * MS_NS + MS_NS) // 2
    assert abs(found.offset_ns - offset_ns) <= found.error_ns
    assert found.reason is None


def test_a_busy_moment_does_not_move_the_median() -> None:
    """Ten seconds of slow confirmations among a minute of quick ones."""
    host = Host(0)
    for second in range(50):
        host.send(back_ns=700 * MS_NS if second % 5 == 0 else 2 * MS_NS)
    found = host.offset.estimate(host.now())
    assert found.offset_ns is not None
    assert abs(found.offset_ns) < 5 * MS_NS


def test_too_few_confirmations_are_no_offset() -> None:
    """None and a reason: at the start, after a minute without the broker, with slow answers."""
    host = Host(0)
    assert host.offset.estimate(host.now()).offset_ns is None
    for count in range(LEAST_SAMPLES):
        assert str(count) in (host.offset.estimate(host.now()).reason or "")
        host.send()
    assert host.offset.estimate(host.now()).offset_ns is not None
    host.monotonic_ns += WINDOW_NS + 1
    assert host.offset.estimate(host.now()).offset_ns is None
    for _ in range(2 * LEAST_SAMPLES):
        host.send(back_ns=MAX_ROUND_TRIP_NS)
    assert host.offset.estimate(host.now()).offset_ns is None


def test_setting_the_clock_shows_at_once() -> None:
    """The samples before are compared with the clock as it is now."""
    host = Host(0)
    for _ in range(20):
        host.send()
    host.offset_ns = 10 * SECOND_NS
    found = host.offset.estimate(host.now())
    assert found.offset_ns is not None
    assert abs(found.offset_ns - 10 * SECOND_NS) <= 5 * MS_NS


def test_a_broker_that_keeps_the_writers_time_says_nothing() -> None:
    """Its timestamps are the agent's own."""
    offset = ClockOffset()
    for second in range(10):
        offset.record_confirmed(Instant(second * SECOND_NS, second * SECOND_NS), MS_NS, None)
    found = offset.estimate(Instant(10 * SECOND_NS, 10 * SECOND_NS))
    assert (found.offset_ns, found.error_ns) == (None, None)
    assert "message.timestamp.type" in (found.reason or "")


def test_memory_is_bounded() -> None:
    """One sample a second, whatever is sent."""
    offset = ClockOffset()
    for millisecond in range(100_000):
        at_ns = millisecond * MS_NS
        offset.record_confirmed(Instant(at_ns, at_ns), MS_NS, millisecond)
        if millisecond % 1_000 == 0:
            offset.estimate(Instant(at_ns, at_ns))
    assert len(offset._samples) <= 62


def test_the_latest_confirmation_alone_says_the_offset_roughly() -> None:
    """For a registration, which does not wait for a minute of samples."""
    host = Host(40 * SECOND_NS)
    assert host.offset.latest_ns(host.now()) is None
    host.send()
    latest_ns = host.offset.latest_ns(host.now())
    assert latest_ns is not None
    assert abs(latest_ns - 40 * SECOND_NS) <= 5 * MS_NS
    host.monotonic_ns += WINDOW_NS + 1
    assert host.offset.latest_ns(host.now()) is None
