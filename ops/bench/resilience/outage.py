"""Takes the broker away under load: every result that is safe in Kafka must be in a window.

Agents keep what they could not publish and send it when the broker is back, one agent before the
other. The worker must count what came late for this reason, too.
"""

import json
import time
from dataclasses import dataclass
from typing import Any, Final

from ops.bench.cluster.watch import WorkerLag
from ops.bench.resilience.supervisor import Supervised, Supervisor
from ops.bench.rig.load import LoadShape
from ops.bench.rig.report import Figure, Parts, Say, figure, scratch_folder
from ops.bench.rig.waiting import wait_until
from ops.bench.rig.windows import Verdict, read_truth
from ops.bench.throughput.rig import START_TIMEOUT_S, Rig, wait_ready
from ops.running.processes import Child
from schemas.kafka.connection import KafkaSettings
from schemas.units import SECOND_NS

AWAY_S: Final = 60.0
OUTAGES: Final = 3
# Of health before the first outage and after each: several windows.
BETWEEN_S: Final = 30.0
WINDOW_S: Final = 5
LATENESS_S: Final = 2
OPTIONS: Final = ("--window-s", str(WINDOW_S), "--allowed-lateness-s", str(LATENESS_S))
# Several agents in each partition.
SHAPE: Final = LoadShape(agents=32, rnics=4, targets=5, bodies=6, late=0.0, twice=0.0, cut=0.0)
DRAIN_S: Final = 180.0
WORKER: Final = "worker"


@dataclass(frozen=True, slots=True)
class OutageRun:
    """What came of a run: windows against rounds, what agents say, what workers counted."""

    verdict: Verdict
    agents: dict[str, Any]
    late: int
    ended: int


def run_outages(
    rig: Rig,
    settings: KafkaSettings,
    say: Say,
    *,
    shape: LoadShape = SHAPE,
    away_s: float = AWAY_S,
    between_s: float = BETWEEN_S,
    outages: int,
) -> OutageRun:
    """Let agents publish while the broker is killed and, after a time, restarted."""
    name = f"{settings.topic_prefix}{WORKER}"
    worker = Supervised(
        name, WORKER,
        running=lambda: rig.group.child(name).running,
        kill=lambda: rig.group.kill(name),
        start=lambda: rig.start_worker(name, settings, *OPTIONS),
    )  # fmt: skip
    worker.start()
    wait_ready([rig.group.child(name)], START_TIMEOUT_S, check=rig.group.check)
    supervisor = Supervisor([worker], say)
    seconds = between_s + outages * (away_s + between_s)
    agents = rig.begin(
        "ops.bench.resilience.agents", "--bootstrap", settings.bootstrap,
        "--prefix", settings.topic_prefix, "--shape", shape.text(), "--seconds", str(seconds),
    )  # fmt: skip
    _wait(between_s, supervisor)
    for number in range(outages):
        rig.kafka.kill()
        _wait(away_s, supervisor)
        rig.kafka.restart()
        say(f"outage {number + 1} of {outages}: the broker was away for {away_s:.0f} s")
        _wait(between_s, supervisor)
    published = rig.result(agents)
    _drain(settings, supervisor)
    # What it counts is in its log: metrics come every few seconds, the last at its end.
    child = rig.group.child(name)
    rig.group.stop(name)
    truth = read_truth(settings, window_ns=WINDOW_S * SECOND_NS, lateness_ns=LATENESS_S * SECOND_NS)
    return OutageRun(truth.verdict(), published, _late(child), supervisor.ended[WORKER])


def _wait(seconds: float, supervisor: Supervisor) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        supervisor.look()
        time.sleep(0.1)


def _drain(settings: KafkaSettings, supervisor: Supervisor) -> None:
    """Wait until the worker has processed all that is in the log."""
    lag = WorkerLag(settings)

    def through() -> bool:
        lag.sample()
        return supervisor.all_running and not lag.now_messages

    try:
        wait_until(through, DRAIN_S, "the worker has not processed all rounds",
                   check=supervisor.look)  # fmt: skip
    finally:
        lag.close()


def _late(worker: Child) -> int:
    """Return how many results the worker has counted as late."""
    told = worker.events("worker.stopped", "worker.metrics")
    return int(told[-1].get("late", 0)) if told else 0


def outage(runs: int, say: Say) -> list[Figure]:
    """Take the broker away so many times."""
    with scratch_folder() as folder, Rig(folder, join_ms=0) as rig:
        found = run_outages(rig, rig.settings("outage."), say, outages=runs)
    return outage_figures(found, say, runs)


def outage_figures(found: OutageRun, say: Say, outages: int) -> list[Figure]:
    """Return the rows of a run."""
    verdict = found.verdict
    say(json.dumps(found.agents))
    say(
        f"{verdict.published:,} results in {verdict.windows:,} windows: {verdict.lost:,} in none, "
        f"{verdict.double:,} counted twice, {verdict.wrong_windows:,} windows wrong; "
        f"late by the worker's count: {found.late:,}"
    )
    what = f"broker away {AWAY_S:.0f} s under load, {outages} times"
    return [
        figure(f"{what}: results judged", [float(verdict.published)], sense=">="),
        figure(f"{what}: results safe in Kafka and in no window", [float(verdict.lost)], bar=0.0),
        figure(f"{what}: results counted twice", [float(verdict.double)], bar=0.0),
        figure(f"{what}: windows with other content", [float(verdict.wrong_windows)], bar=0.0),
        figure(f"{what}: results dropped by agents", [float(found.agents["dropped"])]),
        figure(f"{what}: worker ended by itself", [float(found.ended)]),
    ]


PARTS: Final[Parts] = {"outage": outage}
