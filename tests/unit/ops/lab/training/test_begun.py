"""What ranks tell their launcher of the iterations that they begin."""

import os
import time

from ops.lab.training.begun import NONE, BegunSteps


def test_a_rank_that_was_forked_tells_when_it_began() -> None:
    """Its clock is that of the launcher, its CPU time its own; of the others nothing is told."""
    steps = BegunSteps(3)
    assert steps.read() == [NONE] * 3
    before_ns = time.monotonic_ns()
    if not (pid := os.fork()):
        steps.begin(1, 7)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    first, begun, last = steps.read()
    assert (first, last) == (NONE, NONE)
    assert begun.step == 7
    assert before_ns < begun.at_ns < time.monotonic_ns()
    assert 0 <= begun.cpu_ns < before_ns


def test_an_attempt_that_is_over_is_forgotten() -> None:
    """Its iterations would look as if the next had begun them."""
    steps = BegunSteps(600)
    steps.begin(599, 3)
    assert steps.read()[599].step == 3
    steps.forget()
    assert steps.read() == [NONE] * 600


def test_two_begins_are_as_far_apart_as_time_went_on() -> None:
    """Of time and of CPU time, nanoseconds."""
    steps = BegunSteps(1)
    steps.begin(0, 0)
    first = steps.read()[0]
    time.sleep(0.05)
    sum(range(1_000_000))
    steps.begin(0, 1)
    second = steps.read()[0]
    assert second.at_ns - first.at_ns >= 50_000_000
    assert 0 < second.cpu_ns - first.cpu_ns < second.at_ns - first.at_ns
