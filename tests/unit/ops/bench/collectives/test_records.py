"""How fast records are read: what the log says, and which rows have a bar."""

import os

import pytest

from ops.bench.collectives.large_job import MANY, Load
from ops.bench.collectives.records import Intake, cores, figures, seconds_between

READING = {"event": "hangs.reading", "at": "2026-11-26T10:00:01.250+00:00"}
READY = {"event": "hangs.ready", "at": "2026-11-26T10:00:09.750+00:00"}
OTHER = {"event": "hangs.metrics", "at": "2026-11-26T10:00:05.000+00:00"}


def test_time_is_between_the_first_of_two_events() -> None:
    """As the process logged them itself."""
    assert seconds_between([READING, OTHER, READY], "hangs.reading", "hangs.ready") == 8.5
    with pytest.raises(ValueError, match=r"hangs\.ready"):
        seconds_between([READING, OTHER], "hangs.reading", "hangs.ready")


def test_only_so_many_cores_in_the_block() -> None:
    """What is started there inherits it; afterwards all are allowed again."""
    before = os.sched_getaffinity(0)
    with cores(1):
        assert len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == before


def test_one_watcher_has_the_bar() -> None:
    """A standby reads the same, on a machine of its own as a rule."""
    load = Load(100, MANY, window_s=10)
    took = Intake(seconds=4.0, watcher_s=6.0, broker_s=2.0)
    alone = figures(load, 100_000_000, 1, [took])
    assert [row.value for row in alone] == [25.0, 100 * 62 * 10 / 4, 6.0, 2.0]
    assert [row.bar for row in alone] == [50.0, None, None, None]
    assert not alone[0].met
    both = figures(load, 100_000_000, 2, [took])
    assert [row.value for row in both][2] == 3.0
    assert all(row.bar is None for row in both)
    assert len({row.figure for row in (alone[0], both[0])}) == 2
