"""Ramps on the grid: exact totals, bounded rates, clipped ends."""

import numpy as np
import pytest

from arena.sealed_jobs.ports import MARGIN_S, Ports


def ports_with(start: float, end: float, sent: float, received: float = 0.0) -> Ports:
    """Return two ports of ten seconds, with a transfer through the second."""
    ports = Ports(2, 10.0, 0.01)
    ports.add_ramps(
        np.array([1]),
        start=np.array([start]),
        end=np.array([end]),
        tx=np.array([sent]),
        rx=np.array([received]),
    )
    return ports


def test_totals_are_exact() -> None:
    """Even where start and end fall between the points of the grid."""
    sent, received = ports_with(1.2345, 1.2389, 1e9, 7.0).carried(1e15)
    assert sent[1, -1] == pytest.approx(1e9, rel=1e-9)
    assert received[1, -1] == pytest.approx(7.0, rel=1e-9)
    assert not sent[0].any()


def test_bytes_flow_evenly() -> None:
    """Half of them in half of the time."""
    ports = ports_with(2.0, 4.0, 1e9)
    sent, _ = ports.carried(1e15)
    assert np.interp(3.0, ports.times(), sent[1]) == pytest.approx(5e8)
    assert np.interp(1.9, ports.times(), sent[1]) == 0


def test_a_port_carries_no_more_than_its_line_rate() -> None:
    """What is offered above it follows later."""
    ports = ports_with(2.0, 3.0, 2e9)
    sent, _ = ports.carried(1e9)
    rates = np.diff(sent[1]) / ports.cell_s
    assert rates.max() <= 1e9 * (1 + 1e-9)
    assert np.interp(3.0, ports.times(), sent[1]) == pytest.approx(1e9, rel=0.02)
    assert sent[1, -1] == pytest.approx(2e9)


def test_what_lies_outside_the_capture_is_cut() -> None:
    """A transfer that began before counts with its part after."""
    sent, _ = ports_with(-3 - MARGIN_S, 1 - MARGIN_S, 4e9).carried(1e15)
    assert sent[1, -1] == pytest.approx(1e9)
    sent, _ = ports_with(50.0, 60.0, 4e9).carried(1e15)
    assert not sent.any()
