"""A rank that comes later than the others to the pause that all of them make."""

import pytest

from localizer.collectives.hang_watch import HangWatch
from schemas.enums import FaultLifecycle, HangClass
from schemas.records import Hang
from schemas.units import SECOND_NS, US_NS
from tests.made_job import BEGIN_US, Made, feed, operation, watch_job

RANKS = 4
GROUPS = {"0": (0, 1), "1": (2, 3), "2": (0, 2), "3": (1, 3)}
STEP_US = 200_000
STEPS = 150
PAUSE_US = 4_000_000
# When all are to pause; ranks 1 and 3 are in two operations for so much longer each.
PAUSE_AT_US = BEGIN_US + STEPS * STEP_US
EACH_US = 3_000_000
HELD_UP_US = 2 * EACH_US


def job(*, stalls: bool) -> list[list[Made]]:
    """Return by rank its operations: group, sequence, when it launched it, and when it was over."""
    found: list[list[Made]] = []
    for rank in range(RANKS):
        first = next(name for name in ("0", "1") if rank in GROUPS[name])
        second = next(name for name in ("2", "3") if rank in GROUPS[name])
        mine: list[Made] = []
        for step in range(STEPS):
            at = BEGIN_US + step * STEP_US
            mine.append((first, step, at, at + 10_000))
            mine.append((second, step, at + 100_000, at + 110_000))
        late = rank in GROUPS["3"]
        over = PAUSE_AT_US
        for number in range(2):
            begun, over = over, over + (EACH_US if late else 10_000)
            mine.append((second, STEPS + number, begun, over))
        after = over + PAUSE_US
        if not late or not stalls:
            ends = PAUSE_AT_US + HELD_UP_US + PAUSE_US + 10_000
            mine.append((first, STEPS, after, None if stalls else ends))
        found.append(mine)
    return found


def told(*, stalls: bool) -> list[Hang]:
    """Let the watcher read each rank each second until 30 s after the pause began."""
    end = PAUSE_AT_US + (30_000_000 if stalls else 10_000_000)
    return watch_job(GROUPS, job(stalls=stalls), end)


def test_who_was_held_up_makes_the_pause_that_the_others_made() -> None:
    """They wait for five seconds in the next operation, longer than ever: nobody is told."""
    assert told(stalls=False) == []


def test_who_idles_for_longer_than_the_others_did_is_told() -> None:
    """Half as long again as they, from when its last operation was over."""
    hang, *_ = told(stalls=True)
    assert hang.hang_class is HangClass.NEVER_LAUNCHED
    assert hang.ranks in {(1,), (3,), (1, 3)}
    idle_ns = hang.event_at * US_NS - (PAUSE_AT_US + HELD_UP_US) * US_NS
    assert idle_ns == pytest.approx(1.5 * PAUSE_US * US_NS, abs=2.5 * SECOND_NS)


def test_a_rank_that_does_nothing_after_the_start_hides_no_hang() -> None:
    """It never leaves its first iteration: that of the others is over all the same."""
    watch, found = HangWatch("lab"), []
    stalls_at = BEGIN_US + 60_000_000
    for now in range(BEGIN_US, stalls_at + 20_000_000, 1_000_000):
        for rank in range(RANKS):
            launches = range(max(BEGIN_US, now - 1_000_000 + STEP_US), now + 1, STEP_US)
            ops = []
            for at in launches:
                if at > stalls_at or (at == stalls_at and rank == 2):
                    break
                what = "0", (at - BEGIN_US) // STEP_US, at, None
                number = (at - BEGIN_US) // STEP_US
                ops.append(operation(number, what, done=at < stalls_at))
            feed(watch, rank, now, tuple(ops), size=RANKS)
        started = BEGIN_US + 1_000_000
        idle = (operation(0, ("start", 0, started, None), done=True),) if now == started else ()
        feed(watch, RANKS, now, idle, size=RANKS)
        found += watch.advance(now * US_NS)
    (hang,) = [h for h in found if h.state is FaultLifecycle.OPEN]
    assert (hang.hang_class, hang.ranks) == (HangClass.NEVER_LAUNCHED, (2,))
    assert hang.event_at < stalls_at + 8_000_000
