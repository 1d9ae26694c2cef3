"""Ping lists of a large cluster: churn, length of lists, and their cost for an agent. No broker.

Each container has the eight RNICs of its host. Jobs of two to four hosts run on all hosts but a
few. Each second some jobs end and others begin on free hosts: 2,000 containers a minute on 5,000
hosts.
"""

import statistics
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import Final

from ops.bench.cluster.lists import differing, lists_from_scratch, said
from ops.bench.cluster.shape import CLUSTER, JOB_HOSTS, RAILS
from ops.bench.rig.growth import FLAT, Curve, slope_figure
from ops.bench.rig.report import Figure, Parts, Say, figure
from probers.lists.follower import PingListFollower
from schemas.codec import Codec
from schemas.enums import Transport
from schemas.records import Endpoint, PingList, Task, TaskEndpoint
from schemas.topics import PINGLIST
from skeleton_job.core import SkeletonCore
from skeleton_job.lists.pinglists import MAX_LIST_BYTES, ListConfig
from skeleton_job.tasks.inference import InferenceConfig

BEGIN_AT: Final = 1_760_000_000_000_000
FLOWS: Final = 4


@dataclass
class Costs:
    """What a time of churn took.

    Attributes
    ----------
    events : records that the core took
    lists, changed : published; agents that have other jobs than the second before
    needless : lists published that say what the one before said
    largest : bytes of the longest list on the wire
    """

    cpu_s: float = 0.0
    containers: int = 0
    events: int = 0
    lists: int = 0
    changed: int = 0
    needless: int = 0
    largest: int = 0


