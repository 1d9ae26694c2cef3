"""Memory of localizer, skeleton job and worker under floods of unknown names, and after them.

Each process runs alone in front of a broker. After a small flood, which loads code and fills pools,
comes the large one; then what it named leaves, or time passes until it is forgotten. Times of
arrival are the bench's own, see `log_time`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from ops.bench.resilience.log_time import TimedLog
from ops.bench.resilience.quiet import reset_peak, wait_quiet
from ops.bench.rig import process_cost
from ops.bench.rig.report import Figure, Parts, Say, figure, scratch_folder
from ops.broker.embedded import EmbeddedKafka
from ops.running.pipeline import LOCALIZER, SKELETON, WORKER, Pipeline, PipelineConfig, Table
from schemas import topics
from schemas.enums import AgentState, ClockSource, ProbeStatus, TraceCause, Transport
from schemas.ids import path_id
from schemas.records import (
    CounterBatch,
    CounterSample,
    Endpoint,
    Heartbeat,
    PathTrace,
    ProbeResult,
    ProbeRound,
    Task,
    TaskEndpoint,
    TraceHop,
)
from schemas.topics import DEFAULT_PARTITIONS
from schemas.units import SECOND_NS, US_NS

CLUSTER: Final = "flood"
READY_S: Final = 240.0
MB: Final = 1e6
KEPT_PERCENT: Final = 10.0
SMALL_SHARE: Final = 0.02
# The names of a flood are numbered in this many digits.
DIGITS: Final = 7
NUMBER: Final = "9" * DIGITS
RESIDENTS: Final = 4
# A flood lasts so long in the log.
FLOOD_S: Final = 60

NAMES: Final = 200_000
TRACES: Final = 300_000
ENDPOINTS: Final = 250_000
COUNTER_AGENTS: Final = 37_500
RNICS: Final = 8
TASKS: Final = 50_000
ROUNDS: Final = 150
RESULTS: Final = 10_000

# Residents live on after the flood is forgotten: a worker that rebuilt its partitions reads their
# long-term windows beside its work, and lets go of them when the next windows close.
AFTERWARDS_S: Final = 240

# What the caps allow (docs/guide/sizing.md), and what is on its way: a client's queue of 64 MiB,
# and records that wait for the next progress mark.
ON_THE_WAY_BYTES: Final = 160e6
LOCALIZER_BYTES: Final = 20_000 * 1_500 + 16_384 * 5_000 + ON_THE_WAY_BYTES
SKELETON_BYTES: Final = 200_000 * (3_000 + 1_000) + 20_000 * 5_000 + ON_THE_WAY_BYTES
WORKER_FLOWS: Final = 62_500
WORKER_BYTES: Final = DEFAULT_PARTITIONS * WORKER_FLOWS * 3_500 + ON_THE_WAY_BYTES


class Template:
    """A record as bytes, in which a number of fixed length is replaced."""

    def __init__(
        self, log: TimedLog, topic: topics.Topic, key: str, record: Any, *, deleted: bool = True
    ) -> None:
        self.deleted = deleted and topic.compacted
        self._log = log
        self._topic = topic.name
        self._key = key
        self._value = log.codec.encode(topic, record)

    def append(self, number: int) -> None:
        """Append the record of a number."""
        text = f"{number:0{DIGITS}}"
        value = self._value.replace(NUMBER.encode(), text.encode())
        self._log.append_value(self._topic, self._key.replace(NUMBER, text), value)

    def delete(self, number: int) -> None:
        """Append its tombstone."""
        text = f"{number:0{DIGITS}}"
        self._log.append_value(self._topic, self._key.replace(NUMBER, text), None)


def _heartbeat(agent: str, seq: int, at_ns: int, interval_ns: int = SECOND_NS) -> Heartbeat:
    return Heartbeat(
        cluster=CLUSTER, agent_id=agent, host_id=f"host:{agent}", incarnation=1, seq=seq,
        sent_at=at_ns // US_NS, interval_ns=interval_ns, state=AgentState.RUNNING, endpoints=1,
        targets_active=1, targets_waiting=0, rounds_sent=0, results_sent=0, rounds_dropped=0,
        replies_duplicate=0, replies_late=0, replies_foreign=0, packets_malformed=0,
        records_undecodable=0, broker_away=False,
    )  # fmt: skip


def _endpoint(name: str, agent: str) -> Endpoint:
    return Endpoint(
        cluster=CLUSTER, endpoint_id=name, agent_id=agent, container_id=name, host_id="host:x",
        rail=0, transport=Transport.UDP, address="10.0.0.1", port=1, incarnation=1,
        registered_at=0,
    )  # fmt: skip


def _counters(agent: str, rnics: int, at_ns: int) -> CounterBatch:
    samples = tuple(
        CounterSample(
            endpoint_id=f"{agent}/r{rail}", rail=rail, tick_offset_ns=0, read_delay_ns=0,
            tx_bytes=1, rx_bytes=1, counter_bits=64,
        )
        for rail in range(rnics)
    )  # fmt: skip
    return CounterBatch(
        cluster=CLUSTER, agent_id=agent, host_id="host:x", started_at=at_ns // US_NS,
        tick_ns=SECOND_NS, samples=samples,
    )  # fmt: skip


def _round(agent: str, seq: int, at_ns: int, targets: Iterable[str]) -> ProbeRound:
    results = tuple(
        ProbeResult(
            src=f"{agent}/r0", dst=target, flow=0, sent_offset_ns=0, transport=Transport.UDP,
            status=ProbeStatus.OK, rtt_ns=20_000, prober_delay_ns=1_000,
            responder_delay_ns=1_000, clock=ClockSource.HARDWARE,
        )
        for target in targets
    )  # fmt: skip
    return ProbeRound(
        cluster=CLUSTER, agent_id=agent, host_id="host:x", incarnation=1, round_seq=seq,
        started_at=at_ns // US_NS, interval_ns=SECOND_NS, results=results,
    )  # fmt: skip


class Flood:
    """What a process is flooded with, and the life around it."""

    process: str
    what: str
    statement_bytes: float
    # Residents live for so long until all is forgotten.
    forgotten_s: int
    # Settings of the process.
    tables: ClassVar[Mapping[str, Table]] = {}

    def __init__(self, log: TimedLog) -> None:
        self.log = log
        self._second = 0

    def pass_time(self, seconds: int) -> None:
        """Let residents live for so long."""
        for _ in range(seconds):
            self.log.now_ns += SECOND_NS
            self._second += 1
            self.live(self._second)

    def run(self, share: float) -> None:
        """Append so large a share of the flood, over `FLOOD_S` of the log."""
        records = [
            (template, number)
            for template, count in self.templates()
            for number in range(round(count * share))
        ]
        each = -(-len(records) // FLOOD_S)
        for at in range(0, len(records), each):
            for template, number in records[at : at + each]:
                template.append(number)
            self.pass_time(1)

    def leave(self, share: float) -> None:
        """Append the tombstones of what leaves by them, and let time pass."""
        for template, count in self.templates():
            if template.deleted:
                for number in range(round(count * share)):
                    template.delete(number)
        self.pass_time(self.forgotten_s)

    def live(self, second: int) -> None:
        """Append what residents say in a second."""
        raise NotImplementedError

    def templates(self) -> list[tuple[Template, int]]:
        """Return the records of the flood as of now, and how many of each."""
        raise NotImplementedError


class LocalizerFlood(Flood):
    """Heartbeats of agents, and traces of 5-tuples, that nobody registered."""

    process = LOCALIZER
    what = f"{NAMES:,} agent names, {TRACES:,} traces from nowhere"
    statement_bytes = LOCALIZER_BYTES
    # Longer than paths are known.
    forgotten_s = 1_000

    def live(self, second: int) -> None:
        """Residents send heartbeats, and the worker marks its progress."""
        for number in range(RESIDENTS):
            beat = _heartbeat(f"agent-{number}", second, self.log.now_ns)
            self.log.append(topics.HEARTBEAT.name, beat.agent_id, beat)
        self.log.mark()

    def templates(self) -> list[tuple[Template, int]]:
        """Return a heartbeat and a trace."""
        beat = _heartbeat(f"stranger-{NUMBER}", 1, self.log.now_ns)
        hops = tuple(
            TraceHop(ttl=ttl, address=f"192.{ttl}.{NUMBER}", rtt_ns=10_000 * ttl)
            for ttl in range(1, 7)
        )
        src, dst = f"from-{NUMBER}", f"to-{NUMBER}"
        trace = PathTrace(
            cluster=CLUSTER, path_id=path_id(src, dst), src=src, dst=dst, flow=0,
            agent_id=beat.agent_id, traced_at=self.log.now_ns // US_NS,
            cause=TraceCause.DISCOVERY, complete=True, hops=hops,
        )  # fmt: skip
        return [
            (Template(self.log, topics.HEARTBEAT, beat.agent_id, beat, deleted=False), NAMES),
            (Template(self.log, topics.PATH_TRACE, trace.path_id, trace), TRACES),
        ]


class SkeletonFlood(Flood):
    """Endpoints and jobs that nobody started, and counters of RNICs that are in no job."""

    process = SKELETON
    what = (
        f"{ENDPOINTS:,} endpoints, {COUNTER_AGENTS * RNICS:,} counter series, {TASKS:,} jobs "
        "from nowhere"
    )
    statement_bytes = SKELETON_BYTES
    # Longer than two horizons of readings.
    forgotten_s = 800

    def live(self, second: int) -> None:
        """Residents publish counters."""
        del second
        for number in range(RESIDENTS):
            batch = _counters(f"agent-{number}", RNICS, self.log.now_ns)
            self.log.append(topics.RNIC_COUNTERS.name, batch.agent_id, batch)

    def templates(self) -> list[tuple[Template, int]]:
        """Return an endpoint, a batch of counters and a job."""
        name, agent = f"ep-{NUMBER}", f"stranger-{NUMBER}"
        batch = _counters(agent, RNICS, self.log.now_ns)
        members = tuple(
            TaskEndpoint(
                endpoint_id=f"w{n}-{NUMBER}", container_id=f"w{n}-{NUMBER}",
                host_id=f"host:{n}", agent_id=f"a{n}-{NUMBER}", rail=0,
            )
            for n in range(2)
        )  # fmt: skip
        task = Task(
            cluster=CLUSTER, task_id=f"job-{NUMBER}", submitted_at=self.log.now_ns // US_NS,
            endpoints=members,
        )  # fmt: skip
        return [
            (Template(self.log, topics.ENDPOINT, name, _endpoint(name, agent)), ENDPOINTS),
            (Template(self.log, topics.RNIC_COUNTERS, agent, batch), COUNTER_AGENTS),
            (Template(self.log, topics.TASK, task.task_id, task), TASKS),
        ]


class WorkerFlood(Flood):
    """Rounds of agents that probe ten thousand targets each, once."""

    process = WORKER
    what = f"{ROUNDS * RESULTS:,} unknown 5-tuples in {ROUNDS} messages"
    statement_bytes = WORKER_BYTES
    forgotten_s = 1_200
    tables: ClassVar[Mapping[str, Table]] = {WORKER: {"max_flows": WORKER_FLOWS}}

    def live(self, second: int) -> None:
        """Residents publish rounds, in all partitions."""
        for number in range(4 * RESIDENTS):
            agent = f"agent-{number}"
            record = _round(agent, second, self.log.now_ns, ("here",))
            self.log.append(topics.PROBE_ROUND.name, agent, record)

    def templates(self) -> list[tuple[Template, int]]:
        """Return a round."""
        targets = [f"to-{NUMBER}-{target}" for target in range(RESULTS)]
        agent = f"stranger-{NUMBER}"
        record = _round(agent, 1, self.log.now_ns, targets)
        return [(Template(self.log, topics.PROBE_ROUND, agent, record), ROUNDS)]


FLOODS: Final = (LocalizerFlood, SkeletonFlood, WorkerFlood)


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes that a process held more than before the flood: at most, and afterwards."""

    peak: float
    kept: float


