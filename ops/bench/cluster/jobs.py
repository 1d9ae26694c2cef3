"""Jobs that come and go on the hosts of a simulated cluster, as records. Pure and seeded.

An RNIC's endpoint keeps its id whichever container it is in: the topology names it. A job's
hosts are anywhere in the cluster, so that its paths cross spines.
"""

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

from arena.simulation.setup import Rec, members, registration, topology
from arena.world.cluster import Cluster
from arena.world.fabric import address
from ops.bench.cluster.shape import CLUSTER, JOB_HOSTS, RAILS, ClusterShape
from schemas import topics
from schemas.records import Endpoint, Task
from schemas.units import US_NS


@dataclass(frozen=True, slots=True)
class Job:
    """A job that runs: its record, its hosts, when it began (us)."""

    task: Task
    hosts: tuple[int, ...]
    begun_us: int


class Jobs:
    """Who runs where. Each change returns the records that tell of it, in order."""

    def __init__(self, shape: ClusterShape) -> None:
        self.shape = shape
        hosts = list(range(shape.agents))
        random.Random(shape.seed).shuffle(hosts)  # noqa: S311 - a load needs no secrecy
        self.free = deque(hosts)
        self.running: deque[Job] = deque()
        self.job_of: dict[int, Job] = {}
        self.begun = self.ended = 0
        self._first_endpoint = Cluster(shape.fabric, ()).endpoint0

    def topology(self, at_ns: int) -> Iterator[Rec]:
        """Yield what stands in `topology.v1`."""
        return topology(CLUSTER, Cluster(self.shape.fabric, ()), at_ns)

    def fill(self, at_us: int) -> list[Rec]:
        """Start jobs until only the spare hosts are free."""
        made: list[Rec] = []
        while len(self.free) - self.shape.spare >= max(JOB_HOSTS):
            made += self._start(at_us)
        return made

    def churn(self, second: float, at_us: int) -> list[Rec]:
        """Let containers end and begin, as many as are due so long after the begin of churn."""
        made: list[Rec] = []
        while self.begun < second * self.shape.containers_hz:
            room = len(self.free) - self.shape.spare >= max(JOB_HOSTS)
            before = len(self.job_of)
            made += self._start(at_us) if room else self._end(at_us)
            self.begun += max(0, len(self.job_of) - before)
        return made

    def endpoints(self) -> Iterator[Endpoint]:
        """Yield the registrations that stand now."""
        for job in self.running:
            yield from self._endpoints(job)

    def tasks(self) -> Iterator[Task]:
        """Yield the jobs that run now."""
        return (job.task for job in self.running)

    def _start(self, at_us: int) -> list[Rec]:
        number = len(self.running) + self.ended
        size = JOB_HOSTS[number % len(JOB_HOSTS)]
        hosts = tuple(self.free.popleft() for _ in range(size))
        name = f"job-{number:06d}"
        task = Task(
            cluster=CLUSTER, task_id=name, submitted_at=at_us, gpus_per_host=RAILS,
            endpoints=members(name, hosts, RAILS),
        )  # fmt: skip
        job = Job(task, hosts, at_us)
        self.running.append(job)
        self.job_of |= dict.fromkeys(hosts, job)
        at_ns = at_us * US_NS
        registered = (
            Rec(at_ns, topics.ENDPOINT.name, e.endpoint_id, e) for e in self._endpoints(job)
        )
        return [Rec(at_ns, topics.TASK.name, name, task), *registered]

    def _end(self, at_us: int) -> list[Rec]:
        job = self.running.popleft()
        self.ended += 1
        self.free.extend(job.hosts)
        for host in job.hosts:
            del self.job_of[host]
        at_ns = at_us * US_NS
        left = (Rec(at_ns, topics.ENDPOINT.name, e.endpoint_id, None) for e in job.task.endpoints)
        over = replace(job.task, ended_at=at_us)
        return [Rec(at_ns, topics.TASK.name, over.task_id, over), *left]

    def _endpoints(self, job: Job) -> Iterator[Endpoint]:
        for number, member in enumerate(job.task.endpoints):
            rnic = job.hosts[number // RAILS] * RAILS + member.rail
            shown = address(self._first_endpoint + rnic)
            yield registration(CLUSTER, job.task.task_id, member, shown, job.begun_us)