class Cluster:
    """Hosts, jobs on them, and the core that makes their lists."""

    def __init__(self, hosts: int, config: ListConfig | None = None) -> None:
        self.core = SkeletonCore(CLUSTER, config or ListConfig(), InferenceConfig())
        self.free = deque(range(hosts))
        self.jobs: deque[tuple[Task, tuple[int, ...]]] = deque()
        # Host → its job: what lists have to follow.
        self.running: dict[int, str] = {}
        self.lists: dict[str, PingList] = {}
        self.at = BEGIN_AT
        self._number = 0
        self._codec = Codec()

    def fill(self) -> None:
        """Start jobs until the hosts are full, and publish."""
        while len(self.free) >= max(JOB_HOSTS):
            self.start(Costs())
        self.publish(Costs())

    def start(self, costs: Costs) -> None:
        """Start a job on hosts that are free, and register its endpoints."""
        size = JOB_HOSTS[self._number % len(JOB_HOSTS)]
        hosts = tuple(self.free.popleft() for _ in range(size))
        task = self._task(f"job-{self._number:06d}", hosts)
        self._number += 1
        records = [self._endpoint(task, e) for e in task.endpoints]
        begin = time.process_time()
        self.core.apply_task(task.task_id, task)
        for record in records:
            self.core.apply_endpoint(record.endpoint_id, record)
        costs.cpu_s += time.process_time() - begin
        costs.events += 1 + len(records)
        costs.containers += size
        self.jobs.append((task, hosts))
        self.running |= dict.fromkeys(hosts, task.task_id)

    def end(self, costs: Costs) -> None:
        """End the oldest job: its endpoints leave, and its hosts are free."""
        task, hosts = self.jobs.popleft()
        ended = replace(task, ended_at=self.at)
        begin = time.process_time()
        self.core.apply_task(task.task_id, ended)
        for e in task.endpoints:
            self.core.apply_endpoint(e.endpoint_id, None)
        costs.cpu_s += time.process_time() - begin
        costs.events += 1 + len(task.endpoints)
        self.free.extend(hosts)
        for host in hosts:
            del self.running[host]

    def publish(self, costs: Costs) -> None:
        """Publish what is due, encoded as for the topic."""
        begin = time.process_time()
        due = list(self.core.lists_due())
        sizes = [len(self._codec.encode(PINGLIST, made)) for _, made in due if made is not None]
        costs.cpu_s += time.process_time() - begin
        costs.largest = max(costs.largest, *sizes, 0)
        for agent_id, made in due:
            costs.lists += 1
            old = self.lists.pop(agent_id, None)
            if made is not None:
                self.lists[agent_id] = made
            if said(old) == said(made):
                costs.needless += 1

    def churn(self, seconds: int, containers_a_minute: int) -> Costs:
        """Let containers come and go for some seconds, lists published every second."""
        costs = Costs()
        for second in range(1, seconds + 1):
            self.at += 10**6
            before = dict(self.running)
            while costs.containers * 60 < containers_a_minute * second:
                if len(self.free) < max(JOB_HOSTS):
                    self.end(costs)
                else:
                    self.start(costs)
            self.publish(costs)
            moved = before.items() ^ self.running.items()
            costs.changed += len({host for host, _ in moved})
        return costs

    def follower(self, agent_id: str) -> PingListFollower:
        """Return what an agent of the cluster makes of its list."""
        made = self.lists[agent_id]
        follower = PingListFollower(
            cluster=CLUSTER,
            agent_id=agent_id,
            endpoints=frozenset(t.src for t in made.targets),
            max_flows=FLOWS,
        )
        follower.offer(made)
        follower.read_to_end()
        return follower

    def registrations(self) -> list[Endpoint]:
        """Return the registrations of all endpoints there are."""
        return [self._endpoint(task, e) for task, _ in self.jobs for e in task.endpoints]

    def from_scratch(self) -> dict[str, PingList]:
        """Return the lists of a core that sees what is there now for the first time."""
        return lists_from_scratch((task for task, _ in self.jobs), self.registrations())

    def _task(self, name: str, hosts: tuple[int, ...]) -> Task:
        return Task(
            cluster=CLUSTER,
            task_id=name,
            submitted_at=self.at,
            endpoints=tuple(
                TaskEndpoint(
                    endpoint_id=f"{name}-w{number}/r{rail}",
                    container_id=f"{name}-w{number}",
                    host_id=f"host-{host:05d}",
                    agent_id=f"agent-{host:05d}",
                    rail=rail,
                )
                for number, host in enumerate(hosts)
                for rail in range(RAILS)
            ),
        )

    def _endpoint(self, task: Task, e: TaskEndpoint) -> Endpoint:
        return Endpoint(
            cluster=CLUSTER,
            endpoint_id=e.endpoint_id,
            container_id=e.container_id,
            agent_id=e.agent_id,
            host_id=e.host_id,
            task_id=task.task_id,
            rail=e.rail,
            transport=Transport.UDP,
            address="10.0.0.1",
            port=4791,
            incarnation=1,
            registered_at=self.at,
        )


LIST_BAR_KIB: Final = MAX_LIST_BYTES / 1024
HOSTS: Final = (625, 1_250, 2_500, 5_000)
CONTAINERS_A_MINUTE: Final = 2_000
SECONDS: Final = 60
# Each makes a job that no list holds as a whole.
LARGE_HOSTS: Final = (256, 1_024)
# Registrations of one agent's targets, told again and again with new ports.
ROUNDS: Final = 20


def churn(runs: int, say: Say) -> list[Figure]:
    """Let 2,000 containers a minute come and go in clusters of several sizes."""
    seconds: dict[int, list[float]] = {hosts: [] for hosts in HOSTS}
    wrong: list[float] = []
    largest: list[float] = []
    for _ in range(runs):
        for hosts in HOSTS:
            cluster = Cluster(hosts)
            cluster.fill()
            costs = cluster.churn(SECONDS, CONTAINERS_A_MINUTE)
            seconds[hosts].append(costs.cpu_s)
            largest.append(float(costs.largest))
            say(
                f"{hosts * RAILS:,} RNICs, {len(cluster.jobs):,} tasks, {costs.containers:,} "
                f"containers in {SECONDS} s, {costs.events:,} records: {costs.cpu_s:.2f} s of CPU; "
                f"{costs.lists:,} lists for {costs.changed:,} agents that changed, "
                f"{costs.needless} needless"
            )
            others = differing(cluster.lists, cluster.from_scratch())
            wrong.append(float(abs(costs.lists - costs.changed) + costs.needless + others))
    most = HOSTS[-1] * RAILS
    per_container = [statistics.median(seconds[h]) / CONTAINERS_A_MINUTE * 1e3 for h in HOSTS]
    curve = Curve(
        name="ping lists: a container that begins, and one that ends",
        axis="RNICs", unit="ms", sizes=tuple(float(h * RAILS) for h in HOSTS),
        costs=tuple(per_container),
    )  # fmt: skip
    minute = f"ping lists, {most:,} RNICs, 2,000 tasks, 2,000 containers a minute: CPU of a minute"
    kib = [v / 1024 for v in largest]
    return [
        figure(minute, seconds[HOSTS[-1]], "s", 60.0),
        figure(
            "ping lists: agents republished but not changed, or the other way", wrong, bar=0.0,
            worst=True,
        ),
        figure("ping lists: the longest under churn", kib, "KiB", LIST_BAR_KIB, worst=True),
        slope_figure(curve, FLAT, say),
    ]  # fmt: skip


