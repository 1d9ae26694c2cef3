"""State records of a cluster: topology, jobs, registrations, ping lists, component states."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from arena.faults.injection import Symptom
from arena.world.cluster import Cluster
from arena.world.fabric import address
from arena.world.topology import (
    agent_id,
    component,
    endpoint_id,
    host_id,
    rnic_id,
    vswitch_id,
)
from schemas import topics
from schemas.enums import ComponentKind, PingListPhase, TargetOrigin, Transport
from schemas.ids import state_id
from schemas.records import (
    ComponentState,
    Endpoint,
    PingList,
    PingTarget,
    Task,
    TaskEndpoint,
)
from schemas.units import US_NS

# RoCE v2's UDP port (IANA), for the look of it: nobody connects to it.
ROCE_PORT: Final = 4791


@dataclass(frozen=True, slots=True)
class Rec:
    """A record on its way: when (ns of event time), topic, key, record; None: a tombstone."""

    at_ns: int
    topic: str
    key: str
    record: Any


def topology(name: str, cluster: Cluster, at_ns: int) -> Iterator[Rec]:
    """Yield all components: the fabric's, virtual switches, agents, endpoints."""
    at = at_ns // US_NS
    shape = cluster.fabric.shape
    for part in cluster.fabric.components(name, at):
        yield Rec(at_ns, topics.TOPOLOGY.name, part.component_id, part)
    for host in range(shape.hosts):
        for component_id, kind in (
            (vswitch_id(host), ComponentKind.VSWITCH),
            (agent_id(host), ComponentKind.AGENT),
        ):
            part = component(name, component_id, kind, at, parent=host_id(host))
            yield Rec(at_ns, topics.TOPOLOGY.name, component_id, part)
    for number in range(shape.rnics):
        place = divmod(number, shape.rails)
        part = component(
            name, endpoint_id(*place), ComponentKind.ENDPOINT, at,
            parent=rnic_id(*place), address=address(cluster.endpoint0 + number),
        )  # fmt: skip
        yield Rec(at_ns, topics.TOPOLOGY.name, part.component_id, part)


def symptom_state(name: str, symptom: Symptom, at_ns: int, *, bad: bool) -> Rec:
    """Return what a reader writes of a component, in its usual state or out of order."""
    state = ComponentState(
        cluster=name, state_id=state_id(symptom.component_id, symptom.attribute),
        component_id=symptom.component_id, attribute=symptom.attribute,
        text=symptom.text if bad else symptom.usual_text,
        number=symptom.number if bad else symptom.usual,
        changed_at=at_ns // US_NS, observed_at=at_ns // US_NS, source="reader",
    )  # fmt: skip
    return Rec(at_ns, topics.COMPONENT_STATE.name, state.state_id, state)


def job_task(name: str, cluster: Cluster, job: int, submitted_ns: int, ended_ns: int | None) -> Rec:
    """Return the record of a job, as it is submitted or as it has ended."""
    plan = cluster.jobs[job]
    task = Task(
        cluster=name, task_id=plan.task_id, submitted_at=submitted_ns // US_NS,
        ended_at=None if ended_ns is None else ended_ns // US_NS, gpus_per_host=cluster.rails,
        endpoints=members(
            plan.task_id, range(plan.first_host, plan.first_host + plan.hosts), cluster.rails
        ),
    )  # fmt: skip
    at_ns = submitted_ns if ended_ns is None else ended_ns
    return Rec(at_ns, topics.TASK.name, plan.task_id, task)


def job_lists(name: str, cluster: Cluster, job: int, at_ns: int) -> Iterator[Rec]:
    """Yield the ping lists of a job's agents."""
    task_id = cluster.jobs[job].task_id
    targets: defaultdict[int, list[PingTarget]] = defaultdict(list)
    for a, b in cluster.pairs(job):
        targets[a // cluster.rails].append(
            PingTarget(
                src=endpoint_id(*divmod(a, cluster.rails)),
                dst=endpoint_id(*divmod(b, cluster.rails)),
                task_id=task_id, origin=TargetOrigin.SKELETON, flows=cluster.pair_flows,
            )
        )  # fmt: skip
    for host, found in targets.items():
        pinglist = PingList(
            cluster=name, agent_id=agent_id(host), version=1, updated_at=at_ns // US_NS,
            phase=PingListPhase.RUNTIME, targets=tuple(found),
        )  # fmt: skip
        yield Rec(at_ns, topics.PINGLIST.name, agent_id(host), pinglist)


def members(task_id: str, hosts: Iterable[int], rails: int) -> tuple[TaskEndpoint, ...]:
    """Return the endpoints of a job, one container on each of its hosts."""
    return tuple(
        _member(task_id, index, host, rail)
        for index, host in enumerate(hosts)
        for rail in range(rails)
    )


def _member(task_id: str, index: int, host: int, rail: int) -> TaskEndpoint:
    return TaskEndpoint(
        endpoint_id=endpoint_id(host, rail), container_id=f"{task_id}-w{index}",
        host_id=host_id(host), agent_id=agent_id(host), rail=rail,
    )  # fmt: skip


def registration(
    name: str, task_id: str, member: TaskEndpoint, address: str, registered_at: int
) -> Endpoint:
    """Return what an agent registers of an endpoint; `registered_at` in microseconds."""
    return Endpoint(
        cluster=name, endpoint_id=member.endpoint_id, agent_id=member.agent_id,
        container_id=member.container_id, host_id=member.host_id, task_id=task_id,
        rail=member.rail, transport=Transport.RDMA_UD, address=address, port=ROCE_PORT,
        incarnation=1, registered_at=registered_at,
    )  # fmt: skip


def host_endpoints(name: str, cluster: Cluster, job: int, host: int, at_ns: int) -> Iterator[Rec]:
    """Yield the registrations of a job's endpoints on one host."""
    plan = cluster.jobs[job]
    for rail in range(cluster.rails):
        member = _member(plan.task_id, host - plan.first_host, host, rail)
        shown = address(cluster.endpoint0 + host * cluster.rails + rail)
        endpoint = registration(name, plan.task_id, member, shown, at_ns // US_NS)
        yield Rec(at_ns, topics.ENDPOINT.name, endpoint.endpoint_id, endpoint)
