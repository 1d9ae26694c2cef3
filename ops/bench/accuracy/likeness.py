"""Healthy round trips of the simulator beside those of the loopback lab.

The lab runs for some minutes and is recorded with `record`; the simulator runs a cluster of
the same shape. Round trips of agents in Python behind userspace relays are slower and wilder
than RoCE; the picture shows by how much.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from arena.likeness import Shape, Trips, shape
from arena.reporting.likeness import draw
from arena.scenarios.scenario import Scenario, stage
from arena.simulation.timeline import timeline
from arena.world.cluster import JobPlan
from arena.world.fabric import FabricShape
from ops.bench.pipeline.replays import cli
from ops.lab.lab import Lab, LabConfig
from ops.recording.source import Source
from ops.running.pipeline import Pipeline
from schemas.codec import Codec
from schemas.topics import PROBE_ROUND
from schemas.units import US_NS

# What the lab has by default.
HOSTS: Final = 4
RAILS: Final = 4
# Registrations and ping lists change while the lab comes up.
SETTLE_S: Final = 30.0
LENGTH_S: Final = 240.0


def recorded(pipeline: Pipeline, folder: Path, say: Callable[[str], None]) -> Trips:
    """Run a healthy lab for some minutes; return what its agents measured."""
    with Lab(LabConfig(settings=pipeline.settings, name="bench-likeness")) as lab:
        time.sleep(SETTLE_S)
        begin = time.time()
        say(f"a healthy lab is recorded for {LENGTH_S:.0f} s")
        while time.time() < begin + LENGTH_S:
            lab.check()
            time.sleep(1.0)
    recording = folder / "recording"
    cli(pipeline, "record", str(recording), "--topics", PROBE_ROUND.name)
    return trips_of(recording, round(begin * 1e6), "recorded in the loopback lab")


def trips_of(recording: Path, from_us: int, name: str) -> Trips:
    """Return the answered probes of a recording's rounds that began at `from_us` or later."""
    rows: list[tuple[int, ...]] = []
    numbers: dict[tuple[str, str, str, int], int] = {}
    codec = Codec()
    with Source(recording) as source:
        for stream in source.rounds(codec):
            for item in stream:
                value = codec.decode_datum(PROBE_ROUND, item.entry.value or b"")
                if value["started_at"] >= from_us:
                    rows += _rows(value, numbers)
    return _trips(rows, name)


def simulated(name: str = "simulated") -> Trips:
    """Return what a simulated cluster of the lab's shape measures in as long a time."""
    made = stage(
        Scenario(
            name="likeness", seed=1, seconds=round(LENGTH_S),
            fabric=FabricShape(hosts=HOSTS, rails=RAILS),
            jobs=(JobPlan(task_id="job-a", first_host=0, hosts=HOSTS),),
            targets=3, flows=2,
        )
    )  # fmt: skip
    rows: list[tuple[int, ...]] = []
    numbers: dict[tuple[str, str, str, int], int] = {}
    for part in timeline(made.world):
        for one in part.rounds:
            rows += _rows(one.datum(), numbers)
    return _trips(rows, name)


def compare(lab: Trips, picture: Path) -> tuple[Shape, Shape]:
    """Draw both; return the shapes of the simulator's and the lab's round trips."""
    shapes = shape(simulated()), shape(lab)
    draw(shapes, picture)
    return shapes


def _rows(
    value: dict[str, Any], numbers: dict[tuple[str, str, str, int], int]
) -> Iterator[tuple[int, ...]]:
    for result in value["results"]:
        if result["rtt_ns"] is None:
            continue
        key = value["agent_id"], result["src"], result["dst"], result["flow"]
        host, responder = result["prober_delay_ns"], result["responder_delay_ns"]
        yield (
            numbers.setdefault(key, len(numbers)),
            value["started_at"] * US_NS + result["sent_offset_ns"],
            result["rtt_ns"],
            -1 if host is None else host,
            -1 if responder is None else responder,
        )


def _trips(rows: list[tuple[int, ...]], name: str) -> Trips:
    table = np.array(rows, np.int64).reshape(-1, 5)
    flow, sent, rtt, host, responder = table[np.argsort(table[:, 1], kind="stable")].T
    return Trips(
        name=name, flow=flow, sent_ns=sent, rtt_ns=rtt, host_ns=host, responder_ns=responder
    )
