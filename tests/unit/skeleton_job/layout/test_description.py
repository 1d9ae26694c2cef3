"""What clocks and collectives explain is taken out as by the slow and obvious way."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.columns.arrays import Floats
from skeleton_job.layout.description import (
    ROUNDS,
    _bounds,
    _shapes,
    unexplained,
    unexplained_from_each,
)


def slow(apart: Floats, around: Floats, far: float, *, uneven: bool, share: Floats) -> Floats:
    """Return deviations less what is explained: one shape after the other, on all features."""
    shapes = _shapes(around, uneven=uneven)
    low, high = _bounds(far, share, uneven=uneven)
    taken = np.zeros((len(shapes), len(apart)))
    out = apart
    for _ in range(ROUNDS if uneven else 1):
        for i, shape in enumerate(shapes):
            square = np.maximum((shape**2).sum(axis=1), 1e-300)
            wanted = np.clip(taken[i] + (out * shape).sum(axis=1) / square, low[i], high[i])
            out = out - (wanted - taken[i])[:, None] * shape
            taken[i] = wanted
    return out


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    rows=st.integers(1, 9),
    classes=st.integers(1, 4),
    uneven=st.booleans(),
    flat=st.booleans(),
)
def test_rounds_on_products_are_rounds_on_features(
    seed: int, rows: int, classes: int, *, uneven: bool, flat: bool
) -> None:
    """Rows of several classes, and all rows from each of some centres; flat profiles too."""
    rng = np.random.default_rng(seed)
    around = np.abs(rng.normal(1e9, 3e8, (classes, 24)))
    if flat:
        around[0] = 1e9
    points = around[rng.integers(0, classes, rows)] + rng.normal(0, 3e8, (rows, 24))
    share = rng.uniform(0.2, 1.0, rows)
    of = rng.integers(0, classes, rows)
    far = float(rng.choice([0.0, 0.3, 3.0]))
    found = unexplained(points - around[of], around, far, uneven=uneven, share=share, of=of)
    wanted = slow(points - around[of], around[of], far, uneven=uneven, share=share)
    assert found == pytest.approx(wanted, rel=1e-9, abs=1.0)
    every = unexplained_from_each(points, around, far, uneven=uneven, share=share)
    for centre, apart in zip(around, every, strict=True):
        one = np.broadcast_to(centre, points.shape)
        wanted = slow(points - centre, one, far, uneven=uneven, share=share)
        assert apart == pytest.approx(wanted, rel=1e-9, abs=1.0)
