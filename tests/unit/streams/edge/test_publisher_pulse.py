"""A process that stood still knows it."""

import time

from streams.edge.publisher import BEAT_S, Pulse


def test_running_is_steady_and_a_gap_is_for_good() -> None:
    """Beats keep it steady; once a gap was seen, later beats do not hide it."""
    # A busy machine is no gap.
    pulse = Pulse(60, lambda: None)
    deadline = time.monotonic() + 3 * BEAT_S
    while time.monotonic() < deadline:
        assert pulse.steady()
    # As if the process had been stopped for longer than half a session.
    pulse._last -= 31
    assert not pulse.steady()
    pulse._last = time.monotonic()
    assert not pulse.steady()
    pulse.stop()
