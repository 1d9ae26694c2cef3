"""RNICs of a host that move the same number of bytes."""

import numpy as np
import pytest

from schemas.columns.arrays import Floats
from schemas.units import SECOND_NS
from skeleton_job.rhythm.shares import share_width
from skeleton_job.series.rates import RateMatrix

HOSTS, RAILS, BINS = 3, 8, 400


def _width(scale: Floats, *, storage: float = 0.0) -> int:
    """Return the width of hosts whose RNICs run in lock step, each with its share of the bytes.

    Parameters
    ----------
    scale : (HOSTS * RAILS,)
    storage : share that the second RNIC of each host receives in addition
    """
    rng = np.random.default_rng(2)
    together = np.repeat(rng.random((HOSTS, BINS)), RAILS, axis=0)
    tx = 1e9 * scale[:, None] * together * (1 + 1e-3 * rng.standard_normal((HOSTS * RAILS, BINS)))
    rx = tx.copy()
    rx[1::RAILS] += storage * 1e9
    matrix = RateMatrix(
        endpoints=tuple(f"h{i // RAILS}/r{i % RAILS}" for i in range(HOSTS * RAILS)),
        start_ns=0,
        bin_ns=SECOND_NS // 10,
        tx=tx,
        rx=rx,
        missing=rng.random(tx.shape) < 0.02,
        reasons=(None,) * len(tx),
    )
    rows = np.arange(HOSTS * RAILS).reshape(HOSTS, RAILS)
    return share_width(matrix, rows, np.ones(rows.shape, np.bool_))


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_popular_experts_show_who_serves_the_same(width: int) -> None:
    """By some per cent of the bytes; the noise of single samples is a tenth of one."""
    popular = 1 + 0.05 * np.random.default_rng(width).standard_normal(HOSTS * RAILS // width)
    assert _width(np.repeat(popular, width)) == width


@pytest.mark.filterwarnings("error")
def test_hosts_of_which_most_rnics_are_silent_say_nothing() -> None:
    """There is nothing that their bytes could be a share of."""
    assert _width(np.tile(np.arange(RAILS) < RAILS // 2 - 1, HOSTS).astype(np.float64)) == RAILS


def test_one_rnic_that_reads_storage_is_no_expert() -> None:
    """The others still move the same."""
    assert _width(np.ones(HOSTS * RAILS), storage=0.2) == RAILS
