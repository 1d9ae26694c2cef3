"""Schedules: known durations, limits and errors."""

import numpy as np
import pytest

from arena.sealed_jobs import schedules
from arena.sealed_jobs.fleet import FloatArray
from arena.sealed_jobs.schedules import BACKWARD, FORWARD, Schedule, Step, Times

ONE = np.ones((1, 1))


def timed(schedule: Schedule, rounds: int = 1) -> Times:
    """Run with a forward of 1, a backward of 2 (split: 1 and 1), and no delay between devices."""

    def seconds(step: Step) -> FloatArray:
        whole = 1.0 if step.kind == FORWARD or schedule.split else 2.0
        return ONE * whole / rounds

    return schedules.run(schedule, seconds=seconds, hop_s=0 * ONE, begin=0 * ONE)


def length(times: Times) -> float:
    """Return when the last step ends."""
    return max(float(end.max()) for end in times.end.values())


@pytest.mark.parametrize(("stages", "micros"), [(1, 4), (2, 2), (4, 8), (8, 32)])
def test_plain_pipelines_have_the_known_bubble(stages: int, micros: int) -> None:
    """GPipe and 1F1B take (micros + stages - 1) forwards and backwards."""
    for build in (schedules.all_forward_first, schedules.one_forward_one_backward):
        assert length(timed(build(stages, micros))) == pytest.approx(3 * (micros + stages - 1))


@pytest.mark.parametrize("rounds", [2, 4])
def test_interleaving_divides_the_bubble(rounds: int) -> None:
    """By the number of rounds (Narayanan et al. 2021)."""
    took = length(timed(schedules.interleaved(4, 16, rounds), rounds))
    assert took == pytest.approx(3 * 16 + 3 * 3 / rounds)


def test_interleaving_needs_a_multiple_of_the_stages() -> None:
    """As in Megatron-LM."""
    with pytest.raises(ValueError, match="5 microbatches are no multiple of 4 stages"):
        schedules.interleaved(4, 5, 2)


def test_1f1b_holds_few_microbatches() -> None:
    """The first stage has at most as many activations as there are stages."""
    for stage, order in enumerate(schedules.one_forward_one_backward(4, 16).orders):
        held = most = 0
        for step in order:
            held += 1 if step.kind == FORWARD else -1
            most = max(most, held)
        assert most == 4 - stage


@pytest.mark.parametrize(
    "schedule",
    [
        schedules.zero_bubble(4, 16, 4),
        schedules.zero_bubble(4, 16, 7),
        schedules.dual_pipe(4, 16),
    ],
)
def test_split_backwards_shorten_the_bubble(schedule: Schedule) -> None:
    """Compared with 1F1B of as many stages and microbatches."""
    assert 3 * 16 <= length(timed(schedule)) < 3 * (16 + 4 - 1)


def test_v_goes_forth_and_back() -> None:
    """The first device holds the first and the last part."""
    schedule = schedules.zero_bubble_v(4, 8)
    assert schedule.chains == ((0, 1, 2, 3, 3, 2, 1, 0),)
    assert length(timed(schedule, 2)) < 3 * (8 + 4 - 1)


def test_both_ends_of_a_dual_pipe_begin() -> None:
    """Half of the microbatches enter at the last device."""
    times = timed(schedules.dual_pipe(4, 8))
    assert times.start[Step(FORWARD, 0, 0, 0)] == times.start[Step(FORWARD, 1, 0, 0)] == 0


def test_evaluation_has_no_backwards() -> None:
    """And takes micros + stages - 1 forwards."""
    evaluation = schedules.one_forward_one_backward(4, 8).forward_only()
    times = timed(evaluation)
    assert not any(step.kind == BACKWARD for step in times.start)
    assert length(times) == pytest.approx(8 + 4 - 1)


def test_hops_delay_the_next_stage() -> None:
    """Only between devices."""
    times = schedules.run(
        schedules.one_forward_one_backward(2, 1),
        seconds=lambda _: ONE,
        hop_s=0.5 * ONE,
        begin=2 * ONE,
    )
    assert times.start[Step(FORWARD, 0, 1, 0)] == 3.5
    assert times.start[Step(BACKWARD, 0, 1, 0)] == 4.5
    assert times.start[Step(BACKWARD, 0, 0, 0)] == 6.0


def test_orders_that_wait_for_each_other_are_refused() -> None:
    """A device that wants a backward before its forward waits for ever."""
    order = (Step(BACKWARD, 0, 0, 0), Step(FORWARD, 0, 0, 0))
    with pytest.raises(ValueError, match="wait for each other"):
        timed(Schedule(chains=((0,),), orders=(order,)))
