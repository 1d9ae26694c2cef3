"""Short ways to records for the unit tests of the localizer."""

from typing import Any

from localizer.network.topology import Topology
from schemas.enums import (
    AgentState,
    AnomalyKind,
    AnomalyState,
    ComponentKind,
    Layer,
    PingListPhase,
    TargetOrigin,
    TraceCause,
    Transport,
)
from schemas.ids import path_id
from schemas.records import (
    Anomaly,
    Component,
    Endpoint,
    Heartbeat,
    PathTrace,
    PingList,
    PingTarget,
    Task,
    TaskEndpoint,
    TraceHop,
)
from schemas.units import SECOND_NS

START = 1_700_000_000 * SECOND_NS


def component(
    component_id: str, kind: ComponentKind, *, parent: str | None = None, **more: Any
) -> Component:
    """Return a component; its address is `@<id>` unless given."""
    values: dict[str, Any] = {
        "cluster": "lab", "component_id": component_id, "kind": kind, "layer": Layer.UNDERLAY,
        "parent": parent, "updated_at": 0, "addresses": (f"@{component_id}",),
    }  # fmt: skip
    return Component(**{**values, **more})


def link(a: str, b: str) -> Component:
    """Return the link of two components."""
    low, high = sorted((a, b))
    return component(f"{low}--{high}", ComponentKind.LINK, a=low, b=high, addresses=())


def small_fabric(*, spines: int = 1) -> Topology:
    """Return hosts h0 (leaf l0) and h1 (leaf l1) with an RNIC each, and so many spines."""
    topology = Topology()
    for n in (0, 1):
        topology.set_component(component(f"h{n}", ComponentKind.HOST, addresses=()))
        topology.set_component(component(f"v{n}", ComponentKind.VSWITCH, parent=f"h{n}"))
        topology.set_component(component(f"r{n}", ComponentKind.RNIC, parent=f"h{n}"))
        topology.set_component(component(f"e{n}", ComponentKind.ENDPOINT, parent=f"r{n}"))
        topology.set_component(component(f"l{n}", ComponentKind.SWITCH))
        topology.set_component(link(f"r{n}", f"l{n}"))
    for s in range(spines):
        topology.set_component(component(f"s{s}", ComponentKind.SWITCH))
        for n in (0, 1):
            topology.set_component(link(f"l{n}", f"s{s}"))
    return topology


def trace(
    hops: str,
    *,
    at: int = START,
    complete: bool = True,
    flow: int = 0,
    ends: tuple[str, str] = ("e0", "e1"),
    rtts: dict[int, int] | None = None,
    cause: TraceCause = TraceCause.DISCOVERY,
) -> PathTrace:
    """Return a trace; `hops` are component ids, `-` a silent hop, `?` an unknown address."""
    names = hops.split()
    found = [
        TraceHop(
            ttl=ttl,
            address=None if name == "-" else f"@{name}",
            rtt_ns=None if name == "-" else (rtts or {}).get(ttl, 1000 * ttl),
        )
        for ttl, name in enumerate(names, 1)
    ]
    return PathTrace(
        cluster="lab", path_id=path_id(*ends), src=ends[0], dst=ends[1], flow=flow,
        agent_id="a0", traced_at=at // 1000, cause=cause, complete=complete,
        incomplete_reason=None if complete else "test", hops=tuple(found),
    )  # fmt: skip


def anomaly(
    kind: AnomalyKind = AnomalyKind.CONNECTIVITY,
    state: AnomalyState = AnomalyState.ONSET,
    *,
    at: int,
    onset: int | None = None,
    ends: tuple[str, str] = ("e0", "e1"),
    flow: int = 0,
    agent: str = "a0",
    **more: Any,
) -> Anomaly:
    """Return an anomaly; `at` and `onset` in ns, `onset` half a second before `at`."""
    onset = at - SECOND_NS // 2 if onset is None else onset
    values: dict[str, Any] = {
        "cluster": "lab", "anomaly_id": f"{ends}{flow}{kind}{state}{at}", "kind": kind,
        "state": state, "path_id": path_id(*ends), "src": ends[0], "dst": ends[1], "flow": flow,
        "agent_id": agent, "event_at": at // 1000, "onset_at": onset // 1000,
        "detector": "test", "sent": 3, "lost": 3,
    }  # fmt: skip
    return Anomaly(**{**values, **more})


def heartbeat(agent: str, at: int, seq: int, **more: Any) -> Heartbeat:
    """Return a heartbeat of an agent with an interval of a second."""
    values: dict[str, Any] = {
        "cluster": "lab", "agent_id": agent, "host_id": "h0", "incarnation": 1, "seq": seq,
        "sent_at": at // 1000, "interval_ns": SECOND_NS, "state": AgentState.RUNNING,
        "endpoints": 1, "targets_active": 1, "targets_waiting": 0, "rounds_sent": seq,
        "results_sent": seq, "rounds_dropped": 0, "replies_duplicate": 0, "replies_late": 0,
        "replies_foreign": 0, "packets_malformed": 0, "records_undecodable": 0,
        "broker_away": False,
    }  # fmt: skip
    return Heartbeat(**{**values, **more})


def endpoint(endpoint_id: str, agent: str, task: str | None = None) -> Endpoint:
    """Return a registration."""
    return Endpoint(
        cluster="lab", endpoint_id=endpoint_id, agent_id=agent, container_id="c", host_id="h0",
        task_id=task, rail=0, transport=Transport.UDP, address="127.0.0.1", port=1,
        incarnation=1, registered_at=0,
    )  # fmt: skip


def task(task_id: str, ends: list[tuple[str, str]], ended: int | None = None) -> Task:
    """Return a job of (endpoint, agent) pairs."""
    return Task(
        cluster="lab", task_id=task_id, submitted_at=0, ended_at=ended,
        endpoints=tuple(
            TaskEndpoint(endpoint_id=e, container_id="c", host_id="h", agent_id=a, rail=0)
            for e, a in ends
        ),
    )  # fmt: skip


def pinglist(
    agent: str, pairs: list[tuple[str, str]], *, flows: int = 1, version: int = 1
) -> PingList:
    """Return a ping list."""
    return PingList(
        cluster="lab", agent_id=agent, version=version, updated_at=0,
        phase=PingListPhase.PRELOAD,
        targets=tuple(
            PingTarget(src=a, dst=b, task_id="t", origin=TargetOrigin.BASIC, flows=flows)
            for a, b in pairs
        ),
    )  # fmt: skip
