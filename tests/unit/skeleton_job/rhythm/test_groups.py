"""Which hosts of a stage run in lock step."""

from collections.abc import Iterable

import numpy as np
import pytest
from numpy.typing import NDArray

from schemas.columns.arrays import Floats
from skeleton_job.rhythm.groups import (
    MIN_APART,
    Lags,
    groups_of,
    host_lags,
    shared_size,
)
from skeleton_job.rhythm.iterations import Rhythm
from skeleton_job.rhythm.limits import cut_level
from skeleton_job.series.rates import RateMatrix

PERIOD, ITERATIONS, RNICS = 60, 12, 2


def _matrix(groups: int, hosts: int, *, seed: int = 0, late_bins: float = 1.0) -> RateMatrix:
    """Return groups of so many hosts: bursts that each group begins late, and a gradient sum."""
    rng = np.random.default_rng(seed)
    at = np.arange(PERIOD * ITERATIONS, dtype=np.float64)
    rows = []
    for _ in range(groups):
        late = np.repeat(late_bins * rng.standard_normal(ITERATIONS), PERIOD)
        for _ in range(hosts):
            clock = rng.normal(0.0, 0.05)
            phase = (at - late - clock) % 12 / 12
            work = np.where(at % PERIOD < 52, np.exp(-(((phase - 0.5) / 0.15) ** 2)), 0.0)
            sums = np.where(at % PERIOD >= 56, 20.0, 0.0)
            rows += [work + sums + 0.01 * rng.random(at.size) for _ in range(RNICS)]
    rates: Floats = 1e9 * np.array(rows)
    names = tuple(f"h{i // RNICS}/r{i % RNICS}" for i in range(len(rows)))
    none = np.zeros(rates.shape, dtype=np.bool_)
    return RateMatrix(names, 0, 10**8, rates, rates.copy(), none, (None,) * len(rows))


def _rhythm() -> Rhythm:
    return Rhythm(float(PERIOD), PERIOD * np.arange(ITERATIONS, dtype=np.float64), 1.0)


def _rows(hosts: Iterable[int]) -> tuple[list[NDArray[np.int64]], list[tuple[int, int]]]:
    """Return the rows of hosts, and two RNICs of each."""
    rows = [RNICS * host + np.arange(RNICS, dtype=np.int64) for host in hosts]
    return rows, [(int(row[0]), int(row[1])) for row in rows]


@pytest.mark.parametrize(("groups", "hosts"), [(2, 2), (4, 2), (2, 4), (3, 4)])
def test_groups_are_found_beside_a_gradient_sum(groups: int, hosts: int) -> None:
    """In any order of the hosts, though the sum moves most bytes and all begin it together."""
    n = groups * hosts
    order = np.random.default_rng(2).permutation(n)
    lags = host_lags(_matrix(groups, hosts), _rhythm(), *_rows(order.tolist()))
    assert lags is not None
    assert shared_size([lags, lags]) == hosts
    labels = groups_of(lags, hosts)
    group = order // hosts
    assert all(np.unique(group[labels == g]).size == 1 for g in range(groups))


@pytest.mark.parametrize(("groups", "hosts"), [(1, 4), (6, 1)])
def test_where_nothing_is_apart_no_groups_are_seen(groups: int, hosts: int) -> None:
    """All hosts in lock step, or each with delays of its own."""
    lags = host_lags(_matrix(groups, hosts), _rhythm(), *_rows(range(groups * hosts)))
    assert lags is not None
    assert shared_size([lags]) == 1


def test_lags_are_those_of_each_pair_alone() -> None:
    """The vectorised form agrees with a loop over pairs; the unit of the rates does not matter."""
    matrix, rhythm = _matrix(3, 1), _rhythm()
    rows = _rows(range(3))
    lags = host_lags(matrix, rhythm, *rows)
    assert lags is not None
    total = matrix.tx + matrix.rx
    total = np.minimum(total, np.median([cut_level(row) for row in total]))
    # Twice as many points as bins: each bin is two points of the same rate.
    pieces = np.repeat(total.reshape(len(total), ITERATIONS, PERIOD), 2, axis=2)
    pieces = pieces[:, :, np.linspace(0, 2 * PERIOD - 1, 2 * PERIOD).astype(int)]
    apart = pieces - pieces.mean(axis=1, keepdims=True)
    steep = (np.gradient(pieces, axis=2) ** 2).sum(axis=(1, 2))
    far = [
        np.sqrt(
            sum(((apart[a + k] - apart[b + k]) ** 2).sum() for k in (0, 1))
            / sum((steep[a + k] + steep[b + k]) / 2 for k in (0, 1))
        )
        for a, b in ((0, 2), (0, 4), (2, 4))
    ]
    found = lags.between[np.triu_indices(3, 1)]
    assert found / found[0] == pytest.approx(np.array(far) / far[0], rel=0.2)
    bigger = RateMatrix(
        matrix.endpoints, 0, 10**8, 8 * matrix.tx, 8 * matrix.rx, matrix.missing, matrix.reasons
    )
    again = host_lags(bigger, rhythm, *rows)
    assert again is not None
    assert again.between == pytest.approx(lags.between)


def test_too_few_iterations_say_nothing() -> None:
    """Iterations with missing samples do not count."""
    matrix = _matrix(2, 2)
    matrix.missing[0, 3 * PERIOD :] = True
    assert host_lags(matrix, _rhythm(), *_rows(range(2))) is None


def _noisy_lags(rng: np.random.Generator, shares: Floats, size: int, excess: float) -> Lags:
    """Return lags whose squares are a share of either host, noise, and more across groups."""
    n = shares.size
    across = np.arange(n)[:, None] // size != np.arange(n)[None] // size
    noise = np.triu(0.1 * rng.standard_normal((n, n)), 1)
    square = shares[:, None] + shares[None] + excess * across + noise + noise.T
    np.fill_diagonal(square, 0.0)
    return Lags(np.sqrt(square), own=1.0)


@pytest.mark.parametrize(("n", "size"), [(6, 3), (8, 4), (8, 2)])
def test_a_small_excess_shows_groups_where_no_gap_does(n: int, size: int) -> None:
    """Hosts differ more than groups do."""
    rng = np.random.default_rng(4)
    lags = _noisy_lags(rng, rng.uniform(0.5, 1.5, n), size, excess=1.5)
    assert lags.between[0, size:].min() < MIN_APART * lags.between[0, 1:size].max()
    assert shared_size([lags]) == size


@pytest.mark.parametrize("n", [6, 8])
def test_noise_shows_no_groups(n: int) -> None:
    """Clustering puts together what lags least by chance; that is no excess."""
    rng = np.random.default_rng(4)
    draws = [_noisy_lags(rng, np.ones(n), 2, excess=0.0) for _ in range(100)]
    assert [shared_size([lags]) for lags in draws] == [1] * len(draws)
