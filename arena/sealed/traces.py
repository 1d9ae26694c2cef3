"""Traces: which routers a 5-tuple crosses, as packets whose TTL runs out show it.

A 5-tuple is traced once its first probe is answered, and again when it loses probes, at most every
few seconds. A router answers from its control plane: slowly, sometimes not at all.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from arena.sealed.agents import Agents
from arena.sealed.network import Network
from arena.sealed.plan import Effect
from schemas import topics
from schemas.enums import TraceCause
from schemas.ids import path_id
from schemas.records import PathTrace, TraceHop

TRACE_S: Final = 0.8
# Routers limit their ICMP errors.
UNANSWERED: Final = 0.015
# Each hop is asked so often.
TRIES: Final = 2


@dataclass(slots=True, kw_only=True)
class Tracer:
    """Traces 5-tuples as their agents see them answered or lost."""

    agents: Agents
    network: Network
    rng: np.random.Generator
    _traced: dict[int, tuple[int, float]] = field(default_factory=dict)
    _limited: dict[int, int] = field(default_factory=dict)

    def observe(self, probed: list[tuple[int, float, bool]]) -> None:
        """Trace what the first probes of a second give reason for."""
        for flow, at_s, lost in probed:
            agent = self.agents.cluster.sites[self.agents.cluster.flows[flow].src].agent
            process = self.agents.processes[agent]
            if process is None:
                continue
            last = self._traced.get(flow)
            fresh = last is None or last[0] != process.incarnation_ns
            if fresh and not lost:
                wait_s = float(self.rng.uniform(0.0, 4.0))
                self._trace(flow, agent, at_s + wait_s, TraceCause.DISCOVERY)
            elif lost and last is not None and not fresh:
                if at_s - last[1] < self.agents.cluster.trace_gap_s:
                    continue
                self._trace(flow, agent, at_s + float(self.rng.uniform(0.0, 0.3)), TraceCause.LOSS)
            else:
                continue
            self._traced[flow] = (process.incarnation_ns, at_s)

    def _trace(self, index: int, agent: int, at_s: float, cause: TraceCause) -> None:
        agents, network = self.agents, self.network
        cluster = agents.cluster
        flow = cluster.flows[index]
        done_s = at_s + TRACE_S + float(self.rng.uniform(0.0, 0.4))
        process = agents.processes[agent]
        if process is None or agents.muted[agent] or not agents.runs(agent, done_s):
            return
        hops = tuple(self._hop(index, ttl, at_s) for ttl in range(1, len(network.hops[2 * index])))
        probe = np.array([index])
        there = network.send(2 * probe, np.array([at_s]))
        back = network.send(2 * probe + 1, np.array([at_s]))
        complete = bool(len(network.hops[2 * index]) and not (there.lost[0] or back.lost[0]))
        if complete:
            rtt_ns = int(there.late_ns[0] + back.late_ns[0]) + int(self.rng.uniform(2e3, 9e3))
            address = cluster.sites[flow.dst].address
            hops += (TraceHop(ttl=len(hops) + 1, address=address, rtt_ns=rtt_ns),)
        src, dst = cluster.sites[flow.src], cluster.sites[flow.dst]
        record = PathTrace(
            cluster=cluster.name,
            path_id=path_id(src.name, dst.name),
            src=src.name,
            dst=dst.name,
            flow=flow.index,
            agent_id=cluster.agents[agent].name,
            traced_at=agents.wall_us(src.host, done_s),
            cause=cause,
            complete=complete,
            incomplete_reason=None if complete else "the target did not answer",
            producer_version=process.version,
            hops=hops,
        )
        name = record.agent_id
        agents.outbox.send(name, done_s, topics.PATH_TRACE.name, record.path_id, record)

    def _hop(self, index: int, ttl: int, at_s: float) -> TraceHop:
        """Return what the router `ttl` hops away answers."""
        network, cluster = self.network, self.agents.cluster
        dlinks = network.hops[2 * index][:ttl]
        node = cluster.fabric.head(dlinks[-1])
        if node in cluster.mute:
            return TraceHop(ttl=ttl)
        for attempt in range(TRIES):
            sent_s = at_s + 0.05 * ttl + 0.3 * attempt
            late_ns = self._reached(index, ttl, sent_s)
            if late_ns is not None and self.rng.random() >= UNANSWERED:
                slow_ns = float(self.rng.lognormal(np.log(1.2e5), 0.9))
                numbered = cluster.numbered
                return TraceHop(
                    ttl=ttl,
                    address=cluster.interface_address(dlinks[-1])
                    if numbered
                    else cluster.loopback_address(node),
                    rtt_ns=int(late_ns + slow_ns),
                )
        return TraceHop(ttl=ttl)

    def _reached(self, index: int, ttl: int, at_s: float) -> float | None:
        """Return the round trip to a router in the network, nanoseconds; None: it was lost.

        The answer goes back over the same cables, which is as good as any other way.
        """
        network = self.network
        src, dst = network.trip_ends(2 * index)
        there = network.hops[2 * index]
        back = tuple(dlink ^ 1 for dlink in reversed(there[:ttl]))
        late_ns = 2.0 * network.least_ns(there[:ttl])
        for effect in network.active_effects():
            if not bool(effect.schedule.on(np.array([at_s]))[0]):
                continue
            place = effect.where.position(src, dst, there, reply=False)
            met = place is not None and (place < ttl or (place == ttl and not effect.answers))
            # Answers of routers are no traffic between two endpoints: only cables stop them.
            plain = effect.where.srcs is None and effect.where.dsts is None
            plain = plain and effect.where.pairs is None
            met_back = plain and not effect.where.dlinks.isdisjoint(back)
            if self._lost(effect, met) or self._lost(effect, met_back):
                return None
            if effect.delay is not None:
                late_ns += effect.delay.mean_ns * (met + met_back)
        return late_ns

    def _lost(self, effect: Effect, met: bool) -> bool:
        return met and effect.loss > 0.0 and self.rng.random() < effect.loss
