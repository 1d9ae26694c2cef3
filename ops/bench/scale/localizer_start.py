"""What first traces cost the localizer after a start, and what the traces of a storm cost.

Records go in as bytes, as the service takes them from Kafka: polls of 500, traces of a poll read
together, and a decision at each grid step. Only this is timed, in CPU of one core; making the
records is not. Kafka's client is not part of it, nor are the verdicts of the storm, which
`ops.bench.scale.localizer` measures.
"""

import os
import time
from collections.abc import Iterable, Iterator
from itertools import compress, islice
from typing import Final

import numpy as np

from arena.simulation.setup import Rec
from localizer.config import GRID_NS, CoreConfig
from localizer.core import Core
from localizer.edge.reader import LOCALIZER
from localizer.merge import Merge
from localizer.network.trace_reader import Places, TraceReader
from ops.bench.rig import process_cost
from ops.bench.rig.growth import call_alone
from ops.bench.rig.report import Figure, Parts, Say, figure
from ops.bench.scale.localizer import MB
from ops.bench.scale.localizer_world import BEGIN_NS, NAME, World
from schemas import topics
from schemas.codec import Codec
from schemas.enums import TraceCause
from schemas.process import memory
from schemas.units import MS_NS, SECOND_NS

# 301,056 5-tuples.
SEGMENTS: Final = 147
# 5-tuples that cross a dead spine.
STORM: Final = 100_000
# Bars of the issue.
TRACE_US: Final = 10.0
READY_S: Final = 30.0
PEAK_MB: Final = 1_500.0
BEHIND_S: Final = 5.0
# Polls between two decisions: 20,000 records a second.
POLLS: Final = 10


class Intake:
    """A core that takes messages as the service does.

    Attributes
    ----------
    spent_s
        CPU of taking them and of deciding.
    """

    def __init__(self) -> None:
        self.core = Core(CoreConfig(cluster=NAME))
        self.spent_s = 0.0
        self._codec = Codec()
        self._merge = Merge()
        self._traces = TraceReader(self._codec, NAME)
        self._traces.warm()
        self._now_ns = BEGIN_NS
        self._offset = 0

    def take(self, records: Iterable[Rec]) -> float:
        """Take records that come at an even pace; return the seconds that it took."""
        begin_s = self.spent_s
        for number, poll in enumerate(_polls(records), 1):
            raw = [self._codec.encode(topics.BY_NAME[rec.topic], rec.record) for rec in poll]
            started_s = time.process_time()
            self._take(poll, raw)
            if number % POLLS == 0:
                self._decide()
            self.spent_s += time.process_time() - started_s
        started_s = time.process_time()
        self._decide()
        self.spent_s += time.process_time() - started_s
        return self.spent_s - begin_s

    def _take(self, poll: list[Rec], raw: list[bytes]) -> None:
        found: list[object]
        if poll[0].topic == topics.PATH_TRACE.name:
            keys = [rec.key.encode() for rec in poll]
            now_ns = np.full(len(raw), self._now_ns)
            places = Places(now_ns, np.zeros_like(now_ns), self._offset + np.arange(len(raw)))
            batch, taken, kept = self._traces.read_batch(keys, raw, now_ns, places)
            if batch is not None:
                self.core.feed_traces(batch)
            poll, found = list(compress(poll, (~taken).tolist())), list(kept)
        else:
            found = [
                self._codec.decode(topics.BY_NAME[rec.topic], value, arrival_ns=self._now_ns)
                for rec, value in zip(poll, raw, strict=True)
            ]
        for rec, record in zip(poll, found, strict=True):
            self._offset += 1
            for event in self._merge.accept_record(
                rec.topic, rec.key, record, partition=0, offset=self._offset,
                timestamp_ms=self._now_ns // MS_NS,
            ):  # fmt: skip
                self.core.feed(event)

    def _decide(self) -> None:
        self._now_ns += GRID_NS
        self.core.advance(self._now_ns)
        memory.collect_if_due()


def _polls(records: Iterable[Rec]) -> Iterator[list[Rec]]:
    """Yield records of one topic, as many as a poll returns."""
    left = iter(records)
    while poll := list(islice(left, LOCALIZER.batch)):
        while poll:
            same = [rec for rec in poll if rec.topic == poll[0].topic]
            yield same
            poll = [rec for rec in poll if rec.topic != poll[0].topic]


def run(segments: int) -> dict[str, float]:
    """Return what it cost: seconds and bytes."""
    world = World(segments)
    memory.collect_on_demand()
    intake = Intake()
    setup_s = intake.take(world.setup(BEGIN_NS))
    first_s = intake.take(world.trace(flow, BEGIN_NS) for flow in range(world.paths))
    if len(intake.core.sources.paths) != world.paths:
        raise RuntimeError(f"of {world.paths} 5-tuples {len(intake.core.sources.paths)} are known")
    memory.leave_out_present()
    later_ns = BEGIN_NS + SECOND_NS
    spines = world.cluster.fabric.numbers(2)
    storm_s = intake.take(
        world.trace(
            flow, later_ns, TraceCause.LOSS, broken_at=next(n for n in way if n in spines)
        )
        for flow in range(min(STORM, world.paths))
        for way in (world.way(flow),)
    )  # fmt: skip
    peak_bytes = process_cost.memory(os.getpid()).peak_bytes
    return {
        "paths": world.paths, "setup_s": setup_s, "first_s": first_s, "storm_s": storm_s,
        "peak_mb": peak_bytes / MB,
    }  # fmt: skip


def start(runs: int, say: Say) -> list[Figure]:
    """Measure it at 300,000 5-tuples."""
    found = [call_alone(run, SEGMENTS) for _ in range(runs)]
    paths = int(found[0]["paths"])
    first_us = [1e6 * one["first_s"] / paths for one in found]
    say(
        f"localizer, {paths:,} paths: a first trace {first_us[0]:.1f} us of CPU, all taken in "
        f"after {found[0]['setup_s'] + found[0]['first_s']:.1f} s, {STORM:,} traces of a storm "
        f"{found[0]['storm_s']:.1f} s, {found[0]['peak_mb']:.0f} MB"
    )
    return [
        figure(f"localizer, start with {paths:,} paths: CPU of a first trace", first_us, "µs",
               TRACE_US),
        figure("… topology, lists and first traces taken in, CPU",
               [one["setup_s"] + one["first_s"] for one in found], "s", READY_S),
        figure(f"… {STORM:,} traces of a storm taken in, CPU",
               [one["storm_s"] for one in found], "s", BEHIND_S),
        figure("… peak RSS", [one["peak_mb"] for one in found], "MB", PEAK_MB, worst=True),
    ]  # fmt: skip


PARTS: Final[Parts] = {"localizer-start": start}
