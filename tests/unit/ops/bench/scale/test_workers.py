"""The workers' bench: what counts as caught up, and its plan."""

from ops.bench.scale.workers_life import PLAN, settled_after


def test_caught_up_is_for_good() -> None:
    """A lag that rises again was not over; one that ends high has not caught up."""
    assert settled_after([(0.0, 1.0), (1.0, 1.5)], 2.0) == 0.0
    assert settled_after([(0.0, 1.0), (3.0, 4.0), (4.0, 1.0), (5.0, 2.0), (6.0, 0.0)], 2.0) == 6.0
    assert settled_after([(0.0, 1.0), (3.0, 4.0)], 2.0) is None
    assert settled_after([], 2.0) is None


def test_the_plan_has_workers_left() -> None:
    """Nobody is asked to leave or killed who is not there."""
    workers = 1
    for step in PLAN:
        workers += 1 if step == "join" else -1
        assert 1 <= workers <= 4
