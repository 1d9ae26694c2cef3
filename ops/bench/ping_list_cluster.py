"""A cluster whose containers come and go, through the code that makes ping lists. No broker.

Every container is a host's eight RNICs. Jobs of two to four hosts run on all hosts but a few; each
second some end, their endpoints leave, others begin on hosts that are free, and their
endpoints register: two thousand containers a minute in 5,000 hosts.
"""

import time
from collections import deque
from dataclasses import dataclass, replace
from typing import Final

from probers.lists.follower import PingListFollower
from schemas.codec import Codec
from schemas.enums import Transport
from schemas.records import Endpoint, PingList, Task, TaskEndpoint
from schemas.topics import PINGLIST
from skeleton_job.core import SkeletonCore
from skeleton_job.lists.pinglists import ListConfig
from skeleton_job.tasks.due import InferenceConfig

CLUSTER: Final = "bench"
RAILS: Final = 8
BEGIN_AT: Final = 1_760_000_000_000_000
# Of ten jobs, eight of two hosts: 2,000 jobs on 5,000 hosts with 40,000 RNICs.
SIZES: Final = (2, 2, 2, 4, 2, 2, 2, 2, 4, 3)
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
        while len(self.free) >= max(SIZES):
            self.start(Costs())
        self.publish(Costs())

    def start(self, costs: Costs) -> None:
        """Start a job on hosts that are free, and register its endpoints."""
        size = SIZES[self._number % len(SIZES)]
        hosts = tuple(self.free.popleft() for _ in range(size))
        task = self._task(f"job-{self._number:06d}", hosts)
        self._number += 1
        records = [self._endpoint(task, e) for e in task.endpoints]
        begin = time.process_time()
        self.core.task(task.task_id, task)
        for record in records:
            self.core.endpoint(record.endpoint_id, record)
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
        self.core.task(task.task_id, ended)
        for e in task.endpoints:
            self.core.endpoint(e.endpoint_id, None)
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
            if _says(old) == _says(made):
                costs.needless += 1

    def churn(self, seconds: int, containers_a_minute: int) -> Costs:
        """Let containers come and go for some seconds, lists published every second."""
        costs = Costs()
        for second in range(1, seconds + 1):
            self.at += 10**6
            before = dict(self.running)
            while costs.containers * 60 < containers_a_minute * second:
                if len(self.free) < max(SIZES):
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
        core = SkeletonCore(CLUSTER, ListConfig(), InferenceConfig())
        for task, _ in self.jobs:
            core.task(task.task_id, task)
        for made in self.registrations():
            core.endpoint(made.endpoint_id, made)
        return {agent: due for agent, due in core.lists_due() if due is not None}

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


def _says(made: PingList | None) -> object:
    return None if made is None else (made.phase, made.targets)
