"""The life of the agents: processes, registrations, and the ping lists that they follow."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from arena.sealed.cluster import FLOWS_PER_PAIR, Cluster
from arena.sealed.hashing import mixed, text_word
from arena.sealed.hosts import Hosts
from arena.sealed.outbox import Outbox
from arena.sealed.plan import AgentTrouble, ListEdit, Outage, Plan, TaskEnd, Troubled
from arena.sealed.schedule import Bools
from schemas import topics
from schemas.enums import PingListPhase, TargetOrigin, Transport
from schemas.records import Endpoint, PingList, PingTarget, Task, TaskEndpoint
from schemas.units import SECOND_NS, ns_to_us

# What a started process does before it probes: it reads the compacted topics.
STARTING_S: Final = 2.0
# How long a registration or tombstone takes to reach the other agents.
NEWS_S: Final = 0.4
_NOT_PROBING: Final = (AgentTrouble.DISPLACED, AgentTrouble.NO_LIST)


@dataclass(slots=True)
class Process:
    """One run of an agent; what it has sent is counted since its start."""

    incarnation_ns: int
    began_s: float
    version: str
    beats: int = 0
    rounds: int = 0
    results: int = 0


@dataclass(slots=True, kw_only=True)
class Agents:
    """All agents, as they are at the second to which `advance` brought them.

    Attributes
    ----------
    processes : of each agent; None: it does not run
    muted : whether nothing that the agent sends reaches the broker
    phase_s : of each agent's rounds within the second
    probing : shape (flows,), whether the 5-tuple is probed in this second
    list_versions : of each agent
    """

    cluster: Cluster
    plan: Plan
    hosts: Hosts
    outbox: Outbox
    start_ns: int
    rng: np.random.Generator
    processes: list[Process | None] = field(default_factory=list)
    muted: list[bool] = field(default_factory=list)
    phase_s: NDArray[np.float64] = field(init=False)
    probing: Bools = field(init=False)
    list_versions: list[int] = field(default_factory=list)
    _src: NDArray[np.int64] = field(init=False)
    _dst: NDArray[np.int64] = field(init=False)
    _agent: NDArray[np.int64] = field(init=False)
    _known: Bools = field(init=False)
    _listed: Bools = field(init=False)
    _agenda: list[tuple[float, Callable[[float], None]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        cluster = self.cluster
        count = len(cluster.agents)
        self.phase_s = self.rng.uniform(0.0, 1.0, count)
        self.muted = [False] * count
        self.list_versions = [int(v) for v in self.rng.integers(3, 40, count)]
        self._known = np.ones(len(cluster.sites), dtype=bool)
        self._listed = np.ones(len(cluster.flows), dtype=bool)
        self.probing = np.zeros(len(cluster.flows), dtype=bool)
        self._src = np.array([flow.src for flow in cluster.flows])
        self._dst = np.array([flow.dst for flow in cluster.flows])
        self._agent = np.array([cluster.sites[flow.src].agent for flow in cluster.flows])
        for age_s in self.rng.uniform(1800.0, 200_000.0, count):
            process = Process(self.start_ns - int(age_s * SECOND_NS), -age_s, cluster.version)
            process.beats = process.rounds = int(age_s)
            self.processes.append(process)
        self._agenda = sorted(self._appointments(), key=lambda entry: entry[0])

    def advance(self, at_s: float) -> None:
        """Let happen what is due before a time; then say what is probed."""
        while self._agenda and self._agenda[0][0] < at_s:
            due_s, action = self._agenda.pop(0)
            action(due_s)
        ready = np.array(
            [
                process is not None
                and at_s - process.began_s >= STARTING_S
                and self.trouble(agent, at_s) not in _NOT_PROBING
                for agent, process in enumerate(self.processes)
            ]
        )
        self.probing = ready[self._agent] & self._listed & self._known[self._dst]
        if at_s < STARTING_S:
            self.probing[:] = False

    def agent_of_flows(self) -> NDArray[np.int64]:
        """Return the agent that probes each 5-tuple."""
        return self._agent

    def targets(self, agent: int) -> tuple[int, int]:
        """Return how many 5-tuples of an agent's list can be probed, and how many cannot yet."""
        mine = self._listed & (self._agent == agent)
        active = int((mine & self._known[self._dst]).sum())
        return active, int(mine.sum()) - active

    def has_list(self, agent: int) -> bool:
        """Return whether anybody has ever published a list for an agent: whether it is in a job."""
        sites = self.cluster.sites
        return any(sites[endpoint].task >= 0 for endpoint in self.cluster.agents[agent].endpoints)

    def runs(self, agent: int, at_s: float) -> bool:
        """Return whether an agent's process exists at a time, to the moment."""
        return not any(
            outage.agent == agent and not outage.muted and outage.begin_s <= at_s < outage.end_s
            for outage in self.plan.outages
        )

    def trouble(self, agent: int, at_s: float) -> AgentTrouble | None:
        """Return what an agent reports of itself."""
        for troubled in self.plan.troubled:
            begin_s, end_s = troubled.schedule.begin_s, troubled.schedule.end_s
            if troubled.agent == agent and begin_s <= at_s < end_s:
                return troubled.trouble
        return None

    def clock_ns(self, host: int, at_s: float) -> float:
        """Return a host's wall clock less true time."""
        offset = float(self.hosts.clock_ns[host])
        for shift in self.plan.clocks:
            if shift.host == host and shift.at_s <= at_s:
                offset = shift.offset_ns
        return offset

    def wall_us(self, host: int, at_s: float) -> int:
        """Return what a host's clock shows, in microseconds since the epoch."""
        return ns_to_us(self.true_ns(at_s) + int(self.clock_ns(host, at_s)))

    def true_ns(self, at_s: float) -> int:
        """Return true time in nanoseconds since the epoch."""
        return self.start_ns + int(at_s * SECOND_NS)

    def _appointments(self) -> list[tuple[float, Callable[[float], None]]]:
        agenda: list[tuple[float, Callable[[float], None]]] = []
        for index in range(len(self.cluster.tasks)):
            agenda.append((0.05, partial(self._publish_task, index, ended=False)))
        for agent in range(len(self.cluster.agents)):
            at_s = float(self.rng.uniform(0.2, 0.9))
            agenda.append((at_s, partial(self._register, agent)))
            agenda.append((at_s, partial(self._publish_list, agent)))
        for outage in self.plan.outages:
            agenda.extend(self._outage_appointments(outage))
        for edit in self.plan.lists:
            agenda.append((edit.at_s, partial(self._edit_lists, edit)))
        for end in self.plan.ends:
            agenda.append((end.at_s, partial(self._end_task, end)))
        for troubled in self.plan.troubled:
            begin_s, end_s = troubled.schedule.begin_s, troubled.schedule.end_s
            agenda.append((begin_s, partial(self._begin_trouble, troubled)))
            agenda.append((end_s, partial(self._end_trouble, troubled)))
        return agenda

    def _outage_appointments(self, outage: Outage) -> list[tuple[float, Callable[[float], None]]]:
        agent = outage.agent
        if outage.muted:
            return [
                (outage.begin_s, partial(self._mute, agent, muted=True)),
                (outage.end_s, partial(self._mute, agent, muted=False)),
            ]
        members = list(self.cluster.agents[agent].endpoints)
        agenda: list[tuple[float, Callable[[float], None]]] = [
            (outage.begin_s, partial(self._stop, outage))
        ]
        if outage.orderly:
            gone_s = outage.begin_s + NEWS_S
            agenda.append((gone_s, partial(self._learn, members, known=False)))
        if np.isfinite(outage.end_s):
            back_s = outage.end_s + 0.5
            agenda.append((outage.end_s, partial(self._start, outage)))
            agenda.append((back_s, partial(self._register, agent)))
            agenda.append((back_s + NEWS_S, partial(self._learn, members, known=True)))
        return agenda

    def _mute(self, agent: int, _at_s: float, *, muted: bool) -> None:
        self.muted[agent] = muted

    def _learn(self, members: list[int], _at_s: float, *, known: bool) -> None:
        """Let all agents know that endpoints are registered, or are not."""
        self._known[members] = known

    def _stop(self, outage: Outage, at_s: float) -> None:
        self.processes[outage.agent] = None
        if outage.orderly:
            group = self.cluster.agents[outage.agent]
            for endpoint in group.endpoints:
                name = self.cluster.sites[endpoint].name
                self.outbox.send(group.name, at_s, topics.ENDPOINT.name, name, None)

    def _start(self, outage: Outage, at_s: float) -> None:
        self._begin_process(outage.agent, at_s, outage.version or self.cluster.version)

    def _begin_process(self, agent: int, at_s: float, version: str) -> None:
        host = self.cluster.agents[agent].host
        incarnation_ns = self.true_ns(at_s) + int(self.clock_ns(host, at_s))
        self.processes[agent] = Process(incarnation_ns, at_s, version)

    def _register(self, agent: int, at_s: float, incarnation_ns: int | None = None) -> None:
        process = self.processes[agent]
        if process is None:
            return
        group = self.cluster.agents[agent]
        for endpoint in group.endpoints:
            site = self.cluster.sites[endpoint]
            started_ns = process.incarnation_ns
            number = mixed(text_word(site.name), started_ns)
            record = Endpoint(
                cluster=self.cluster.name,
                endpoint_id=site.name,
                agent_id=group.name,
                container_id=self.cluster.containers[site.container].name,
                host_id=self.cluster.hosts[site.host].name,
                task_id=None if site.task < 0 else self.cluster.tasks[site.task].name,
                rail=site.rail,
                transport=Transport.RDMA_UD,
                address=f"::ffff:{site.address}",
                port=1 + number % (2**24 - 1),
                qkey=number >> 32,
                incarnation=incarnation_ns or started_ns,
                registered_at=ns_to_us(self.true_ns(at_s)),
                producer_version=process.version,
            )
            self.outbox.send(group.name, at_s, topics.ENDPOINT.name, site.name, record)

    def _publish_task(self, index: int, at_s: float, *, ended: bool) -> None:
        cluster = self.cluster
        task = cluster.tasks[index]
        members = tuple(
            TaskEndpoint(
                endpoint_id=site.name,
                container_id=cluster.containers[site.container].name,
                host_id=cluster.hosts[site.host].name,
                agent_id=cluster.agents[site.agent].name,
                rail=site.rail,
            )
            for site in (cluster.sites[endpoint] for endpoint in task.endpoints)
        )
        per_host = len({site.rail for site in (cluster.sites[e] for e in task.endpoints)})
        record = Task(
            cluster=cluster.name,
            task_id=task.name,
            submitted_at=ns_to_us(self.start_ns - 3_600 * SECOND_NS),
            ended_at=ns_to_us(self.true_ns(at_s)) if ended else None,
            gpus_per_host=per_host,
            producer_version=cluster.version,
            endpoints=members,
        )
        self.outbox.send("platform", at_s, topics.TASK.name, task.name, record)

    def _end_task(self, end: TaskEnd, at_s: float) -> None:
        self._publish_task(end.task, at_s, ended=True)

    def _publish_list(self, agent: int, at_s: float, *, version: int | None = None) -> None:
        cluster = self.cluster
        mine = np.flatnonzero(self._listed & (self._agent == agent))
        pairs = sorted({(int(self._src[i]), int(self._dst[i])) for i in mine})
        if not pairs and not self.has_list(agent):
            return
        targets = tuple(
            PingTarget(
                src=cluster.sites[src].name,
                dst=cluster.sites[dst].name,
                task_id=cluster.tasks[cluster.sites[src].task].name,
                origin=TargetOrigin.SKELETON,
                flows=FLOWS_PER_PAIR,
            )
            for src, dst in pairs
        )
        record = PingList(
            cluster=cluster.name,
            agent_id=cluster.agents[agent].name,
            version=version or self.list_versions[agent],
            updated_at=ns_to_us(self.true_ns(at_s)),
            phase=PingListPhase.RUNTIME,
            producer_version=cluster.version,
            targets=targets,
        )
        self.outbox.send("lists", at_s, topics.PINGLIST.name, record.agent_id, record)

    def _edit_lists(self, edit: ListEdit, at_s: float) -> None:
        members = sorted(edit.without)
        removed = self._listed & (np.isin(self._src, members) | np.isin(self._dst, members))
        self._listed &= ~removed
        for agent in sorted({int(a) for a in self._agent[removed]}):
            self.list_versions[agent] += 1
            self._publish_list(agent, at_s)

    def _begin_trouble(self, troubled: Troubled, at_s: float) -> None:
        agent = troubled.agent
        if troubled.trouble is AgentTrouble.LIST_REFUSED:
            self._publish_list(agent, at_s, version=self.list_versions[agent] + 60_000)
        elif troubled.trouble is AgentTrouble.NO_LIST:
            name = self.cluster.agents[agent].name
            self.outbox.send("lists", at_s, topics.PINGLIST.name, name, None)
        else:
            self._register(agent, at_s, incarnation_ns=self.true_ns(at_s))

    def _end_trouble(self, troubled: Troubled, at_s: float) -> None:
        """Put right what was wrong: a good list is published, or the agent is started again."""
        agent = troubled.agent
        if troubled.trouble is AgentTrouble.DISPLACED:
            self._begin_process(agent, at_s, self.cluster.version)
            self._register(agent, at_s)
        else:
            self.list_versions[agent] += 1
            self._publish_list(agent, at_s)
