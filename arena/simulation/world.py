"""A simulated cluster over time: every record that it publishes, second by second.

Nothing here uses a diagnosis. The truth (`arena.faults.truth`) never enters a record.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from arena.faults.effects import Effect, Weather
from arena.faults.injection import FaultInterval, Symptom
from arena.simulation.agents import AgentRound, Agents, Measured
from arena.simulation.setup import Rec, host_endpoints, job_lists, job_task, symptom_state, topology
from arena.simulation.tracing import Tracer
from arena.world.cluster import Cluster
from arena.world.hosts import HostEvent, Hosts, HostTrouble
from arena.world.latency import Load, RoundTrips
from arena.world.overlay import Overlay, TableDamage
from arena.world.topology import agent_id, endpoint_id, host_id
from schemas import topics
from schemas.columns.arrays import Bools
from schemas.enums import AgentState
from schemas.records import Heartbeat
from schemas.units import SECOND_NS, US_NS

# 2026-01-01: a fixed day, so that the same scenario has the same bytes.
EPOCH_NS: Final = 1_767_225_600 * SECOND_NS
# Readers publish changes, and look this often at most.
READER_NS: Final = 5 * SECOND_NS
HEARTBEAT_LAG_NS: Final = 50_000_000


@dataclass(frozen=True, kw_only=True)
class World:
    """Everything that happens in a scenario. Times are `EPOCH_NS` plus event time."""

    name: str
    seed: int
    cluster: Cluster
    seconds: int
    effects: Sequence[Effect] = ()
    hosts: Sequence[HostEvent] = ()
    damages: Sequence[TableDamage] = ()
    symptoms: Sequence[tuple[FaultInterval, Symptom]] = ()
    load: Load = field(default_factory=Load)
    # What ping lists tell agents of traces because of loss; None: nothing.
    trace_budget: int | None = None


@dataclass(frozen=True, slots=True)
class Second:
    """What is written about one second: records of all topics but rounds, and rounds."""

    begin_ns: int
    records: list[Rec]
    rounds: list[AgentRound]
    probes: int


class Simulation:
    """Runs a world; the same world gives the same records."""

    def __init__(self, world: World) -> None:
        self._world = world
        cluster = world.cluster
        seeds = np.random.SeedSequence(world.seed).spawn(4)
        agents, trips, tracer, beats = (np.random.Generator(np.random.PCG64(s)) for s in seeds)
        self._weather = Weather(cluster, world.effects)
        self._hosts = Hosts(cluster.fabric.shape.hosts, world.hosts)
        self._agents = Agents(
            world.name, cluster, self._weather, self._hosts,
            trips=RoundTrips(cluster, trips, world.load), rng=agents,
        )  # fmt: skip
        self._tracer = Tracer(
            world.name, cluster, self._weather, self._hosts, rng=tracer, begin_ns=EPOCH_NS,
            budget=world.trace_budget,
        )  # fmt: skip
        self._overlay = Overlay(world.name, cluster, world.damages)
        self._beats = np.zeros(cluster.fabric.shape.hosts, np.int64)
        self._rng = beats
        self._up_ns, self._down_ns = self._lives()
        self._late_ns = [int(n) for n in beats.integers(0, READER_NS, len(world.symptoms))]

    def _lives(self) -> tuple[dict[tuple[int, int], int], dict[tuple[int, int], int | None]]:
        """Return when each (job, host) is there, and until when."""
        up: dict[tuple[int, int], int] = {}
        down: dict[tuple[int, int], int | None] = {}
        for number, job in enumerate(self._world.cluster.jobs):
            for index in range(job.hosts):
                late_s = job.begin_s + job.askew_s * index / job.hosts
                up[number, job.first_host + index] = EPOCH_NS + round(late_s * SECOND_NS)
                end = None if job.end_s is None else EPOCH_NS + round(job.end_s * SECOND_NS)
                down[number, job.first_host + index] = end
        return up, down

    def run(self, *, rounds_only: bool = False) -> Iterator[Second]:
        """Yield the seconds in order; with `rounds_only` without records, the rounds the same."""
        first = True
        for index in range(self._world.seconds):
            begin_ns = EPOCH_NS + index * SECOND_NS
            rounds, measured = self._agents.second(begin_ns, self._active(begin_ns))
            probes = sum(len(made.flow) for made in rounds)
            records: list[Rec] = []
            if not rounds_only:
                records = list(self._start()) if first else []
                records += self._records(begin_ns, measured)
                records.sort(key=lambda r: r.at_ns)
            first = False
            yield Second(begin_ns, records, rounds, probes)

    def _records(self, begin_ns: int, measured: Measured) -> Iterator[Rec]:
        yield from self._jobs(begin_ns)
        yield from self._tables(begin_ns)
        yield from self._symptoms(begin_ns)
        for at_ns, trace in self._tracer.traces(measured):
            yield Rec(at_ns, topics.PATH_TRACE.name, trace.path_id, trace)
        yield from self._heartbeats(begin_ns)

    def _start(self) -> Iterator[Rec]:
        world = self._world
        yield from topology(world.name, world.cluster, EPOCH_NS)
        for host in self._overlay.hosts():
            table = self._overlay.table(host, EPOCH_NS)
            yield Rec(EPOCH_NS, topics.OVERLAY_FLOWS.name, table.host_id, table)
        for _, symptom in world.symptoms:
            yield symptom_state(world.name, symptom, EPOCH_NS, bad=False)

    def _jobs(self, begin_ns: int) -> Iterator[Rec]:
        world, end_ns = self._world, begin_ns + SECOND_NS
        for number, job in enumerate(world.cluster.jobs):
            submitted_ns = EPOCH_NS + round(job.begin_s * SECOND_NS)
            if begin_ns <= submitted_ns < end_ns:
                yield job_task(world.name, world.cluster, number, submitted_ns, None)
                yield from job_lists(world.name, world.cluster, number, submitted_ns)
        for (number, host), up_ns in self._up_ns.items():
            if begin_ns <= up_ns < end_ns:
                yield from host_endpoints(world.name, world.cluster, number, host, up_ns)
            down_ns = self._down_ns[number, host]
            if down_ns is not None and begin_ns <= down_ns < end_ns:
                for rail in range(world.cluster.rails):
                    key = endpoint_id(host, rail)
                    yield Rec(down_ns, topics.ENDPOINT.name, key, None)
        for number, job in enumerate(world.cluster.jobs):
            if job.end_s is None:
                continue
            ended_ns = EPOCH_NS + round(job.end_s * SECOND_NS)
            if begin_ns <= ended_ns < end_ns:
                submitted_ns = EPOCH_NS + round(job.begin_s * SECOND_NS)
                yield job_task(world.name, world.cluster, number, submitted_ns, ended_ns)
                for host in range(job.first_host, job.first_host + job.hosts):
                    yield Rec(ended_ns, topics.PINGLIST.name, agent_id(host), None)

    def _tables(self, begin_ns: int) -> Iterator[Rec]:
        for at_ns, host in self._overlay.due(begin_ns, begin_ns + SECOND_NS):
            table = self._overlay.table(host, at_ns)
            yield Rec(at_ns, topics.OVERLAY_FLOWS.name, table.host_id, table)

    def _symptoms(self, begin_ns: int) -> Iterator[Rec]:
        """Yield what readers see change in a second; they look once in some seconds."""
        for (span, symptom), late_ns in zip(self._world.symptoms, self._late_ns, strict=True):
            for at_ns, bad in ((span.begin_ns, True), (span.end_ns, False)):
                if at_ns is not None and begin_ns <= at_ns + late_ns < begin_ns + SECOND_NS:
                    yield symptom_state(self._world.name, symptom, at_ns + late_ns, bad=bad)

    def _active(self, begin_ns: int) -> Bools:
        """Return which 5-tuples have both ends registered."""
        cluster = self._world.cluster
        count = cluster.fabric.shape.hosts
        out = np.zeros(len(cluster.flows), np.bool_)
        for number in range(len(cluster.jobs)):
            there = np.zeros(count, np.bool_)
            for (job, host), up_ns in self._up_ns.items():
                down_ns = self._down_ns[job, host]
                if job == number and up_ns <= begin_ns and (down_ns is None or begin_ns < down_ns):
                    there[host] = True
            flows = cluster.flows
            both = there[cluster.host_of(flows.src)] & there[cluster.host_of(flows.dst)]
            out |= both & (flows.job == number)
        return out

    def _heartbeats(self, begin_ns: int) -> Iterator[Rec]:
        clock = self._hosts.value_ns(HostTrouble.CLOCK, begin_ns)
        sent = begin_ns + self._agents.phase_ns + HEARTBEAT_LAG_NS
        silent = self._hosts.silent_pairs(np.arange(self._hosts.count), sent)
        for host in range(self._hosts.count):
            if silent[host]:
                continue
            # The broker says when it arrived; the host's clock, when it was sent.
            beat = self._beat(host, int(sent[host] + clock[host]))
            yield Rec(int(sent[host]), topics.HEARTBEAT.name, agent_id(host), beat)
        for event in self._hosts.events:
            if (
                event.trouble is HostTrouble.LEAVE
                and begin_ns <= event.begin_ns < begin_ns + SECOND_NS
            ):
                leaving = self._beat(event.host, event.begin_ns, AgentState.LEAVING)
                yield Rec(event.begin_ns, topics.HEARTBEAT.name, agent_id(event.host), leaving)

    def _beat(self, host: int, at_ns: int, state: AgentState = AgentState.RUNNING) -> Heartbeat:
        self._beats[host] += 1
        seq = int(self._beats[host])
        return Heartbeat(
            cluster=self._world.name, agent_id=agent_id(host), host_id=host_id(host),
            incarnation=1, seq=seq, sent_at=at_ns // US_NS, interval_ns=SECOND_NS, state=state,
            pinglist_version=1, endpoints=self._world.cluster.rails, targets_active=1,
            targets_waiting=0, rounds_sent=seq, results_sent=seq, rounds_dropped=0,
            replies_duplicate=0, replies_late=0, replies_foreign=0, packets_malformed=0,
            records_undecodable=0, broker_away=False,
        )  # fmt: skip
