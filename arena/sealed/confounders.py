"""Look-alikes: what looks like a fault, and is none.

Every function here puts one look-alike into a draft, from a time on. Ranges stand where they are
drawn.
"""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from arena.sealed.draft import Draft, NoPlaceError
from arena.sealed.hosts import Starvation
from arena.sealed.plan import (
    ClockShift,
    Effect,
    ListEdit,
    Outage,
    Place,
    Reader,
    Reroute,
    Stray,
    TaskEnd,
    Where,
)
from arena.sealed.queues import Load, paused_loads
from arena.sealed.schedule import renewal, steady

# A process that starts again is unknown to its peers until they have read its registrations.
UNKNOWN_S: Final = 0.9


def starved_host(draft: Draft, begin_s: float) -> None:
    """Starve a host of CPU for 30 to 180 s: answers, rounds and heartbeats are late or lost."""
    host = draft.hosts()[0]
    end_s = min(begin_s + draft.log_uniform(30.0, 180.0), draft.duration_s)
    stalls = renewal(draft.rng, begin_s, end_s, on_s=draft.log_uniform(0.02, 0.3),
                     off_s=draft.log_uniform(0.6, 8.0))  # fmt: skip
    factor = draft.log_uniform(2.0, 60.0)
    draft.plan.starving.append(
        Starvation(host=host, stalls=stalls, over=steady(begin_s, end_s), factor=factor)
    )
    draft.add_confounder(
        kind="starved_host", components=_host_names(draft, host), begin_s=begin_s, end_s=end_s,
        note=f"a host's CPU is short: delays {factor:.0f} times as long, and stalls",
    )  # fmt: skip


def container_restart(draft: Draft, begin_s: float) -> None:
    """Restart a container in order: it is away for 15 to 90 s."""
    cluster = draft.cluster
    if not cluster.sidecars:
        raise NoPlaceError("container_restart")
    agent = _free_agent(draft, begin_s)
    group = cluster.agents[agent]
    end_s = begin_s + float(draft.rng.uniform(15.0, 90.0))
    _restart(draft, agent, begin_s, end_s, orderly=True)
    container = cluster.sites[group.endpoints[0]].container
    name = cluster.containers[container].name
    draft.set_state(name, "container", begin_s, end_s, "restarting")
    draft.add_confounder(
        kind="container_restart", components=frozenset({name, group.name}), begin_s=begin_s,
        end_s=end_s, note="a container leaves in order and comes back",
    )  # fmt: skip


def agent_restart(draft: Draft, begin_s: float) -> None:
    """Let an agent's process end without a word; its service manager restarts it in 1 to 3 s."""
    agent = _free_agent(draft, begin_s)
    end_s = begin_s + float(draft.rng.uniform(0.8, 2.5))
    _restart(draft, agent, begin_s, end_s, orderly=False)
    draft.add_confounder(
        kind="agent_restart", components=_agent_names(draft, agent), begin_s=begin_s,
        end_s=end_s + UNKNOWN_S, note="an agent restarts",
    )  # fmt: skip


def agent_upgrade(draft: Draft, begin_s: float) -> None:
    """Upgrade all agents, one after the other: each is away for 2 to 6 s."""
    at_s = begin_s
    gap_s = float(draft.rng.uniform(3.0, 9.0))
    names: set[str] = set()
    for agent in range(len(draft.cluster.agents)):
        if at_s > draft.duration_s - 30.0:
            break
        if not _is_busy(draft, agent, at_s):
            end_s = at_s + float(draft.rng.uniform(2.0, 6.0))
            _restart(draft, agent, at_s, end_s, orderly=True, version="1.6.0")
            names |= _agent_names(draft, agent)
        at_s += gap_s
    draft.add_confounder(
        kind="agent_upgrade", components=frozenset(names), begin_s=begin_s, end_s=at_s,
        note="all agents are upgraded one by one",
    )  # fmt: skip


