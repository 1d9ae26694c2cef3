"""Who probes whom: registered endpoints with their agents and jobs, and the ping lists."""

from collections.abc import Container, Iterable, Iterator
from typing import Final

from localizer.network.traces import key_of
from schemas.enums import ComponentKind
from schemas.ids import FlowId
from schemas.records import Endpoint, PingList, Task
from schemas.units import SECOND_NS, us_to_ns

# Endpoints registered at once, jobs and their members, and 5-tuples on all ping lists.
MAX_ENDPOINTS: Final = 200_000
MAX_FLOWS: Final = 2_000_000
# Departed endpoints remembered at most.
MAX_GONE: Final = 200_000
# How long an endpoint or agent that left is remembered. Who probed it has a new ping list, and its
# anomalies have ended, long before.
KEEP_DEPARTED_NS: Final = 300 * SECOND_NS
# How long it is remembered that pairs came newly to a list: for as long as it matters whether one
# was ever well, see `localizer.verdict.onsets`.
NEW_NS: Final = 60 * SECOND_NS
Pair = tuple[str, str]


class Roster:
    """Endpoints, jobs and ping lists.

    Attributes
    ----------
    refused
        Registrations, jobs and ping lists beyond the bounds.
    version
        Grows when the probed 5-tuples may change.
    now_ns
        Present; whoever applies a record sets it.
    """

    def __init__(self, max_endpoints: int = MAX_ENDPOINTS, max_flows: int = MAX_FLOWS) -> None:
        self.version = 0
        self.refused = 0
        self._max_endpoints = max_endpoints
        self._max_flows = max_flows
        # 5-tuples on all ping lists.
        self._listed = 0
        # Jobs and their members.
        self._planned = 0
        self.now_ns = 0
        self._endpoints: dict[str, Endpoint] = {}
        # Registered endpoints by agent, and how many of them are present.
        self._endpoints_of: dict[str, set[str]] = {}
        self._present: dict[str, int] = {}
        # Endpoints that left, and agents that have none any more, oldest first, and since when.
        self._gone: dict[str, int] = {}
        self._deserted: dict[str, int] = {}
        self._tasks: dict[str, Task] = {}
        self._tasks_of: dict[str, set[str]] = {}
        self._planned_agent: dict[str, str] = {}
        self._lists: dict[str, PingList] = {}
        # By agent since when its list has the pairs that came last.
        self._new_ns: dict[str, dict[Pair, int]] = {}
        # Agents whose list changed and endpoints whose agent changed since `pop_changes`.
        self._changed: tuple[set[str], set[str]] = (set(), set())

    def __len__(self) -> int:
        """How many endpoints and agents with lists are known."""
        return len(self._endpoints) + len(self._lists)

    def set_endpoint(self, endpoint_id: str, endpoint: Endpoint | None) -> None:
        """Apply a registration, or (None) that an endpoint left."""
        known = self._endpoints.get(endpoint_id)
        if endpoint is not None:
            if known is not None and not self.has_left(endpoint_id) and _same(known, endpoint):
                return
            if known is None and len(self._endpoints) >= self._max_endpoints:
                self.refused += 1
                return
            # The registration replaces any earlier one.
            self._leave(endpoint_id)
            self._unregister(endpoint_id)
            self._endpoints[endpoint_id] = endpoint
            self._endpoints_of.setdefault(endpoint.agent_id, set()).add(endpoint_id)
            self._return(endpoint_id)
        else:
            self._leave(endpoint_id)
            self._unregister(endpoint_id)
            while len(self._gone) > MAX_GONE:
                self._return(next(iter(self._gone)))
        self._changed[1].add(endpoint_id)
        self.version += 1

    def set_task(self, task_id: str, task: Task | None) -> None:
        """Apply a job; one that is None or has ended has no endpoints any more."""
        known = self._tasks.get(task_id)
        runs = task is not None and task.ended_at is None
        planned = self._planned - _count_planned(known) + (_count_planned(task) if runs else 0)
        if planned > max(self._planned, self._max_endpoints):
            self.refused += 1
            return
        self._planned = planned
        if known is not None:
            del self._tasks[task_id]
            for member in known.endpoints:
                jobs = self._tasks_of.get(member.endpoint_id, set())
                jobs.discard(task_id)
                if not jobs:
                    self._tasks_of.pop(member.endpoint_id, None)
                    self._leave(member.endpoint_id)
        if task is not None and task.ended_at is None:
            self._tasks[task_id] = task
            for member in task.endpoints:
                self._tasks_of.setdefault(member.endpoint_id, set()).add(task_id)
                self._planned_agent[member.endpoint_id] = member.agent_id
                self._changed[1].add(member.endpoint_id)
                self._return(member.endpoint_id)
        elif task is not None:
            for member in task.endpoints:
                if member.endpoint_id not in self._tasks_of:
                    self._leave(member.endpoint_id)
        self.version += 1

    def set_pinglist(self, agent_id: str, pinglist: PingList | None) -> None:
        """Apply an agent's ping list, or (None) that it has none any more."""
        known = self._lists.get(agent_id)
        if pinglist is not None and known is not None and known.version > pinglist.version:
            return
        listed = self._listed - _count_flows(known) + _count_flows(pinglist)
        if listed > max(self._listed, self._max_flows):
            self.refused += 1
            return
        self._listed = listed
        self._lists.pop(agent_id, None)
        self._note_new(agent_id, known, pinglist)
        if pinglist is not None:
            self._lists[agent_id] = pinglist
        self._changed[0].add(agent_id)
        self.version += 1

    def has_left(self, endpoint_id: str) -> bool:
        """Return whether an endpoint left in order: by a tombstone, or because its jobs ended."""
        return endpoint_id in self._gone

    def of_departed(self, keys: Iterable[FlowId]) -> list[FlowId]:
        """Return those 5-tuples of which either end has left in order."""
        gone = self._gone
        return [key for key in keys if key[0] in gone or key[1] in gone]

    def agent_of(self, endpoint_id: str) -> str | None:
        """Return the agent responsible for an endpoint; None if not known."""
        endpoint = self._endpoints.get(endpoint_id)
        return self._planned_agent.get(endpoint_id) if endpoint is None else endpoint.agent_id

    def host_of(self, endpoint_id: str) -> str | None:
        """Return the host of an endpoint; None if not known."""
        endpoint = self._endpoints.get(endpoint_id)
        return None if endpoint is None else endpoint.host_id

    def same_rail(self, one: str, other: str) -> bool:
        """Return whether two endpoints are on one rail; True if that is not known."""
        a, b = self._endpoints.get(one), self._endpoints.get(other)
        return a is None or b is None or a.rail == b.rail

    def listed_ns(self, agent_id: str) -> int:
        """Return since when an agent has its ping list; 0 if that is not known."""
        known = self._lists.get(agent_id)
        return 0 if known is None else us_to_ns(known.updated_at)

    def tasks_of(self, endpoint_id: str) -> frozenset[str]:
        """Return the jobs that run on an endpoint."""
        found = set(self._tasks_of.get(endpoint_id, ()))
        endpoint = self._endpoints.get(endpoint_id)
        if endpoint is not None and endpoint.task_id is not None:
            found.add(endpoint.task_id)
        return frozenset(found)

    def tasks_of_agent(self, agent_id: str) -> frozenset[str]:
        """Return the jobs that run on an agent's endpoints."""
        mine = self._endpoints_of.get(agent_id, ())
        return frozenset(task for endpoint_id in mine for task in self.tasks_of(endpoint_id))

    def containers_of(self, agent_id: str) -> list[tuple[str, ComponentKind]]:
        """Return the containers of an agent's endpoints, then these endpoints, by id and kind.

        A state of a container stands at its own id, or at those of its endpoints.
        """
        mine = sorted(self._endpoints_of.get(agent_id, ()))
        containers = sorted({self._endpoints[endpoint_id].container_id for endpoint_id in mine})
        return [(c, ComponentKind.UNKNOWN) for c in containers] + [
            (e, ComponentKind.ENDPOINT) for e in mine
        ]

    def forget_departed(self, now_ns: int) -> list[str]:
        """Forget endpoints and agents that left `KEEP_DEPARTED_NS` ago; return the endpoints."""
        old_ns = now_ns - KEEP_DEPARTED_NS
        forgotten = []
        for endpoint_id, left_ns in list(self._gone.items()):
            # One whose job ended without a tombstone is still registered, and still gone.
            if left_ns < old_ns and endpoint_id not in self._endpoints:
                del self._gone[endpoint_id]
                self._planned_agent.pop(endpoint_id, None)
                forgotten.append(endpoint_id)
        for agent_id in [a for a, left_ns in self._deserted.items() if left_ns < old_ns]:
            del self._deserted[agent_id]
            if not self.endpoints_on_list_of(agent_id):
                self._lists.pop(agent_id, None)
        return forgotten

    def is_registered(self, agent_id: str) -> bool:
        """Return whether an agent has a present endpoint or a ping list."""
        return agent_id in self._present or agent_id in self._lists

    def is_present(self, endpoint_id: str) -> bool:
        """Return whether an endpoint is registered and has not left."""
        return endpoint_id in self._endpoints and endpoint_id not in self._gone

    def has_peers(self, agent_id: str) -> bool:
        """Return whether an agent's endpoints have others of their job and rail to probe."""
        for endpoint_id in self._endpoints_of.get(agent_id, ()):
            rail = self._endpoints[endpoint_id].rail
            for task_id in self._tasks_of.get(endpoint_id, ()):
                if any(
                    member.rail == rail
                    and member.agent_id != agent_id
                    and self.is_present(member.endpoint_id)
                    for member in self._tasks[task_id].endpoints
                ):
                    return True
        return False

    def lists(self) -> Iterable[PingList]:
        """Return the ping lists in force."""
        return self._lists.values()

    def deserted_agents(self) -> frozenset[str]:
        """Return the agents that had endpoints once and have none any more."""
        return frozenset(self._deserted)

    def pop_changes(self) -> tuple[set[str], set[str]]:
        """Return the agents with new ping lists, and changed endpoints, since the last call."""
        found, self._changed = self._changed, (set(), set())
        return found

    def new_ns(self, agent_id: str, key: FlowId) -> int:
        """Return since when a 5-tuple that came of late is on an agent's list; 0: for longer."""
        return self._new_ns.get(agent_id, {}).get(key[:2], 0)

    def agents_with_list(self) -> list[str]:
        """Return the agents with a ping list, sorted."""
        return sorted(self._lists)

    def endpoints_on_list_of(self, agent_id: str) -> set[str]:
        """Return the endpoints on an agent's ping list, registered or not."""
        known = self._lists.get(agent_id)
        return set() if known is None else {end for t in known.targets for end in (t.src, t.dst)}

    def probed_by(self, agent_id: str, ends: Container[str] | None = None) -> Iterator[FlowId]:
        """Yield the 5-tuples of an agent's ping list between registered endpoints.

        Parameters
        ----------
        ends
            Only 5-tuples from or to these endpoints.
        """
        known = self._lists.get(agent_id)
        for target in () if known is None else known.targets:
            if ends is not None and target.src not in ends and target.dst not in ends:
                continue
            if target.src in self._endpoints and target.dst in self._endpoints:
                for flow in range(target.flows):
                    yield key_of(target.src, target.dst, flow)

    def probed(self) -> Iterator[tuple[str, FlowId]]:
        """Yield (agent, 5-tuple) for all ping lists, between registered endpoints."""
        for agent_id in self.agents_with_list():
            for key in self.probed_by(agent_id):
                yield agent_id, key

    def _note_new(self, agent_id: str, known: PingList | None, pinglist: PingList | None) -> None:
        """Note which pairs a list has that the former one had not."""
        before = self._new_ns.pop(agent_id, {})
        if pinglist is None:
            return
        at_ns = min(us_to_ns(pinglist.updated_at), self.now_ns)
        probed = _pairs(known)
        new = {
            pair: since_ns
            for pair in _pairs(pinglist)
            if (since_ns := before.get(pair, 0 if pair in probed else at_ns))
            >= self.now_ns - NEW_NS
        }
        if new:
            self._new_ns[agent_id] = new

    def _leave(self, endpoint_id: str) -> None:
        """Mark an endpoint as gone."""
        if endpoint_id not in self._gone:
            self._gone[endpoint_id] = self.now_ns
            self._count(endpoint_id, -1)

    def _return(self, endpoint_id: str) -> None:
        """Unmark an endpoint that is present again, or no longer remembered."""
        if endpoint_id in self._gone:
            del self._gone[endpoint_id]
            self._count(endpoint_id, 1)

    def _unregister(self, endpoint_id: str) -> None:
        """Drop an endpoint's registration."""
        endpoint = self._endpoints.pop(endpoint_id, None)
        if endpoint is not None:
            self._endpoints_of[endpoint.agent_id].discard(endpoint_id)
            if not self._endpoints_of[endpoint.agent_id]:
                del self._endpoints_of[endpoint.agent_id]

    def _count(self, endpoint_id: str, more: int) -> None:
        """Update the number of present endpoints of a registered endpoint's agent."""
        endpoint = self._endpoints.get(endpoint_id)
        if endpoint is None:
            return
        agent = endpoint.agent_id
        present = self._present.pop(agent, 0) + more
        self._deserted.pop(agent, None)
        if present:
            self._present[agent] = present
        else:
            self._deserted[agent] = self.now_ns


def _same(known: Endpoint, new: Endpoint) -> bool:
    """Return whether agent, host and job are unchanged."""
    return (known.agent_id, known.host_id, known.task_id) == (
        new.agent_id,
        new.host_id,
        new.task_id,
    )


def _count_planned(task: Task | None) -> int:
    """Return how many entries a job takes: one, and one for each member."""
    return 0 if task is None else 1 + len(task.endpoints)


def _pairs(pinglist: PingList | None) -> set[Pair]:
    return set() if pinglist is None else {(t.src, t.dst) for t in pinglist.targets}


def _count_flows(pinglist: PingList | None) -> int:
    """Return how many 5-tuples a list names."""
    return 0 if pinglist is None else sum(target.flows for target in pinglist.targets)
