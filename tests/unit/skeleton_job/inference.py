"""Runs the inference on generated jobs, and measures it against their truth."""

from dataclasses import dataclass

import polars as pl

from schemas.units import SECOND_NS
from skeleton_job.job import Job
from skeleton_job.layout.skeleton import Inference, infer
from skeleton_job.series.rates import RateMatrix
from tests.unit.skeleton_job.frames import rates_of, tick_of
from tests.unit.skeleton_job.traffic import Layout, Workload


@dataclass(frozen=True)
class Result:
    """What was found of a layout."""

    layout: Layout
    found: Inference
    recall: float
    ratio: float
    degrees: bool
    stages: bool


# Filled by tests, printed at the end of the run by conftest.
TABLE: list[Result] = []


def matrix_of(frame: pl.DataFrame, job: Job, start_ns: int, seconds: float) -> RateMatrix:
    """Return the rates of a job's RNICs."""
    bin_ns = tick_of(frame)
    assert bin_ns is not None
    return rates_of(
        frame,
        [r.endpoint_id for r in job.ordered],
        start_ns=start_ns,
        end_ns=start_ns + int(seconds * SECOND_NS),
        bin_ns=bin_ns,
    )


def measure(layout: Layout) -> Result:
    """Infer a layout's skeleton and compare it with the truth."""
    workload = Workload(layout)
    matrix = matrix_of(workload.frame(), workload.job, workload.start_ns, layout.seconds)
    found = infer(workload.job, matrix)
    truth = workload.truth.pairs
    place = workload.truth.position
    return Result(
        layout=layout,
        found=found,
        recall=len(truth & found.pairs) / max(1, len(truth)),
        ratio=len(found.pairs) / max(1, len(truth)),
        degrees=(found.dp, found.pp) == (layout.dp, layout.pp),
        stages=found.directed
        and all(
            place.get(r.endpoint_id) == divmod(i, found.width)
            for i, group in enumerate(found.groups)
            for r in group
        ),
    )