def task_end(draft: Draft, begin_s: float) -> None:
    """End a job: its containers leave within seconds, then its lists are emptied."""
    cluster, rng = draft.cluster, draft.rng
    ended = {end.task for end in draft.plan.ends}
    if len(cluster.tasks) - len(ended) < 2 or not cluster.sidecars:
        raise NoPlaceError("task_end")
    left = [task for task in range(len(cluster.tasks)) if task not in ended]
    task = left[draft.chosen(len(left))]
    members = frozenset(cluster.tasks[task].endpoints)
    agents = sorted({cluster.sites[endpoint].agent for endpoint in members})
    if any(_is_busy(draft, agent, begin_s, np.inf) for agent in agents):
        raise NoPlaceError("task_end")
    for agent in agents:
        at_s = begin_s + float(rng.uniform(0.5, 6.0))
        draft.plan.outages.append(Outage(agent=agent, begin_s=at_s, end_s=np.inf, orderly=True))
        _deafen(draft, agent, at_s + float(rng.uniform(0.2, 1.5)), np.inf)
    draft.plan.ends.append(TaskEnd(at_s=begin_s, task=task))
    edit_s = begin_s + float(rng.uniform(1.0, 12.0))
    draft.plan.lists.append(ListEdit(at_s=edit_s, without=members))
    names = frozenset(cluster.sites[endpoint].name for endpoint in members)
    draft.add_confounder(
        kind="task_end", components=names, begin_s=begin_s, end_s=draft.duration_s,
        note="a job ends and its containers leave",
    )  # fmt: skip


def drained_host(draft: Draft, begin_s: float) -> None:
    """Take a host out for maintenance: lists go round it, it leaves, and is switched off."""
    cluster = draft.cluster
    host = draft.hosts()[0]
    agents = [i for i, group in enumerate(cluster.agents) if group.host == host]
    if any(_is_busy(draft, agent, begin_s, np.inf) for agent in agents):
        raise NoPlaceError("drained_host")
    members = frozenset(cluster.hosts[host].endpoints)
    name = cluster.hosts[host].name
    draft.set_state(name, "maintenance", begin_s, np.inf, "drain")
    # The platform waits until it has said so.
    leave_s = begin_s + draft.readers.within_s(Reader.PLATFORM) - 10.0
    draft.plan.lists.append(ListEdit(at_s=leave_s, without=members))
    for agent in agents:
        gone_s = leave_s + float(draft.rng.uniform(1.0, 5.0))
        draft.plan.outages.append(Outage(agent=agent, begin_s=gone_s, end_s=np.inf, orderly=True))
        _deafen(draft, agent, gone_s + float(draft.rng.uniform(0.2, 1.5)), np.inf)
    fabric = cluster.fabric
    for endpoint in sorted(members):
        for cable in fabric.cables_of(endpoint):
            draft.set_state(fabric.cables[cable].name, "port_state", leave_s + 20.0, np.inf, "down")
    draft.add_confounder(
        kind="drained_host", components=_host_names(draft, host), begin_s=begin_s,
        end_s=draft.duration_s, note="a host is drained and switched off",
    )  # fmt: skip


def drained_switch(draft: Draft, begin_s: float) -> None:
    """Drain a switch that others can stand in for: 5-tuples move without loss."""
    fabric = draft.cluster.fabric
    leaf_tier = {node.name for node in fabric.nodes if node.tier == 0}
    for node in draft.switches():
        name = fabric.nodes[node].name
        if name in leaf_tier:
            continue
        peers = [n for n in fabric.nodes if n.tier == fabric.nodes[node].tier
                 and n.pod == fabric.nodes[node].pod]  # fmt: skip
        if len(peers) < 3 or (fabric.nodes[node].tier == 1 and draft.cluster.shape.cores):
            continue
        draft.set_state(name, "maintenance", begin_s, np.inf, "planned")
        moved_s = begin_s + 20.0
        for cable in fabric.cables_of(node):
            draft.plan.reroutes.append(Reroute(at_s=moved_s, cable=cable, up=False))
        draft.add_confounder(
            kind="drained_switch", components=frozenset({name}), begin_s=begin_s,
            end_s=draft.duration_s, note="a switch is drained; routing goes round it",
        )  # fmt: skip
        return
    raise NoPlaceError("drained_switch")


