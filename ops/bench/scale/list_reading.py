"""What an agent reads of lists and registrations, live, in clusters of several sizes.

Apache Kafka, the skeleton job, and the readers of some agents are the real ones; jobs come and go
as in `cluster`, containers in proportion to the hosts. Nobody probes: what is measured is how a
registration reaches those who probe it, and what the others read of it.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, quantiles
from typing import Any, Final

from arena.simulation.setup import Rec
from ops.bench.cluster.jobs import Jobs
from ops.bench.cluster.readers import STATISTICS_S
from ops.bench.cluster.shape import CLUSTER, ClusterShape
from ops.bench.rig.growth import Curve, slope_figure
from ops.bench.rig.publisher import Publisher
from ops.bench.rig.report import Figure, Parts, Say, figure, scratch_folder
from ops.bench.rig.waiting import wait_until
from ops.log.reading import LogReader
from ops.running.pipeline import SKELETON, Pipeline, PipelineConfig
from ops.running.processes import Child
from schemas.codec import Codec
from schemas.enums import Transport
from schemas.kafka.connection import KafkaSettings
from schemas.records import Endpoint
from schemas.topics import BY_NAME, PINGLIST, TARGET

AGENTS: Final = (1_000, 5_000, 20_000)
# The published cluster: the bars are for it.
PUBLISHED: Final = 5_000
# Agents that really read: of so many jobs begin and end on their hosts, of as many others nothing
# changes on theirs.
SAMPLE: Final = 16
BUSY, CALM = "busy", "calm"
QUIET_S: Final = 40.0
CHURN_S: Final = 60.0
TURN_S: Final = 0.1
# Between two looks at whether the skeleton job writes on, and what it may take to fill a cluster.
SETTLED_S: Final = 3.0
FILL_TIMEOUT_S: Final = 600.0
READY_TIMEOUT_S: Final = 300.0
PORT: Final = 4_791

READ_BAR_BYTES: Final = 1_000.0
SLOPE_BAR: Final = 0.1
ACTIVE_BAR_S: Final = 2.0
CPU_BAR_PERCENT: Final = 0.05


@dataclass(frozen=True, slots=True)
class Reading:
    """What the agents of one process did.

    Attributes
    ----------
    start_bytes : read until all that stands was known, by agent
    quiet_hz, churn_hz : bytes a second while nothing happened, and while containers came and went
    cpu_share : of a core, an agent's, by which churn adds to quiet
    active_s : of each target, from its registration until it was active
    """

    flows: float
    connections: int
    start_bytes: list[float]
    quiet_hz: list[float]
    churn_hz: list[float]
    cpu_share: float
    active_s: list[float]


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a cluster of so many agents: of those whose jobs change, and of the others."""

    agents: int
    busy: Reading
    calm: Reading


