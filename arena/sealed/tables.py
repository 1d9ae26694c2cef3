"""Flow tables of the hosts' virtual switches and VTEPs, as an agent of the host reads them.

They are read every 30 s, and earlier where a pair begins to lose probes; published when something
in them is new, and again after a time that each cluster sets. An entry that is not in hardware is
called so after two readings in a row.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from arena.sealed.agents import Agents
from arena.sealed.plan import KEEP, TableEdit
from schemas import topics
from schemas.records import FlowEntry, FlowTable

INTERVAL_S: Final = 30.0
SOONEST_S: Final = 5.0
MOST_FAILURES: Final = 3


@dataclass(slots=True, kw_only=True)
class _Host:
    """What is remembered of a host's readings."""

    next_s: float
    last_s: float = -1e9
    published_s: float = -1e9
    entries: tuple[FlowEntry, ...] = ()
    software: Counter[tuple[str, str]] = field(default_factory=Counter)
    failures: int = 0


@dataclass(slots=True, kw_only=True)
class Tables:
    """Reads and publishes the tables of all hosts.

    Attributes
    ----------
    republish_s : after which an unchanged table is published again
    """

    agents: Agents
    republish_s: float
    rng: np.random.Generator
    _hosts: list[_Host] = field(default_factory=list)
    _rows: list[list[tuple[str, int, str]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        cluster = self.agents.cluster
        first = self.rng.uniform(1.0, INTERVAL_S, len(cluster.hosts))
        self._hosts = [_Host(next_s=float(at_s)) for at_s in first]
        self._rows = [self._usual(host) for host in range(len(cluster.hosts))]

    def read(self, second: int, losing: set[int]) -> None:
        """Read what is due in a second; `losing` are hosts whose pairs begin to lose probes."""
        if not self.agents.cluster.overlay:
            return
        for host, memory in enumerate(self._hosts):
            early = host in losing and second - memory.last_s >= SOONEST_S
            if not early and memory.next_s >= second + 1:
                continue
            at_s = second + float(self.rng.random()) if early else max(memory.next_s, second)
            if not early:
                memory.next_s += INTERVAL_S
            self._read(host, memory, at_s)

    def _read(self, host: int, memory: _Host, at_s: float) -> None:
        agents = self.agents
        cluster = agents.cluster
        agent = cluster.sites[cluster.hosts[host].endpoints[0]].agent
        process = agents.processes[agent]
        if process is None or not agents.runs(agent, at_s):
            return
        memory.last_s = at_s
        name, key = cluster.agents[agent].name, cluster.hosts[host].name
        if any(h == host and schedule.on(np.array([at_s]))[0]
               for h, schedule in agents.plan.tables_unread):  # fmt: skip
            memory.failures += 1
            if memory.failures == MOST_FAILURES and not agents.muted[agent]:
                agents.outbox.send(name, at_s + 0.2, topics.OVERLAY_FLOWS.name, key, None)
                memory.entries = ()
            return
        memory.failures = 0
        entries = self._entries(host, memory, at_s)
        if entries == memory.entries and at_s - memory.published_s < self.republish_s:
            return
        if agents.muted[agent]:
            return
        memory.entries, memory.published_s = entries, at_s
        record = FlowTable(
            cluster=cluster.name,
            host_id=key,
            captured_at=agents.wall_us(host, at_s),
            producer_version=process.version,
            entries=entries,
        )
        sent_s = at_s + float(self.rng.uniform(0.05, 0.6))
        agents.outbox.send(name, sent_s, topics.OVERLAY_FLOWS.name, key, record)

    def _usual(self, host: int) -> list[tuple[str, int, str]]:
        """Return node, destination and next hop of all entries while nothing is wrong."""
        cluster = self.agents.cluster
        vswitch = cluster.vswitch_name(host)
        rows: dict[tuple[str, int], str] = {}
        for flow in cluster.flows:
            src = cluster.sites[flow.src]
            if src.host != host:
                continue
            own, other = cluster.vtep_name(flow.src), cluster.vtep_name(flow.dst)
            rows[src.name, flow.dst] = vswitch
            rows[vswitch, flow.dst] = own
            rows[own, flow.dst] = other
        for endpoint in cluster.hosts[host].endpoints:
            rows[cluster.vtep_name(endpoint), endpoint] = vswitch
            rows[vswitch, endpoint] = cluster.sites[endpoint].name
        return [(node, dst, next_hop) for (node, dst), next_hop in rows.items()]

    def _entries(self, host: int, memory: _Host, at_s: float) -> tuple[FlowEntry, ...]:
        cluster = self.agents.cluster
        now = np.array([at_s])
        edits = [
            edit
            for edit in self.agents.plan.tables
            if edit.host == host and bool(edit.schedule.on(now)[0])
        ]
        entries = []
        for node, dst, usual in self._rows[host]:
            next_hop: str | None = usual
            hardware: bool | None = None if cluster.fdb else True
            edit = _edit_of(edits, node, dst)
            if edit is not None:
                next_hop = usual if edit.next_hop == KEEP else edit.next_hop
                hardware = None if cluster.fdb else edit.offloaded
            dst_name = cluster.sites[dst].name
            if hardware is False:
                memory.software[node, dst_name] += 1
                hardware = None if memory.software[node, dst_name] < 2 else False
            else:
                memory.software.pop((node, dst_name), None)
            entries.append(
                FlowEntry(node=node, dst=dst_name, next_hop=next_hop, offloaded=hardware)
            )
        return tuple(entries)


def _edit_of(edits: list[TableEdit], node: str, dst: int) -> TableEdit | None:
    return next((edit for edit in edits if edit.node == node and dst in edit.dsts), None)
