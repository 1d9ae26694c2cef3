"""Which RNICs of a host move together."""

import numpy as np
import pytest

from schemas.columns.arrays import Floats
from skeleton_job.rhythm.lockstep import HostWidth, host_width
from skeleton_job.series.rates import RateMatrix

BINS = 400


def _width(tx: Floats, rails: int) -> HostWidth:
    """Return the width found; rows of `tx` are the RNICs of host after host."""
    matrix = RateMatrix(
        endpoints=tuple(f"e{row}" for row in range(len(tx))), start_ns=0, bin_ns=10**8, tx=tx,
        rx=tx.copy(), missing=np.zeros(tx.shape, np.bool_), reasons=(None,) * len(tx),
    )  # fmt: skip
    rows = np.arange(len(tx)).reshape(-1, rails)
    return host_width(matrix, rows, np.ones(rows.shape, dtype=np.bool_), period_bins=40.0)


def _sent_one_after_the_other(rng: np.random.Generator, hosts: int, rails: int) -> Floats:
    """Return rates of hosts that send on rail after rail, with a random delay each time."""
    rates = []
    for _ in range(hosts):
        base = np.repeat((rng.random(BINS // 4) < 0.4).astype(np.float64), 4)
        drift = np.cumsum(rng.standard_normal((rails, BINS)), axis=0)
        rates.append(base + 0.03 * drift)
    return np.concatenate(rates)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("rails", [4, 6, 8])
def test_a_difference_that_grows_with_the_distance_of_rnics_is_no_border(
    seed: int, rails: int
) -> None:
    """Over four RNICs the variance is 1.7 times that over two, and still there is one group."""
    rng = np.random.default_rng(seed)
    found = _width(_sent_one_after_the_other(rng, 4, rails), rails)
    assert found.width == rails
    assert found.certainty > 0.75


@pytest.mark.parametrize(("rails", "width"), [(4, 2), (8, 4), (8, 2), (6, 3), (6, 2)])
def test_a_border_is_found_beside_such_a_difference(rails: int, width: int) -> None:
    """Groups have delays of their own, which no neighbour beside the border shares."""
    rng = np.random.default_rng(3)
    tx = _sent_one_after_the_other(rng, 4, rails)
    own = rng.standard_normal((len(tx) // width, BINS))
    found = _width(tx + 0.05 * np.repeat(own, width, axis=0), rails)
    assert found.width == width
    assert found.certainty > 0.9


def test_one_strange_rnic_makes_no_border() -> None:
    """A rail that loses packets differs from both neighbours, on every host."""
    rng = np.random.default_rng(4)
    tx = _sent_one_after_the_other(rng, 4, 4)
    tx[1::4] += 0.3 * rng.standard_normal((4, BINS))
    assert _width(tx, 4).width == 4


def test_a_fault_makes_no_border() -> None:
    """Two of four RNICs are cut off for a tenth of the window, on half of the hosts."""
    rng = np.random.default_rng(4)
    tx = _sent_one_after_the_other(rng, 4, 4)
    for row in (2, 3, 6, 7):
        tx[row, 210:250] = 0.0
    found = _width(tx, 4)
    assert found.width == 4
    assert found.certainty > 0.75


def test_an_unclear_border_is_said_to_be_unclear() -> None:
    """Between a clear border and none, there are some of which either may be."""
    rng = np.random.default_rng(5)
    tx = _sent_one_after_the_other(rng, 4, 4)
    own = np.repeat(rng.standard_normal((8, BINS)), 2, axis=0)
    found = [_width(tx + share * own, 4) for share in (0.0, *np.geomspace(0.01, 0.1, 40))]
    assert (found[0].width, found[-1].width) == (4, 2)
    assert min(f.certainty for f in found) < 0.9
    assert min(found[0].certainty, found[-1].certainty) > 0.9


def test_replicas_show_in_a_little_traffic_beside_a_large_sum() -> None:
    """The gradient sum, which all begin together, carries most bytes; pipelines have own delays.

    Each RNIC is read at a time of its own, so in bytes RNICs of one group differ the most.
    """
    rng = np.random.default_rng(6)
    at = np.arange(BINS + 1) / 10.0
    begun = np.minimum(at // 4, 9).astype(np.int64)
    rows = []
    for _group in range(8):
        delay = rng.normal(0.0, 0.06, 10)[begun]
        for _rnic in range(4):
            read = at + rng.normal(0.0, 0.01) + rng.normal(0.0, 0.002, at.size)
            inside = read - begun * 4
            moved = np.interp(inside, [2.0, 3.0], [0.0, 1000.0])
            moved += np.interp(inside - delay, [0.2, 0.4, 1.2, 1.4], [0.0, 20.0, 20.0, 40.0])
            rows.append(np.diff(moved + begun * 1040.0))
    assert _width(np.array(rows), 8).width == 4


def test_without_traffic_the_host_is_one_group() -> None:
    """Nothing is known, and nothing is claimed."""
    assert _width(np.zeros((4, BINS)), 4) == HostWidth(4, 1.0)
