"""What a broker pays for one producer an agent: its CPU for requests that come one by one.

A worker's bench sends rounds in large batches; five thousand agents send each its own, on a
connection of its own. Connections are real ones to Apache Kafka, from one process
(`ops.bench.cluster.connections`); requests are those of an agent's producer, one round each.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Final

from ops.bench.rig.growth import Curve, slope_figure
from ops.bench.rig.report import Figure, Parts, Say, figure, scratch_folder
from ops.running.pipeline import Pipeline, PipelineConfig
from schemas.topics import PROBE_ROUND

AGENTS: Final = (500, 1_000, 2_000, 5_000)
SECONDS: Final = 20
TIMEOUT_S: Final = 300.0
MEGA: Final = 1_000_000


def measure(agents: int) -> dict[str, Any]:
    """Send from so many agents to a broker of their own; return what came of it."""
    with (
        scratch_folder() as folder,
        Pipeline(PipelineConfig(folder=folder, processes=(), tables={})) as pipeline,
    ):
        kafka = pipeline.kafka
        if kafka is None or kafka.pid is None:
            raise RuntimeError("the bench's own broker does not run")
        done = subprocess.run(
            [
                *(sys.executable, "-m", "ops.bench.cluster.connections"),
                *("--bootstrap", pipeline.settings.bootstrap, "--broker-pid", str(kafka.pid)),
                *("--topic", pipeline.settings.topic(PROBE_ROUND.name)),
                *("--agents", str(agents), "--seconds", str(SECONDS)),
            ],
            check=True, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S,
        )  # fmt: skip
        found: dict[str, Any] = json.loads(done.stdout)
    return found


def connections(runs: int, say: Say) -> list[Figure]:
    """Measure the sizes."""
    found: dict[int, list[Mapping[str, Any]]] = {agents: [] for agents in AGENTS}
    for _ in range(runs):
        for agents, results in found.items():
            results.append(measure(agents))
            say(_sentence(agents, results[-1]))
    return figures(found, say)


def _sentence(agents: int, run: Mapping[str, Any]) -> str:
    return (
        f"{agents:,} connections: {run['answered'] / run['took_s']:,.0f} requests/s of "
        f"{run['bytes']:.0f} bytes, broker {_cores(run):.3f} cores, "
        f"{_cost_us(run):.0f} µs a request; answered after {run['median_s'] * 1e3:.1f} ms "
        f"(median), {run['p99_s'] * 1e3:.0f} ms (p99); sender {run['cpu_s'] / run['took_s']:.2f} "
        f"cores, late by {run['late_s']:.2f} s at most"
    )


def figures(found: Mapping[int, list[Mapping[str, Any]]], say: Say) -> list[Figure]:
    """Return the rows."""
    curve = Curve(
        name="broker: CPU of one round a request", axis="connections", unit="µs",
        sizes=tuple(float(agents) for agents in found),
        costs=tuple(min(map(_cost_us, runs)) for runs in found.values()),
    )  # fmt: skip
    rows = []
    for agents, runs in found.items():
        what = f"broker, {agents:,} connections with a round a second each"
        lost = [float(run["sent"] - run["answered"] + run["refused"]) for run in runs]
        rows += [
            figure(f"{what}: CPU, of a core", [_cores(run) * 100 for run in runs], "%"),
            figure("… of a request", list(map(_cost_us, runs)), "µs"),
            figure("… answered after, p99", [run["p99_s"] for run in runs], "s"),
            figure("… requests that were not answered, or refused", lost, "", 0.0),
            figure("… RSS", [run["broker_rss_bytes"] / MEGA for run in runs], "MB"),
        ]
    return [*rows, slope_figure(curve, None, say)]


def _cores(run: Mapping[str, Any]) -> float:
    return float(run["broker_cpu_s"] / run["took_s"])


def _cost_us(run: Mapping[str, Any]) -> float:
    return float(run["broker_cpu_s"] / run["answered"] * MEGA)


PARTS: Final[Parts] = {"connections": connections}
