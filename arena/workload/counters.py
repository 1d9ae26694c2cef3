"""From transfers to cumulative byte counters, and from these to what a host reads."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from arena.workload.spec import SAME_TICK, Dirt
from schemas.columns.arrays import Bools, Floats, Int64s
from schemas.units import SECOND_NS


@dataclass(frozen=True)
class Curve:
    """Bytes cumulated over time: `total` at `at_s`, linear between, flat outside."""

    at_s: Floats
    total: Floats

    def __call__(self, times_s: Floats) -> Floats:
        """Return the bytes through until each time."""
        if not self.at_s.size:
            return np.zeros_like(times_s)
        return np.interp(times_s, self.at_s, self.total)


def curves(lane: Int64s, begin_s: Floats, end_s: Floats, size: Int64s, lanes: int) -> list[Curve]:
    """Return the cumulated bytes of each lane.

    A transfer moves its bytes evenly over its time. Rows of lane -1 are left out.
    """
    order = np.argsort(lane, kind="stable")
    bounds = np.searchsorted(lane[order], np.arange(lanes + 1))
    out = []
    for k in range(lanes):
        rows = order[bounds[k] : bounds[k + 1]]
        out.append(_curve(begin_s[rows], end_s[rows], size[rows].astype(np.float64)))
    return out


def _curve(begin_s: Floats, end_s: Floats, size: Floats) -> Curve:
    if not size.size:
        return Curve(np.zeros(0), np.zeros(0))
    slope = size / (end_s - begin_s)
    at = np.concatenate([begin_s, end_s])
    change = np.concatenate([slope, -slope])
    order = np.argsort(at, kind="stable")
    at, rate = at[order], np.cumsum(change[order])
    total = np.concatenate([[0.0], np.cumsum(rate[:-1] * np.diff(at))])
    # Rounding of the sums must neither lose bytes nor let a counter fall.
    total = np.maximum.accumulate(total)
    total *= size.sum() / total[-1]
    total[-1] = size.sum()
    return Curve(at, np.minimum(total, size.sum()))


@dataclass(frozen=True)
class Reading:
    """One host's readings: stamps by its own clock, which are there, and the true times."""

    stamp_ns: Int64s
    time_s: Floats
    there: Bools


def readings(
    hosts: int,
    seconds: float,
    tick_s: float,
    dirt: Dirt,
    *,
    start_ns: int,
    rng: np.random.Generator,
) -> list[Reading]:
    """Return when each host reads its counters."""
    ticks = np.arange(0.0, seconds + tick_s / 2, tick_s)
    # A collector's outage takes readings of many hosts at once.
    hole_at = rng.uniform(0, max(seconds - dirt.hole_s, 0)) if dirt.hole_s else 0.0
    out = []
    for _ in range(hosts):
        phase = 0.0 if dirt.tick == SAME_TICK else rng.uniform(0, tick_s)
        offset = rng.uniform(-1, 1) * dirt.clock_s
        # A host that follows the wall clock follows its own.
        time = ticks + phase - offset + rng.uniform(0, dirt.read_delay_s, ticks.size)
        there = rng.random(ticks.size) >= dirt.lost
        if dirt.hole_s and rng.random() < 0.7:
            there &= (ticks < hole_at) | (ticks >= hole_at + dirt.hole_s)
        stamps = start_ns + np.round((time + offset) * SECOND_NS).astype(np.int64)
        out.append(Reading(stamps, time, there))
    return out


def counter(
    curve: Curve, reading: Reading, dirt: Dirt, mean_rate: float, rng: np.random.Generator
) -> NDArray[np.uint64]:
    """Return a counter at a host's readings.

    Parameters
    ----------
    mean_rate : of the job's NICs, bytes per second; other traffic is measured by it
    """
    total = curve(reading.time_s)
    step = np.diff(reading.time_s, prepend=reading.time_s[0] - 0.1)
    total = total + np.cumsum(rng.exponential(1.0, total.size) * dirt.noise * mean_rate * step)
    if dirt.stale:
        # The port's own copy is refreshed late: a reading repeats the one before.
        fresh = rng.random(total.size) >= dirt.stale
        fresh[0] = True
        total = total[np.maximum.accumulate(np.where(fresh, np.arange(total.size), 0))]
    value = np.maximum(total, 0.0).astype(np.uint64)
    value += np.uint64(rng.integers(0, 2 ** min(dirt.bits, 62)))
    for at in rng.integers(1, value.size, dirt.resets if rng.random() < 0.2 else 0):
        value[at:] -= value[at]
    if dirt.bits < 64:
        value &= np.uint64(2**dirt.bits - 1)
    return value
