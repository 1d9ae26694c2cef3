"""The ping lists that a cluster got, compared with those that it must have. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from arena.world.topology import agent_id
from ops.bench.cluster.jobs import Jobs
from ops.bench.cluster.shape import CLUSTER
from schemas.records import Endpoint, PingList, Task
from skeleton_job.core import SkeletonCore
from skeleton_job.lists.pinglists import ListConfig
from skeleton_job.tasks.inference import InferenceConfig

# An agent's list is said for a job that begins, when that ends, and when its endpoints have left.
EACH: Final = 3


class Lists:
    """The latest list of each agent, and how many came needlessly.

    `needless`: lists that say what the one before said, or are of an agent whose host nothing
    happened to since its last.
    """

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._latest: dict[str, PingList] = {}
        # Lists that an agent may yet get for what happened to its host.
        self._may: dict[str, int] = {}
        self.published = self.needless = self.longest = 0
        self.changes = 0

    def begin(self) -> None:
        """Begin anew: all lists for what has happened so far are here."""
        self.count_anew()
        self._may.clear()

    def count_anew(self) -> None:
        """Count from now on; lists for what happened before may still come."""
        self.published = self.needless = self.longest = self.changes = 0

    def touched(self, hosts: Iterable[int]) -> None:
        """Note that a container of a host began or ended."""
        for host in hosts:
            name = agent_id(host)
            self._may[name] = min(2 * EACH, self._may.get(name, 0) + EACH)
            self.changes += 1

    def observe_list(self, agent_id: str, made: PingList | None, size: int) -> None:
        """Count a published list, or the tombstone of one."""
        old = self._latest.pop(agent_id, None)
        if made is not None:
            self._latest[agent_id] = made
        self.published += 1
        self.longest = max(self.longest, size)
        allowed = self._may.get(agent_id, 0)
        self._may[agent_id] = max(0, allowed - 1)
        self.needless += not allowed or said(old) == said(made)

    def missing(self) -> int:
        """Return how many hosts with a container have an agent without a list."""
        return sum(agent_id(host) not in self._latest for host in self._jobs.job_of)

    def wrong(self) -> int:
        """Return how many agents have another list than a job made for what is there now."""
        return differing(
            self._latest, lists_from_scratch(self._jobs.tasks(), self._jobs.endpoints())
        )

    def counts(self) -> dict[str, Any]:
        """Return the counts."""
        return {
            "lists": self.published, "lists_needless": self.needless,
            "lists_wrong": self.wrong(), "lists_longest": self.longest,
            "agents_changed": self.changes,
        }  # fmt: skip


def lists_from_scratch(tasks: Iterable[Task], endpoints: Iterable[Endpoint]) -> dict[str, PingList]:
    """Return the lists of a skeleton job that sees a cluster for the first time, by agent."""
    core = SkeletonCore(CLUSTER, ListConfig(), InferenceConfig())
    for task in tasks:
        core.apply_task(task.task_id, task)
    for endpoint in endpoints:
        core.apply_endpoint(endpoint.endpoint_id, endpoint)
    return {agent: due for agent, due in core.lists_due() if due is not None}


def differing(some: Mapping[str, PingList], others: Mapping[str, PingList]) -> int:
    """Return how many agents have another list among the others."""
    agents = some.keys() | others.keys()
    return sum(said(some.get(agent)) != said(others.get(agent)) for agent in agents)


def said(made: PingList | None) -> object:
    """Return what a list says; the version and the time are not of it."""
    return None if made is None else (made.phase, made.targets)
