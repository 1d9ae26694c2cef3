"""Background traffic: small for everybody, larger where storage is read or written."""

import numpy as np
import pytest

from arena.sealed_jobs import background
from arena.sealed_jobs.fleet import Fleet, FloatArray, Host
from arena.sealed_jobs.ports import Ports

LINE = 2.5e10


@pytest.fixture
def ports() -> Ports:
    """Four hosts with two RNICs each, for a minute."""
    return Ports(8, 60.0, 0.01)


def totals(ports: Ports) -> tuple[FloatArray, FloatArray]:
    """Return the bytes of each RNIC."""
    sent, received = ports.carried(LINE)
    return sent[:, -1], received[:, -1]


def test_everybody_has_some_housekeeping(ports: Ports) -> None:
    """Less than a megabyte a second, both ways."""
    background.add_housekeeping(np.random.default_rng(0), ports)
    for way in totals(ports):
        assert (way > 0).all()
        assert (way < 6e7).all()


def test_idle_rnics_are_pinged_eight_times_a_second(ports: Ports) -> None:
    """As many bytes back as forth; the others hear nothing."""
    background.add_pings(np.random.default_rng(0), ports, [6, 7])
    sent, received = totals(ports)
    assert sent[6] == pytest.approx(received[6])
    assert 60 * 8 * 64 <= sent[6] <= 60 * 8 * 1500 * 1.001
    assert not sent[:6].any()


def test_checkpoints_are_sent_when_they_are_written(ports: Ports) -> None:
    """Within the pause, by the given RNICs."""
    background.add_checkpoints(np.random.default_rng(0), ports, [1, 3], [(20.0, 25.0)], LINE)
    sent, _ = ports.carried(LINE)
    before, after = (int(np.searchsorted(ports.times(), at)) for at in (20.0, 25.0))
    assert not sent[:, before].any()
    assert sent[[1, 3], after + 1] == pytest.approx(sent[[1, 3], -1])
    assert (sent[[1, 3], -1] > 1e7).all()


def test_storage_is_mostly_read(ports: Ports) -> None:
    """Some of the RNICs receive a hundred times what they send."""
    background.add_storage_reads(np.random.default_rng(0), ports, range(8), LINE)
    sent, received = totals(ports)
    assert sent.sum() == pytest.approx(0.01 * received.sum())


def test_tests_run_between_two_idle_hosts(ports: Ports) -> None:
    """On all their RNICs, as much both ways; one idle host has nobody to test with."""
    fleet = Fleet([Host(name=f"h{i}", gpus=2, rails=(0, 1)) for i in range(4)])
    background.add_tests(np.random.default_rng(0), ports, fleet, [3], LINE)
    assert not totals(ports)[0].any()
    background.add_tests(np.random.default_rng(0), ports, fleet, [1, 3], LINE)
    sent, received = totals(ports)
    assert (sent > 0).tolist() == [False, False, True, True, False, False, True, True]
    assert sent.tolist() == pytest.approx(received.tolist())
