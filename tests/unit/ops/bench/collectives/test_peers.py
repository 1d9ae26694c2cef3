"""What both name is counted over all jobs."""

from typing import Any

from ops.bench.collectives.peers import Named, count, figures


def job(culprits: list[int], ours: list[int], theirs: list[int], *, right: bool) -> dict[str, Any]:
    """Return a job as `python -m tests.training --json` tells it."""
    return {
        "job": "j", "culprits": culprits, "said": "stalled", "right": right, "ours": ours,
        "theirs": [], "theirs_in_form_of_nccl": theirs,
    }  # fmt: skip


JOBS = [
    job([2], [2], [0], right=True),
    job([], [], [0, 1], right=True),
    job([1], [1], [1, 3], right=True),
    job([4], [5], [], right=False),
]


def test_culprits_and_innocent_ranks_are_counted() -> None:
    """A job without a culprit has only innocent ones."""
    assert count(JOBS, "ours") == Named(2, 1)
    assert count(JOBS, "theirs") == Named(0, 0)
    assert count(JOBS, "theirs_in_form_of_nccl") == Named(1, 4)


def test_ours_must_name_more_culprits_and_fewer_innocent_ranks() -> None:
    """Than the better of both forms; who ends at the dumps names no innocent rank either."""
    more, fewer, right, *theirs = figures(JOBS)
    assert (more.value, more.bar, more.sense, more.met) == (2.0, 2.0, ">=", True)
    assert (fewer.value, fewer.bar, fewer.sense, fewer.met) == (1.0, 3.0, "<=", True)
    assert (right.value, right.unit, right.bar) == (3.0, "of 4 jobs", None)
    assert [row.value for row in theirs] == [0.0, 0.0, 1.0, 4.0]
    assert all(row.bar is None for row in theirs)
    as_many, *_ = figures([job([1], [1], [1], right=True)])
    assert not as_many.met
