"""What the platform and the agents say of a cluster: topology, jobs, registrations, ping lists."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from arena.faults.injection import Sight
from arena.world.cluster import Cluster, agent_id, endpoint_id, host_id, vswitch_id
from arena.world.fabric import address
from schemas import topics
from schemas.enums import ComponentKind, Layer, PingListPhase, TargetOrigin, Transport
from schemas.ids import state_id
from schemas.records import (
    Component,
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
    for component in cluster.fabric.components(name, at):
        yield Rec(at_ns, topics.TOPOLOGY.name, component.component_id, component)
    for host in range(shape.hosts):
        for component_id, kind, layer in (
            (vswitch_id(host), ComponentKind.VSWITCH, Layer.OVERLAY),
            (agent_id(host), ComponentKind.AGENT, Layer.HOST),
        ):
            component = Component(
                cluster=name, component_id=component_id, kind=kind, layer=layer,
                parent=host_id(host), updated_at=at, addresses=(),
            )  # fmt: skip
            yield Rec(at_ns, topics.TOPOLOGY.name, component_id, component)
    for number in range(shape.rnics):
        host, rail = divmod(number, shape.rails)
        component = Component(
            cluster=name, component_id=endpoint_id(host, rail), kind=ComponentKind.ENDPOINT,
            layer=Layer.OVERLAY, parent=f"rnic:h{host}/r{rail}", updated_at=at,
            addresses=(address(cluster.endpoint0 + number),),
        )  # fmt: skip
        yield Rec(at_ns, topics.TOPOLOGY.name, component.component_id, component)


def sight_state(name: str, sight: Sight, at_ns: int, *, bad: bool) -> Rec:
    """Return what a reader writes of a component, in its usual state or out of order."""
    state = ComponentState(
        cluster=name, state_id=state_id(sight.component_id, sight.attribute),
        component_id=sight.component_id, attribute=sight.attribute,
        text=sight.text if bad else sight.usual_text,
        number=sight.number if bad else sight.usual,
        changed_at=at_ns // US_NS, observed_at=at_ns // US_NS, source="reader",
    )  # fmt: skip
    return Rec(at_ns, topics.COMPONENT_STATE.name, state.state_id, state)


def job_task(name: str, cluster: Cluster, job: int, submitted_ns: int, ended_ns: int | None) -> Rec:
    """Return the record of a job, as it is submitted or as it has ended."""
    plan = cluster.jobs[job]
    task = Task(
        cluster=name, task_id=plan.task_id, submitted_at=submitted_ns // US_NS,
        ended_at=None if ended_ns is None else ended_ns // US_NS, gpus_per_host=cluster.rails,
        endpoints=tuple(
            TaskEndpoint(
                endpoint_id=endpoint_id(host, rail), container_id=f"{plan.task_id}-w{index}",
                host_id=host_id(host), agent_id=agent_id(host), rail=rail,
            )
            for index, host in enumerate(range(plan.first_host, plan.first_host + plan.hosts))
            for rail in range(cluster.rails)
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


def host_endpoints(name: str, cluster: Cluster, job: int, host: int, at_ns: int) -> Iterator[Rec]:
    """Yield the registrations of a job's endpoints on one host."""
    plan = cluster.jobs[job]
    for rail in range(cluster.rails):
        number = host * cluster.rails + rail
        endpoint = Endpoint(
            cluster=name, endpoint_id=endpoint_id(host, rail), agent_id=agent_id(host),
            container_id=f"{plan.task_id}-w{host - plan.first_host}", host_id=host_id(host),
            task_id=plan.task_id, rail=rail, transport=Transport.RDMA_UD,
            address=address(cluster.endpoint0 + number), port=ROCE_PORT, incarnation=1,
            registered_at=at_ns // US_NS,
        )  # fmt: skip
        yield Rec(at_ns, topics.ENDPOINT.name, endpoint.endpoint_id, endpoint)