def measure(flood: type[Flood], bootstrap: str, folder: Path, share: float = 1.0) -> Held:
    """Flood a process."""
    name = flood.process
    config = PipelineConfig(
        folder=folder, bootstrap=bootstrap, cluster=CLUSTER, prefix=f"{name}.",
        processes=(name,), tables=flood.tables,
    )  # fmt: skip
    with Pipeline(config) as pipeline:
        pipeline.wait_ready(READY_S)
        pid, check = pipeline.group.child(name).pid, pipeline.group.check
        life = flood(TimedLog(pipeline.settings))

        def settle() -> int:
            life.log.flush()
            wait_quiet(pid, check)
            return process_cost.memory(pid).rss_bytes

        life.pass_time(FLOOD_S)
        for part in (SMALL_SHARE * share, share):
            before = settle()
            reset_peak(pid)
            life.run(part)
            settle()
            life.leave(part)
            settle()
            life.pass_time(AFTERWARDS_S)
            after = settle()
            peak = process_cost.memory(pid).peak_bytes
    return Held(peak - before, after - before)


def floods(runs: int, say: Say, only: str | None = None) -> list[Figure]:
    """Flood each process; the bars are the statement of its caps and a tenth kept."""
    rows = []
    with EmbeddedKafka(announce=False) as kafka:
        for flood in FLOODS:
            if only not in (None, flood.process):
                continue
            over, kept = [], []
            for _ in range(runs):
                with scratch_folder() as folder:
                    held = measure(flood, kafka.bootstrap, folder)
                over.append(max(0.0, held.peak - flood.statement_bytes) / MB)
                kept.append(max(0.0, 100 * held.kept / held.peak))
                say(
                    f"{flood.process}, {flood.what}: {held.peak / MB:.0f} MB more at most "
                    f"({flood.statement_bytes / MB:.0f} MB stated), {held.kept / MB:.1f} MB kept"
                )
            title = f"{flood.process}, {flood.what}"
            rows += [
                figure(f"{title}: RSS above the caps' statement", over, "MB", 0, worst=True),
                figure(
                    f"… {flood.process}: of the memory that it took not given back",
                    kept,
                    "%",
                    KEPT_PERCENT,
                    worst=True,
                ),
            ]
    return rows


def _part(process: str) -> Callable[[int, Say], list[Figure]]:
    return lambda runs, say: floods(runs, say, process)


PARTS: Final[Parts] = {f"floods-{f.process}": _part(f.process) for f in FLOODS}
