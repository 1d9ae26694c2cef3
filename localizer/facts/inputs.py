"""An input record with its place in event time, and where each kind of record goes."""

from dataclasses import dataclass
from typing import Any

from localizer.facts.bad_flows import Sources
from localizer.facts.overlay import FlowTables
from localizer.network.topology import TopologyError
from schemas import topics
from schemas.enums import AnomalyKind
from schemas.records import (
    Anomaly,
    Component,
    ComponentState,
    Endpoint,
    FlowTable,
    Heartbeat,
    PathTrace,
    PingList,
    Task,
)


@dataclass(frozen=True, slots=True)
class Event:
    """A record of an input topic.

    `at_ns` is its effective time: when the core may know of it (see
    `localizer.merge`). `record` None: a tombstone for `key`.
    """

    at_ns: int
    topic: str
    key: str
    partition: int
    offset: int
    record: Any

    @property
    def order(self) -> tuple[int, str, str, int, int]:
        """Place among all events; no two are the same."""
        return self.at_ns, self.topic, self.key, self.partition, self.offset


class Intake:
    """Folds events into the sources of evidence.

    Attributes
    ----------
    refused
        Components that contradict themselves.
    """

    def __init__(self, sources: Sources, tables: FlowTables) -> None:
        self.refused = 0
        self._sources = sources
        self._tables = tables

    def apply(self, event: Event, now_ns: int) -> None:
        """Fold one event in."""
        record, sources = event.record, self._sources
        match record:
            case None:
                self._tombstone(event)
            case Anomaly():
                if record.kind is not AnomalyKind.PROGRESS:
                    sources.board.put(record)
            case Heartbeat():
                sources.liveness.put(record, now_ns)
            case PathTrace():
                sources.paths.put(record)
            case FlowTable():
                self._tables.put(record)
            case ComponentState():
                sources.states.put(record)
            case Component():
                self._component(record)
            case _:
                self._roster(record)

    def _roster(self, record: Any) -> None:
        roster = self._sources.roster
        match record:
            case Endpoint():
                roster.put_endpoint(record.endpoint_id, record)
            case Task():
                roster.put_task(record.task_id, record)
            case PingList():
                roster.put_pinglist(record.agent_id, record)
            case _:
                raise TypeError(f"{type(record).__name__} is no input of the localizer")

    def _component(self, record: Component) -> None:
        try:
            self._sources.topology.put(record)
        except TopologyError:
            self.refused += 1

    def _tombstone(self, event: Event) -> None:
        match event.topic:
            case topics.ENDPOINT.name:
                self._sources.roster.put_endpoint(event.key, None)
            case topics.TASK.name:
                self._sources.roster.put_task(event.key, None)
            case topics.PINGLIST.name:
                self._sources.roster.put_pinglist(event.key, None)
            case topics.HEARTBEAT.name:
                self._sources.liveness.remove(event.key)
            case topics.TOPOLOGY.name:
                self._sources.topology.remove(event.key)
            case topics.COMPONENT_STATE.name:
                self._sources.states.remove(event.key)
            case topics.OVERLAY_FLOWS.name:
                self._tables.remove(event.key)
