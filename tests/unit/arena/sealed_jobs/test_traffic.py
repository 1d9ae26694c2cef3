"""Transfers: what is sent is received, and pairs know their kinds."""

import numpy as np
import pytest

from arena.sealed_jobs.collectives import pattern
from arena.sealed_jobs.traffic import Traffic, bundle, bytes_each_way


def test_units_with_fewer_ports_are_filled_up() -> None:
    """With ports that carry nothing."""
    ways = bundle([pattern([{(0, 1): 1.0}]), pattern([{(2, 3): 1.0, (3, 4): 0.5}])])
    assert ways.rnics.tolist() == [[0, 1, 0], [2, 3, 4]]
    assert ways.tx.tolist() == [[1.0, 0.0, 0.0], [1.0, 0.5, 0.0]]
    assert ways.pairs == {(0, 1), (2, 3), (3, 4)}
    assert ways.peak == 1.0


def test_bytes_of_all_iterations_and_units_add_up() -> None:
    """Payloads may differ from iteration to iteration."""
    traffic = Traffic()
    ways = bundle([pattern([{(0, 1): 1.0}]), pattern([{(2, 1): 0.5}])])
    traffic.add_transfer(
        "pp",
        ways,
        start=np.zeros((3, 2)),
        seconds=np.ones((3, 2)),
        payload=np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]]),
    )
    traffic.add_transfer("dp", ways, start=np.zeros((3, 2)), seconds=np.ones((3, 2)), payload=100.0)
    tx, rx = bytes_each_way(traffic, 3)
    assert tx.tolist() == [306.0, 0.0, 180.0]
    assert rx.tolist() == [0.0, 486.0, 0.0]
    assert traffic.kinds == {(0, 1): {"pp", "dp"}, (1, 2): {"pp", "dp"}}
    assert tx.sum() == pytest.approx(rx.sum())


def test_nothing_without_ports() -> None:
    """What stays in a host leaves no transfer."""
    traffic = Traffic()
    zero = np.zeros((1, 1))
    traffic.add_transfer("dp", bundle([pattern(())]), start=zero, seconds=zero, payload=1.0)
    assert not traffic.transfers
    assert not traffic.kinds
