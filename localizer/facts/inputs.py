"""How records and time change what is known.

`Sources` holds all facts. `RecordIntake` applies one input record to them. `Housekeeper` lets time
pass before a decision: agents die, anomalies that nobody repeats end.
"""

from collections.abc import Collection, Sized
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from localizer.config import CoreConfig
from localizer.facts.agents import Agent
from localizer.facts.anomalies import OpenAnomalies
from localizer.facts.coverage import Coverage, coverage_by_task
from localizer.facts.findings import Findings
from localizer.facts.hangs import HangBook
from localizer.facts.heartbeats import HeartbeatBatch
from localizer.facts.index_cache import IndexCache
from localizer.facts.liveness import Liveness, bounded_interval_ns
from localizer.facts.overlay import FlowTables
from localizer.facts.reachability import Reachability
from localizer.facts.roster import Roster
from localizer.facts.self_reports import SelfReports
from localizer.facts.states import StateBook
from localizer.facts.stray_losses import StrayLosses
from localizer.network.paths import PathBook
from localizer.network.topology import Topology, TopologyError
from localizer.network.trace_batches import TraceBatch
from localizer.network.traces import FlowTrace, key_of
from schemas import topics
from schemas.columns.arrays import Int64s
from schemas.enums import AnomalyFamily, AnomalyKind, AnomalyState, ProbingState
from schemas.process import memory
from schemas.records import (
    Anomaly,
    Component,
    ComponentState,
    Endpoint,
    FlowTable,
    Hang,
    Heartbeat,
    PingList,
    Task,
)
from schemas.units import SECOND_NS