def burst(draft: Draft, begin_s: float) -> None:
    """Let the job burst for 10 to 60 s: into one RNIC (incast), or over some of the fabric."""
    rng, fabric = draft.rng, draft.cluster.fabric
    end_s = begin_s + draft.log_uniform(10.0, 60.0)
    if rng.random() < 0.5:
        rnic = draft.endpoints()[0]
        dlinks = frozenset(2 * cable + 1 for cable in fabric.cables_of(rnic))
    else:
        cables = draft.fabric_cables()
        dlinks = frozenset(
            2 * cable + draft.chosen(2) for cable in cables[: max(2, len(cables) // 3)]
        )
    rho = float(rng.uniform(0.8, 0.97))
    load = Load(dlinks=dlinks, schedule=steady(begin_s, end_s), rho=rho)
    draft.plan.loads += paused_loads(draft.cluster, load)
    names = frozenset(fabric.cables[dlink >> 1].name for dlink in sorted(dlinks))
    for name in sorted(names):
        draft.set_state(name, "egress_utilization", begin_s + 5.0, end_s + 10.0, round(rho, 3))
    draft.add_confounder(
        kind="burst", components=names, begin_s=begin_s, end_s=end_s,
        note=f"the job loads {len(dlinks)} directed links to {rho:.2f}",
    )  # fmt: skip


def collector_restart(draft: Draft, begin_s: float) -> None:
    """Restart the collector: it reads nothing for 20 to 120 s and has forgotten everything."""
    end_s = begin_s + float(draft.rng.uniform(20.0, 120.0))
    readers = [reader for reader in (Reader.COLLECTOR, Reader.PLATFORM)
               if reader in draft.readers.period_s]  # fmt: skip
    reader = readers[draft.chosen(len(readers))]
    draft.plan.reader_pauses.append((reader, steady(begin_s, end_s)))
    draft.add_confounder(
        kind="collector_restart", components=frozenset(), begin_s=begin_s, end_s=end_s,
        note=f"the {reader.name.lower()}'s reader of states restarts",
    )  # fmt: skip


def contradicting_reader(draft: Draft, begin_s: float) -> None:
    """Let an inventory write stale states of a healthy component, against its reader."""
    cluster, rng = draft.cluster, draft.rng
    rnic = cluster.rnic_name(draft.endpoints()[0])
    cable = cluster.fabric.cables[draft.fabric_cables()[0]].name
    choices: list[tuple[str, str, str | float]] = [
        (rnic, "port_state", "down"), (cable, "port_state", "down"), (rnic, "device", "gone"),
        (cable, "crc_errors_per_s", 35.0), (cable, "link_flaps", 6.0), (rnic, "pcie_width", 8.0),
        (rnic, "gid_table", "4 GIDs (inventory)"), (rnic, "congestion_control", "off"),
    ]  # fmt: skip
    component, attribute, value = choices[draft.chosen(len(choices))]
    times = begin_s + np.cumsum(rng.uniform(20.0, 60.0, int(rng.integers(1, 6))))
    times = times[times < draft.duration_s - 5.0]
    if not len(times):
        raise NoPlaceError("contradicting_reader")
    draft.plan.strays.append(
        Stray(component=component, attribute=attribute, value=value,
              times_s=tuple(float(at_s) for at_s in times), source="inventory-sync")
    )  # fmt: skip
    draft.add_confounder(
        kind="contradicting_reader", components=frozenset({component}), begin_s=begin_s,
        end_s=float(times[-1]), note=f"a second reader says {attribute} is {value}",
    )  # fmt: skip


def clock_offset(draft: Draft, begin_s: float) -> None:
    """Set a host's clock wrong by 50 to 900 ms."""
    host = draft.chosen(len(draft.cluster.hosts))
    sign = 1.0 if draft.rng.random() < 0.5 else -1.0
    offset_ns = sign * draft.log_uniform(5e7, 9e8)
    end_s = begin_s + float(draft.rng.uniform(60.0, 600.0))
    draft.plan.clocks += [
        ClockShift(host=host, at_s=begin_s, offset_ns=offset_ns),
        ClockShift(host=host, at_s=end_s, offset_ns=0.0),
    ]
    draft.add_confounder(
        kind="clock_offset", components=_host_names(draft, host), begin_s=begin_s,
        end_s=min(end_s, draft.duration_s), note=f"a clock is {offset_ns / 1e6:+.0f} ms off",
    )  # fmt: skip


def broker_pause(draft: Draft, begin_s: float) -> None:
    """Let nothing arrive at the broker for 5 to 20 s."""
    end_s = begin_s + float(draft.rng.uniform(5.0, 20.0))
    draft.plan.broker_pauses.append(steady(begin_s, end_s))
    draft.add_confounder(
        kind="broker_pause", components=frozenset(), begin_s=begin_s, end_s=end_s,
        note="the broker takes nothing",
    )  # fmt: skip


Confounder = Callable[[Draft, float], None]

CONFOUNDERS: Final[Mapping[str, Confounder]] = {
    "starved_host": starved_host,
    "container_restart": container_restart,
    "agent_restart": agent_restart,
    "agent_upgrade": agent_upgrade,
    "task_end": task_end,
    "drained_host": drained_host,
    "drained_switch": drained_switch,
    "burst": burst,
    "collector_restart": collector_restart,
    "contradicting_reader": contradicting_reader,
    "clock_offset": clock_offset,
    "broker_pause": broker_pause,
}


def _restart(
    draft: Draft, agent: int, begin_s: float, end_s: float, *, orderly: bool,
    version: str | None = None,
) -> None:  # fmt: skip
    draft.plan.outages.append(
        Outage(agent=agent, begin_s=begin_s, end_s=end_s, orderly=orderly, version=version)
    )
    # In order: it first says that it leaves.
    deaf_s = begin_s + float(draft.rng.uniform(0.2, 1.5)) if orderly else begin_s
    _deafen(draft, agent, deaf_s, end_s + UNKNOWN_S)


def _deafen(draft: Draft, agent: int, begin_s: float, end_s: float) -> None:
    """Let the endpoints of an agent answer nobody."""
    members = frozenset(draft.cluster.agents[agent].endpoints)
    sink = Where(place=Place.SINK, dsts=members, replies=False)
    draft.plan.effects.append(Effect(where=sink, schedule=steady(begin_s, end_s), loss=1.0))


def _is_busy(draft: Draft, agent: int, begin_s: float, end_s: float | None = None) -> bool:
    """Return whether an agent is away about then for another reason."""
    until_s = begin_s + 120.0 if end_s is None else end_s
    return any(
        outage.agent == agent and outage.begin_s < until_s and begin_s < outage.end_s + 60.0
        for outage in draft.plan.outages
    )


def _free_agent(draft: Draft, begin_s: float) -> int:
    for agent in draft.shuffled(list(range(len(draft.cluster.agents)))):
        if not _is_busy(draft, agent, begin_s):
            return agent
    raise NoPlaceError("agent")


def _agent_names(draft: Draft, agent: int) -> frozenset[str]:
    group = draft.cluster.agents[agent]
    return frozenset({group.name, draft.cluster.hosts[group.host].name})


def _host_names(draft: Draft, host: int) -> frozenset[str]:
    names = {draft.cluster.hosts[host].name}
    names |= {group.name for group in draft.cluster.agents if group.host == host}
    return frozenset(
        names | {draft.cluster.rnic_name(e) for e in draft.cluster.hosts[host].endpoints}
    )
