"""Runs a simulated cluster in front of Kafka, workers, skeleton job and localizer, live.

One process publishes what 5,000 agents and their platform publish (`ops.bench.cluster.simulator`);
all others are the real ones. A process that does not keep up does not end the run: the run lasts
its time, waits for the rest, and reports by how much each was behind.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from ops.bench.cluster.shape import CLUSTER, ClusterShape
from ops.bench.cluster.watch import Costs, Verdicts, WorkerLag
from ops.bench.rig.report import Say
from ops.bench.throughput.rig import wait_ready
from ops.bench.throughput.wire import log_bytes
from ops.log.watch import Watch
from ops.running.pipeline import LOCALIZER, MODULES, WORKER, Pipeline, PipelineConfig
from ops.running.processes import Child, ProcessGroup
from schemas.kafka.connection import KafkaSettings
from schemas.records import FaultEvent
from schemas.topics import ANOMALY, FAULT_EVENT, PROBE_WINDOW
from streams.edge.lookback import LogReader

WORKERS: Final = 2
SIMULATOR: Final = "simulator"
BROKER: Final = "broker"
# Kernels may have to be compiled first.
READY_TIMEOUT_S: Final = 240.0
# Filling a cluster, and twice the time: a simulator that hangs is ended.
FILL_TIMEOUT_S: Final = 900.0
# What is waited for workers that are behind.
DRAIN_S: Final = 120.0
# A verdict may still be on its way.
VERDICT_S: Final = 2.0
LOOK_S: Final = 0.5

# What grows with the cluster and is kept for days: of records that come in batches as in service.
# A round of the simulator's shares its batch with other agents' rounds (`throughput --only wire`).
STORED: Final = (PROBE_WINDOW, ANOMALY)


@dataclass(frozen=True, slots=True)
class Stored:
    """Bytes and records of a topic on the broker's disk, as they go over its wire."""

    size: int
    records: int


@dataclass(slots=True)
class ClusterRun:
    """What came of a simulated cluster.

    Attributes
    ----------
    summary : what the simulator prints at its end; None: it did not end
    lag_s, lag_messages : of the workers when the simulator ended
    worst_lag_s : the most while it ran
    over_s : when the simulator had published all, monotonic
    drained_s : until they had taken everything after that; None: they have not
    stored : what the broker wrote of topics while the cluster lived; of a broker of its own
    ended : processes that ended by themselves
    localizer_behind_s : how far behind now it had decided, as it said every ten seconds
    """

    shape: ClusterShape
    verdicts: Verdicts
    costs: Costs
    summary: Mapping[str, Any] | None = None
    lag_s: float = 0.0
    lag_messages: int = 0
    worst_lag_s: float = 0.0
    over_s: float | None = None
    drained_s: float | None = None
    localizer_behind_s: list[float] = field(default_factory=list)
    stored: dict[str, Stored] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)


def measure(
    shape: ClusterShape,
    folder: Path,
    say: Say,
    *,
    workers: int = WORKERS,
    bootstrap: str | None = None,
    prefix: str = "",
) -> ClusterRun:
    """Let a cluster live in front of the real processes.

    Parameters
    ----------
    bootstrap
        A broker that is there; None: one is started.

    Raises
    ------
    RuntimeError
        If the cluster cannot even be filled.
    """
    config = PipelineConfig(
        folder=folder, bootstrap=bootstrap, cluster=CLUSTER, prefix=prefix, tables={}
    )
    with ExitStack() as stack:
        pipeline = stack.enter_context(Pipeline(config))
        more = [f"{WORKER}-{n}" for n in range(2, workers + 1)]
        for name in more:
            pipeline.start(name, MODULES[WORKER])
        pipeline.wait_ready(READY_TIMEOUT_S)
        workers_more = [pipeline.group.child(name) for name in more]
        wait_ready(workers_more, READY_TIMEOUT_S, check=pipeline.group.check)
        names = [*config.processes, *more]
        # A group of its own: the processes under test may end without ending the run.
        agents = stack.enter_context(ProcessGroup(folder / "logs"))
        lag = WorkerLag(pipeline.settings)
        stack.callback(lag.close)
        watch = stack.enter_context(Watch(pipeline.settings, [FAULT_EVENT], from_start=True))
        simulator = agents.start(SIMULATOR, _simulator(pipeline, shape))
        children = {name: pipeline.group.child(name) for name in names}
        pids = {name: child.pid for name, child in children.items()}
        if pipeline.kafka is not None and pipeline.kafka.pid is not None:
            pids[BROKER] = pipeline.kafka.pid
        run = ClusterRun(shape, Verdicts(), Costs(pids))
        kafka = pipeline.kafka
        stored = partial(_stored, pipeline.settings, None if kafka is None else kafka.data_dir)
        _Follower(run, lag, watch, say, stored).follow(simulator, children)
    return run


