"""Rounds of probes: each agent probes its 5-tuples once a second and repeats what gets lost."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from arena.sealed.agents import Agents, Process
from arena.sealed.heartbeats import Heartbeats
from arena.sealed.hosts import RnicNoise
from arena.sealed.network import STATUSES, Ints, Network
from arena.sealed.schedule import Bools, Floats
from schemas import topics
from schemas.enums import ClockSource, ProbeStatus, Transport
from schemas.records import ProbeResult, ProbeRound
from schemas.units import SECOND_NS

TIMEOUT_S: Final = 0.5
# Probes of a round leave evenly over this part of the second.
PACED_S: Final = 0.9
# Between two repetitions of a lost probe.
REPEAT_GAP_S: Final = 0.02
# Delays travel in 1,024-ns units.
DELAY_UNIT_NS: Final = 1024


@dataclass(frozen=True, slots=True)
class Probes:
    """Results of probes, one row each.

    Attributes
    ----------
    flow : index of the 5-tuple
    sent_s : true time
    lost : whether there was no valid answer
    status : index into STATUSES, of what is lost
    rtt_ns, prober_ns, responder_ns : measured, where the probe was answered
    """

    flow: Ints
    sent_s: Floats
    lost: Bools
    status: Ints
    rtt_ns: Floats
    prober_ns: Floats
    responder_ns: Floats


@dataclass(slots=True, kw_only=True)
class Prober:
    """Sends the rounds of all agents, a second at a time."""

    agents: Agents
    network: Network
    noise: RnicNoise
    heartbeats: Heartbeats
    rng: np.random.Generator
    _src: Ints = field(init=False)
    _dst: Ints = field(init=False)
    _host: Ints = field(init=False)
    _names: list[tuple[str, str, int]] = field(init=False)

    def __post_init__(self) -> None:
        cluster = self.agents.cluster
        flows = cluster.flows
        self._src = np.array([flow.src for flow in flows])
        self._dst = np.array([flow.dst for flow in flows])
        self._host = np.array([site.host for site in cluster.sites])
        self._names = [
            (cluster.sites[flow.src].name, cluster.sites[flow.dst].name, flow.index)
            for flow in flows
        ]

    def probe(self, second: int) -> list[tuple[int, float, bool]]:
        """Send the rounds that begin in a second.

        Returns
        -------
        Flow, time of the answer or timeout, and whether it was lost, of the first probes.
        """
        agents = self.agents
        flows = np.flatnonzero(agents.probing)
        self.heartbeats.delays_ns.clear()
        if not len(flows):
            return []
        agent_of = agents.agent_of_flows()[flows]
        due_s = second + agents.phase_s[agent_of] + self._paces(agent_of)
        due_s = due_s + 30e-6 * self.rng.standard_exponential(len(flows))
        sent_s = due_s + agents.hosts.stalled_s(self._host[self._src[flows]], due_s)
        first = self._send(flows, sent_s)
        again = np.repeat(np.flatnonzero(first.lost), agents.cluster.confirm)
        number = np.tile(np.arange(agents.cluster.confirm), int(first.lost.sum()))
        repeated = self._send(
            flows[again], first.sent_s[again] + TIMEOUT_S + 1e-3 + REPEAT_GAP_S * number
        )
        for agent, process in enumerate(agents.processes):
            mine = np.flatnonzero(agent_of == agent)
            if process is None or not len(mine):
                continue
            begin_s = float(second + agents.phase_s[agent])
            rows = [first, repeated]
            parts = [mine, np.flatnonzero(agents.agent_of_flows()[flows[again]] == agent)]
            self._publish(agent, process, begin_s, rows, parts)
        return list(
            zip(flows.tolist(), (first.sent_s + TIMEOUT_S).tolist(), first.lost.tolist(),
                strict=True)
        )  # fmt: skip

    def _paces(self, agent_of: NDArray[np.int64]) -> Floats:
        """Return when within its round each probe is due."""
        paces = np.zeros(len(agent_of))
        for agent in np.unique(agent_of):
            mine = np.flatnonzero(agent_of == agent)
            paces[mine] = np.arange(len(mine)) * (PACED_S / len(mine))
        return paces

    def _send(self, flows: Ints, sent_s: Floats) -> Probes:
        """Send one probe on each of these 5-tuples and wait for what comes back."""
        rng, hosts = self.rng, self.agents.hosts
        src, dst = self._src[flows], self._dst[flows]
        there = self.network.send(2 * flows, sent_s)
        arrived_s = sent_s + 1e-9 * there.late_ns
        held_ns = hosts.delays_ns(self._host[dst], arrived_s, rng)
        answered_s = arrived_s + 1e-9 * held_ns
        back = self.network.send(2 * flows + 1, answered_s)
        returned_s = answered_s + 1e-9 * back.late_ns
        handled_ns = hosts.delays_ns(self._host[src], returned_s, rng)
        rtt_ns = there.late_ns + back.late_ns
        rtt_ns = rtt_ns + self.noise.added_ns(src, sent_s, rng)
        rtt_ns = rtt_ns + self.noise.added_ns(dst, sent_s, rng)
        step = np.maximum(self.noise.step_ns[src], self.noise.step_ns[dst])
        rtt_ns = np.maximum(np.round(rtt_ns / step) * step, step)
        # A prober that was stalled finds reply and timeout waiting, in either order.
        late = returned_s + 1e-9 * handled_ns - sent_s > TIMEOUT_S
        too_late = (returned_s - sent_s > TIMEOUT_S) | (late & (rng.random(len(flows)) < 0.5))
        lost = there.lost | back.lost | too_late
        return Probes(flows, sent_s, lost, there.status, rtt_ns, handled_ns, held_ns)

    def _publish(
        self, agent: int, process: Process, begin_s: float, rows: list[Probes],
        parts: list[NDArray[np.int64]],
    ) -> None:  # fmt: skip
        agents = self.agents
        cluster = agents.cluster
        results = sorted(
            entry
            for probes, part in zip(rows, parts, strict=True)
            for entry in self._results(probes, part, begin_s)
        )
        answered = rows[0].prober_ns[parts[0]][~rows[0].lost[parts[0]]]
        if len(answered):
            self.heartbeats.delays_ns[agent] = float(np.quantile(answered, 0.95))
        done_s = begin_s + results[-1][0] * 1e-9
        if any(probes.lost[part].any() for probes, part in zip(rows, parts, strict=True)):
            done_s += TIMEOUT_S
        done_s = max(done_s, begin_s + 1.0) + float(self.rng.uniform(0.001, 0.02))
        host = cluster.agents[agent].host
        done_s += float(agents.hosts.stalled_s(np.array([host]), np.array([done_s]))[0])
        if not (agents.runs(agent, begin_s) and agents.runs(agent, done_s)):
            return
        record = ProbeRound(
            cluster=cluster.name,
            agent_id=cluster.agents[agent].name,
            host_id=cluster.hosts[host].name,
            incarnation=process.incarnation_ns,
            round_seq=process.rounds,
            started_at=agents.wall_us(host, begin_s),
            interval_ns=SECOND_NS,
            pinglist_version=agents.list_versions[agent],
            producer_version=process.version,
            results=tuple(result for *_, result in results),
        )
        process.rounds += 1
        process.results += len(results)
        if not agents.muted[agent]:
            name = record.agent_id
            agents.outbox.send(name, done_s, topics.PROBE_ROUND.name, name, record)

    def _results(
        self, probes: Probes, part: NDArray[np.int64], begin_s: float
    ) -> Iterator[tuple[int, int, int, ProbeResult]]:
        """Yield sending time, flow, a number of its own, and the result."""
        units = DELAY_UNIT_NS
        fallen = {
            endpoint
            for endpoint, schedule in self.agents.plan.fallbacks
            if schedule.begin_s <= begin_s < schedule.end_s
        }
        offsets = ((probes.sent_s[part] - begin_s) * 1e9).astype(np.int64) // units * units
        columns = zip(
            probes.flow[part].tolist(),
            np.maximum(offsets, 0).tolist(),
            probes.lost[part].tolist(),
            probes.status[part].tolist(),
            probes.rtt_ns[part].astype(np.int64).tolist(),
            (probes.prober_ns[part].astype(np.int64) // units * units).tolist(),
            (probes.responder_ns[part].astype(np.int64) // units * units).tolist(),
            strict=True,
        )
        for number, (flow, offset, lost, status, rtt, prober, responder) in enumerate(columns):
            src, dst, index = self._names[flow]
            udp = bool(fallen) and not fallen.isdisjoint((self._src[flow], self._dst[flow]))
            yield (
                offset,
                flow,
                number,
                ProbeResult(
                    src=src,
                    dst=dst,
                    flow=index,
                    sent_offset_ns=offset,
                    transport=Transport.UDP if udp else Transport.RDMA_UD,
                    status=STATUSES[status] if lost else ProbeStatus.OK,
                    rtt_ns=None if lost else rtt,
                    prober_delay_ns=None if lost else prober,
                    responder_delay_ns=None if lost else responder,
                    clock=ClockSource.KERNEL if udp else ClockSource.HARDWARE,
                ),
            )
