"""Which agents are alive.

In: heartbeats. A dead agent is a verdict of its own: its silence must not be taken for a dead path.
An agent that says it is leaving, or whose heartbeat record is deleted, is gone and not dead.

An agent's age is the arrival of its last heartbeat against the arrival of everybody's, both as the
log has them: no agent's clock counts, and while nobody's heartbeats arrive, nobody ages. All times
are nanoseconds.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import numpy as np

from localizer.facts.agents import MEMBER_NS, UNKNOWN, Agent, AgentTable, Column
from localizer.facts.heartbeats import LEAVING, HeartbeatBatch
from schemas.columns.arrays import Bools, Int64s
from schemas.enums import AgentState
from schemas.process import memory
from schemas.records import Heartbeat
from schemas.units import SECOND_NS

# Agents known at once.
MAX_AGENTS: Final = 100_000
# An agent is dead after this many silent intervals if probes of its endpoints fail as well. Not
# earlier: a process on a starved host is often back within three seconds.
SILENT_INTERVALS: Final = 4.5
# Without failing probes it takes longer. An agent whose endpoints answer probes is not dead,
# however late its heartbeats are.
SILENT_ALONE_INTERVALS: Final = 6.5
# An agent that is silent although its endpoints answer is alive and not heard: its way to the
# broker is cut, or its publishing hangs. Twice the time of a death, since one that reconnects, or
# whose host is starved, is back by then.
UNHEARD_INTERVALS: Final = 2 * SILENT_ALONE_INTERVALS
# From here on a silent agent counts as one that may be dying together with others.
MAYBE_INTERVALS: Final = 2.5
# After more than this, the agent is at least delayed: what it does not report says nothing.
LATE_INTERVALS: Final = 1.5
# A silence that explains anomalies of an agent's endpoints lasts longer than this. A heartbeat that
# is a second late explains none: the fault that takes probes also takes the packets that carry
# heartbeats, until they are sent again. A process that pauses so briefly is told by what it leaves
# well.
PAUSED_INTERVALS: Final = MAYBE_INTERVALS
# After an agent came back, three answered rounds clear its endpoints' anomalies; until then these
# say nothing about the network.
RECOVERY_NS: Final = 8 * SECOND_NS
# Partial loss is cleared by some 40 answered probes, or after the minute over which it is counted.
LOSS_RECOVERY_NS: Final = 65 * SECOND_NS
# Silences remembered per agent: a starved one has several in a minute.
SILENCES: Final = 8
# Slack between an agent's last sign of life and a loss: probes sent just before it died are lost as
# well.
ONSET_SLACK_NS: Final = SECOND_NS // 4
# A heartbeat that is applied so long after its arrival stands in a topic with the writer's
# timestamps, and the writer's clock is behind. The agent is alive.
SKEWED_NS: Final = 5 * SECOND_NS
# Heartbeats of one process that arrive out of order or twice: a producer's retries reorder few. A
# larger step back is a new count.
REORDERED: Final = 3
# An agent that left, or was never a member, is forgotten after so long a silence.
FORGET_NS: Final = 120 * SECOND_NS
MIN_INTERVAL_NS: Final = SECOND_NS // 10
MAX_INTERVAL_NS: Final = 60 * SECOND_NS


# A log without heartbeats for more than this many usual intervals has paused.
PAUSE_INTERVALS: Final = 2.5
# After a pause agents find the broker again within this time.
RECONNECT_NS: Final = 8 * SECOND_NS
# Pauses remembered. What one puts off the next puts off again: a broker whose nodes restart in turn
# makes several in a few minutes.
PAUSES: Final = 8


class ArrivalClock:
    """The time that heartbeats show by arriving; it stands still while the log pauses."""

    def __init__(self) -> None:
        self._newest_ns: int | None = None
        self._newest_in: dict[int, int] = {}
        # Of the last pauses: the newest heartbeat before it, and until when agents may reconnect.
        self._pauses_ns: tuple[tuple[int, int], ...] = ((0, 0),)
        self._resumed_in: dict[int, int] = {}

    def observe_arrival(self, partition: int, arrived_ns: int, usual_ns: int) -> None:
        """Observe a heartbeat of anybody; `usual_ns` is the usual interval of agents."""
        pause_ns = PAUSE_INTERVALS * usual_ns
        if self._newest_ns is not None and arrived_ns - self._newest_ns > pause_ns:
            pause = self._newest_ns, arrived_ns + RECONNECT_NS
            self._pauses_ns = (*self._pauses_ns, pause)[-PAUSES:]
        if arrived_ns - self._newest_in.get(partition, arrived_ns) > pause_ns:
            self._resumed_in[partition] = arrived_ns + RECONNECT_NS
        self._newest_ns = max(arrived_ns, self._newest_ns or arrived_ns)
        self._newest_in[partition] = max(arrived_ns, self._newest_in.get(partition, arrived_ns))

    def observe_arrivals(self, partitions: Int64s, arrived_ns: Int64s) -> None:
        """Observe heartbeats that `goes_on` says yes of."""
        self._newest_ns = max(self._newest_ns or 0, int(arrived_ns.max()))
        for partition in np.unique(partitions).tolist():
            latest_ns = int(arrived_ns[partitions == partition].max())
            self._newest_in[partition] = max(latest_ns, self._newest_in[partition])

    def goes_on(self, partitions: Int64s, arrived_ns: Int64s, now_ns: int, usual_ns: int) -> Bools:
        """Return which heartbeats say nothing of any pause, whatever order they come in.

        Those of partitions, and of a log, that do not pause at `now_ns`, after which none of them
        arrived; and none that may have been sent in a pause.
        """
        pause_ns = PAUSE_INTERVALS * usual_ns
        if self._newest_ns is None or now_ns - self._newest_ns > pause_ns:
            return np.zeros(len(partitions), np.bool_)
        paused_ns, reconnected_ns = self._pauses_ns[-1]
        found: Bools = (arrived_ns <= paused_ns) | (arrived_ns > reconnected_ns)
        for partition in np.unique(partitions).tolist():
            if now_ns - self._newest_in.get(partition, 0) > pause_ns:
                found &= partitions != partition
        return found

    def time_ns(self, now_ns: int, usual_ns: int) -> int:
        """Return the present by arrivals: not later than half an interval after the newest."""
        return now_ns if self._newest_ns is None else min(now_ns, self._newest_ns + usual_ns // 2)

    def pauses(self, now_ns: int, usual_ns: int) -> bool:
        """Return whether the log pauses now."""
        return now_ns - self.time_ns(now_ns, usual_ns) > PAUSE_INTERVALS * usual_ns

    def sent_since_ns(self, arrived_ns: int, agent: Agent | None, intervals: int) -> int:
        """Return when a heartbeat was sent at the earliest; those of a pause arrive after it.

        They come in batches, some more than an interval apart. So it is counted from the one
        before in intervals, as an agent numbers its heartbeats also while nobody takes them.

        Parameters
        ----------
        agent
            What was known before of the agent that sent it; None: nothing.
        intervals
            How many intervals after the agent's last heartbeat this one was sent, at least.
        """
        paused_ns, reconnected_ns = self._pauses_ns[-1]
        if not paused_ns < arrived_ns <= reconnected_ns:
            return arrived_ns
        if agent is None:
            return paused_ns
        return min(arrived_ns, max(paused_ns, agent.sent_ns + intervals * agent.interval_ns))

    @property
    def pauses_ns(self) -> tuple[tuple[int, int], ...]:
        """When the last pauses that are over began, and until when agents may have reconnected."""
        return self._pauses_ns

    def resumed_ns(self, partition: int | None) -> int:
        """Return until when agents may have been looking for the broker after a pause."""
        if partition is None:
            return self._pauses_ns[-1][1]
        return max(self._pauses_ns[-1][1], self._resumed_in.get(partition, 0))


class Liveness:
    """The heartbeats of all agents.

    Attributes
    ----------
    dead
        Agents declared dead, with the time of their first missed heartbeat.
    unheard
        Agents that are silent for long although their endpoints answer, likewise. Anomalies of
        these endpoints are the network's.
    refused
        Heartbeats of agents beyond the bound.
    """

    def __init__(self, max_agents: int = MAX_AGENTS) -> None:
        self.dead: dict[str, int] = {}
        self.unheard: dict[str, int] = {}
        self.refused = 0
        self.agents = AgentTable()
        self._max_agents = max_agents
        self._arrivals = ArrivalClock()
        self._usual_ns = SECOND_NS
        # The last result of `_unknown_agents` and what it is valid for.
        self._unknown: tuple[tuple[Mapping[str, int], ...], tuple[int, ...], set[str]] = (
            (), (), set(),
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.agents)

    def observe_heartbeat(
        self, beat: Heartbeat, arrived_ns: int, *, partition: int = 0, now_ns: int | None = None
    ) -> None:
        """Apply a heartbeat; one that was overtaken by a later one changes nothing.

        Parameters
        ----------
        arrived_ns
            When the log received it.
        partition
            Partition that it stands in.
        now_ns
            Present, if it is applied later than it arrived.
        """
        interval_ns = bounded_interval_ns(beat.interval_ns)
        if now_ns is not None and now_ns - arrived_ns > SKEWED_NS:
            arrived_ns = now_ns - interval_ns
        agent = self.agents.get(beat.agent_id)
        known = agent is not None and agent.incarnation == beat.incarnation
        if agent is not None and known and agent.seq - REORDERED < beat.seq <= agent.seq:
            return
        if agent is None and len(self.agents) >= self._max_agents:
            self.refused += 1
            return
        self._arrivals.observe_arrival(partition, arrived_ns, self._usual_ns)
        leaving = beat.state is AgentState.LEAVING
        # That it leaves, an agent says between two.
        intervals = beat.seq - agent.seq - leaving if agent is not None and known else 0
        sent_ns = self._arrivals.sent_since_ns(arrived_ns, agent, max(intervals, 0))
        silences: tuple[tuple[int, int], ...] = ()
        first_ns = heard_ns = arrived_ns
        if agent is not None:
            first_ns, silences = agent.first_ns, agent.silences
            # The broker's absence is no silence of the agent.
            since_ns = max(agent.heard_ns, self._arrivals.resumed_ns(partition))
            late = arrived_ns - since_ns > PAUSED_INTERVALS * agent.interval_ns
            if late or not known:
                silences = (*silences, (agent.sent_ns, arrived_ns))[-SILENCES:]
            heard_ns = max(agent.heard_ns, arrived_ns)
            sent_ns = max(agent.sent_ns, sent_ns)
        self.agents.put(
            Agent(
                beat.agent_id, beat.host_id, first_ns, heard_ns, sent_ns, interval_ns,
                beat.incarnation, beat.seq,
                partition=partition, leaving=leaving, host_delay_ns=beat.host_delay_ns,
                silences=silences,
            )
        )  # fmt: skip
        self._clear(beat.agent_id)

    def ordinary(self, batch: HeartbeatBatch, places: Int64s, now_ns: int) -> Bools:
        """Return which heartbeats tell only that their agents live as before.

        `observe_batch` applies them, in any order, and before or after the others: no two are of
        one agent, and none of the others begins or ends a pause that these would tell of.

        Parameters
        ----------
        places
            Of the agents, `AgentTable.places`.
        now_ns
            Present; none of them arrived later.
        """
        agents = self.agents
        found: Bools = places != UNKNOWN
        if not found.all():
            # Any place will do.
            places = np.where(found, places, 0)
        if not len(agents):
            return found
        at_ns = batch.at_ns
        interval_ns = np.clip(batch.numbers("interval_ns"), MIN_INTERVAL_NS, MAX_INTERVAL_NS)
        found &= agents.column(Column.INCARNATION, places) == batch.numbers("incarnation")
        found &= agents.column(Column.SEQ, places) < batch.numbers("seq")
        found &= agents.column(Column.INTERVAL_NS, places) == interval_ns
        found &= agents.column(Column.PARTITION, places) == batch.partition
        silence_ns = at_ns - agents.column(Column.HEARD_NS, places)
        found &= silence_ns <= PAUSED_INTERVALS * interval_ns
        found &= now_ns - at_ns <= SKEWED_NS
        found &= batch.numbers("state") != LEAVING
        found &= agents.on_hosts(places, batch.hosts)
        found &= self._arrivals.goes_on(batch.partition, at_ns, now_ns, self._usual_ns)
        special = {*self.dead, *self.unheard, *filter(agents.is_leaving, agents.excusable)}
        if special:
            found &= ~np.isin(places, agents.places(special))
        if len(np.unique(places)) < len(places):
            counts = np.bincount(places)
            found &= counts[places] == 1
        return found

    def observe_batch(self, batch: HeartbeatBatch, places: Int64s) -> None:
        """Apply heartbeats that are `ordinary`."""
        self._arrivals.observe_arrivals(batch.partition, batch.at_ns)
        self.agents.hear(places, batch.at_ns)
        self.agents.set_column(Column.SEQ, places, batch.numbers("seq"))
        self.agents.set_column(Column.HOST_DELAY_NS, places, batch.numbers("host_delay_ns"))

    def forget_agent(self, agent_id: str) -> None:
        """Forget an agent."""
        self.agents.forget(agent_id)
        self._clear(agent_id)

    def remember_silent(self, agent_id: str, missed_ns: int, *, dead: bool) -> None:
        """Take over from a former process that an agent is silent; later heartbeats overrule it.

        Parameters
        ----------
        dead
            Whether it was dead; if not, it is unheard, until probes of its endpoints fail.
        """
        agent = self.agents.get(agent_id)
        if agent is None:
            agent = Agent(
                agent_id, "", missed_ns - MEMBER_NS, missed_ns, missed_ns, SECOND_NS, 0, -REORDERED
            )
            self.agents.put(agent)
        if agent.heard_ns <= missed_ns:
            (self.dead if dead else self.unheard)[agent_id] = missed_ns

    def get(self, agent_id: str) -> Agent | None:
        """Return what is known of an agent."""
        return self.agents.get(agent_id)

    def declare_dead(
        self,
        now_ns: int,
        witnesses: frozenset[str],
        gone: frozenset[str],
        answers: Callable[[str], bool],
        registered: Callable[[str], bool],
    ) -> list[str]:
        """Declare agents dead or unheard that have been silent for long enough.

        After an outage of the broker agents reconnect one by one. So silence counts from when they
        have had the time to. An agent that has no endpoint any more is expected to be silent.

        Parameters
        ----------
        witnesses
            Agents at whose endpoints probes of others fail.
        gone
            Agents all of whose endpoints have left in order.
        answers
            Returns whether others probe an agent's endpoints and most probes are answered.
        registered
            Returns whether an agent has registered endpoints or a ping list.

        Returns
        -------
        list of str
            The agents newly declared dead, sorted.
        """
        for agent_id in [a for a in (*self.dead, *self.unheard) if a in gone]:
            self._clear(agent_id)
        found = []
        for agent in self._silent(now_ns):
            name = agent.agent_id
            if name in gone or not self._is_member(agent, registered):
                continue
            # Counting what answers takes time, and nobody says that anything failed.
            if name in self.unheard and name not in witnesses:
                continue
            silence = self._silence(agent, now_ns)
            if silence <= (SILENT_INTERVALS if name in witnesses else SILENT_ALONE_INTERVALS):
                continue
            if not answers(name):
                self.unheard.pop(name, None)
                self.dead[name] = agent.heard_ns + agent.interval_ns
                found.append(name)
            elif silence > UNHEARD_INTERVALS:
                self.unheard[name] = agent.heard_ns + agent.interval_ns
        return sorted(found)

    @property
    def silent(self) -> dict[str, int]:
        """Agents that are dead or unheard, with the time of their first missed heartbeat."""
        return self.dead | self.unheard if self.unheard else self.dead

    def _clear(self, agent_id: str) -> None:
        """Forget that an agent is silent."""
        self.dead.pop(agent_id, None)
        self.unheard.pop(agent_id, None)

    def missed_ns(
        self, now_ns: int, gone: frozenset[str], registered: Callable[[str], bool]
    ) -> dict[str, int]:
        """Return the silent agents that are dead or may soon be: when each was first missed."""
        late = self.agents.silent_for(self._time_ns(now_ns), MAYBE_INTERVALS)
        agents = self._known(a for a in late if a not in gone and a not in self.dead)
        return self.dead | {
            agent.agent_id: agent.heard_ns + agent.interval_ns
            for agent in agents
            if not agent.leaving
            and self._is_member(agent, registered)
            and self._silence(agent, now_ns) > MAYBE_INTERVALS
        }

    def members(self, registered: Callable[[str], bool]) -> list[Agent]:
        """Return the agents that are part of the cluster."""
        known = self._known(self.agents)
        return [agent for agent in known if self._is_member(agent, registered)]

    def _known(self, names: Iterable[str]) -> list[Agent]:
        """Return what is known of agents, of those that are."""
        return [agent for name in names if (agent := self.agents.get(name)) is not None]

    def forget_departed(
        self, now_ns: int, gone: frozenset[str], registered: Callable[[str], bool]
    ) -> list[str]:
        """Forget agents that left or never were members and have long been silent; return them."""
        silent = self.agents.not_heard_since(self._time_ns(now_ns) - FORGET_NS)
        found = [
            agent.agent_id
            for agent in self._known(silent)
            if agent.leaving or agent.agent_id in gone or not self._is_member(agent, registered)
        ]
        for agent_id in found:
            self.forget_agent(agent_id)
        memory.shrink_tables(self)
        self.agents.shrink_tables()
        return found

    def excused(
        self,
        agent_id: str,
        onset_ns: int,
        now_ns: int,
        *,
        prober: str | None = None,
        loss: bool = False,
    ) -> bool:
        """Return whether an anomaly at an agent's endpoint is attributed to the agent.

        It is while the agent is dead, and for some time after its return if the anomaly began
        during its silence; longer for `loss` (partial loss), which takes more answers to clear.
        Only its prober can clear it: while that one is silent as well, or nobody's records come
        since the log pauses, this time does not pass.
        """
        if agent_id in self.dead:
            return True
        agent = self.agents.get(agent_id)
        if agent is None:
            return False
        if agent.leaving:
            return True
        most_ns = LOSS_RECOVERY_NS if loss else RECOVERY_NS
        return any(
            silent_ns - ONSET_SLACK_NS <= onset_ns <= back_ns + agent.interval_ns
            and now_ns < self._heard_since_ns(prober, back_ns, now_ns, most_ns) + most_ns
            for silent_ns, back_ns in agent.silences
        )

    def _heard_since_ns(
        self, agent_id: str | None, since_ns: int, now_ns: int, within_ns: int
    ) -> int:
        """Return from when on an agent was heard for so long without a silence, at the earliest.

        Nobody is heard while the log pauses.
        """
        agent = None if agent_id is None else self.agents.get(agent_id)
        if agent is None:
            return since_ns
        for silent_ns, back_ns in sorted((*agent.silences, *self._arrivals.pauses_ns)):
            if silent_ns < since_ns + within_ns:
                since_ns = max(since_ns, back_ns)
        if agent.heard_ns >= since_ns + within_ns:
            return since_ns
        silent_now = self._silence(agent, now_ns) > PAUSED_INTERVALS
        return now_ns if silent_now or self._arrivals.pauses(now_ns, self._usual_ns) else since_ns

    def excusable(self) -> set[str]:
        """Return the agents that anomalies may be attributed to."""
        return self.agents.excusable | self.dead.keys()

    def any_silent(self, now_ns: int) -> bool:
        """Return whether any agent has been silent for so long that it may be dead."""
        self._usual_ns = self.agents.usual_interval_ns
        return bool(self._silent(now_ns))

    def returned_ns(self, agent_id: str) -> int | None:
        """Return when an agent was seen again after its latest silence; None if it had none."""
        agent = self.agents.get(agent_id)
        return None if agent is None or not agent.silences else agent.silences[-1][1]

    def uninformative(self, agents: tuple[Mapping[str, int], ...], now_ns: int) -> set[str]:
        """Return agents whose silence about a 5-tuple does not mean that it is well.

        Parameters
        ----------
        agents
            Mappings whose keys are the agents in question; keys are only ever added.
        """
        found = {*self._unknown_agents(agents), *self.dead}
        found.update(self.agents.silent_for(self._time_ns(now_ns), LATE_INTERVALS))
        return found.union(filter(self.agents.is_leaving, self.agents.excusable))

    def _unknown_agents(self, agents: tuple[Mapping[str, int], ...]) -> set[str]:
        """Return the agents that never sent a heartbeat; cached while no agent comes or goes."""
        counts = (self.agents.version, *map(len, agents))
        known, before, found = self._unknown
        if counts != before or any(a is not b for a, b in zip(agents, known, strict=True)):
            found = {a for some in agents for a in some if a not in self.agents}
            self._unknown = agents, counts, found
        return found

    def seen_recently(self, agent_id: str, now_ns: int) -> bool:
        """Return whether an agent was seen so recently that it is certainly not dead."""
        agent = self.agents.get(agent_id)
        return (
            agent is not None
            and not agent.leaving
            and agent_id not in self.dead
            and self._silence(agent, now_ns) <= SILENT_ALONE_INTERVALS
        )

    def alive_after(self, agent_id: str, onset_ns: int) -> bool:
        """Return whether a heartbeat shows that the agent lived after something began.

        True for an agent that never sent one: there is nothing to wait for.
        """
        heard_ns = self.agents.number(agent_id, Column.HEARD_NS)
        return heard_ns is None or heard_ns > onset_ns + ONSET_SLACK_NS

    def lived_ns(self, agent_id: str, onset_ns: int) -> int | None:
        """Return when a heartbeat showed first that an agent lived after something began.

        None if none did, or none of the last seconds: `AgentTable.first_after`.
        """
        if agent_id not in self.agents:
            return None
        return self.agents.first_after(agent_id, onset_ns + ONSET_SLACK_NS)

    def busy(self, agent_id: str, bound_ns: int) -> bool:
        """Return whether the agent's own delay was recently above a bound."""
        delay_ns = self.agents.number(agent_id, Column.HOST_DELAY_NS)
        return delay_ns is not None and delay_ns > bound_ns

    def _silent(self, now_ns: int) -> list[Agent]:
        """Return the agents that may be dead and are not declared so yet."""
        late = self.agents.silent_for(self._time_ns(now_ns), SILENT_INTERVALS)
        agents = self._known(agent_id for agent_id in late if agent_id not in self.dead)
        return [agent for agent in agents if not agent.leaving]

    def _silence(self, agent: Agent, now_ns: int) -> float:
        """Return how many of its intervals an agent has been silent, without pauses of the log."""
        since_ns = max(agent.heard_ns, self._arrivals.resumed_ns(agent.partition))
        return (self._time_ns(now_ns) - since_ns) / agent.interval_ns

    def _time_ns(self, now_ns: int) -> int:
        return self._arrivals.time_ns(now_ns, self._usual_ns)

    @staticmethod
    def _is_member(agent: Agent, registered: Callable[[str], bool]) -> bool:
        """Return whether an agent is part of the cluster, not just a name in some heartbeats."""
        return agent.heard_ns - agent.first_ns >= MEMBER_NS or registered(agent.agent_id)


def bounded_interval_ns(interval_ns: int) -> int:
    """Return an interval of heartbeats within what is believed."""
    return min(max(interval_ns, MIN_INTERVAL_NS), MAX_INTERVAL_NS)
