"""How many results `diagnose` judges in a second of CPU: in health, and while latency faults last.

Two recordings of one small cluster: nothing happens in the first; four components become slow in
the second, are all told, and stay slow for minutes.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from arena.scenarios.scenario import Scenario, ScenarioEvent, stage
from arena.world.cluster import JobPlan
from arena.world.fabric import FabricShape
from localizer.config import CoreConfig
from ops.bench.rig.report import Figure, Say, figure, scratch_folder
from ops.recording.diagnosis import BESIDE_ROUNDS, Diagnosis, diagnose
from ops.recording.export import export
from ops.recording.source import Source
from schemas.enums import FaultLifecycle
from schemas.records import FaultEvent
from schemas.units import SECOND_NS
from streams.config import DetectionConfig
from streams.detectors.lof import MIN_HISTORY

# 256 RNICs with ten 5-tuples each, as in the hour of 2,048 RNICs.
HEALTH: Final = Scenario(
    name="health", seed=7, seconds=480,
    fabric=FabricShape(hosts=32, rails=8, segment_hosts=8, spines=4, tiers=2),
    jobs=(JobPlan(task_id="job-a", first_host=0, hosts=32),), targets=5, flows=2,
)  # fmt: skip
# Latency is told by comparison with so many healthy windows; the last one is left out.
BEGIN_S: Final = (MIN_HISTORY + 2) * DetectionConfig().window_ns // SECOND_NS
SLOW: Final = replace(
    HEALTH,
    name="slow",
    # Two or three windows until all are told, and then five minutes.
    seconds=BEGIN_S + 390,
    faults=tuple(
        ScenarioEvent(kind=kind, begin_s=BEGIN_S)
        for kind in ("congestion_control_off", "congestion_control_off", "hugepage_mismatch",
                     "pcie_downgrade")
    ),
)  # fmt: skip
# Until then windows fill, paths are learnt, and kernels are loaded.
WARM_S: Final = 60
HEALTH_BAR: Final = 500_000.0
SLOW_BAR: Final = 200_000.0


def diagnose_speed(runs: int, say: Say) -> list[Figure]:
    """Judge two recordings, one in health and one with latency faults open."""
    healthy: list[float] = []
    slow: list[float] = []
    with recordings() as (calm, faulty):
        for _ in range(runs):
            healthy += results_a_cpu_second(calm)
            slow += results_a_cpu_second(faulty, faults=len(SLOW.faults))
            say(f"diagnose, results a second of CPU: in health {healthy}, with faults {slow}")
    unit = "results/s"
    return [
        figure("diagnose, a second of CPU: in health", healthy, unit, HEALTH_BAR, ">="),
        figure("the same with latency faults open", slow, unit, SLOW_BAR, ">="),
    ]


@contextmanager
def recordings() -> Iterator[tuple[Path, Path]]:
    """Give the folders of both recordings."""
    with scratch_folder() as folder:
        made = [(scenario, folder / scenario.name) for scenario in (HEALTH, SLOW)]
        for scenario, where in made:
            export(stage(scenario).world, where)
        yield made[0][1], made[1][1]


def results_a_cpu_second(folder: Path, *, faults: int = 0) -> list[float]:
    """Return the results judged in a second of CPU of this process, one figure.

    Counted from `WARM_S` on, or while so many faults are open. Empty if they never are, or if a
    healthy recording has a verdict.
    """
    marks: list[tuple[int, float]] = []
    begin_ms: list[int] = []

    def progress(found: Diagnosis) -> None:
        at_ms = found.event_ms or 0
        begin_ms.append(at_ms)
        if at_ms - begin_ms[0] >= WARM_S * 1_000 and open_faults(found.events) == faults:
            marks.append((found.results, time.process_time()))

    with Source(folder, BESIDE_ROUNDS) as source:
        core = CoreConfig(cluster=source.manifest.cluster)
        found = diagnose(source, DetectionConfig(), core, lambda: False, progress)
    if len(marks) < 2 or (found.events and not faults):
        # Reported as not measured, which misses the bar.
        return []
    (first, first_s), (last, last_s) = marks[0], marks[-1]
    return [(last - first) / (last_s - first_s)]


def open_faults(events: Sequence[FaultEvent]) -> int:
    """Return how many faults are open after these transitions."""
    last = {event.fault_id: event.state for event in events}
    return sum(state is not FaultLifecycle.RESOLVED for state in last.values())
