"""The skeleton job on one large job, and on a cluster of 64."""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from arena.skeletons.bench import bench
from ops.bench.growth import Curve, told
from ops.bench.report import Figure, figure

Say = Callable[[str], None]
COMMAND: Final = "make bench-scale"
# Tasks of 640 RNICs.
TASKS: Final = (4, 8, 16, 32, 64)
MOST: Final = TASKS[-1]
# Nearly linear: twice the RNICs take 2.14 times as long at most.
LINEAR: Final = 1.1
# A first run with nothing new looks at no task.
NOTHING_S: Final = 0.1
# One task of 64, and as much again for what is done once.
ONE_SHARE: Final = 2 / MOST
TIMEOUT_S: Final = 3_600.0
# Threads of the linear algebra wait for each other in a loop; matrices are too small for two.
ENVIRONMENT: Final = {"OPENBLAS_NUM_THREADS": "1"}


def one_job(runs: int, say: Say) -> list[Figure]:
    """2,048 RNICs, 300 s at 10 Hz, from a table."""
    found = [bench()["task known"] for _ in range(runs)]
    for f in found:
        say(f"2,048 RNICs × 300 s × 10 Hz: {f['wall_s']:.2f} s, {f['cpu_s']:.2f} s of CPU, "
            f"DP {f['dp']}, PP {f['pp']}")  # fmt: skip
    return [
        figure(
            "skeleton, 2,048 RNICs × 300 s × 10 Hz", [f["wall_s"] for f in found], "s",
            bar=2.0, sense="<=", command=COMMAND,
        ),
        figure(
            "the same: CPU", [f["cpu_s"] for f in found], "s",
            bar=2.0, sense="<=", command=COMMAND,
        ),
    ]  # fmt: skip


def cluster(runs: int, say: Say) -> list[Figure]:
    """Infer 4 to 64 tasks of 640 RNICs, each size in a process of its own."""
    found = {tasks: [_child(tasks, say) for _ in range(runs)] for tasks in TASKS}

    def of(name: str, what: str, tasks: int = MOST) -> list[float]:
        return [float(one[name][what]) for one in found[tasks]]

    peaks = {tasks: [float(one["peak_mib"]) for one in found[tasks]] for tasks in TASKS}
    rnics = tuple(float(found[tasks][0]["rnics"]) for tasks in TASKS)
    seconds = tuple(statistics.median(of("first", "cpu_s", tasks)) for tasks in TASKS)
    memory = tuple(statistics.median(peaks[tasks]) for tasks in TASKS)
    taken = [one["add_s"] / one["batches"] * 1e6 for t in TASKS for one in found[t]]
    whole = of("first", "cpu_s")
    one_of = [a / b for a, b in zip(of("one", "cpu_s"), whole, strict=True)]
    most = f"{rnics[-1]:,.0f} RNICs in {MOST} tasks"
    say(f"a second of an agent's readings is taken in by {statistics.median(taken):.0f} µs")
    axis = "RNICs"
    return [
        figure(f"skeletons, {most}", of("first", "wall_s"), "s", bar=60.0, sense="<=",
               command=COMMAND),
        figure("the same: CPU", whole, "s", bar=60.0, sense="<=", command=COMMAND),
        figure("the same: peak memory, the window's counters included",
               [mib / 1024 for mib in peaks[MOST]], "GiB", bar=4.0, sense="<=", command=COMMAND),
        figure("skeletons: a run with nothing new", of("nothing", "wall_s"), "s", bar=NOTHING_S,
               sense="<=", command=COMMAND),
        figure("skeletons: one task of 64 is new, share of the whole", one_of, "", bar=ONE_SHARE,
               sense="<=", command=COMMAND),
        told(Curve(name="skeletons: CPU", axis=axis, unit="s", sizes=rnics, costs=seconds),
             bar=LINEAR, command=COMMAND, say=say),
        told(Curve(name="skeletons: peak memory", axis=axis, unit="MiB", sizes=rnics,
                   costs=memory), bar=LINEAR, command=COMMAND, say=say),
    ]  # fmt: skip


def _child(tasks: int, say: Say) -> dict[str, Any]:
    """Return what a process measured of a cluster of that many tasks."""
    done = subprocess.run(
        [sys.executable, "-m", "ops.bench.skeleton_cluster", str(tasks)],
        check=True, capture_output=True, text=True, timeout=TIMEOUT_S,
        env={**os.environ, **ENVIRONMENT},
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    first, nothing, one = found["first"], found["nothing"], found["one"]
    say(
        f"{found['rnics']:,} RNICs in {tasks} tasks: {first['wall_s']:.1f} s "
        f"({first['cpu_s']:.1f} s of CPU), {first['sure']} skeletons, "
        f"peak {found['peak_mib']:.0f} MiB; nothing new {nothing['wall_s'] * 1e3:.2f} ms; "
        f"one task new {one['cpu_s']:.2f} s of CPU"
    )
    return found


PARTS: Final[Mapping[str, Callable[[int, Say], list[Figure]]]] = {
    "skeleton-job": one_job,
    "skeleton-cluster": cluster,
}
