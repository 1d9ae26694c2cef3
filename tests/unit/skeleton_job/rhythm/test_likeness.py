"""Which hosts vary alike from iteration to iteration."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.columns.arrays import Floats
from skeleton_job.rhythm.chains import octaves
from skeleton_job.rhythm.likeness import alike_hosts

POINTS = 32
ITERATIONS = 20
AT = np.arange(POINTS)


def _hosts(
    groups: int, size: int, *, bytes_vary: float, times_vary: float, seed: int = 0
) -> Floats:
    """Return what hosts move, (n_hosts, n_iterations, points), group after group.

    Members of a group share how much they move in each iteration, and when.
    """
    rng = np.random.default_rng(seed)
    amount = np.repeat(1 + bytes_vary * rng.standard_normal((groups, ITERATIONS)), size, axis=0)
    late = np.repeat(times_vary * rng.standard_normal((groups, ITERATIONS)), size, axis=0)
    phase = 2 * np.pi * (AT - late[:, :, None]) / POINTS
    moved = amount[:, :, None] * (2 + np.sin(phase) + np.sin(3 * phase))
    out: Floats = moved + 0.05 * rng.standard_normal(moved.shape)
    return out


@pytest.mark.parametrize(("groups", "size"), [(2, 2), (2, 4), (4, 2), (4, 4), (8, 2)])
@pytest.mark.parametrize(("bytes_vary", "times_vary"), [(0.2, 0.0), (0.0, 1.0)])
def test_groups_are_found_by_bytes_or_by_times(
    groups: int, size: int, bytes_vary: float, times_vary: float
) -> None:
    """In any order of the hosts, in each stage."""
    orders = [np.random.default_rng(k).permutation(groups * size) for k in (1, 2)]
    hosts = _hosts(groups, size, bytes_vary=bytes_vary, times_vary=times_vary)
    found = alike_hosts([hosts[order] for order in orders])
    assert found is not None
    assert found.size == size
    for order, label in zip(orders, found.of_stage, strict=True):
        true = order // size
        assert all(np.unique(true[label == g]).size == 1 for g in range(groups))


@pytest.mark.parametrize("hosts", [4, 6, 8, 16])
def test_replicas_that_vary_each_by_itself_are_no_groups(hosts: int) -> None:
    """Nor is a stage that varies as a whole: its common part is left out."""
    seen = [
        alike_hosts([_hosts(groups, hosts // groups, bytes_vary=0.2, times_vary=1.0, seed=seed)])
        for seed in range(20)
        for groups in (hosts, 1)
    ]
    assert sum(found is not None for found in seen) <= 1


def test_wrong_clocks_make_no_groups() -> None:
    """Hosts that are all late together show it by how wrong their clocks are, in fast octaves."""
    rng = np.random.default_rng(3)
    late = 0.5 * rng.standard_normal(ITERATIONS)
    clock = np.array([-1.0, -1.0, 1.0, 1.0, -1.0, 1.0, -1.0, 1.0])
    at = AT - late[None, :, None] - clock[:, None, None]
    flows = np.where(at % POINTS < 3, 1.0, 0.0) + 0.05 * rng.standard_normal(at.shape)
    assert alike_hosts([flows]) is None


def test_what_happened_once_makes_no_groups() -> None:
    """Half of the hosts read a checkpoint in one iteration; or all move the same at any time."""
    hosts = _hosts(8, 1, bytes_vary=0.02, times_vary=0.1)
    hosts[:4, 7] *= 1.5
    assert alike_hosts([hosts]) is None
    assert alike_hosts([np.repeat(hosts[:1], 8, axis=0)]) is None
    assert alike_hosts([np.zeros((4, 10, 8))]) is None


def test_nodes_of_a_tree_that_move_more_than_leaves_are_no_group() -> None:
    """All hosts are late together, and those that move twice the bytes show it twice as much."""
    rng = np.random.default_rng(4)
    shared = 1 + 0.1 * rng.standard_normal((1, ITERATIONS, 1))
    size = np.array([2.0, 1.0, 2.0, 1.0, 2.0, 1.0])[:, None, None]
    moved = size * shared * (2 + np.sin(2 * np.pi * AT / POINTS))
    assert alike_hosts([moved + 0.01 * rng.standard_normal(moved.shape)]) is None


def test_too_few_whole_iterations_say_nothing() -> None:
    """Iterations with missing samples do not count."""
    hosts = _hosts(2, 4, bytes_vary=0.2, times_vary=0.0)
    hosts[0, 3:, 5] = np.nan
    assert alike_hosts([hosts]) is None


@given(points=st.integers(1, 40), blocks=st.integers(1, 5), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_octaves_hold_all_of_the_spectrum(points: int, blocks: int, seed: int) -> None:
    """Each frequency is in one octave, and a block's likeness with itself is one."""
    residuals = np.random.default_rng(seed).standard_normal((blocks, 3, points))
    rows = octaves(residuals)
    assert rows.shape[1] == 2 * 3 * (points // 2 + 1)
    np.testing.assert_allclose((rows**2).sum(axis=1), 1.0)


def test_octaves_compare_as_correlations_of_bands() -> None:
    """The mean over octaves of the correlation, computed band by band, is the product of rows."""
    residuals = np.random.default_rng(5).standard_normal((4, 6, 12))
    spectrum = np.fft.rfft(residuals, axis=2)
    bands = [slice(0, 1), slice(1, 2), slice(2, 4), slice(4, 7)]
    expected = np.zeros((4, 4))
    for a in range(4):
        for b in range(4):
            for band in bands:
                x, y = spectrum[a, :, band].ravel(), spectrum[b, :, band].ravel()
                scale = np.sqrt((np.abs(x) ** 2).sum() * (np.abs(y) ** 2).sum())
                expected[a, b] += np.real(np.vdot(y, x)) / scale / len(bands)
    rows = octaves(residuals)
    np.testing.assert_allclose(rows @ rows.T, expected, atol=1e-12)


def test_what_does_not_vary_is_like_nothing() -> None:
    """Zeros stay zeros."""
    assert not np.any(octaves(np.zeros((2, 3, 8))))
