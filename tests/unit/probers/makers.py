"""Records and targets for tests."""

from probers.probing.plan import FlowTarget, entropy_of
from schemas.enums import PingListPhase, TargetOrigin
from schemas.enums import Transport as TransportKind
from schemas.records import Endpoint, PingList, PingTarget


def endpoint(
    endpoint_id: str,
    *,
    agent_id: str = "agent-b",
    cluster: str = "c1",
    address: str = "10.0.0.2",
    port: int = 4_000,
    incarnation: int = 1,
    transport: TransportKind = TransportKind.UDP,
    qkey: int | None = None,
) -> Endpoint:
    """Return a registration."""
    return Endpoint(
        cluster=cluster,
        endpoint_id=endpoint_id,
        agent_id=agent_id,
        container_id=endpoint_id.partition("/")[0],
        host_id="h",
        rail=0,
        transport=transport,
        address=address,
        port=port,
        qkey=qkey,
        incarnation=incarnation,
        registered_at=1,
    )


def target(src: str, dst: str, flows: int = 1) -> PingTarget:
    """Return a pair of a ping list."""
    return PingTarget(src=src, dst=dst, task_id="job", origin=TargetOrigin.BASIC, flows=flows)


def ping_list(
    *targets: PingTarget, version: int = 1, cluster: str = "c1", agent_id: str = "agent-a"
) -> PingList:
    """Return a ping list."""
    return PingList(
        cluster=cluster,
        agent_id=agent_id,
        version=version,
        updated_at=1,
        phase=PingListPhase.PRELOAD,
        targets=targets,
    )


def flow(dst: str = "w1/r0", number: int = 0, src: str = "w0/r0", port: int = 4_000) -> FlowTarget:
    """Return a 5-tuple to probe."""
    return FlowTarget(
        src, dst, number, "10.0.0.2", port, TransportKind.UDP, entropy_of(src, dst, number)
    )