def _stored(settings: KafkaSettings, data_dir: Path | None) -> dict[str, Stored]:
    """Return bytes of the broker's log segments and records in them, by topic."""
    found: dict[str, Stored] = {}
    if data_dir is None:
        return found
    with LogReader(settings) as reader:
        for topic in STORED:
            name = settings.topic(topic.name)
            bounds = [reader.bounds(name, p) for p in range(topic.partitions)]
            records = sum(high - low for low, high in bounds)
            found[topic.name] = Stored(log_bytes(data_dir, name), records)
    return found


def _simulator(pipeline: Pipeline, shape: ClusterShape) -> list[str]:
    module = "ops.bench.cluster.simulator"
    return [
        *pipeline.group.child(WORKER).argv[:1], "-m", module,
        "--bootstrap", pipeline.settings.bootstrap, "--prefix", pipeline.settings.topic_prefix,
        "--shape", shape.text(),
    ]  # fmt: skip


class _Follower:
    """Watches a run; stores and prints what happens."""

    def __init__(
        self,
        run: ClusterRun,
        lag: WorkerLag,
        watch: Watch,
        say: Say,
        stored: Callable[[], dict[str, Stored]],
    ) -> None:
        self._run = run
        self._lag = lag
        self._watch = watch
        self._say = say
        self._stored = stored
        self._localizer: Child | None = None
        # Metrics that the localizer had logged when the cluster went live.
        self._metrics_before = 0

    def follow(self, simulator: Child, children: Mapping[str, Child]) -> None:
        """Watch until the simulator has ended and the workers are through, or time is up."""
        run, printed = self._run, 0
        self._localizer = children[LOCALIZER]
        deadline = time.monotonic() + FILL_TIMEOUT_S + 2 * run.shape.seconds
        while True:
            running = simulator.running
            found = simulator.events()
            for document in found[printed:]:
                self._take(document)
            printed = len(found)
            for name, child in children.items():
                if not child.running and name not in run.ended:
                    run.ended.append(name)
                    code = child.process.returncode
                    self._say(f"{name} ended with {code}:\n{child.log_tail(5)}")
            self._look()
            now_s = time.monotonic()
            if run.over_s is not None:
                if run.drained_s is None and self._lag.now_messages == 0:
                    run.drained_s = now_s - run.over_s
                late_s = DRAIN_S if run.drained_s is None else VERDICT_S
                if now_s > run.over_s + late_s and run.summary is not None:
                    return
            if (not running and run.summary is None) or now_s > deadline:
                raise RuntimeError(f"the simulator did not reach its end:\n{simulator.log_tail()}")

    def _look(self) -> None:
        self._lag.sample()
        for seen in self._watch.poll(LOOK_S):
            event: FaultEvent = seen.record
            self._run.verdicts.events.append((time.time(), event))
            what = f"{event.state.value}: {event.component_id} {event.fault_kind}"
            self._say(f"  {what} ({event.summary})")

    def _take(self, document: Mapping[str, Any]) -> None:
        """Take what the simulator says."""
        run, lag = self._run, self._lag
        match document["event"]:
            case "filled":
                self._say(f"filled: {document['jobs']:,} jobs, {document['messages']:,} messages")
            case "begin":
                run.costs.begin()
                lag.worst_s = 0.0
                run.stored = self._stored()
                self._metrics_before = len(self._behind_s())
            case "fault":
                run.verdicts.observe(document)
                self._say(f"{document['what']}: {document['components'][0]}")
            case "going":
                self._say(
                    f"{document['at_s']:>4} of {run.shape.seconds} s: "
                    f"{document['results']:,} results, {document['containers']:,} containers, "
                    f"workers {lag.now_s:.1f} s behind ({lag.now_messages:,} messages), "
                    f"simulator {document['behind_s']} s at most"
                )
            case "over":
                run.costs.end()
                run.over_s = time.monotonic()
                run.lag_s, run.lag_messages = lag.now_s, lag.now_messages
                run.worst_lag_s = lag.worst_s
                run.localizer_behind_s = self._behind_s()[self._metrics_before :]
                for name, now in self._stored().items():
                    before = run.stored[name]
                    size, records = now.size - before.size, now.records - before.records
                    run.stored[name] = Stored(size, records)
            case "end":
                run.summary = document
                run.verdicts.begun.update(document["begun"])

    def _behind_s(self) -> list[float]:
        if self._localizer is None:
            return []
        metrics = self._localizer.events("localizer.metrics")
        return [e["behind_ms"] / 1e3 for e in metrics if e["behind_ms"] is not None]
