"""`make bench-pipeline`: the whole pipeline against its bars, part by part."""

import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ops.bench.pipeline import kills, replays
from ops.bench.rig.report import Figure, Sense, figure
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
HEALTHY_S: Final = 600.0
# A window is judged against five windows or more before it, and windows of a fault
# are no reference: this many seconds of health, then the first fault.
BASELINE_S: Final = 90.0
# Longer, and something hangs.
MAKE_TIMEOUT_S: Final = 1800.0

Say = Callable[[str], None]


def _row(
    name: str, samples: list[float], unit: str, bar: tuple[Sense, float], **more: bool
) -> Figure:
    sense, value = bar
    return figure(name, samples, unit, bar=value, sense=sense, command=COMMAND, **more)


@contextmanager
def _pipeline() -> Iterator[tuple[Pipeline, Path]]:
    with tempfile.TemporaryDirectory(prefix="skeletonhunter-bench-") as name:
        folder = Path(name)
        with Pipeline(PipelineConfig(folder=folder)) as pipeline:
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
        _row("link cut → fault opened, median", complete, "s", ("<=", 3.0)),
        _row("link cut → fault opened, worst", complete, "s", ("<=", 5.0), worst=True),
    ]
    for name, found in outcomes.items():
        right = [float(o.right) for o in found]
        share = sum(right) / len(right) if right else 0.0
        rows.append(
            Figure(
                figure=f"right component and layer: {name}",
                value=share,
                unit="of runs",
                bar=1.0,
                sense=">=",
                low=min(right, default=None),
                high=max(right, default=None),
                runs=len(right),
                command=COMMAND,
                at=rows[0].at,
            )
        )
        delays = [o.open_delay_s for o in found if o.open_delay_s is not None]
        if name != "link cut":
            timeout_s = next(c.timeout_s for c in CASES if c.name == name)
            rows.append(_row(f"{name} → fault opened, median", delays, "s", ("<=", timeout_s)))
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
    return [
        _row("healthy lab for 10 minutes: faults opened", [float(len(opened))], "", ("<=", 0.0))
    ]


def worker_kills(runs: int, say: Say) -> list[Figure]:
    """Kill the worker ten times under load."""
    del runs  # ten kills are the runs
    with tempfile.TemporaryDirectory(prefix="skeletonhunter-bench-") as name:
        found = kills.run(Path(name), KILLS)
    say(
        f"{found.sent} results sent, {found.lost} lost, {found.double} double, "
        f"{found.seconds:.0f} s"
    )
    what = f"worker SIGKILLed {found.kills} times under load, {found.sent} results"
    return [
        _row(f"{what}: lost", [float(found.lost)], "", ("<=", 0.0)),
        _row(f"{what}: counted twice", [float(found.double)], "", ("<=", 0.0)),
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
    return [
        _row(
            "incident replayed twice: fault events that differ",
            [float(found.different)],
            "",
            ("<=", 0.0),
        ),
        _row(
            "incident replayed: fault events in the replay",
            [float(min(found.first, found.second))],
            "",
            (">=", 2.0),
        ),
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
            return _row(f"make {target} after set-up", [], "s", ("<=", bar_s))
        samples.append(took)
    return _row(f"make {target} after set-up", samples, "s", ("<=", bar_s))


PARTS: Final[Mapping[str, Callable[[int, Say], list[Figure]]]] = {
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
