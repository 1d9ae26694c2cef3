"""Hard faults of hosts, containers, virtual switches and agents."""

from typing import Final

from arena.sealed.draft import Draft, NoPlaceError
from arena.sealed.plan import (
    AgentTrouble,
    ClockShift,
    Effect,
    Outage,
    Place,
    Reader,
    TableEdit,
    Troubled,
    Where,
)
from arena.sealed.schedule import steady
from arena.sealed.truth import FlowSet, Geometry

# What the loss of everything that a host or container holds may be called.
GONE: Final = frozenset({"connectivity", "agent_dead", "agent_unresponsive", "agents_silent"})


def host_down(draft: Draft, begin_s: float, end_s: float) -> None:
    """Let a host lose its power: its RNICs, containers and agents with it."""
    host, geo = _host(draft, begin_s, end_s)
    cluster = draft.cluster
    members = cluster.hosts[host].endpoints
    over = steady(begin_s, end_s)
    _silence(draft, frozenset(members), begin_s, end_s)
    agents = [i for i, group in enumerate(cluster.agents) if group.host == host]
    for agent in agents:
        _outage(draft, agent, begin_s, end_s)
    fabric = cluster.fabric
    for endpoint in members:
        for cable in fabric.cables_of(endpoint):
            draft.set_state(fabric.cables[cable].name, "port_state", begin_s, end_s, "down")
    affected = _all_of(geo, members)
    names = {cluster.hosts[host].name} | {cluster.agents[agent].name for agent in agents}
    names |= {group.name for group in cluster.containers if group.host == host}
    if cluster.overlay:
        names.add(cluster.vswitch_name(host))
    also = GONE | {"rnic_unreachable", "vswitch_down", "container_crash", "port_down"}
    draft.add_fault(
        kind="connectivity", also=also, components=frozenset(names) | geo.same_as(affected),
        over=over, hard=True, note="a host is without power", affected=affected,
    )  # fmt: skip


def container_crash(draft: Draft, begin_s: float, end_s: float) -> None:
    """Kill a container, and the agent in it, without a word."""
    cluster = draft.cluster
    if not cluster.sidecars:
        raise NoPlaceError("container_crash")
    host, geo = _host(draft, begin_s, end_s)
    places = [i for i, group in enumerate(cluster.containers) if group.host == host]
    container = places[draft.chosen(len(places))]
    group = cluster.containers[container]
    agent = cluster.sites[group.endpoints[0]].agent
    _silence(draft, frozenset(group.endpoints), begin_s, end_s)
    _outage(draft, agent, begin_s, end_s)
    draft.set_state(group.name, "container", begin_s, end_s, "exited")
    shown = draft.named(Reader.PLATFORM, "container", begin_s, end_s)
    affected = _all_of(geo, group.endpoints)
    names = {group.name, cluster.agents[agent].name} | geo.same_as(affected)
    draft.add_fault(
        kind="container_crash",
        also=frozenset({"agent_dead"}) if shown else GONE | {"rnic_unreachable", "vswitch_down"},
        components=frozenset(names), over=steady(begin_s, end_s), hard=True,
        note="a container crashes with its agent", affected=affected,
    )  # fmt: skip


def vswitch_down(draft: Draft, begin_s: float, end_s: float) -> None:
    """Let the virtual switch of a host forward nothing; its tables cannot be read either."""
    if not draft.cluster.overlay:
        raise NoPlaceError("vswitch_down")
    host, geo = _host(draft, begin_s, end_s)
    members = draft.cluster.hosts[host].endpoints
    over = steady(begin_s, end_s)
    _silence(draft, frozenset(members), begin_s, end_s)
    draft.plan.tables_unread.append((host, over))
    affected = _all_of(geo, members)
    name = draft.cluster.vswitch_name(host)
    draft.add_fault(
        kind="vswitch_down", also=frozenset({"connectivity"}),
        components=frozenset({name, draft.cluster.hosts[host].name}) | geo.same_as(affected),
        over=over, hard=True, note="a virtual switch forwards nothing", affected=affected,
    )  # fmt: skip


def flow_missing(draft: Draft, begin_s: float, end_s: float) -> None:
    """Remove the entry for one destination from a host's table: the packets are dropped there."""
    cluster = draft.cluster
    if not cluster.overlay:
        raise NoPlaceError("flow_missing")
    geo = draft.geometry(begin_s, end_s)
    for index in draft.shuffled(list(geo.probed)):
        flow = cluster.flows[index]
        host = cluster.sites[flow.src].host
        where = Where(
            place=Place.SOURCE, srcs=frozenset(cluster.hosts[host].endpoints),
            dsts=frozenset({flow.dst}),
        )  # fmt: skip
        probes, _ = geo.hit(where)
        if not draft.is_free(begin_s, end_s, probes):
            continue
        over = steady(begin_s, end_s)
        vswitch, vtep = cluster.vswitch_name(host), cluster.vtep_name(flow.src)
        node = vtep if cluster.fdb else vswitch
        draft.plan.effects.append(Effect(where=where, schedule=over, loss=1.0))
        draft.plan.tables.append(
            TableEdit(host=host, node=node, dsts=frozenset({flow.dst}), schedule=over,
                      next_hop=None)
        )  # fmt: skip
        draft.add_fault(
            kind="flow_missing", components=frozenset({node}), over=over, hard=True,
            note="a table has no entry for a destination in use", affected=probes,
        )  # fmt: skip
        return
    raise NoPlaceError("flow_missing")


