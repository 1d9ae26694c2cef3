"""Several workers in one group on one machine: none is lost, none counted twice, how fast.

And what one worker's core takes for a given number of 5-tuples, without Kafka.
"""

import gc
import os
import time
from collections.abc import Sequence
from statistics import median
from typing import Final

from ops.bench.rig import process_cost
from ops.bench.rig.growth import FLAT, LINEAR, Curve, call_alone, slope_figure
from ops.bench.rig.load import Load, LoadShape
from ops.bench.rig.report import Figure, Parts, Say, figure
from ops.bench.scale.workers_life import PLAN, STEP_S, LifeRun
from ops.bench.throughput.core import PARTITIONS, Core, Logs, append_interval
from ops.bench.throughput.report import MEGA, on_rig
from ops.bench.throughput.rig import Rig
from schemas.codec import Codec
from schemas.process import memory
from streams.warm import warm

# Modest: the truth is read back and decoded record by record.
LIFE: Final = LoadShape(agents=100, bodies=6, late=0.0)
COUNTS: Final = (1, 2, 4)
FULL: Final = LoadShape(agents=400, bodies=8)
INTERVALS: Final = 300
MOST_S: Final = 60.0
# Of 80 5-tuples each.
AGENTS: Final = (100, 400, 1_250, 2_500)
MIB: Final = 2**20
# In the first minute every 5-tuple is new, and the first window closes.
WARM_S: Final = 60
# Two windows more.
LASTS_S: Final = 60


def life(
    rig: Rig,
    runs: int,
    say: Say,
    *,
    shape: LoadShape = LIFE,
    plan: Sequence[str] = PLAN,
    step_s: float = STEP_S,
) -> list[Figure]:
    """Let workers join, leave and be killed while rounds flow; compare windows with rounds."""
    published: list[float] = []
    lost: list[float] = []
    double: list[float] = []
    caught: list[float] = []
    late = 0
    for number in range(runs):
        settings = rig.settings(f"life{number}.")
        found = LifeRun(rig, settings, say).run(shape, plan, step_s)
        verdict = found.verdict
        published.append(float(verdict.published))
        lost.append(float(verdict.lost))
        double.append(float(verdict.double))
        caught += [s for s in found.caught_up_s if s is not None]
        late += found.caught_up_s.count(None)
        say(
            f"{verdict.published:,} results in {verdict.windows:,} windows, {verdict.lost} lost, "
            f"{verdict.double} counted twice; {found.duplicates} rounds had come twice"
        )
    what = "workers that join, leave and are killed"
    return [
        figure(f"{what}: results judged", published, sense=">="),
        figure(f"{what}: results lost", lost, bar=0.0, worst=True),
        figure(f"{what}: results counted twice", double, bar=0.0, worst=True),
        figure("SIGKILL → the group has caught up, median", caught, "s"),
        figure("SIGKILL → the group has caught up, worst", caught, "s", worst=True),
        figure(f"SIGKILL: not caught up within {step_s:.0f} s", [float(late)], bar=0.0),
    ]


def rates(
    rig: Rig,
    runs: int,
    say: Say,
    *,
    shape: LoadShape = FULL,
    intervals: int = INTERVALS,
    counts: Sequence[int] = COUNTS,
    most_s: float = MOST_S,
) -> list[Figure]:
    """Let one, two and four workers of a new group take a full topic."""
    filled = rig.fill("full.", shape, intervals)
    rate: dict[int, list[float]] = {count: [] for count in counts}
    size: dict[int, list[float]] = {count: [] for count in counts}
    for _ in range(runs):
        for count in counts:
            run = rig.run_workers(filled, count, most_s=most_s)
            rate[count].append(run.rate_hz / MEGA)
            size[count].append(run.workers.rss_bytes / MEGA)
            say(
                f"{count} workers: {rate[count][-1]:.2f} M/s, {size[count][-1]:.0f} MB each, "
                f"{run.workers.cpu_s:.1f} s of CPU{'' if run.whole else ', cut off'}"
            )
    rows = []
    for count in counts:
        name = f"{count} worker{'s' if count > 1 else ''} on this machine, full topic"
        rows += [
            figure(name, rate[count], "M/s", sense=">="),
            figure(f"{name}: each", [r / count for r in rate[count]], "M/s", sense=">="),
            figure(f"{name}: RSS of the largest", size[count], "MB"),
        ]
    return rows


def workers(rig: Rig, runs: int, say: Say) -> list[Figure]:
    """Measure both."""
    return rates(rig, runs, say) + life(rig, runs, say)


def growth(runs: int, say: Say, agents: Sequence[int] = AGENTS) -> list[Figure]:
    """Measure what a result and the state cost with 8,000 to 200,000 5-tuples, without Kafka."""
    sizes: list[float] = []
    seconds: list[float] = []
    state: list[float] = []
    for count in agents:
        found = [call_alone(grown, count) for _ in range(runs)]
        sizes.append(found[0]["paths"])
        seconds.append(median(one["cpu_s"] / one["results"] * MEGA for one in found))
        state.append(median(one["state_bytes"] / MIB for one in found))
    points, axis = tuple(sizes), "5-tuples"
    cost = Curve(name="worker: CPU of a million results", axis=axis, unit="s", sizes=points,
                 costs=tuple(seconds))  # fmt: skip
    held = Curve(name="worker: memory of the 5-tuples", axis=axis, unit="MiB", sizes=points,
                 costs=tuple(state))  # fmt: skip
    return [
        slope_figure(cost, FLAT, say),
        slope_figure(held, LINEAR, say),
        figure(f"worker: memory of a 5-tuple, {points[-1]:,.0f} of them",
             [state[-1] * MIB / points[-1]], "bytes"),
    ]  # fmt: skip


def grown(agents: int) -> dict[str, float]:
    """Feed a core with the rounds of that many agents, one a second of event time.

    Each has 80 5-tuples; windows are encoded and dropped. Returns 5-tuples, results and seconds of
    CPU after the warm part, and bytes that were added.
    """
    memory.return_large_arrays()
    warm(Codec())
    # Of bodies there are few: their values do not matter here, and their bytes are no state.
    load = Load(LoadShape(agents=agents, bodies=2))
    gc.collect()
    before = process_cost.memory(os.getpid()).rss_bytes
    core, results, cpu_s = Core(publish=True), 0, 0.0
    for number in range(WARM_S + LASTS_S):
        logs: Logs = [[] for _ in range(PARTITIONS)]
        came = append_interval(load, number, logs)
        begin_s = time.process_time()
        core.consume(logs)
        if number >= WARM_S:
            cpu_s += time.process_time() - begin_s
            results += came
    del logs
    held = process_cost.memory(os.getpid()).rss_bytes - before
    return {"paths": load.shape.paths, "results": results, "cpu_s": cpu_s, "state_bytes": held}


PARTS: Final[Parts] = {"workers": on_rig(workers), "worker-growth": growth}
