"""The skeleton job on one large job, and on a cluster of 64."""

import statistics
import time
from typing import Any, Final

from ops.bench.rig.growth import LINEAR, Curve, run_alone, slope_figure
from ops.bench.rig.report import Figure, Parts, Say, figure
from ops.bench.scale.skeleton_cluster import (
    CLUSTER,
    HZ,
    INFERENCE,
    RAILS,
    SPECS,
    as_batch,
    columns,
    task,
)
from schemas.codec import Codec
from schemas.topics import RNIC_COUNTERS
from skeleton_job.core import SkeletonCore
from skeleton_job.lists.pinglists import ListConfig
from skeleton_job.series.columns import counter_columns

# Tasks of 640 RNICs.
TASKS: Final = (4, 8, 16, 32, 64)
MOST: Final = TASKS[-1]
# A first run with nothing new looks at no task.
NOTHING_S: Final = 0.1
# One task of 64, and as much again for what is done once.
ONE_SHARE: Final = 2 / MOST
# Agents of 8 RNICs in a cluster of 40,000; the seconds of one task's counters that are consumed.
AGENTS: Final = 5_000
INTAKE_SECONDS: Final = 20
# Threads of the linear algebra wait for each other in a loop; matrices are too small for two.
ENVIRONMENT: Final = {"OPENBLAS_NUM_THREADS": "1"}


def one_job(runs: int, say: Say) -> list[Figure]:
    """2,048 RNICs, 300 s at 10 Hz, from a table."""
    found = [
        run_alone("arena.skeletons", "--bench", ENVIRONMENT)["task known"] for _ in range(runs)
    ]
    for f in found:
        say(f"2,048 RNICs × 300 s × 10 Hz: {f['wall_s']:.2f} s, {f['cpu_s']:.2f} s of CPU, "
            f"DP {f['dp']}, PP {f['pp']}")  # fmt: skip
    what = "skeleton, 2,048 RNICs × 300 s × 10 Hz"
    return [
        figure(what, [f["wall_s"] for f in found], "s", 2.0),
        figure(f"{what}: CPU", [f["cpu_s"] for f in found], "s", 2.0),
    ]


def intake(runs: int, say: Say) -> list[Figure]:
    """Consume what 5,000 agents send in a second, from the bytes of their messages."""
    made = task(0, SPECS[0])
    codec = Codec()
    values = [
        codec.encode(RNIC_COUNTERS, as_batch(batch))
        for batch in columns(made, 0, range(INTAKE_SECONDS))
    ]
    found: list[float] = []
    for _ in range(runs):
        core = SkeletonCore(CLUSTER, ListConfig(), INFERENCE)
        core.apply_task(made.task_id, made)
        begin = time.process_time()
        for value in values:
            payload = codec.payload(RNIC_COUNTERS, value)
            batch = None if payload is None else counter_columns(payload)
            core.observe_counters(batch or codec.decode(RNIC_COUNTERS, value))
        found.append((time.process_time() - begin) / len(values) * AGENTS)
        say(f"a second of {AGENTS:,} agents × {RAILS} RNICs × {HZ} Hz: {found[-1]:.2f} s of CPU")
    return [figure(f"skeleton job: counters of a second, {AGENTS:,} agents: CPU", found, "s", 1.0)]


def cluster(runs: int, say: Say) -> list[Figure]:
    """Infer 4 to 64 tasks of 640 RNICs, each size in a process of its own."""
    found = {tasks: [_child(tasks, say) for _ in range(runs)] for tasks in TASKS}

    def of(name: str, what: str, tasks: int = MOST) -> list[float]:
        return [float(one[name][what]) for one in found[tasks]]

    peaks = {tasks: [float(one["peak_mib"]) for one in found[tasks]] for tasks in TASKS}
    rnics = tuple(float(found[tasks][0]["rnics"]) for tasks in TASKS)
    seconds = tuple(statistics.median(of("first", "cpu_s", tasks)) for tasks in TASKS)
    memory = tuple(statistics.median(peaks[tasks]) for tasks in TASKS)
    whole = of("first", "cpu_s")
    one_of = [a / b for a, b in zip(of("one", "cpu_s"), whole, strict=True)]
    most = f"{rnics[-1]:,.0f} RNICs in {MOST} tasks"
    gib = [mib / 1024 for mib in peaks[MOST]]
    cpu = Curve(name="skeletons: CPU", axis="RNICs", unit="s", sizes=rnics, costs=seconds)
    peak = Curve(name="skeletons: peak memory", axis="RNICs", unit="MiB", sizes=rnics, costs=memory)
    return [
        figure(f"skeletons, {most}", of("first", "wall_s"), "s", 60.0),
        figure(f"skeletons, {most}: CPU", whole, "s", 60.0),
        figure(f"skeletons, {most}: peak memory, counters included", gib, "GiB", 4.0),
        figure("skeletons: a run with nothing new", of("nothing", "wall_s"), "s", NOTHING_S),
        figure("skeletons: one task of 64 is new, share of the whole", one_of, bar=ONE_SHARE),
        slope_figure(cpu, LINEAR, say),
        slope_figure(peak, LINEAR, say),
    ]


def _child(tasks: int, say: Say) -> dict[str, Any]:
    """Return what a process measured of a cluster of that many tasks."""
    found: dict[str, Any] = run_alone("ops.bench.scale.skeleton_cluster", str(tasks), ENVIRONMENT)
    first, nothing, one = found["first"], found["nothing"], found["one"]
    say(
        f"{found['rnics']:,} RNICs in {tasks} tasks: {first['wall_s']:.1f} s "
        f"({first['cpu_s']:.1f} s of CPU), {first['sure']} skeletons, "
        f"peak {found['peak_mib']:.0f} MiB; nothing new {nothing['wall_s'] * 1e3:.2f} ms; "
        f"one task new {one['cpu_s']:.2f} s of CPU"
    )
    return found


PARTS: Final[Parts] = {
    "skeleton-job": one_job,
    "skeleton-intake": intake,
    "skeleton-cluster": cluster,
}
