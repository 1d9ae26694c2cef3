"""Pairs of stretches, and what is said of many of them."""

import os
import random
from dataclasses import replace

import pytest

from ops.bench.collectives.iteration import (
    AGENTS,
    BROKER,
    Mark,
    Pair,
    Stretch,
    figures,
    median_interval,
    stretch_between,
)
from ops.bench.rig.process_cost import cpu_ns
from ops.lab.errors import LabError
from ops.lab.lab import COLLECTOR

BEGIN = Mark(
    attempt=1, step=100, at_ns=10**10, ranks_ns=5 * 10**9,
    beside_ns={AGENTS: 10**9, COLLECTOR: 10**9, BROKER: 10**9},
)  # fmt: skip
END = Mark(
    attempt=1, step=200, at_ns=2 * 10**10, ranks_ns=9 * 10**9,
    beside_ns={AGENTS: 10**9 + 10**8, COLLECTOR: 10**9 + 5 * 10**7, BROKER: 10**9 + 2 * 10**8},
)  # fmt: skip


def test_a_stretch_is_means_of_its_iterations() -> None:
    """A hundred in ten seconds, in which ranks took four of a core, and agents a tenth of one."""
    found = stretch_between(BEGIN, END)
    assert (found.iteration_ms, found.ranks_cpu_ms) == (100.0, 40.0)
    assert found.beside_percent == {AGENTS: 1.0, COLLECTOR: 0.5, BROKER: 2.0}


def test_a_job_that_began_anew_or_stands_still_is_no_stretch() -> None:
    """It raises, instead of a figure of something else."""
    for end in (replace(END, attempt=2), replace(END, step=100)):
        with pytest.raises(LabError, match="does not go on"):
            stretch_between(BEGIN, end)


def pairs(longer: float, noise: float, count: int, seed: int = 1) -> list[Pair]:
    """Return pairs on a machine that drifts, with independent noise of each stretch."""
    chance = random.Random(seed)
    found = []
    for number in range(count):
        drift_ms = 100.0 + 5.0 * number / count
        on_ms, off_ms = (drift_ms * chance.gauss(share, noise) for share in (1 + longer, 1.0))
        beside = {AGENTS: 3.0, COLLECTOR: 0.5}
        found.append(
            Pair(
                Stretch(
                    iteration_ms=on_ms, ranks_cpu_ms=40.0, beside_percent=beside | {BROKER: 4.0}
                ),
                Stretch(
                    iteration_ms=off_ms, ranks_cpu_ms=40.0, beside_percent=beside | {BROKER: 1.0}
                ),
            )
        )
    return found


def test_drift_cancels_and_noise_is_in_the_interval() -> None:
    """One part in a thousand longer is found among noise of one in a hundred."""
    rows = figures(500, pairs(0.001, 0.01, 200))
    longer = rows[0]
    assert longer.unit == "%"
    assert longer.low is not None
    assert longer.high is not None
    assert longer.low <= 0.1 <= longer.high
    assert longer.high - longer.low < 0.8
    assert longer.bar == 0.5
    much = figures(500, pairs(0.02, 0.01, 200))[0]
    assert not much.met
    assert much.low is not None
    assert much.low > 0.5


def test_the_other_rows_have_no_bar() -> None:
    """Of the broker what it takes more counts: without agents it idles."""
    rows = figures(500, pairs(0.0, 0.0, 10))
    assert [row.bar for row in rows[1:]] == [None] * 6
    without_pause = figures(0, pairs(0.1, 0.0, 10))
    assert all(row.bar is None for row in without_pause)
    assert {row.figure for row in without_pause[::2][:2]}.isdisjoint(row.figure for row in rows)
    assert rows[2].value == 0.0
    assert [row.value for row in rows[4:]] == [3.0, 0.5, 3.0]


def test_an_interval_holds_the_median_nineteen_times_of_twenty() -> None:
    """Of 200 samples of 40 pairs each; 95 % of 200 with three deviations are 181 at least."""
    chance = random.Random(5)
    held = 0
    for _ in range(200):
        low, high = median_interval([chance.gauss(0.0, 1.0) for _ in range(40)])
        held += low <= 0.0 <= high
    assert held >= 181


def test_the_cpu_clock_of_a_process_is_read_by_its_number() -> None:
    """It is that of `time.process_time`, and goes on only with the process."""
    before = cpu_ns(os.getpid())
    sum(range(100_000))
    assert cpu_ns(os.getpid()) > before
    with pytest.raises(OSError, match="Invalid argument"):
        cpu_ns(2**22 + 1)
