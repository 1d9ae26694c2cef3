"""Heartbeats: what each agent says of itself every second."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from arena.sealed.agents import STARTING_S, Agents, Process
from arena.sealed.plan import AgentTrouble
from schemas import topics
from schemas.enums import AgentState, ProbingState
from schemas.records import Heartbeat
from schemas.units import SECOND_NS

_REFUSAL: Final = "its version is beyond what the skeleton job can have reached"


@dataclass(slots=True, kw_only=True)
class Heartbeats:
    """Sends the heartbeats of all agents.

    Attributes
    ----------
    delays_ns : of each agent's replies in the last second, if there were any
    """

    agents: Agents
    rng: np.random.Generator
    delays_ns: dict[int, float] = field(default_factory=dict)
    _phase_s: NDArray[np.float64] = field(init=False)

    def __post_init__(self) -> None:
        self._phase_s = self.rng.uniform(0.0, 1.0, len(self.agents.cluster.agents))

    def beat(self, second: int) -> None:
        """Send the heartbeats of one second; a stalled host sends its own late."""
        agents = self.agents
        hosts = np.array([group.host for group in agents.cluster.agents])
        due_s = second + self._phase_s + 0.002 * self.rng.standard_exponential(len(hosts))
        stalled_s = agents.hosts.stalled_s(hosts, due_s)
        for agent, process in enumerate(agents.processes):
            at_s = float(due_s[agent] + stalled_s[agent])
            if process is None or agents.muted[agent] or not agents.runs(agent, at_s):
                continue
            self._send(agent, process, at_s, state=AgentState.RUNNING)
        for outage in agents.plan.outages:
            if outage.orderly and second <= outage.begin_s < second + 1:
                leaving = agents.processes[outage.agent]
                if leaving is not None:
                    self._send(outage.agent, leaving, outage.begin_s - 0.001, AgentState.LEAVING)

    def _send(self, agent: int, process: Process, at_s: float, state: AgentState) -> None:
        agents = self.agents
        cluster = agents.cluster
        group = cluster.agents[agent]
        active, waiting = agents.targets(agent)
        trouble = agents.trouble(agent, at_s)
        starting = at_s - process.began_s < STARTING_S
        listed = agents.has_list(agent) and trouble is not AgentTrouble.NO_LIST
        probing, reason = ProbingState.PROBING, None
        if trouble is AgentTrouble.DISPLACED or starting or not listed or not active:
            probing, reason = _idle(trouble, starting=starting, listed=listed, waiting=waiting)
        flows = active if probing is ProbingState.PROBING else 0
        if starting and state is AgentState.RUNNING:
            state = AgentState.STARTING
        refused = trouble is AgentTrouble.LIST_REFUSED
        displaced_by = None
        if trouble is AgentTrouble.DISPLACED:
            began_s = next(t.schedule.begin_s for t in agents.plan.troubled if t.agent == agent)
            displaced_by = agents.true_ns(began_s)
        error_ns = int(self.rng.uniform(0.6e6, 3e6))
        measured = not starting
        offset_ns = agents.clock_ns(group.host, at_s) + float(self.rng.normal(0.0, 3e5))
        record = Heartbeat(
            cluster=cluster.name,
            agent_id=group.name,
            host_id=cluster.hosts[group.host].name,
            incarnation=process.incarnation_ns,
            seq=process.beats,
            sent_at=agents.wall_us(group.host, at_s),
            interval_ns=SECOND_NS,
            state=state,
            pinglist_version=agents.list_versions[agent] if listed else None,
            endpoints=len(group.endpoints),
            targets_active=flows // 2,
            targets_waiting=waiting // 2,
            rounds_sent=process.rounds,
            results_sent=process.results,
            rounds_dropped=0,
            replies_duplicate=0,
            replies_late=0,
            replies_foreign=0,
            packets_malformed=0,
            records_undecodable=0,
            broker_away=any(
                pause.begin_s + 2.0 <= at_s < pause.end_s for pause in agents.plan.broker_pauses
            ),
            host_delay_ns=self._delay_ns(agent),
            probing=probing,
            probing_reason=reason,
            displaced_by=displaced_by,
            flows_active=flows,
            lists_refused=int(refused),
            list_refusal=_REFUSAL if refused else None,
            clock_offset_ns=int(offset_ns) if measured else None,
            clock_error_ns=error_ns if measured else None,
            clock_offset_reason=None if measured else "nothing was confirmed yet",
            packets_filtered=0,
            producer_version=process.version,
        )
        process.beats += 1
        agents.outbox.send(group.name, at_s, topics.HEARTBEAT.name, group.name, record)

    def _delay_ns(self, agent: int) -> int | None:
        delay = self.delays_ns.get(agent)
        return None if delay is None else int(delay)


def _idle(
    trouble: AgentTrouble | None, *, starting: bool, listed: bool, waiting: int
) -> tuple[ProbingState, str]:
    """Return why an agent does not probe."""
    if trouble is AgentTrouble.DISPLACED:
        return ProbingState.DISPLACED, "another agent with this id started later"
    if starting:
        return ProbingState.STARTING, "reads ping lists and registrations"
    if not listed:
        return ProbingState.NO_LIST, "nobody has published a list"
    if waiting:
        return ProbingState.WAITING, "no target has registered"
    return ProbingState.EMPTY_LIST, "the list has no targets"
