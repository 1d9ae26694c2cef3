"""`make bench-pipeline`: the whole pipeline against its bars, part by part."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from ops.bench.pipeline import replays
from ops.bench.rig.load import LoadShape
from ops.bench.rig.report import Figure, Parts, Say, figure, scratch_folder
from ops.bench.scale.workers_life import KILL, LifeRun
from ops.bench.throughput.rig import Rig
from ops.demo.scoreboard import WATCHED
from ops.lab.lab import Lab, LabConfig
from ops.lab.suite.cases import CASES
from ops.lab.suite.faults import FaultBench, Outcome
from ops.log.watch import Watch
from ops.running.pipeline import Pipeline, PipelineConfig

COMMAND: Final = "make bench-pipeline"
RUNS: Final = 5
FAULT_RUNS: Final = 10
KILLS: Final = 10
# Between a worker's being ready and its death: random, so that deaths fall on every phase.
LIFE_S: Final = (0.2, 3.0)
# What a worker takes to be ready, its life with it: rounds flow for so long.
KILL_STEP_S: Final = 16.0
KILL_LOAD: Final = LoadShape(agents=16, rnics=4, targets=5, bodies=6, late=0.0)
HEALTHY_S: Final = 600.0
# A window is judged against five windows or more before it, and windows of a fault
# are no reference: this many seconds of health, then the first fault.
BASELINE_S: Final = 90.0
# Longer, and something hangs.
MAKE_TIMEOUT_S: Final = 1800.0


@contextmanager
def _pipeline() -> Iterator[tuple[Pipeline, Path]]:
    with scratch_folder() as folder, Pipeline(PipelineConfig(folder=folder)) as pipeline:
        pipeline.wait_ready()
        yield pipeline, folder


@contextmanager
def _lab_bench() -> Iterator[FaultBench]:
    with (
        _pipeline() as (pipeline, _),
        Lab(LabConfig(settings=pipeline.settings, name="bench")) as lab,
        Watch(pipeline.settings, WATCHED, from_start=True) as watch,
    ):

        def check() -> None:
            lab.check()
            pipeline.group.check()

        yield FaultBench(lab, watch, check)


def faults(runs: int, say: Say) -> list[Figure]:
    """Every fault `runs` times on one lab: right component and layer, and the delay of the cut."""
    outcomes: dict[str, list[Outcome]] = {case.name: [] for case in CASES}
    with _lab_bench() as bench:
        bench.healthy(BASELINE_S)
        for turn in range(runs):
            for case in CASES:
                outcome = bench.run(case)
                outcomes[case.name].append(outcome)
                say(
                    f"{turn + 1}/{runs} {case.name}: {'right' if outcome.right else 'WRONG'}, "
                    f"opened after {_seconds(outcome.open_delay_s)}, resolved after "
                    f"{_seconds(outcome.resolve_delay_s)}, verdicts {outcome.verdicts}"
                )
    cut = [o.open_delay_s for o in outcomes["link cut"] if o.open_delay_s is not None]
    # A cut that was never found makes the delay figures miss.
    complete = cut if len(cut) == runs else []
    rows = [
        figure("link cut → fault opened, median", complete, "s", 3.0),
        figure("link cut → fault opened, worst", complete, "s", 5.0, worst=True),
    ]
    for case in CASES:
        found = outcomes[case.name]
        right = [float(o.right) for o in found]
        share = figure(f"right component and layer: {case.name}", right, "of runs", 1.0, ">=")
        rows.append(replace(share, value=sum(right) / len(right) if right else 0.0))
        delays = [o.open_delay_s for o in found if o.open_delay_s is not None]
        if case.name != "link cut":
            name = f"{case.name} → fault opened, median"
            rows.append(figure(name, delays, "s", case.timeout_s))
    return rows


def healthy(runs: int, say: Say) -> list[Figure]:
    """Watch a healthy lab for ten minutes: no fault may be opened."""
    del runs  # once, as the bar says
    with _lab_bench() as bench:
        opened = bench.healthy(HEALTHY_S)
        for fault in opened:
            say(f"opened without cause: {fault.component_id} {fault.fault_kind}: {fault.summary}")
        say(
            f"{bench.board.probes} probes, {bench.board.lost} lost, "
            f"{bench.board.anomalies} anomalies"
        )
    return [figure("healthy lab for 10 minutes: faults opened", [float(len(opened))], bar=0.0)]


def worker_kills(runs: int, say: Say) -> list[Figure]:
    """Kill the worker ten times under load."""
    del runs  # ten kills are the runs
    with scratch_folder() as folder, Rig(folder, join_ms=0) as rig:
        run = LifeRun(rig, rig.settings("kills."), say)
        verdict = run.run(KILL_LOAD, (KILL,) * KILLS, KILL_STEP_S, lives_s=LIFE_S).verdict
    what = f"worker SIGKILLed {KILLS} times under load, {verdict.published} results"
    return [
        figure(f"{what}: lost", [float(verdict.lost)], bar=0.0),
        figure(f"{what}: counted twice", [float(verdict.double)], bar=0.0),
    ]


def replay(runs: int, say: Say) -> list[Figure]:
    """Record an incident and replay it twice at full speed."""
    del runs  # two replays are the runs
    with _pipeline() as (pipeline, folder):
        found = replays.run(pipeline, folder)
    say(
        f"live {found.live.verdicts}; {found.first} and {found.second} transitions in the replays, "
        f"{found.different} differ; {found.recorded_s:.0f} s replayed in {found.replay_s:.0f} s"
    )
    least = float(min(found.first, found.second))
    return [
        figure(
            "incident replayed twice: fault events that differ", [float(found.different)], bar=0.0
        ),
        figure("incident replayed: fault events in the replay", [least], "", 2.0, ">="),
    ]


def make_demo(runs: int, say: Say) -> list[Figure]:
    """`make demo` after set-up."""
    return [_make("demo", runs, 90.0, say)]


def make_test(runs: int, say: Say) -> list[Figure]:
    """`make test` after set-up, once: it takes minutes and its bar is far."""
    del runs
    return [_make("test", 1, 900.0, say)]


def _make(target: str, runs: int, bar_s: float, say: Say) -> Figure:
    samples = []
    for turn in range(runs):
        started = time.monotonic()
        done = subprocess.run(
            ["make", "--no-print-directory", target],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=MAKE_TIMEOUT_S,
            check=False,
        )
        took = time.monotonic() - started
        say(f"{turn + 1}/{runs} make {target}: {took:.0f} s, exit {done.returncode}")
        if done.returncode:
            say("\n".join(done.stdout.splitlines()[-20:]))
            return figure(f"make {target} after set-up", [], "s", bar_s)
        samples.append(took)
    return figure(f"make {target} after set-up", samples, "s", bar_s)


PARTS: Final[Parts] = {
    "faults": faults,
    "healthy": healthy,
    "kills": worker_kills,
    "replay": replay,
    "demo": make_demo,
    "test": make_test,
}
DEFAULT_RUNS: Final = {"faults": FAULT_RUNS}


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.1f} s"
