"""Real sockets, real kernel stamps, and a wall clock that somebody sets."""

import time
from collections.abc import Iterator

import pytest

from probers.clock import Instant, SystemClock
from probers.transports.base import Completion, Probe
from probers.transports.rtt import Measurement, measure
from probers.transports.sockets import LINUX
from probers.transports.udp import UdpTransport
from schemas.enums import ClockSource, ProbeStatus
from schemas.units import SECOND_NS
from tests.contract.pairs import wait_readable

LOOPBACK = "127.0.0.1"

pytestmark = pytest.mark.skipif(not LINUX, reason="needs the kernel's receive stamps")


class SteppedClock(SystemClock):
    """The system's clock as it would read had it been set by so much."""

    def __init__(self) -> None:
        self.step_ns = 0

    def now(self) -> Instant:
        """Return this moment."""
        now = super().now()
        return Instant(now.monotonic_ns, now.realtime_ns + self.step_ns)


class Ends:
    """A prober and a responder, each with a clock of its own."""

    def __init__(self) -> None:
        self.near_clock, self.far_clock = SteppedClock(), SteppedClock()
        self.near = UdpTransport(self.near_clock, LOOPBACK, 0)
        self.far = UdpTransport(self.far_clock, LOOPBACK, 0)

    def send(self) -> None:
        """Send one probe."""
        self.near.send(
            Probe(
                token=1,
                address=LOOPBACK,
                port=self.far.port,
                flow=0,
                entropy=0,
                timeout_ns=5 * SECOND_NS,
            )
        )

    def answer(self) -> None:
        """Let the responder answer it."""
        assert wait_readable(self.far)
        self.far.poll()

    def receive(self) -> Completion:
        """Return what became of it."""
        assert wait_readable(self.near)
        (completion,) = self.near.poll()
        return completion


@pytest.fixture
def ends() -> Iterator[Ends]:
    """Return both ends."""
    made = Ends()
    yield made
    made.near.close()
    made.far.close()


def measured(completion: Completion) -> Measurement:
    """Return what an OK completion measures."""
    assert completion.status is ProbeStatus.OK
    assert completion.times is not None
    outcome = measure(completion.times)
    assert isinstance(outcome, Measurement)
    return outcome


@pytest.mark.parametrize("step_s", [-86_400, -1, -0.005, 0.005, 1, 86_400])
@pytest.mark.parametrize("moment", ["before the answer", "before the reading"])
def test_a_step_at_the_prober_never_shows_in_the_rtt(
    ends: Ends, step_s: float, moment: str
) -> None:
    """Set at any moment between sending and reading, the RTT is at most what has passed."""
    begin_ns = time.monotonic_ns()
    ends.send()
    if moment == "before the answer":
        ends.near_clock.step_ns = int(step_s * SECOND_NS)
    ends.answer()
    ends.near_clock.step_ns = int(step_s * SECOND_NS)
    completion = ends.receive()
    outcome = measured(completion)
    assert completion.clock is ClockSource.SOFTWARE
    assert 0 < outcome.rtt_ns <= time.monotonic_ns() - begin_ns


@pytest.mark.parametrize("step_s", [-86_400, -1, 1, 86_400])
def test_a_step_at_the_responder_never_shows_in_the_rtt(ends: Ends, step_s: float) -> None:
    """Set while the probe waits in its socket, the responder's hold is not believed."""
    ends.send()
    ends.answer()
    ends.receive()
    begin_ns = time.monotonic_ns()
    ends.send()
    ends.far_clock.step_ns = int(step_s * SECOND_NS)
    ends.answer()
    outcome = measured(ends.receive())
    assert 0 < outcome.rtt_ns <= time.monotonic_ns() - begin_ns


def test_after_a_step_the_kernels_stamps_are_used_again(ends: Ends) -> None:
    """Stamps and clock have moved together: the next probe is measured as before."""
    ends.send()
    ends.answer()
    assert ends.receive().clock is ClockSource.KERNEL
