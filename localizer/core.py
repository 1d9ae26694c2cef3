"""The localizer's decisions as an event-driven state machine, without Kafka and without a clock.

In: events with effective times. `advance` steps through a grid of event time, applies the events
due before each step, and decides. Out: transitions of faults (fault.event.v1). They depend on the
events and their times alone, not on how calls were batched.
"""

from collections.abc import Iterable
from dataclasses import replace
from operator import attrgetter
from typing import Final

from localizer.config import GRID_NS, CoreConfig
from localizer.facts.anomalies import MAX_FLOWS, OpenAnomalies
from localizer.facts.heartbeats import HeartbeatBatch
from localizer.facts.inputs import Event, RecordIntake, Sources
from localizer.facts.liveness import Liveness
from localizer.facts.overlay import FlowTables
from localizer.facts.roster import Roster
from localizer.facts.self_reports import SelfReports
from localizer.facts.states import StateBook
from localizer.facts.stray_losses import StrayLosses
from localizer.facts.waiting import WaitingEvents
from localizer.network.paths import PathBook
from localizer.network.topology import Topology
from localizer.network.trace_batches import TraceBatch
from localizer.network.traces import flow_trace_of
from localizer.verdict.decider import Decider
from localizer.verdict.hang_faults import HangFaults
from localizer.verdict.incident import SPREAD_NS
from localizer.verdict.lifecycle import FLAPPING_FACTOR, REMEMBER_NS, Lifecycle
from schemas import topics
from schemas.columns.arrays import Int64s
from schemas.enums import FaultLifecycle
from schemas.records import FaultEvent, PathTrace
from schemas.units import SECOND_NS, us_to_ns

# Without events all anomalies have ended, and agents and faults are remembered no more, after this
# time beside those of the configuration.
QUIET_NS: Final = 300 * SECOND_NS


