"""Records an incident of the lab, replays it twice at full speed, compares the verdicts' bytes."""

import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from ops.demo.scoreboard import WATCHED
from ops.lab.lab import Lab, LabConfig
from ops.lab.suite.cases import CASES
from ops.lab.suite.faults import FaultBench, Outcome
from ops.log.watch import Watch
from ops.running.pipeline import Pipeline
from schemas import topics
from schemas.kafka.connection import KafkaSettings, settings_from_table

# What worker and localizer need to have seen before the fault: paths, registrations, a baseline.
BEFORE_S: Final = 10.0
REPLAY_TIMEOUT_S: Final = 300.0
DRAIN_S: Final = 5.0

Verdicts = list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOutcome:
    """Transitions of the live run and of two replays, and how many differ between the replays."""

    live: Outcome
    first: int
    second: int
    different: int
    recorded_s: float
    replay_s: float


def run(pipeline: Pipeline, folder: Path) -> ReplayOutcome:
    """Cut a link of a fresh lab on this pipeline, record it all, replay it twice."""
    started = time.time()
    with (
        Lab(LabConfig(settings=pipeline.settings, name="bench-replay")) as lab,
        Watch(pipeline.settings, WATCHED) as watch,
    ):
        bench = FaultBench(lab, watch, lambda: _check(lab, pipeline))
        bench.wait_calm()
        bench.healthy(BEFORE_S)
        live = bench.run(CASES[0])
        bench.healthy(DRAIN_S)
    ended = time.time()
    recording = folder / "recording"
    cli(pipeline, "record", str(recording), "--from", _iso(started), "--to", _iso(ended))
    verdicts: list[Verdicts] = []
    replay_s = 0.0
    for prefix in ("replay-a.", "replay-b."):
        began = time.monotonic()
        cli(pipeline, "replay", str(recording), "--prefix", prefix, "--speed", "max", "--run")
        replay_s = time.monotonic() - began
        verdicts.append(_verdicts(pipeline.settings, prefix))
    first, second = verdicts
    return ReplayOutcome(
        live=live,
        first=len(first),
        second=len(second),
        different=sum(a != b for a, b in zip(first, second, strict=False))
        + abs(len(first) - len(second)),
        recorded_s=ended - started,
        replay_s=replay_s,
    )


def _check(lab: Lab, pipeline: Pipeline) -> None:
    lab.check()
    pipeline.group.check()


def _iso(epoch_s: float) -> str:
    return datetime.fromtimestamp(epoch_s, UTC).isoformat()


def cli(pipeline: Pipeline, *arguments: str) -> None:
    """Run a command of `skeletonhunter` against a pipeline's broker; RuntimeError if it fails."""
    command = [
        str(Path(sys.executable).with_name("skeletonhunter")),
        *arguments,
        "--config",
        str(pipeline.config_path),
        "--bootstrap",
        pipeline.settings.bootstrap,
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=REPLAY_TIMEOUT_S, check=False
    )
    # 1: a fault was found, which is what is hoped for here.
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")


def _verdicts(settings: KafkaSettings, prefix: str) -> Verdicts:
    replayed = settings_from_table(
        settings.bootstrap, {"cluster": settings.cluster, "topic.prefix": prefix}
    )
    found: Verdicts = []
    with Watch(replayed, [topics.FAULT_EVENT], from_start=True) as watch:
        deadline = time.monotonic() + DRAIN_S
        while time.monotonic() < deadline:
            found.extend((seen.key, seen.value) for seen in watch.poll(0.1))
    return found
