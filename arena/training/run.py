"""A simulated job beside the simulated cluster that it runs on, and what is said of both.

The job's collectors feed the hang watcher, the cluster's agents the workers, and hangs and
anomalies the localizer, which joins them: the same code as live, by event time, without a clock.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from arena.direct import DirectRun
from arena.run import feed as feed_world
from arena.scenarios.scenario import Scenario, ScenarioEvent, Staged, stage
from arena.simulation.timeline import Slice, timeline
from arena.simulation.world import EPOCH_NS
from arena.training.collectors import Collectors, Read, clocks
from arena.training.engine import Engine
from arena.training.shape import JobShape
from arena.training.troubles import Pauses, RankTrouble
from arena.training.wires import Wires
from arena.world.cluster import JobPlan
from arena.world.fabric import FabricShape
from localizer.collectives.batch_operations import BatchOperations
from localizer.collectives.hang_watch import HangWatch
from localizer.collectives.rank_batch import BatchHead, RankBatch
from localizer.config import CoreConfig
from schemas.records import CollectiveBatch, FaultEvent, Hang
from schemas.topics import COLLECTIVE_HANG
from schemas.units import MS_NS, SECOND_NS, US_NS, US_PER_S
from streams.config import DetectionConfig

CLUSTER: Final = "arena"
EPOCH_US: Final = EPOCH_NS // US_NS
SEGMENT_HOSTS: Final = 16
SPINES: Final = 4
# How many times longer transfers take over what is faulty, beside what loss does: a link of a
# quarter of its lanes, bounces through the host's memory, packets that go through its CPU.
RATES: Final[Mapping[str, float]] = {
    "pcie_downgrade": 4.0, "pcie_nic_error": 3.0, "gpudirect_error": 5.0, "acs_ats_wrong": 2.0,
    "not_using_rdma": 5.0, "offload_failure": 10.0, "repetitive_offload": 3.0,
    "hugepage_mismatch": 2.0, "rnic_firmware_stuck": 3.0, "uneven_load": 2.0,
    "congestion_control_off": 2.0,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class JobScenario:
    """A job, what goes wrong, and for how long it is watched.

    Attributes
    ----------
    faults
        Of the network or of hosts, as in scenarios of the arena.
    restarts_s
        When all processes are ended and started anew.
    probed
        Whether agents probe the network beside the job.
    """

    name: str
    seed: int
    seconds: int
    shape: JobShape
    pauses: Pauses = field(default_factory=Pauses)
    troubles: tuple[RankTrouble, ...] = ()
    faults: tuple[ScenarioEvent, ...] = ()
    restarts_s: tuple[float, ...] = ()
    probed: bool = True


def staged(scenario: JobScenario) -> Staged:
    """Return the cluster of a scenario, with its faults drawn."""
    hosts = scenario.shape.hosts
    fabric = FabricShape(
        hosts=hosts,
        rails=scenario.shape.rails,
        segment_hosts=min(SEGMENT_HOSTS, max(1, hosts // 2)),
        spines=SPINES,
    )
    return stage(
        Scenario(
            name=CLUSTER, seed=scenario.seed, seconds=scenario.seconds, fabric=fabric,
            jobs=(JobPlan(task_id=scenario.shape.task_id, first_host=0, hosts=hosts),),
            faults=scenario.faults,
        )
    )  # fmt: skip


class JobFeed:
    """A job's collectors and the hang watcher, second by second.

    Attributes
    ----------
    engine
        Of the present attempt.
    operations
        How many the watcher has read.
    """

    def __init__(self, scenario: JobScenario, wires: Wires, *, encoded: bool = False) -> None:
        self.watch = HangWatch(CLUSTER)
        self.operations = 0
        self._scenario = scenario
        self._wires = wires
        self._encoded = encoded
        self._heap: list[tuple[int, int, Read]] = []
        self._count = 0
        self._restarts = [round(s * US_PER_S) for s in scenario.restarts_s]
        self._clocks = clocks(scenario.shape, scenario.seed)
        self._told = False
        self.engine, self._collectors = self._attempt(0)

    def _attempt(self, begin_us: int) -> tuple[Engine, Collectors]:
        scenario = self._scenario
        engine = Engine(
            scenario.shape, self._wires, scenario.pauses, scenario.troubles,
            seed=scenario.seed + begin_us, begin_us=begin_us,
        )  # fmt: skip
        collectors = Collectors(
            engine, cluster=CLUSTER, epoch_us=EPOCH_US, clocks_us=self._clocks, seed=scenario.seed,
            attempt_us=begin_us, encoded=self._encoded,
        )  # fmt: skip
        return engine, collectors

    def records(self, to_us: int) -> Iterator[Read]:
        """Yield what reaches the broker up to a time, in that order."""
        if self._restarts and to_us > self._restarts[0]:
            self.engine, self._collectors = self._attempt(self._restarts.pop(0))
        self.engine.advance(to_us)
        found = list(self._collectors.read(to_us))
        if not self._told:
            self._told = True
            found += self._collectors.communicators()
        for one in found:
            heapq.heappush(self._heap, (one.at_us, self._count, one))
            self._count += 1
        while self._heap and self._heap[0][0] <= to_us:
            yield heapq.heappop(self._heap)[2]

    def step(self, to_us: int) -> list[Hang]:
        """Let the watcher read and decide up to a time; return the transitions."""
        for read in self.records(to_us):
            feed(self.watch, read)
            self.operations += len(read.operations)
        return self.decide(to_us)

    def decide(self, to_us: int) -> list[Hang]:
        """Let the watcher decide up to a time; return the transitions."""
        return self.watch.advance(EPOCH_NS + to_us * US_NS)


def feed(watch: HangWatch, read: Read) -> None:
    """Give the watcher a record."""
    arrived_ns = EPOCH_NS + read.at_us * US_NS
    record = read.record
    if isinstance(record, CollectiveBatch):
        told = RankBatch(BatchHead.of(record), BatchOperations.of_records(read.operations))
        watch.feed(read.key, told, arrived_ns)
    else:
        watch.feed(read.key, record, arrived_ns)


class JobRun:
    """A scenario, second by second.

    Attributes
    ----------
    hangs, events
        Transitions so far.
    """

    def __init__(self, scenario: JobScenario) -> None:
        self.scenario = scenario
        self.hangs: list[Hang] = []
        self.events: list[FaultEvent] = []
        self.staged = staged(scenario)
        world = self.staged.world
        rates = {
            effect.component: RATES[fault.kind]
            for fault in scenario.faults
            if fault.kind in RATES
            for effect in world.effects
        }
        wires = Wires(scenario.shape, world.cluster, world.effects, rates, EPOCH_NS)
        self.feed = JobFeed(scenario, wires)
        self._direct = DirectRun(CLUSTER, DetectionConfig(), CoreConfig(cluster=CLUSTER))
        self._parts = timeline(world) if scenario.probed else _unprobed(scenario.seconds)
        self._second = 0

    def run(self, to_s: int | None = None) -> None:
        """Go on up to a second; None: to the end."""
        last = self.scenario.seconds if to_s is None else min(to_s, self.scenario.seconds)
        while self._second < last:
            part = next(self._parts)
            self._second += 1
            to_us = self._second * US_PER_S
            found = self.feed.step(to_us)
            self.hangs += found
            at_ns = EPOCH_NS + to_us * US_NS
            for hang in found if self.scenario.probed else ():
                self._direct.consume_record(
                    COLLECTIVE_HANG.name, hang.hang_id, hang, timestamp_ms=at_ns // MS_NS
                )
            if self.scenario.probed:
                self.events += feed_world(self._direct, part)


def _unprobed(seconds: int) -> Iterator[Slice]:
    for second in range(seconds):
        yield Slice(EPOCH_NS + second * SECOND_NS, [], [], 0)


def run(scenario: JobScenario) -> JobRun:
    """Run a scenario to its end."""
    found = JobRun(scenario)
    found.run()
    return found


def opened(hangs: Sequence[Hang]) -> list[Hang]:
    """Return the first transition of each hang."""
    return [hang for hang in hangs if hang.seq == 1]