class Core:
    """All state of the localizer.

    Parameters
    ----------
    published
        Transitions that former processes have published. They are applied at their times; this
        process publishes transitions only after the last of them.
    begin_ns
        Where reading of the log starts after a restart; transitions from before are applied at
        once. None: the log is read from its first event.
    decided_ns
        Time up to which a former process has decided; nothing is published for it again.
    """

    def __init__(
        self,
        config: CoreConfig,
        published: Iterable[FaultEvent] = (),
        *,
        begin_ns: int | None = None,
        decided_ns: int = 0,
    ) -> None:
        topology = Topology(config.max_components)
        liveness = Liveness(config.max_agents)
        self.sources = Sources(
            topology=topology,
            tables=FlowTables(topology, config.max_agents),
            paths=PathBook(topology, config.max_flows),
            roster=Roster(config.max_endpoints, config.max_flows),
            liveness=liveness,
            anomalies=OpenAnomalies(min(config.max_flows, MAX_FLOWS)),
            strays=StrayLosses(),
            weak_latencies=OpenAnomalies(min(config.max_flows, MAX_FLOWS)),
            brief_latencies=OpenAnomalies(min(config.max_flows, MAX_FLOWS)),
            states=StateBook(),
            reports=SelfReports(liveness.agents),
        )
        self.intake = RecordIntake(self.sources)
        self.hang_faults = HangFaults(config, self.sources)
        self.lifecycle = Lifecycle(config, self.hang_faults.release, topology.crossed_as)
        self.now_ns = None if begin_ns is None else begin_ns // GRID_NS * GRID_NS
        self.late = 0
        self.steps = 0
        self._config = config
        self._decider = Decider(config, self.sources, self.lifecycle)
        self._published = _since(published, begin_ns)
        self._applied = 0
        last_ns = us_to_ns(self._published[-1].event_at) if self._published else 0
        self._silent_ns = max(decided_ns, last_ns)
        # Of what was decided before this time only faults that are still open then matter.
        self._recall_ns = self._silent_ns - max(REMEMBER_NS, config.flap_ns) - SPREAD_NS
        self._began_ns = _began_ns(self._published, self._recall_ns)
        # When something was last applied, and after what time without it nothing changes any more.
        self._applied_ns = 0
        remember_ns = FLAPPING_FACTOR * config.flap_ns
        self._quiet_ns = QUIET_NS + remember_ns + config.flap_resolve_max_ns
        self._waiting = WaitingEvents(config, self.sources)

    def feed(self, event: Event) -> None:
        """Add an event; it is applied at its effective time, or at once if that is past."""
        if isinstance(event.record, PathTrace):
            event = replace(event, record=flow_trace_of(event.record))
        self.late += self.now_ns is not None and event.at_ns < self.now_ns
        self._waiting.add_event(event)

    def feed_heartbeats(self, batch: HeartbeatBatch) -> None:
        """Add heartbeats; they are applied as if each were an event."""
        self._note_late(batch.at_ns)
        self._waiting.add_heartbeats(batch)

    def feed_traces(self, batch: TraceBatch) -> None:
        """Add traces; those of a step are applied after its events."""
        self._note_late(batch.at_ns)
        self._waiting.add_traces(batch)

    def _note_late(self, at_ns: Int64s) -> None:
        if self.now_ns is not None:
            self.late += int((at_ns < self.now_ns).sum())

    def advance(self, to_ns: int) -> list[FaultEvent]:
        """Decide up to a time; all events up to it must have been fed.

        Returns
        -------
        list of FaultEvent
            Transitions in the order in which they happened.
        """
        out: list[FaultEvent] = []
        last_ns = to_ns // GRID_NS * GRID_NS
        self._waiting.sort()
        while True:
            next_ns = self._next_ns(last_ns)
            if next_ns is None:
                return out
            self.now_ns = next_ns
            out += self._step(next_ns)

    def follow(self, published: Iterable[FaultEvent], decided_ns: int) -> None:
        """Take over what another process has published and decided since; nothing of it is told.

        Parameters
        ----------
        published
            Transitions after those that are known, all of them up to `decided_ns`.
        decided_ns
            Time up to which the other process has decided.
        """
        new = _since(published, None)
        del self._published[: self._applied]
        self._applied = 0
        self._published += new
        last_ns = us_to_ns(new[-1].event_at) if new else 0
        self._silent_ns = max(self._silent_ns, decided_ns, last_ns)

    @property
    def without_way(self) -> frozenset[tuple[str, str]]:
        """Pairs on ping lists that have no way through the overlay."""
        return self._decider.without_way

    @property
    def pending(self) -> int:
        """Events that wait for their time."""
        return len(self._waiting)

    @property
    def refused(self) -> dict[str, int]:
        """How many records were refused because there is too much of a kind."""
        return self.sources.refused | {"waiting": self._waiting.dropped}

    @property
    def count(self) -> int:
        """How many things are held of which there may be thousands."""
        return self.pending + self.sources.count

    def _next_ns(self, last_ns: int) -> int | None:
        """Return the next grid point up to `last_ns`; skip stretches in which nothing happens."""
        follows_ns = None if self.now_ns is None else self.now_ns + GRID_NS
        quiet = self.now_ns is not None and self.now_ns - self._applied_ns > self._quiet_ns
        if follows_ns is None or quiet or (self._decider.idle and self.hang_faults.idle):
            due_ns = self._waiting.next_ns
            times = [] if due_ns is None else [due_ns]
            times += [us_to_ns(e.event_at) for e in self._published[self._applied :][:1]]
            if quiet and follows_ns is not None:
                times.append(last_ns)
            if not times:
                return None
            # The grid point at which the first of them is known.
            due_ns = -(-min(times) // GRID_NS) * GRID_NS
            follows_ns = due_ns if follows_ns is None else max(due_ns, follows_ns)
        return follows_ns if follows_ns <= last_ns else None

    def _step(self, now_ns: int) -> list[FaultEvent]:
        self.steps += 1
        self._apply_due(now_ns)
        silent = self._apply_published(now_ns)
        forgotten = silent and self._is_forgotten(now_ns)
        events = self._decider.decide(now_ns, silent=silent, forgotten=forgotten)
        if silent:
            return events
        faults = self.lifecycle
        return self.hang_faults.step(events, faults.open_faults(), faults.resolved_faults(), now_ns)

    def _apply_due(self, now_ns: int) -> None:
        due = self._waiting.pop_events(now_ns)
        if (beats := self._waiting.pop_heartbeats(now_ns)) is not None:
            self._applied_ns = now_ns
            named = {event.key for event in due if event.topic == topics.HEARTBEAT.name}
            if others := self.intake.apply_heartbeats(beats, named, now_ns):
                due = sorted([*due, *others], key=attrgetter("order"))
        for event in due:
            self._applied_ns = now_ns
            self.intake.apply_event(event, now_ns)
        if (traces := self._waiting.pop_traces(now_ns)) is not None:
            self._applied_ns = now_ns
            self.intake.apply_traces(traces, now_ns)

    def _is_forgotten(self, now_ns: int) -> bool:
        """Return whether a decision that was published long ago leaves nothing to remember.

        Inference is what a restart spends its time on. Of an old fault that is still open the
        first seconds matter: which 5-tuples it hit at once.
        """
        return (
            now_ns < self._recall_ns
            and not self.sources.liveness.silent
            and not any(began <= now_ns <= began + SPREAD_NS + GRID_NS for began in self._began_ns)
        )

    def _apply_published(self, now_ns: int) -> bool:
        """Apply published transitions that are due; return whether this time was published."""
        published = self._published
        while self._applied < len(published):
            event = published[self._applied]
            if us_to_ns(event.event_at) > now_ns:
                break
            if not self.hang_faults.force(event):
                self.lifecycle.force(event)
            if event.resolved_at is None:
                self._decider.silences.restore(event)
            self._applied += 1
            self._applied_ns = now_ns
        # All transitions of a grid point are published in one transaction.
        return now_ns <= self._silent_ns


def _since(published: Iterable[FaultEvent], begin_ns: int | None) -> list[FaultEvent]:
    """Return the transitions to apply, in order; of those before the begin, each fault's last."""
    ordered = sorted(published, key=lambda e: (e.event_at, e.fault_id, e.seq))
    if begin_ns is None:
        return ordered
    before = {e.fault_id: e for e in ordered if us_to_ns(e.event_at) < begin_ns}
    return [
        *sorted(before.values(), key=lambda e: (e.event_at, e.fault_id)),
        *(e for e in ordered if us_to_ns(e.event_at) >= begin_ns),
    ]


def _began_ns(published: Iterable[FaultEvent], recall_ns: int) -> list[int]:
    """Return when the faults that are open at a time were opened, or last came back."""
    began: dict[str, int] = {}
    resolved: set[str] = set()
    for event in published:
        at_ns = us_to_ns(event.event_at)
        if at_ns >= recall_ns:
            break
        if event.state is FaultLifecycle.RESOLVED:
            resolved.add(event.fault_id)
            continue
        if event.fault_id in resolved:
            began[event.fault_id] = at_ns
        began.setdefault(event.fault_id, us_to_ns(event.opened_at))
        resolved.discard(event.fault_id)
    return [at_ns for name, at_ns in began.items() if name not in resolved]
