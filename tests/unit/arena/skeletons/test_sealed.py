"""Scores on sealed captures: the truth gets full marks, and what is wrong with it is seen."""

from typing import Any

import pytest

from arena.sealed_jobs.draw import FAMILIES, SealedCapture, draw
from arena.skeletons.sealed import FIRST_SEED, SealedScore, brier, draws, measure, score

# Not among the seeds that are measured.
SEED = 3


def perfect(capture: SealedCapture) -> dict[str, Any]:
    """Return the document of an inference that knows the truth."""

    def place(name: str) -> list[Any]:
        host, _, rail = name.rpartition("/r")
        return [host, int(rail)]

    return {
        "ping_list": [[*place(a), *place(b)] for job in capture.jobs for a, b in job.pairs],
        "tasks": [
            {
                "rnics": [place(name) for name in job.rnics], "dp": job.dp, "pp": job.pp,
                "stages": [[place(name) for name in stage] for stage in job.stages],
                "confidence": 1.0,
            }
            for job in capture.jobs
        ],
    }  # fmt: skip


@pytest.mark.parametrize("family", ["dense", "experts", "shared_cluster"])
def test_the_truth_has_full_marks(family: str) -> None:
    """All figures are 1; without a list nothing is covered, without tasks nothing is right."""
    capture = draw(SEED, family)
    document = perfect(capture)
    for job in score(document, capture):
        assert set(job.figures.values()) == {1.0}
    for job in score({**document, "ping_list": []}, capture):
        assert (job.figures["coverage"], job.figures["length"], job.figures["dp+pp"]) == (0, 0, 1)
    for job in score({**document, "tasks": []}, capture):
        assert (job.figures["coverage"], job.figures["dp+pp"], job.confidence) == (1, 0, 0)


def test_stages_in_another_order_are_wrong() -> None:
    """Also if they are the right ones."""
    capture = draw(SEED, "one_replica")
    document = perfect(capture)
    document["tasks"][0]["stages"].reverse()
    assert [job.figures["order"] for job in score(document, capture)] == [0.0]


def test_families_take_turns() -> None:
    """Each capture has a seed of its own family."""
    found = draws(len(FAMILIES) + 2)
    assert found[: len(FAMILIES)] == [(FIRST_SEED, family) for family in FAMILIES]
    assert found[len(FAMILIES) :] == [(FIRST_SEED + 1, family) for family in FAMILIES[:2]]
    assert len(set(draws(50))) == 50


def test_a_confidence_is_compared_with_the_mean() -> None:
    """Always sure: the Brier score is the share of what is wrong."""
    found = measure(SEED, "one_replica")
    (job,) = found.jobs
    right = SealedScore(name="a", family="f", jobs=(job, job))
    said, mean = brier([right])
    assert mean == 0.0
    assert said == pytest.approx((job.confidence - job.figures["dp+pp"]) ** 2)