def flow_loop(draft: Draft, begin_s: float, end_s: float) -> None:
    """Let the VTEP of a destination send its packets back to the host that they come from."""
    cluster = draft.cluster
    if not cluster.overlay:
        raise NoPlaceError("flow_loop")
    geo = draft.geometry(begin_s, end_s)
    for index in draft.shuffled(list(geo.probed)):
        flow = cluster.flows[index]
        src, dst = cluster.sites[flow.src], cluster.sites[flow.dst]
        dsts = frozenset({flow.dst})
        where = Where(place=Place.SINK, dsts=dsts)
        probes, _ = geo.hit(where)
        if not draft.is_free(begin_s, end_s, probes):
            continue
        over = steady(begin_s, end_s)
        here, there = cluster.vtep_name(flow.src), cluster.vtep_name(flow.dst)
        draft.plan.effects.append(Effect(where=where, schedule=over, loss=1.0))
        draft.plan.tables.append(
            TableEdit(host=dst.host, node=there, dsts=dsts, schedule=over, next_hop=here)
        )
        names = {there, here, cluster.vswitch_name(dst.host), cluster.vswitch_name(src.host)}
        draft.add_fault(
            kind="flow_loop", also=frozenset({"flow_missing"}),
            components=frozenset(names), over=over, hard=True,
            note="the destination's VTEP sends its packets back to a source", affected=probes,
        )  # fmt: skip
        return
    raise NoPlaceError("flow_loop")


def agent_dead(draft: Draft, begin_s: float, end_s: float) -> None:
    """Kill an agent; nobody restarts it."""
    agent, affected = _agent(draft, begin_s, end_s)
    group = draft.cluster.agents[agent]
    _silence(draft, frozenset(group.endpoints), begin_s, end_s)
    _outage(draft, agent, begin_s, end_s)
    names = _agent_names(draft, agent)
    draft.add_fault(
        kind="agent_dead", also=frozenset({"connectivity"}), components=names,
        over=steady(begin_s, end_s), hard=True, note="an agent's process dies", affected=affected,
    )  # fmt: skip


def agent_unresponsive(draft: Draft, begin_s: float, end_s: float) -> None:
    """Let the thread of an agent hang that answers; it goes on probing."""
    agent, affected = _agent(draft, begin_s, end_s)
    over = steady(begin_s, end_s)
    members = frozenset(draft.cluster.agents[agent].endpoints)
    where = Where(place=Place.SINK, dsts=members, replies=False)
    draft.plan.effects.append(Effect(where=where, schedule=over, loss=1.0))
    draft.add_fault(
        kind="agent_unresponsive", components=_agent_names(draft, agent), over=over, hard=True,
        note="an agent lives but answers nobody", affected=affected,
    )  # fmt: skip


