"""Much at once, in small: a spine that dies is one verdict, not one for each path."""

import gc

import pytest

from ops.bench.scale.localizer import Run, run_storm


@pytest.fixture(scope="module")
def storm() -> Run:
    """Return what comes of a spine's death in a fabric of 20,480 5-tuples."""
    try:
        return run_storm(10, 3)
    finally:
        # Other tests want the collector as it was.
        gc.unfreeze()
        gc.enable()


def test_a_spine_that_dies_is_one_verdict_and_no_page_for_each_path(storm: Run) -> None:
    """More than two thousand 5-tuples are cut off at one time: the spine, and nothing else."""
    assert storm.anomalies > 2_000
    assert [names[0] for names in storm.opened.values()] == ["spine:0"]
    assert storm.transitions <= 3


def test_the_first_verdict_of_a_storm_is_not_put_off(storm: Run) -> None:
    """It comes with the decision that first knows of it, and later ones are fewer."""
    assert storm.out_s <= storm.steps_s[0] + 1e-9
