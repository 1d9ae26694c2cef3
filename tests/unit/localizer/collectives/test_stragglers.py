"""Who holds a job up since lately, by how long each rank worked alone before each launch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localizer.collectives.sole_work import Worked
from localizer.collectives.stragglers import MOST_KNOWN, Launches, Stragglers, straggler_of

# An iteration: eight operations in half a second, and before one of them a rank may work alone.
EACH = 8
ITERATION_US = 500_000
KINDS = 4
RANKS = 8
PAUSE_US = 3_000_000


def launches(
    iterations: int, *, sole_us: int = 0, pauses_each: int = 0, seed: int = 0
) -> list[tuple[int, int]]:
    """Return what a rank did: some milliseconds alone, and pauses each so many iterations."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(iterations):
        pause = PAUSE_US if pauses_each and number % pauses_each == pauses_each - 1 else 0
        chance = int(rng.exponential(5_000))
        extra = sole_us + pause + chance
        found += [(ITERATION_US // EACH, 0)] * (EACH - 1)
        found.append((ITERATION_US // EACH + extra, extra))
    return found


def look(done: list[tuple[int, int]]) -> bool:
    """Return whether the rank is said to hold the others up."""
    return straggler_of(2, np.array(done, np.int64), RANKS, KINDS) is not None


def test_a_rank_is_named_after_five_seconds_of_iterations_that_are_all_slower() -> None:
    """Six of 1.1 s; three of them are too short a time."""
    healthy = launches(200)
    assert not look(healthy)
    assert not look(healthy + launches(3, sole_us=600_000))
    found = straggler_of(
        2, np.array(healthy + launches(6, sole_us=600_000), np.int64), RANKS, KINDS
    )
    assert found is not None
    assert found.rank == 2
    assert found.share > 0.3
    assert found.usual_share < 0.05


def test_pauses_hide_nobody_who_makes_none() -> None:
    """The others wait for rank 0's checkpoints: those are before single launches of its own."""
    assert look(launches(200) + launches(8, sole_us=300_000))


def test_a_rank_that_pauses_needs_more_iterations_to_be_told() -> None:
    """Its pauses are longer than what it is slow by now, and rare."""
    healthy = launches(200, pauses_each=20)
    assert not look(healthy)
    assert not look(healthy + launches(4, sole_us=600_000, seed=1))
    assert look(healthy + launches(40, sole_us=600_000, seed=1))


@pytest.mark.parametrize("pause_s", [3, 30, 300])
def test_no_single_pause_is_told_however_long(pause_s: int) -> None:
    """The first checkpoint of a job."""
    us = pause_s * 1_000_000
    assert not look([*launches(200), (us, us), *launches(2)])


def test_a_minute_must_be_known() -> None:
    """Of a job that has just begun nothing is usual."""
    assert not look(launches(60) + launches(20, sole_us=600_000))


def test_healthy_ranks_are_told_less_than_once_in_a_thousand_jobs() -> None:
    """Each rank's history, cut at every iteration: none of eight ranks of four jobs is named."""
    for seed in range(4 * RANKS):
        done = launches(160, pauses_each=20 if seed % RANKS == 0 else 0, seed=seed)
        for end in range(130 * EACH, len(done), EACH):
            assert not look(done[:end])


def feed(watch: Stragglers, done: list[tuple[int, int]], first: int, attempt: int = 1) -> int:
    """Let rank 2 do something, and rank 1 nothing alone; return the next record id."""
    for number, (lasted, sole) in enumerate(done, start=first):
        worked = {1: [Worked(number, lasted, 0)], 2: [Worked(number, lasted, sole)]}
        watch.observe(worked, {1: attempt, 2: attempt}, KINDS)
    return first + len(done)


def test_it_is_over_when_as_many_iterations_are_as_usual_and_comes_back_if_it_does() -> None:
    """What told a slow rank is not usual afterwards."""
    watch = Stragglers()
    at = feed(watch, launches(140), 0)
    assert watch.found is None
    at = feed(watch, launches(30, sole_us=600_000), at)
    assert watch.found is not None
    assert watch.found.rank == 2
    at = feed(watch, launches(30), at)
    assert watch.found is None
    feed(watch, launches(12, sole_us=600_000), at)
    assert watch.found is not None
    watch.begin_anew()
    assert watch.found is None


def both(watch: Stragglers, done: list[tuple[int, int]], first: int, ranks: tuple[int, ...]) -> int:
    """Give launches of some ranks, of which rank 2 alone works alone; return the next record."""
    for number, (lasted, sole) in enumerate(done, start=first):
        worked = {r: [Worked(number, lasted, sole if r == 2 else 0)] for r in ranks}
        watch.observe(worked, dict.fromkeys(ranks, 1), KINDS)
    return first + len(done)


def test_ranks_may_come_and_go_while_one_is_slow() -> None:
    """Who is new then has a history afterwards; a slow rank that is gone holds nobody up."""
    watch = Stragglers()
    at = both(watch, launches(140), 0, (1, 2))
    at = both(watch, launches(30, sole_us=600_000), at, (1, 2))
    assert watch.found is not None
    at = both(watch, launches(30), at, (1, 2, 3))
    assert watch.found is None
    at = both(watch, launches(30, sole_us=600_000), at, (1, 2, 3))
    assert watch.found is not None
    both(watch, launches(1), at, (1, 3))
    assert watch.found is None
    watch.forget()
    assert watch.weight == 0


@given(st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 40)), max_size=8))
def test_launches_are_the_last_of_a_list(steps: list[tuple[int, int]]) -> None:
    """Whatever is added, and dropped at the end."""
    held, expected, number = Launches(), list[tuple[int, int]](), 0
    for added, dropped in steps:
        rows = [(number + n, n) for n in range(added)]
        number += added
        held.extend(np.array(rows, np.int64).reshape(-1, 2))
        expected = (expected + rows)[-MOST_KNOWN:]
        held.drop_last(dropped)
        expected = expected[: max(0, len(expected) - dropped)]
        assert len(held) == len(expected)
        assert held.rows.tolist() == [list(row) for row in expected]
