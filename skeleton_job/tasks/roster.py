"""The jobs and registered endpoints, and which agent is responsible for which endpoint."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from typing import Final

from schemas.records import Endpoint, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What is known at once; more is refused.

    Attributes
    ----------
    tasks : jobs
    endpoints : registered endpoints, and members of all jobs
    series : RNICs with counters
    """

    tasks: int = 20_000
    endpoints: int = 200_000
    series: int = 200_000


DEFAULT_LIMITS: Final = Limits()


class Roster:
    """Jobs, endpoints and agents; each change returns the ids of the jobs that it affects.

    Attributes
    ----------
    tasks_refused, endpoints_refused
        Records beyond the limits.
    """

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self.tasks_refused = self.endpoints_refused = 0
        self._limits = limits
        # Members of all jobs.
        self._members = 0
        self._tasks: dict[str, Task] = {}
        self._agents: dict[str, str] = {}
        self._endpoints_of: dict[str, set[str]] = {}
        # endpoint -> job that contains it -> agent that the job plans for it
        self._planned: dict[str, dict[str, str]] = {}
        self._agents_of: dict[str, frozenset[str]] = {}
        self._tasks_of: dict[str, set[str]] = {}
        # Jobs whose agents must be determined again on the next query.
        self._unsettled: set[str] = set()

    @property
    def tasks(self) -> Mapping[str, Task]:
        """Jobs by id, also those that have ended."""
        return self._tasks

    @property
    def registered(self) -> Mapping[str, str]:
        """Registered endpoints -> the agent responsible for each."""
        return self._agents

    def has_endpoints(self, agent_id: str) -> bool:
        """Whether any endpoint of the agent is registered."""
        return bool(self._endpoints_of.get(agent_id))

    def agents_of(self, task_id: str) -> frozenset[str]:
        """Return the agents that probe for a job."""
        self._settle()
        return self._agents_of.get(task_id, frozenset())

    def tasks_of(self, agent_id: str) -> Set[str]:
        """Return the ids of the jobs that an agent probes for."""
        self._settle()
        return self._tasks_of.get(agent_id, frozenset())

    def __len__(self) -> int:
        """How many jobs, members and registered endpoints are known."""
        return len(self._tasks) + self._members + len(self._agents)

    def set_task(self, task_id: str, task: Task | None) -> bool:
        """Set a job, or forget it (None); return whether there was room for it."""
        old = self._tasks.get(task_id)
        if task is not None and task.ended_at is not None:
            # Ended jobs need not be deleted: only little of them is kept.
            task = replace(task, endpoints=())
        more = 0 if task is None else len(task.endpoints)
        members = self._members + more - (0 if old is None else len(old.endpoints))
        no_room = old is None and len(self._tasks) >= self._limits.tasks
        if task is not None and (no_room or members > max(self._members, self._limits.endpoints)):
            self.tasks_refused += 1
            return False
        self._members = members
        self._tasks.pop(task_id, None)
        for endpoint in old.endpoints if old is not None else ():
            planned = self._planned.get(endpoint.endpoint_id, {})
            planned.pop(task_id, None)
            if not planned:
                self._planned.pop(endpoint.endpoint_id, None)
        if task is not None:
            self._tasks[task_id] = task
            for endpoint in task.endpoints:
                self._planned.setdefault(endpoint.endpoint_id, {})[task_id] = endpoint.agent_id
        self._unsettled.add(task_id)
        return True

    def set_endpoint(
        self, endpoint_id: str, endpoint: Endpoint | None
    ) -> tuple[set[str], set[str]]:
        """Set a registration, or (None) forget it.

        Returns
        -------
        tasks : ids of jobs whose endpoint has another agent now. One that left stays with the
            agent that its job plans for it: it may come back, and its peers go on probing it.
        agents : agents that have their first endpoint now, or none any more
        """
        known = endpoint_id in self._agents
        if endpoint is not None and not known and len(self._agents) >= self._limits.endpoints:
            self.endpoints_refused += 1
            return set(), set()
        old = self._agents.pop(endpoint_id, None)
        new = None if endpoint is None else endpoint.agent_id
        before = {agent: self.has_endpoints(agent) for agent in (old, new) if agent is not None}
        if old is not None:
            self._endpoints_of[old].discard(endpoint_id)
            if not self._endpoints_of[old]:
                del self._endpoints_of[old]
        if new is not None:
            self._agents[endpoint_id] = new
            self._endpoints_of.setdefault(new, set()).add(endpoint_id)
        moved = {
            task_id
            for task_id, planned in self._planned.get(endpoint_id, {}).items()
            if (old or planned) != (new or planned)
        }
        self._unsettled |= moved
        return moved, {agent for agent, had in before.items() if had != self.has_endpoints(agent)}

    def _settle(self) -> None:
        while self._unsettled:
            self._set_agents(self._unsettled.pop())

    def _set_agents(self, task_id: str) -> None:
        """Determine which agents probe for a job."""
        task = self._tasks.get(task_id)
        old = self._agents_of.pop(task_id, frozenset())
        new = frozenset(
            self._agents.get(e.endpoint_id, e.agent_id) for e in (task.endpoints if task else ())
        )
        if new:
            self._agents_of[task_id] = new
        for agent_id in old - new:
            self._tasks_of[agent_id].discard(task_id)
            if not self._tasks_of[agent_id]:
                del self._tasks_of[agent_id]
        for agent_id in new - old:
            self._tasks_of.setdefault(agent_id, set()).add(task_id)
