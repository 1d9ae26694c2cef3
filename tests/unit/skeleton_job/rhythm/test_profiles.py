"""The iteration of a job: its period, its starts, its mean."""

import numpy as np
import pytest

from schemas.columns.arrays import Bools, Floats
from schemas.units import SECOND_NS
from skeleton_job.rhythm.iterations import find_rhythm, job_sum
from skeleton_job.rhythm.profiles import fold, iterations_of
from skeleton_job.series.rates import RateMatrix


def bursts(starts: Floats, n_bins: int = 400, length: float = 4.0) -> Floats:
    """Return rates of a burst of one byte per second and bin at each start (bins)."""
    edges = np.arange(n_bins + 1, dtype=np.float64)
    total = sum(np.clip(edges - s, 0.0, length) for s in starts)
    return np.diff(total)


def matrix(rows: Floats, missing: Bools | None = None) -> RateMatrix:
    """Return a matrix that sends and receives alike."""
    return RateMatrix(
        endpoints=tuple(f"e{i}" for i in range(rows.shape[0])),
        start_ns=0,
        bin_ns=SECOND_NS // 10,
        tx=rows,
        rx=rows,
        missing=np.zeros(rows.shape, dtype=np.bool_) if missing is None else missing,
        reasons=(None,) * rows.shape[0],
    )


@pytest.mark.parametrize("period", [7.0, 13.37, 20.0, 51.2])
def test_the_period_is_found_to_a_fraction_of_a_bin(period: float) -> None:
    """From the distance of the starts, whole or not."""
    rhythm = find_rhythm(bursts(np.arange(3.3, 400, period)))
    assert rhythm is not None
    assert rhythm.period_bins == pytest.approx(period, rel=0.01)


def test_an_iteration_is_not_its_microbatches() -> None:
    """Bursts inside an iteration repeat as well, but less exactly than iterations do."""
    starts = np.concatenate([np.arange(0, 400, 40) + k for k in (0.0, 6.0, 12.0)])
    rhythm = find_rhythm(bursts(starts, length=3.0))
    assert rhythm is not None
    assert rhythm.period_bins == pytest.approx(40, abs=0.5)


def test_jitter_and_a_pause_do_not_blur_the_iteration() -> None:
    """Starts are found one by one: bursts stay as short as they are."""
    rng = np.random.default_rng(1)
    steps = 20 * (1 + 0.05 * rng.standard_normal(16))
    steps[8] += 37  # a checkpoint
    starts = np.cumsum(steps)
    series = bursts(starts, n_bins=int(starts[-1]) + 30)
    rhythm = find_rhythm(series)
    assert rhythm is not None
    assert rhythm.iterations >= 14
    profile = fold(matrix(series[None]), rhythm).tx[0]
    wide = (profile > profile.max() / 2).mean() * rhythm.period_bins
    assert wide == pytest.approx(4, abs=1)


def test_noise_and_steady_traffic_have_no_rhythm() -> None:
    """White noise passes for an iteration in at most one of fifty draws; a constant never."""
    rng = np.random.default_rng(2)
    found = [find_rhythm(1 + 0.1 * rng.standard_normal(400)) for _ in range(50)]
    assert sum(f is not None for f in found) <= 1
    assert find_rhythm(np.full(400, 3.0)) is None
    assert find_rhythm(np.zeros(400)) is None
    assert find_rhythm(np.ones(5)) is None


def test_folding_keeps_the_bytes() -> None:
    """The mean iteration carries the mean bytes of an iteration."""
    series = bursts(np.arange(3.3, 400, 20.0))
    rhythm = find_rhythm(series)
    assert rhythm is not None
    profile = fold(matrix(series[None]), rhythm).tx[0]
    assert profile.mean() * rhythm.period_bins == pytest.approx(4.0, rel=1e-6)


def test_missing_samples_leave_iterations_out_not_bytes() -> None:
    """Where samples are missing an iteration does not count, so that the mean stays."""
    series = bursts(np.arange(3.3, 400, 20.0))
    rhythm = find_rhythm(series)
    assert rhythm is not None
    whole = fold(matrix(series[None]), rhythm).tx[0]
    missing = np.zeros((1, 400), dtype=np.bool_)
    missing[0, 100:130] = True
    holed = fold(matrix(np.where(missing, 0.0, series[None]), missing), rhythm).tx[0]
    assert holed == pytest.approx(whole, abs=0.05)


def test_the_job_sum_does_not_dip_where_samples_are_missing() -> None:
    """Each bin is the mean over what is there."""
    rows = np.ones((4, 10))
    missing = np.zeros((4, 10), dtype=np.bool_)
    missing[1:, 3] = True
    missing[:, 7] = True
    total = job_sum(matrix(np.where(missing, 0.0, rows), missing), np.ones(4, dtype=np.bool_))
    assert total == pytest.approx(np.full(10, 2.0))


def test_the_fold_sees_the_phase() -> None:
    """Two RNICs that burst at different times of the iteration have different mean iterations."""
    early, late = (bursts(np.arange(3.0 + d, 400, 20.0)) for d in (0, 9))
    rhythm = find_rhythm(early)
    assert rhythm is not None
    profiles = fold(matrix(np.vstack([early, late])), rhythm)
    assert np.linalg.norm(profiles.tx[0] - profiles.tx[1]) > np.linalg.norm(profiles.tx[0])


def test_repeatability_tells_bursts_from_noise() -> None:
    """Odd and even iterations of a burst are alike; those of noise are not."""
    rng = np.random.default_rng(3)
    series = bursts(np.arange(3.3, 400, 20.0))
    made = matrix(np.vstack([series, rng.random(400), np.zeros(400)]))
    rhythm = find_rhythm(series)
    assert rhythm is not None
    found = fold(made, rhythm).repeatability()
    assert found[0] > 0.9
    assert abs(found[1]) < 0.5
    assert found[2] == 0.0


def test_iterations_are_cut_at_their_starts() -> None:
    """Every iteration holds one whole burst, at the same place to within a point."""
    series = bursts(np.arange(3.3, 400, 20.0))
    rhythm = find_rhythm(series)
    assert rhythm is not None
    pieces = iterations_of(series[None], rhythm)[0]
    assert pieces.shape[0] >= 18
    assert pieces.mean(axis=1) * rhythm.period_bins == pytest.approx(4.0)
    centres = (pieces * np.arange(pieces.shape[1])).sum(axis=1) / pieces.sum(axis=1)
    assert np.ptp(centres) < 1.0
