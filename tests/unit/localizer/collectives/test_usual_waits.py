"""From when on an operation waits too long."""

import random
from math import log

from localizer.collectives.usual_waits import (
    FALSE_ALARMS,
    FIRST_US,
    FIRST_WAITS,
    LEAST_WAITS,
    READ_ONCE_US,
    READ_TWICE_US,
    UsualWaits,
    limit_of,
    longest_of,
    patience,
)

SECOND_US = 1_000_000


def waits(count: int, longest: int) -> UsualWaits:
    """Return so many waits."""
    found = UsualWaits()
    for number in range(count):
        found.observe(longest if number == 0 else longest // 2)
    return found


def test_the_limit_comes_down_as_more_waits_are_known() -> None:
    """Three times the longest after a hundred, 1.7 times after a million; two readings at least."""
    limits = [waits(n, 10 * SECOND_US).limit(10) or 0 for n in (100, 10_000, 1_000_000)]
    assert [round(limit / SECOND_US) for limit in limits] == [30, 20, 17]
    assert waits(100, 1_000).limit(1) == READ_TWICE_US


def test_few_waits_are_judged_by_the_whole_job_or_by_the_timeout() -> None:
    """Before anything is known, what the program itself allows counts."""
    few = waits(LEAST_WAITS - 1, SECOND_US)
    assert few.limit(1) is None
    assert limit_of(few, few, 1, None) == patience(None) == 60 * SECOND_US
    assert limit_of(few, waits(131, 10 * SECOND_US), 2, 1) < 30 * SECOND_US
    assert limit_of(few, few, 1, 1_800_000) == 180 * SECOND_US


def test_the_first_operation_of_a_communicator_may_take_longer_than_others() -> None:
    """Connections are made, and programs compiled, which nothing of the job has shown yet."""
    short = waits(1_000, SECOND_US // 10)
    assert limit_of(UsualWaits(), short, 2, None) == FIRST_US
    assert limit_of(waits(FIRST_WAITS - 1, SECOND_US), short, 2, None) == FIRST_US
    assert limit_of(waits(FIRST_WAITS, SECOND_US), short, 2, None) == READ_TWICE_US
    assert limit_of(short, short, 2, None) == READ_TWICE_US


def test_longer_than_any_is_known_of_a_communicator_or_of_the_whole_job() -> None:
    """A reading at least; of few waits the longest says nothing."""
    few = waits(LEAST_WAITS - 1, 50 * SECOND_US)
    assert longest_of(few, few) is None
    assert longest_of(few, waits(LEAST_WAITS, 3 * SECOND_US)) == 3 * SECOND_US
    assert longest_of(waits(LEAST_WAITS, 5 * SECOND_US), few) == 5 * SECOND_US
    assert longest_of(waits(LEAST_WAITS, SECOND_US), few) == READ_ONCE_US


def test_exponential_waits_are_false_alarms_as_seldom_as_said() -> None:
    """Of 300 communicators with 3,000 waits each, learned from the first 32 on."""
    rng = random.Random(7)
    alarms = 0
    for _ in range(300):
        known = UsualWaits()
        for _ in range(3_000):
            # So long that the least of four seconds plays no part.
            waited = round(rng.expovariate(1.0) * 100 * SECOND_US)
            limit = known.limit(1)
            alarms += limit is not None and waited > limit
            known.observe(waited)
    # Expected are 1.4; the longest of few waits scatters, and so does the limit.
    expected = 300 * FALSE_ALARMS * log(3_000 / LEAST_WAITS)
    assert alarms <= 3 * expected
