"""Ranks that wait for each other, as their last words say."""

import pytest

from schemas.enums import Certainty, HangClass
from tests.made_job import BEGIN_US, SECOND_US, Made, watch_job

GROUPS = {"0": (0, 1), "1": (0, 1)}
STEPS = 100
STEP_US = 200_000
STOPS_US = BEGIN_US + STEPS * STEP_US


def job() -> list[list[Made]]:
    """Return two ranks that at last launch operations of two groups in different orders."""
    usual: list[Made] = []
    for step in range(STEPS):
        at = BEGIN_US + step * STEP_US
        usual += [("0", step, at, at + 10_000), ("1", step, at + 100_000, at + 110_000)]
    return [[*usual, (name, STEPS, STOPS_US, None)] for name in GROUPS]


@pytest.mark.parametrize(
    ("gone", "expected"),
    [
        ({}, (HangClass.DESYNCHRONISED, Certainty.UNDECIDED, ())),
        # It waits for nobody any more, and what it would have launched next is not known.
        ({1: STOPS_US + SECOND_US}, (HangClass.RANK_MISSING, Certainty.SURE, (1,))),
    ],
)
def test_one_of_a_circle_that_is_gone_is_told(
    gone: dict[int, int], expected: tuple[HangClass, Certainty, tuple[int, ...]]
) -> None:
    """The others have not done anything else than they should."""
    (hang,) = watch_job(GROUPS, job(), STOPS_US + 15 * SECOND_US, gone=gone)
    assert (hang.hang_class, hang.certainty, hang.ranks) == expected
