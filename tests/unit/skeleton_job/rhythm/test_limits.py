"""Rates cut at a level, and iterations that large bursts hide."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from schemas.columns.arrays import Floats
from skeleton_job.rhythm.iterations import channels, find_rhythm
from skeleton_job.rhythm.limits import CUT, CUT_ROUNDS, cut_level, find_hidden_rhythm, limited
from skeleton_job.series.rates import RateMatrix

PERIOD, BINS, RNICS = 25, 600, 4


def _matrix(rates: Floats) -> RateMatrix:
    n = len(rates)
    return RateMatrix(
        endpoints=tuple(f"h{i}/r0" for i in range(n)),
        start_ns=0,
        bin_ns=100_000_000,
        tx=rates,
        rx=rates[::-1].copy(),
        missing=np.zeros(rates.shape, dtype=np.bool_),
        reasons=(None,) * n,
    )


def _pipeline_with_checkpoint() -> RateMatrix:
    """Return RNICs with a small hump in each iteration, and one checkpoint of all."""
    rng = np.random.default_rng(0)
    hump = 1e8 * (1.0 + np.cos(2 * np.pi * np.arange(BINS) / PERIOD))
    rates = np.array([np.roll(hump, 2 * i) for i in range(RNICS)])
    rates *= 1.0 + 0.05 * rng.standard_normal(rates.shape)
    rates[:, 350:400] = 5e9
    return _matrix(rates)


def test_a_checkpoint_does_not_hide_the_iterations() -> None:
    """One burst of half a minute outweighs all iterations; cut, it does not."""
    matrix = _pipeline_with_checkpoint()
    rows = np.arange(RNICS)
    assert find_rhythm(channels(matrix, rows)) is None
    found = find_hidden_rhythm(matrix, rows)
    assert found is not None
    assert abs(found.period_bins - PERIOD) < 1


@given(arrays(np.float64, (3, 20), elements=st.floats(0.0, 1e11)))
def test_level_is_that_of_each_series_alone(rates: Floats) -> None:
    """The vectorised form agrees with a loop; cut rates are never higher than before."""
    for level, series in zip(cut_level(rates), rates, strict=True):
        slow = np.inf
        for _ in range(CUT_ROUNDS):
            slow = CUT * float(np.mean([min(rate, slow) for rate in series]))
        assert np.isclose(level, slow)
    cut = limited(_matrix(rates))
    assert bool((cut.tx <= rates).all())
    assert bool((cut.tx >= 0).all())