def measure(agents: int, folder: Path, say: Say) -> Run:
    """Fill a cluster, let a sample of agents read, and let containers come and go."""
    shape = ClusterShape(agents=agents, faults=False)
    jobs, codec = Jobs(shape), Codec()
    config = PipelineConfig(folder=folder, cluster=CLUSTER, processes=(), tables={}, agents=agents)
    with ExitStack() as stack:
        pipeline = stack.enter_context(Pipeline(config))
        wait_until(
            lambda: _leads(pipeline.settings),
            READY_TIMEOUT_S,
            "the broker does not lead all topics",
        )
        job = pipeline.start(SKELETON)
        wait_until(
            lambda: bool(job.events(f"{SKELETON}.ready")), READY_TIMEOUT_S,
            "the skeleton job is not ready", check=pipeline.group.check,
        )  # fmt: skip
        publisher = Publisher(pipeline.settings)
        began_s = time.monotonic()
        _publish(publisher, codec, jobs.fill(time.time_ns() // 1000))
        publisher.finish()
        _settle(pipeline)
        say(f"{agents:,} agents: lists and copies in {time.monotonic() - began_s:.0f} s")
        readers = _start(pipeline, jobs)
        wait_until(
            lambda: all(reader.events("ready") for reader in readers.values()),
            READY_TIMEOUT_S, "agents have not read all", check=pipeline.group.check,
        )  # fmt: skip
        time.sleep(QUIET_S)
        begin_s = time.time()
        while (at_s := time.time() - begin_s) < CHURN_S:
            _publish(publisher, codec, jobs.churn(at_s, time.time_ns() // 1000))
            publisher.serve()
            time.sleep(TURN_S)
        publisher.finish()
        time.sleep(SETTLED_S)
        pipeline.group.check()
        busy, calm = (
            reading(readers[name].events(), begin_s, begin_s + CHURN_S) for name in (BUSY, CALM)
        )
    return Run(agents, busy, calm)


def reading(events: Sequence[Mapping[str, Any]], begin_s: float, end_s: float) -> Reading:
    """Return what agents did, from the lines that their process has printed."""
    ready = next(n for n, e in enumerate(events) if e["event"] == "ready")
    going = [e for e in events[ready:] if e["event"] == "going"]
    # What was read is told some seconds late.
    known_s = going[0]["at_s"] + STATISTICS_S
    quiet = [e for e in going if known_s <= e["at_s"] < begin_s]
    churn = [e for e in going if begin_s + STATISTICS_S <= e["at_s"] < end_s]
    read_hz = [_rates(part) for part in (quiet, churn)]
    shares = [
        (part[-1]["cpu_s"] - part[0]["cpu_s"]) / (part[-1]["at_s"] - part[0]["at_s"])
        for part in (quiet, churn)
    ]
    sample = len(going[0]["read"])
    return Reading(
        flows=mean(churn[-1]["flows"]),
        connections=going[-1]["connections"],
        start_bytes=[float(n) for n in quiet[0]["read"]],
        quiet_hz=read_hz[0],
        churn_hz=read_hz[1],
        cpu_share=max(0.0, shares[1] - shares[0]) / sample,
        active_s=[s for e in events[ready:] if e["event"] == "active" for s in e["waited_s"]],
    )


def _rates(going: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return bytes a second, by agent."""
    first, last = going[0], going[-1]
    seconds = last["at_s"] - first["at_s"]
    return [(b - a) / seconds for a, b in zip(first["read"], last["read"], strict=True)]


def _start(pipeline: Pipeline, jobs: Jobs) -> dict[str, Child]:
    """Start the readers: of hosts that are free and of the oldest job, and of the newest jobs."""
    newest = [host for job in list(jobs.running)[-SAMPLE:] for host in job.hosts]
    busy = [*jobs.running[0].hosts, *jobs.free][:SAMPLE]
    return {
        name: pipeline.group.start(
            name,
            [
                *(sys.executable, "-m", "ops.bench.cluster.readers"),
                *("--bootstrap", pipeline.settings.bootstrap, "--hosts", ",".join(map(str, hosts))),
            ],
        )
        for name, hosts in ((BUSY, busy), (CALM, newest[-SAMPLE:]))
    }


def _publish(publisher: Publisher, codec: Codec, recs: Sequence[Rec]) -> None:
    for rec in recs:
        topic, record = BY_NAME[rec.topic], rec.record
        if isinstance(record, Endpoint):
            record = replace(record, transport=Transport.UDP, port=PORT)
        value = None if record is None else codec.encode(topic, record)
        publisher.publish(topic.name, rec.key, value, rec.at_ns // 10**6)


def _settle(pipeline: Pipeline) -> None:
    """Wait until the skeleton job has written what it had to."""
    before, deadline = -1, time.monotonic() + FILL_TIMEOUT_S
    while (now := _written(pipeline.settings)) != before or not now:
        if time.monotonic() > deadline:
            raise TimeoutError("the skeleton job does not come to an end")
        pipeline.group.check()
        before = now
        time.sleep(SETTLED_S)


def _leads(settings: KafkaSettings) -> bool:
    """Whether the one broker leads its thousands of new partitions: that takes it a while."""
    try:
        return _written(settings) == 0
    except ConnectionError:
        return False


def _written(settings: KafkaSettings) -> int:
    with LogReader(settings) as reader:
        names = [settings.topic(topic.name) for topic in (PINGLIST, TARGET)]
        return sum(found.high for found in reader.partitions(names).values())


def list_reading(runs: int, say: Say) -> list[Figure]:
    """Measure the sizes; the bars are for the published cluster."""
    found: dict[int, list[Run]] = {agents: [] for agents in AGENTS}
    for _ in range(runs):
        for agents in AGENTS:
            with scratch_folder() as folder:
                found[agents].append(measure(agents, folder, say))
            say(_sentence(found[agents][-1]))
    return figures(found, say)


def _sentence(run: Run) -> str:
    calm, waited = run.calm, run.busy.active_s
    return (
        f"{run.agents:,} agents of {calm.flows:.0f} 5-tuples: {_read_hz(run):.0f} bytes/s "
        f"an agent ({mean(calm.quiet_hz):.0f} without churn; {mean(calm.start_bytes) / 1e3:.0f} kB "
        f"at its start), {calm.cpu_share:.3%} of a core for others' churn, "
        f"{run.busy.cpu_share:.3%} with its own; {len(waited)} targets active after "
        f"{_p99(waited):.2f} s (p99); {calm.connections} connections"
    )


def _read_hz(run: Run) -> float:
    """Return bytes a second of an agent, while containers come and go."""
    return mean([*run.busy.churn_hz, *run.calm.churn_hz])


def figures(found: Mapping[int, Sequence[Run]], say: Say) -> list[Figure]:
    """Return the rows."""
    curve = Curve(
        name="agent: bytes read of lists and registrations", axis="agents", unit="bytes/s",
        sizes=tuple(float(agents) for agents in found),
        costs=tuple(mean(map(_read_hz, runs)) for runs in found.values()),
    )  # fmt: skip
    rows = []
    for agents, runs in found.items():
        bars = agents == PUBLISHED
        what = f"agent in a cluster of {agents:,}, containers in proportion"
        rows += [
            figure(f"{what}: reads", [_read_hz(run) for run in runs], "bytes/s",
                   READ_BAR_BYTES if bars else None),
            figure(f"{what}: … while no container comes or goes",
                   [mean(run.calm.quiet_hz) for run in runs], "bytes/s"),
            figure(f"{what}: … when it starts",
                   [mean(run.calm.start_bytes) / 1e3 for run in runs], "kB"),
            figure(f"{what}: a target is active after its registration, p99",
                   [_p99(run.busy.active_s) for run in runs], "s", ACTIVE_BAR_S if bars else None),
            figure(f"{what}: CPU for others' churn, of a core",
                   [run.calm.cpu_share * 100 for run in runs], "%",
                   CPU_BAR_PERCENT if bars else None),
        ]  # fmt: skip
    return [*rows, slope_figure(curve, SLOPE_BAR, say)]


def _p99(values: Sequence[float]) -> float:
    return quantiles(values, n=100)[98]


PARTS: Final[Parts] = {"list-reading": list_reading}