def agents_silent(draft: Draft, begin_s: float, end_s: float) -> None:
    """Cut the management network of half a cluster's hosts: agents answer, but are not heard."""
    cluster = draft.cluster
    hosts = draft.shuffled(list(range(len(cluster.hosts))))[: max(3, len(cluster.hosts) // 2)]
    over = steady(begin_s, end_s)
    names: set[str] = set()
    for agent, group in enumerate(cluster.agents):
        if group.host in hosts and not _is_away(draft, agent, begin_s, end_s):
            _outage(draft, agent, begin_s, end_s, muted=True)
            names |= {group.name, cluster.hosts[group.host].name}
    if len(names) < 6:
        raise NoPlaceError("agents_silent")
    draft.add_fault(
        kind="agents_silent", also=frozenset({"agent_dead"}), components=frozenset(names),
        over=over, hard=False, note="hosts lose their management network", affected=frozenset(),
    )  # fmt: skip


def agent_displaced(draft: Draft, begin_s: float, end_s: float) -> None:
    """Register an agent's endpoints in its name: it yields."""
    _trouble(draft, begin_s, end_s, trouble=AgentTrouble.DISPLACED, kind="agent_displaced",
             note="an agent yields to a registration in its name")  # fmt: skip


def probing_stopped(draft: Draft, begin_s: float, end_s: float) -> None:
    """Delete an agent's ping list while its job runs."""
    _trouble(draft, begin_s, end_s, trouble=AgentTrouble.NO_LIST, kind="probing_stopped",
             note="an agent has no list although its job runs")  # fmt: skip


def list_refused(draft: Draft, begin_s: float, end_s: float) -> None:
    """Write a ping list with a version that the agent refuses."""
    _trouble(draft, begin_s, end_s, trouble=AgentTrouble.LIST_REFUSED, kind="list_refused",
             note="an agent refuses a list with an implausible version")  # fmt: skip


def agent_clock(draft: Draft, begin_s: float, end_s: float) -> None:
    """Set a host's clock wrong by 3 to 40 s, either way."""
    agent, _ = _agent(draft, begin_s, end_s)
    host = draft.cluster.agents[agent].host
    sign = 1.0 if draft.rng.random() < 0.5 else -1.0
    offset_ns = sign * draft.log_uniform(3.0, 40.0) * 1e9
    draft.plan.clocks += [
        ClockShift(host=host, at_s=begin_s, offset_ns=offset_ns),
        ClockShift(host=host, at_s=end_s, offset_ns=0.0),
    ]
    names = frozenset(group.name for group in draft.cluster.agents if group.host == host)
    draft.add_fault(
        kind="agent_clock", components=names | {draft.cluster.hosts[host].name},
        over=steady(begin_s, end_s), hard=False, affected=frozenset(),
        note=f"a host's clock is {offset_ns / 1e9:+.1f} s off",
    )  # fmt: skip


def _trouble(
    draft: Draft, begin_s: float, end_s: float, *, trouble: AgentTrouble, kind: str, note: str
) -> None:
    agent, _ = _agent(draft, begin_s, end_s)
    over = steady(begin_s, end_s)
    draft.plan.troubled.append(Troubled(agent=agent, trouble=trouble, schedule=over))
    draft.add_fault(
        kind=kind, components=_agent_names(draft, agent), over=over, hard=False, note=note,
        affected=frozenset(),
    )  # fmt: skip


def _agent_names(draft: Draft, agent: int) -> frozenset[str]:
    group = draft.cluster.agents[agent]
    return frozenset({group.name, draft.cluster.hosts[group.host].name})


def _silence(draft: Draft, members: frozenset[int], begin_s: float, end_s: float) -> None:
    """Let nothing leave or enter endpoints; a process that comes back needs a moment more."""
    source = Where(place=Place.SOURCE, srcs=members)
    sink = Where(place=Place.SINK, dsts=members)
    over = steady(begin_s, end_s)
    draft.plan.effects += [Effect(where=where, schedule=over, loss=1.0) for where in (source, sink)]


def _outage(draft: Draft, agent: int, begin_s: float, end_s: float, *, muted: bool = False) -> None:
    draft.plan.outages.append(
        Outage(agent=agent, begin_s=begin_s, end_s=end_s, orderly=False, muted=muted)
    )
    if not muted:
        members = frozenset(draft.cluster.agents[agent].endpoints)
        # Its new queue pairs are unknown to the others until they have read its registrations.
        again = steady(end_s, end_s + 0.9)
        sink = Where(place=Place.SINK, dsts=members, replies=False)
        draft.plan.effects.append(Effect(where=sink, schedule=again, loss=1.0))


def _host(draft: Draft, begin_s: float, end_s: float) -> tuple[int, Geometry]:
    geo = draft.geometry(begin_s, end_s)
    for host in draft.hosts():
        agents = [i for i, group in enumerate(draft.cluster.agents) if group.host == host]
        affected = _all_of(geo, draft.cluster.hosts[host].endpoints)
        fit = affected and not any(_is_away(draft, agent, begin_s, end_s) for agent in agents)
        if fit and draft.is_free(begin_s, end_s, affected):
            return host, geo
    raise NoPlaceError("host")


def _agent(draft: Draft, begin_s: float, end_s: float) -> tuple[int, FlowSet]:
    geo = draft.geometry(begin_s, end_s)
    for agent in draft.shuffled(list(range(len(draft.cluster.agents)))):
        affected = _all_of(geo, draft.cluster.agents[agent].endpoints)
        fit = affected and not _is_away(draft, agent, begin_s, end_s)
        if fit and draft.is_free(begin_s, end_s, affected):
            return agent, affected
    raise NoPlaceError("agent")


def _is_away(draft: Draft, agent: int, begin_s: float, end_s: float) -> bool:
    """Return whether an agent's process ends or begins about then for another reason."""
    return any(
        outage.agent == agent and outage.begin_s < end_s + 60.0 and begin_s < outage.end_s + 60.0
        for outage in draft.plan.outages
    )


def _all_of(geo: Geometry, endpoints: tuple[int, ...]) -> FlowSet:
    out, into = geo.of_endpoints(endpoints)
    return out | into
