"""An input record with its place in event time, and where each kind of record goes."""

from dataclasses import dataclass
from typing import Any

from localizer.overlay import FlowTables
from localizer.suspicion import Sources
from localizer.topology import TopologyError
from schemas import topics
from schemas.enums import AnomalyKind
from schemas.records import (
    Anomaly,
    Component,
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
        match event.record:
            case None:
                self._tombstone(event)
            case Anomaly() as record:
                if record.kind is not AnomalyKind.PROGRESS:
                    self._sources.board.put(record)
            case Heartbeat() as record:
                self._sources.liveness.put(record, now_ns)
            case PathTrace() as record:
                self._sources.paths.put(record)
            case Endpoint() as record:
                self._sources.roster.put_endpoint(record.endpoint_id, record)
            case Task() as record:
                self._sources.roster.put_task(record.task_id, record)
            case PingList() as record:
                self._sources.roster.put_pinglist(record.agent_id, record)
            case FlowTable() as record:
                self._tables.put(record)
            case Component() as record:
                try:
                    self._sources.topology.put(record)
                except TopologyError:
                    self.refused += 1
            case _:
                raise TypeError(f"{type(event.record).__name__} is no input of the localizer")

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
            case topics.OVERLAY_FLOWS.name:
                self._tables.remove(event.key)
