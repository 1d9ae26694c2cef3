"""A pipeline of which each host holds two stages, and whose first and last stage are silent."""

from itertools import pairwise

import numpy as np
import pytest

from schemas.columns.arrays import Floats
from schemas.units import SECOND_NS
from skeleton_job.job import Job, Rnic
from skeleton_job.layout.silent_ends import find_silent_ends
from skeleton_job.layout.skeleton import infer
from skeleton_job.series.rates import RateMatrix

HALF = 4
BINS = 600
# Hosts in the order of the pipeline; the platform's order is another one.
PIPELINE = (2, 0, 3, 1)


def _job() -> Job:
    return Job(
        task_id="job1",
        rnics=tuple(
            Rnic(f"w{h}/r{r}", f"w{h}", f"h{h}", r)
            for h in range(len(PIPELINE))
            for r in range(2 * HALF)
        ),
    )


def _matrix(*, storage: bool = False) -> RateMatrix:
    """Return rates of a pipeline without rhythm: each joint has bursts of its own, both ways."""
    rng = np.random.default_rng(5)
    tx, rx = (rng.random((len(PIPELINE) * 2 * HALF, BINS)) * 1e6 for _ in range(2))
    for one, other in pairwise(PIPELINE):
        last = np.arange(HALF) + one * 2 * HALF + HALF
        first = np.arange(HALF) + other * 2 * HALF
        for sender, receiver in ((last, first), (first, last)):
            bursts: Floats = np.where(rng.random(BINS) > 0.8, 1e9, 0.0)
            tx[sender] += bursts
            rx[receiver] += bursts
    if storage:
        rx[PIPELINE[0] * 2 * HALF] += 1e9
    return RateMatrix(
        endpoints=tuple(r.endpoint_id for r in _job().rnics),
        start_ns=0,
        bin_ns=SECOND_NS // 10,
        tx=tx,
        rx=rx,
        missing=np.zeros(tx.shape, dtype=np.bool_),
        reasons=(None,) * len(tx),
    )


@pytest.mark.parametrize("storage", [False, True])
def test_neighbours_show_by_what_they_exchange_without_any_iteration(*, storage: bool) -> None:
    """The platform's order of hosts is another one."""
    found = infer(_job(), _matrix(storage=storage))
    assert (found.dp, found.pp, found.tp, found.directed) == (1, 8, HALF, True)
    halves = [{(r.host, r.rail // HALF) for r in stage} for stage in found.stages()]
    assert halves == [{(f"h{h}", half)} for h in PIPELINE for half in (0, 1)]
    # Each joint joins the last half of a host to the first half of the next; the ends are idle.
    assert found.pairs == {
        tuple(sorted((f"w{one}/r{HALF + k}", f"w{other}/r{k}")))
        for one, other in pairwise(PIPELINE)
        for k in range(HALF)
    }
    assert found.unheard == {f"w{PIPELINE[0]}/r{k}" for k in range(HALF)} | {
        f"w{PIPELINE[-1]}/r{HALF + k}" for k in range(HALF)
    }
    # The ends may share an embedding.
    first, last = PIPELINE[0], PIPELINE[-1]
    assert found.hedges == {
        tuple(sorted((f"w{first}/r{k}", f"w{last}/r{HALF + k}"))) for k in range(HALF)
    }


def test_silent_halves_whose_neighbours_move_other_bytes_are_no_ends() -> None:
    """Half of each of two hosts may be idle in a job without a pipeline."""
    matrix = _matrix()
    matrix.rx[:] = np.roll(matrix.rx, BINS // 2, axis=1)
    assert find_silent_ends(_job(), matrix, None) is None


def test_a_pipeline_with_three_silent_halves_has_no_ends() -> None:
    """Its first host is silent at both halves."""
    matrix = _matrix()
    matrix.tx[: 2 * HALF] = matrix.rx[: 2 * HALF] = 0.0
    assert find_silent_ends(_job(), matrix, None) is None
