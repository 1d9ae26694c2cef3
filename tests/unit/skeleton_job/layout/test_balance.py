"""Hosts that send what they receive, though no iteration is seen."""

import numpy as np
import pytest

from schemas.units import SECOND_NS
from skeleton_job.job import Job, Rnic
from skeleton_job.layout.skeleton import TOO_SHORT, infer
from skeleton_job.series.rates import RateMatrix

HOSTS, RAILS, BINS = 4, 2, 60


def _job() -> Job:
    return Job(
        task_id="job1",
        rnics=tuple(
            Rnic(f"w{h}/r{r}", f"w{h}", f"h{h}", r) for h in range(HOSTS) for r in range(RAILS)
        ),
    )


def _matrix(*, late: int) -> RateMatrix:
    """Return two and a half iterations, in which every second host sends later than it receives."""
    at = np.arange(BINS)
    burst = 1e9 * (at % 24 < 6) * (1 + 0.3 * np.sin(at))
    tx = np.tile(burst, (HOSTS * RAILS, 1))
    rx = tx.copy()
    tx[: RAILS * HOSTS // 2] = np.roll(burst, late)
    return RateMatrix(
        endpoints=tuple(r.endpoint_id for r in _job().rnics),
        start_ns=0,
        bin_ns=SECOND_NS,
        tx=tx,
        rx=rx,
        missing=np.zeros(tx.shape, dtype=np.bool_),
        reasons=(None,) * len(tx),
    )


@pytest.mark.parametrize(("late", "stages"), [(0, 1), (3, None)])
def test_balanced_hosts_are_one_stage_without_whole_iterations(
    late: int, stages: int | None
) -> None:
    """A window that is too short says nothing of hosts that send at other times than they get."""
    found = infer(_job(), _matrix(late=late))
    assert found.pp == stages
    assert found.dp == (None if stages is None else HOSTS)
    assert found.reason == (TOO_SHORT if stages is None else None)
    groups = {tuple(r.rail for r in group) for group in found.groups}
    assert groups == (set() if stages is None else {(0,) * HOSTS, (1,) * HOSTS})