def large_jobs(runs: int, say: Say) -> list[Figure]:
    """Publish the basic lists of jobs whose full mesh no list holds."""
    longest: list[float] = []
    for _ in range(runs):
        for hosts in LARGE_HOSTS:
            core = SkeletonCore(CLUSTER, ListConfig(), InferenceConfig())
            core.apply_task("job", _large(hosts))
            begin = time.process_time()
            sizes = [len(Codec().encode(PINGLIST, due)) for _, due in core.lists_due() if due]
            longest.append(max(sizes) / 1024)
            say(
                f"a job of {hosts * RAILS:,} RNICs: lists of {longest[-1]:.1f} KiB at most, "
                f"{time.process_time() - begin:.1f} s of CPU, {core.counts['lists_cut']} cut"
            )
    what = f"ping lists: the longest of a job of {LARGE_HOSTS[-1] * RAILS:,} RNICs"
    return [figure(what, longest, "KiB", LIST_BAR_KIB, worst=True)]


def activation(runs: int, say: Say) -> list[Figure]:
    """Time what an agent does when an endpoint of its list registers."""
    own: dict[int, list[float]] = {hosts: [] for hosts in HOSTS}
    for _ in range(runs):
        for hosts in HOSTS:
            cluster = Cluster(hosts)
            cluster.fill()
            agent_id = "agent-00000"
            follower = cluster.follower(agent_id)
            every = cluster.registrations()
            for endpoint in every:
                follower.registered(endpoint)
            own[hosts].append(_own_us(follower, cluster.lists[agent_id], every))
    curve = Curve(
        name="agent: a registration of a target, flows made anew",
        axis="RNICs", unit="µs", sizes=tuple(float(h * RAILS) for h in HOSTS),
        costs=tuple(statistics.median(own[h]) for h in HOSTS),
    )  # fmt: skip
    return [slope_figure(curve, FLAT, say)]


def _own_us(follower: PingListFollower, made: PingList, every: list[Endpoint]) -> float:
    """Return microseconds for a registration of a target of the list, flows included."""
    wanted = {t.dst for t in made.targets}
    mine = [e for e in every if e.endpoint_id in wanted]
    begin = time.process_time()
    for number in range(ROUNDS):
        for endpoint in mine:
            follower.registered(replace(endpoint, port=5_000 + number))
            follower.flows()
    return (time.process_time() - begin) / (ROUNDS * len(mine)) * 1e6


def _large(hosts: int) -> Task:
    return Task(
        cluster=CLUSTER,
        task_id="job",
        submitted_at=1,
        endpoints=tuple(
            TaskEndpoint(
                endpoint_id=f"training-job-w{host}/r{rail}",
                container_id=f"training-job-w{host}",
                host_id=f"host-{host}",
                agent_id=f"agent-{host}",
                rail=rail,
            )
            for host in range(hosts)
            for rail in range(RAILS)
        ),
    )


PARTS: Final[Parts] = {
    "ping-list-churn": churn,
    "ping-list-length": large_jobs,
    "ping-list-activation": activation,
}
