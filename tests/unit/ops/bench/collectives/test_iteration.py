"""Pairs of stretches, and what is said of many of them."""

import os
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from ops.bench.collectives.iteration import (
    AGENTS,
    BROKER,
    Mark,
    Pair,
    StandsStillError,
    Stretch,
    all_pairs,
    figures,
    median_interval,
    stretch_between,
)
from ops.bench.rig.process_cost import cpu_ns
from ops.lab.lab import COLLECTOR
from ops.lab.training.begun import Begun

BEGIN = Mark(
    attempt=1, begun=(Begun(100, 10**10 - 10**8, 5 * 10**9), Begun(100, 10**10 - 10**8, 10**9)),
    at_ns=10**10,
    beside_ns={AGENTS: 10**9, COLLECTOR: 10**9, BROKER: 10**9},
)  # fmt: skip
END = Mark(
    attempt=1, begun=(Begun(200, 199 * 10**8, 8 * 10**9), Begun(198, 197 * 10**8, 198 * 10**7)),
    at_ns=2 * 10**10,
    beside_ns={AGENTS: 10**9 + 10**8, COLLECTOR: 10**9 + 5 * 10**7, BROKER: 10**9 + 2 * 10**8},
)  # fmt: skip


def test_a_stretch_is_means_of_its_iterations() -> None:
    """A hundred and 98 in ten seconds; ranks took 3 and 0.98 s of a core, agents 0.1 s."""
    found = stretch_between(BEGIN, END)
    assert (found.iteration_ms, found.ranks_cpu_ms) == (100.0, 40.0)
    assert found.beside_percent == {AGENTS: 1.0, COLLECTOR: 0.5, BROKER: 2.0}


def test_a_job_that_began_anew_or_stands_still_is_no_stretch() -> None:
    """It raises, instead of a figure of something else; so it does if one rank stands still."""
    ahead, behind = END.begun
    for end, why in (
        (replace(END, attempt=2), "began anew"),
        (replace(END, begun=BEGIN.begun), r"ranks \[0, 1\]"),
        (replace(END, begun=(ahead, BEGIN.begun[1])), r"ranks \[1\]"),
        (replace(END, begun=(ahead, behind._replace(at_ns=END.at_ns - 4 * 10**9))), r"ranks \[1\]"),
    ):
        with pytest.raises(StandsStillError, match=why):
            stretch_between(BEGIN, end)


def simulated(iteration_s: float, chance: random.Random) -> Stretch:
    """Return a stretch of ten seconds at a random moment of a job with one rank.

    A launcher looks each quarter of a second; a rank uses 20 ms of a core in each iteration.
    """
    begins_s = [-chance.uniform(0.0, iteration_s)]
    while begins_s[-1] < 16.0:
        begins_s.append(begins_s[-1] + chance.gauss(iteration_s, 0.01))
    phase_s = chance.uniform(0.0, 0.25)

    def told(now_s: float) -> Mark:
        look_s = now_s - (now_s - phase_s) % 0.25
        step = sum(begin_s <= look_s for begin_s in begins_s) - 1
        begun = Begun(step, round(begins_s[step] * 1e9), step * 20_000_000)
        beside_ns = {AGENTS: 0, COLLECTOR: 0, BROKER: 0}
        return Mark(attempt=1, begun=(begun,), at_ns=round(now_s * 1e9), beside_ns=beside_ns)

    begin_s = 1.0
    while told(begin_s).begun[0].at_ns <= 10**9:
        begin_s += 0.05
    return stretch_between(told(begin_s), told(begin_s + 10.0))


def test_one_percent_is_seen_at_half_a_second() -> None:
    """Of 18 iterations in a stretch, counted, a whole one more or less would be six percent."""
    chance = random.Random(3)
    for longer_percent in (0.0, 1.0):
        measured = []
        for _ in range(30):
            off = simulated(0.52, chance)
            on = simulated(0.52 * (1 + longer_percent / 100), chance)
            assert on.ranks_cpu_ms == off.ranks_cpu_ms == pytest.approx(20.0)
            measured.append(Pair(on, off))
        longer = figures(500, measured)[0]
        assert longer.value == pytest.approx(longer_percent, abs=0.3)


def test_a_pair_in_which_the_job_stands_still_is_not_measured() -> None:
    """It is told and counted, and the others stay; if most are lost that is an error."""
    whole = pairs(0.0, 0.0, 1)[0]

    def some(lost: set[int]) -> Callable[..., Pair]:
        asked = iter(range(100))

        def pair(*, on_first: bool) -> Pair:
            number = next(asked)
            assert on_first == (number % 2 == 0)
            if number in lost:
                raise StandsStillError("stands still")
            return whole

        return pair

    said: list[str] = []
    assert all_pairs(some({1, 2}), 4, said.append, "job") == [whole, whole]
    assert ["not measured, stands still" in line for line in said] == [False, True, True, False]
    assert figures(500, [whole, whole], lost=2)[-1].value == 2.0
    with pytest.raises(StandsStillError):
        all_pairs(some({0, 1, 3}), 4, said.append, "job")


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
    assert [row.bar for row in rows[1:]] == [None] * 7
    without_pause = figures(0, pairs(0.1, 0.0, 10))
    assert all(row.bar is None for row in without_pause)
    assert {row.figure for row in without_pause[::2][:2]}.isdisjoint(row.figure for row in rows)
    assert rows[2].value == 0.0
    assert [row.value for row in rows[4:]] == [3.0, 0.5, 3.0, 0.0]


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