# What departed is forgotten at this distance of time.
SWEEP_NS: Final = 10 * SECOND_NS
# Its paths at this: to find them, all are looked at.
SWEEP_PATHS_NS: Final = 60 * SECOND_NS


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Everything that a decision is made from."""

    topology: Topology
    tables: FlowTables
    paths: PathBook
    roster: Roster
    liveness: Liveness
    anomalies: OpenAnomalies
    strays: StrayLosses
    # Open WEAK_LATENCY and BRIEF_LATENCY anomalies, which are believed of many 5-tuples together
    # only.
    weak_latencies: OpenAnomalies
    brief_latencies: OpenAnomalies
    states: StateBook
    reports: SelfReports
    hangs: HangBook = field(default_factory=HangBook)

    @property
    def findings(self) -> Findings:
        """What is out of order by states and flow tables."""
        return Findings(self.topology, self.states, self.tables)

    @property
    def refused(self) -> dict[str, int]:
        """How many records were refused because there is too much of a kind."""
        return {
            "heartbeats": self.liveness.refused,
            "registrations": self.roster.refused,
            "traces": self.paths.refused,
            "anomalies": self.anomalies.refused,
            "stray_losses": self.strays.forgotten,
            "weak_latencies": self.weak_latencies.refused,
            "brief_latencies": self.brief_latencies.refused,
            "states": self.states.refused,
            "components": self.topology.refused,
            "flow_tables": self.tables.refused,
            "hangs": self.hangs.refused,
        }

    @property
    def count(self) -> int:
        """How many things are known of which there may be thousands."""
        known: tuple[Sized, ...] = (
            self.topology, self.paths, self.roster, self.liveness, self.anomalies, self.states,
            self.strays, self.weak_latencies, self.brief_latencies,
        )  # fmt: skip
        return sum(map(len, known))

    def shrink_tables(self) -> None:
        """Give back the room of what has left."""
        for owner in (
            self.topology, self.roster, self.anomalies, self.weak_latencies, self.brief_latencies,
            self.states, self.reports,
        ):  # fmt: skip
            memory.shrink_tables(owner)

    def coverage(self) -> dict[str, dict[str, Coverage]]:
        """Return by task and agent the 5-tuples that should be probed and those that are."""
        roster = self.roster
        return coverage_by_task(roster.lists(), self.reports.flows_active(), roster.is_present)

    def members(self) -> list[Agent]:
        """Return the agents that are part of the cluster."""
        return self.liveness.members(self.roster.is_registered)

    def missed_ns(self, now_ns: int) -> dict[str, int]:
        """Return the agents that are dead or may soon be: when each was first missed."""
        return self.liveness.missed_ns(
            now_ns, self.roster.deserted_agents(), self.roster.is_registered
        )


# Sort key among all events.
Order = tuple[int, str, str, int, int]


@dataclass(frozen=True, slots=True)
class Event:
    """A record of an input topic.

    Attributes
    ----------
    at_ns
        Effective time: from when on the core may know of it, see `localizer.merge`.
    record
        The decoded record, of traces what is kept of it; None: a tombstone for `key`.
    """

    at_ns: int
    topic: str
    key: str
    partition: int
    offset: int
    record: Any

    @property
    def order(self) -> Order:
        """Sort key among all events; unique."""
        return self.at_ns, self.topic, self.key, self.partition, self.offset


def heartbeat_events(batch: HeartbeatBatch, rows: Int64s) -> list[Event]:
    """Return some of the heartbeats of a batch as events."""
    return [
        Event(at_ns, topics.HEARTBEAT.name, beat.agent_id, partition, offset, beat)
        for beat, at_ns, partition, offset in zip(
            batch.records(rows),
            batch.at_ns[rows].tolist(),
            batch.partition[rows].tolist(),
            batch.offset[rows].tolist(),
            strict=True,
        )
    ]


class RecordIntake:
    """Applies events to the facts.

    Attributes
    ----------
    refused
        Components that contradict themselves.
    """

    def __init__(self, sources: Sources) -> None:
        self.refused = 0
        self._sources = sources
        self._tables = sources.tables

    def apply_event(self, event: Event, now_ns: int) -> None:
        """Apply one event at a time `now_ns`."""
        record, sources = event.record, self._sources
        sources.roster.now_ns = now_ns
        match record:
            case None:
                self._tombstone(event)
            case Anomaly():
                self._anomaly(record, event.at_ns)
            case Heartbeat():
                self._heartbeat(record, event, now_ns)
            case FlowTrace():
                agent_of, (src, dst, _) = sources.roster.agent_of, record.key
                known = agent_of(src) is not None and agent_of(dst) is not None
                sources.paths.add(record, now_ns, registered=known)
            case FlowTable():
                self._tables.set_table(record)
            case ComponentState():
                sources.states.set_state(record, event.at_ns)
            case Hang():
                sources.hangs.set_hang(record.hang_id, record, event.at_ns)
            case Component():
                self._component(record)
            case _:
                self._roster(record)

    def apply_heartbeats(
        self, batch: HeartbeatBatch, named: Collection[str], now_ns: int
    ) -> list[Event]:
        """Apply those heartbeats of a batch that may come before all events of a time `now_ns`.

        They tell only that their agents live as before.

        Parameters
        ----------
        named
            Agents of which there are heartbeats, or their tombstones, among these events.

        Returns
        -------
        list of Event
            The other heartbeats.
        """
        liveness, reports = self._sources.liveness, self._sources.reports
        places = liveness.agents.places(batch.agents)
        ordinary = liveness.ordinary(batch, places, now_ns) & reports.ordinary(batch, places)
        if named:
            ordinary &= ~np.isin(places, liveness.agents.places(named))
        rows = np.flatnonzero(ordinary)
        if len(rows):
            part, places = batch.select(rows), places[rows]
            liveness.observe_batch(part, places)
            reports.observe_batch(part, places)
        return heartbeat_events(batch, np.flatnonzero(~ordinary))

    def apply_traces(self, batch: TraceBatch, now_ns: int) -> None:
        """Apply traces at a time `now_ns`."""
        paths, agent_of = self._sources.paths, self._sources.roster.agent_of
        known = batch.between([agent_of(end) is not None for end in batch.ends])
        paths.add_batch(batch.where(known), now_ns)
        for found in batch.flow_traces(np.flatnonzero(~known).tolist()):
            paths.add(found, now_ns, registered=False)

    def _anomaly(self, record: Anomaly, at_ns: int) -> None:
        if record.kind is AnomalyKind.PROGRESS:
            return
        if record.kind is AnomalyKind.STRAY_LOSS:
            self._sources.strays.observe_loss(record, at_ns)
            return
        if record.kind is AnomalyKind.WEAK_LATENCY:
            self._sources.weak_latencies.apply_anomaly(record, at_ns)
            return
        if record.kind is AnomalyKind.BRIEF_LATENCY:
            self._sources.brief_latencies.apply_anomaly(record, at_ns)
            return
        if record.kind is AnomalyKind.CONNECTIVITY and record.state is AnomalyState.ONSET:
            self._sources.strays.explain(key_of(record.src, record.dst, record.flow), at_ns)
        self._sources.anomalies.apply_anomaly(record, at_ns)

    def _heartbeat(self, beat: Heartbeat, event: Event, now_ns: int) -> None:
        liveness, reports = self._sources.liveness, self._sources.reports
        if beat.probing is ProbingState.DISPLACED:
            # Two processes of one name: this one does not speak for the agent.
            known = beat.agent_id in liveness.agents
            if known or self._sources.roster.is_registered(beat.agent_id):
                interval_ns = bounded_interval_ns(beat.interval_ns)
                reports.observe_displaced(beat, event.at_ns, interval_ns)
            return
        liveness.observe_heartbeat(beat, event.at_ns, partition=event.partition, now_ns=now_ns)
        if beat.agent_id in liveness.agents:
            reports.observe_heartbeat(beat, event.at_ns)

    def _roster(self, record: Any) -> None:
        roster = self._sources.roster
        match record:
            case Endpoint():
                roster.set_endpoint(record.endpoint_id, record)
            case Task():
                roster.set_task(record.task_id, record)
            case PingList():
                roster.set_pinglist(record.agent_id, record)
            case _:
                raise TypeError(f"{type(record).__name__} is no input of the localizer")

    def _component(self, record: Component) -> None:
        try:
            self._sources.topology.set_component(record)
        except TopologyError:
            self.refused += 1

    def _tombstone(self, event: Event) -> None:
        match event.topic:
            case topics.ENDPOINT.name:
                self._sources.roster.set_endpoint(event.key, None)
            case topics.TASK.name:
                self._sources.roster.set_task(event.key, None)
            case topics.PINGLIST.name:
                self._sources.roster.set_pinglist(event.key, None)
            case topics.HEARTBEAT.name:
                self._sources.liveness.forget_agent(event.key)
                self._sources.reports.forget_agent(event.key)
            case topics.TOPOLOGY.name:
                self._sources.topology.remove_component(event.key)
            case topics.COMPONENT_STATE.name:
                self._sources.states.remove_state(event.key)
            case topics.OVERLAY_FLOWS.name:
                self._tables.remove_table(event.key)
            case topics.COLLECTIVE_HANG.name:
                self._sources.hangs.set_hang(event.key, None, event.at_ns)


class Housekeeper:
    """Brings the facts up to date before a decision."""

    def __init__(
        self, config: CoreConfig, sources: Sources, index: IndexCache, reach: Reachability
    ) -> None:
        self._config = config
        self._sources = sources
        self._index = index
        self._reach = reach
        # Versions of anomalies and roster when anomalies of departed endpoints were last dropped.
        self._checked = (-1, -1)
        self._next_sweep_ns = self._next_paths_ns = 0
        # Endpoints that are forgotten, and their paths not yet.
        self._forgotten: set[str] = set()

    def tidy_before_decision(self, now_ns: int) -> None:
        """Declare agents dead; drop anomalies that nobody repeats or whose endpoints left."""
        sources = self._sources
        # Always, so that changes are applied little by little and not all when something breaks.
        self._index.refresh()
        sources.liveness.declare_dead(
            now_ns,
            self._witnesses() if sources.liveness.any_silent(now_ns) else frozenset(),
            sources.roster.deserted_agents(),
            lambda agent: self._reach.of_agent(agent, now_ns).answers,
            sources.roster.is_registered,
        )
        if now_ns >= self._next_sweep_ns:
            self._next_sweep_ns = now_ns + SWEEP_NS
            for agent_id in sources.liveness.forget_departed(
                now_ns, sources.roster.deserted_agents(), sources.roster.is_registered
            ):
                sources.reports.forget_agent(agent_id)
            self._forgotten.update(sources.roster.forget_departed(now_ns))
            self._forget_their_paths(now_ns)
            sources.paths.forget_untraced(
                now_ns - self._config.path_keep_ns, now_ns, self._index.probed
            )
            sources.topology.forget_lookups(len(sources.paths))
            sources.shrink_tables()
        sources.reports.expire(now_ns)
        for board in (sources.anomalies, sources.weak_latencies, sources.brief_latencies):
            board.expire(now_ns, frozenset(sources.liveness.dead))
        versions = (sources.anomalies.version, sources.roster.version)
        if versions != self._checked:
            for key in sources.roster.of_departed(sources.anomalies.flows()):
                sources.anomalies.drop_flow(key)
            self._checked = versions

    def _forget_their_paths(self, now_ns: int) -> None:
        """Forget the paths of endpoints that are forgotten; one that is back has new traces."""
        if now_ns < self._next_paths_ns or not self._forgotten:
            return
        self._next_paths_ns = now_ns + SWEEP_PATHS_NS
        known = self._sources.roster.agent_of
        self._sources.paths.forget_ends({e for e in self._forgotten if known(e) is None})
        self._forgotten = set()

    def _witnesses(self) -> frozenset[str]:
        """Return the agents at whose endpoints probes of others fail."""
        found = {
            self._sources.roster.agent_of(key[1])
            for key, symptoms in self._sources.anomalies.by_family(AnomalyFamily.LOSS)
            if any(s.kind is AnomalyKind.CONNECTIVITY for s in symptoms)
        }
        return frozenset(agent for agent in found if agent is not None)
