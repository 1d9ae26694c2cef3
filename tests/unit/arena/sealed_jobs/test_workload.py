"""Workloads fit the frame that they are drawn for."""

import numpy as np
import pytest

from arena.sealed_jobs.fleet import Degrees
from arena.sealed_jobs.workload import Frame, draw_workload


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    "degrees",
    [Degrees(tp=8, dp=4, pp=4), Degrees(tp=4, dp=8, pp=2, ep=8), Degrees(tp=8, cp=4, pp=2)],
)
def test_iterations_last_as_long_as_asked(seed: int, degrees: Degrees) -> None:
    """Computation alone takes most of the greatest duration or less; messages fit in between."""
    frame = Frame(
        degrees=degrees,
        parts=degrees.pp,
        micros=16,
        sharing=1.0,
        link_gbps=200.0,
        seconds=(2.0, 4.0),
        token_peak=0.75 if degrees.ep > 1 else 0.0,
    )
    work = draw_workload(np.random.default_rng(seed), frame)
    each_s = float(work.forward_s.mean()) * (1 + work.backward_ratio)
    assert 0.2 < 16 * each_s < 4.5
    assert work.hop_bytes / work.bytes_per_s < work.forward_s.max()
    assert (work.token_bytes > 0) == (degrees.ep > 1)
    assert (work.sequence_bytes > 0) == (degrees.cp > 1)
    assert work.gradient_bytes.shape == (degrees.pp,)


def test_scaling_keeps_proportions() -> None:
    """Twice as long, twice as many bytes."""
    frame = Frame(
        degrees=Degrees(tp=8, dp=2, pp=2),
        parts=2,
        micros=8,
        sharing=1.0,
        link_gbps=400.0,
        seconds=(1.0, 9.0),
    )
    work = draw_workload(np.random.default_rng(1), frame)
    twice = work.scaled(2.0)
    assert twice.hop_bytes == 2 * work.hop_bytes
    assert twice.forward_s.tolist() == (2 * work.forward_s).tolist()
    assert twice.bytes_per_s == work.bytes_per_s
