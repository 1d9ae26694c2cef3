"""Typed records, one class for each Avro record of the contract."""

from schemas.records.cluster import (
    Component,
    ComponentState,
    Endpoint,
    FlowEntry,
    FlowTable,
    Skeleton,
    SkeletonMember,
    SkeletonPair,
    Task,
    TaskEndpoint,
)
from schemas.records.collectives import (
    CollectiveOp,
    CollectiveSnapshot,
    CommunicatorProgress,
)
from schemas.records.detection import (
    Anomaly,
    PathWindow,
)
from schemas.records.faults import (
    Candidate,
    FaultEvent,
    FaultState,
)
from schemas.records.operating import IncidentNote, Matcher, Silence
from schemas.records.probing import (
    CounterBatch,
    CounterSample,
    Heartbeat,
    PathTrace,
    PingList,
    PingTarget,
    ProbeResult,
    ProbeRound,
    TraceHop,
)

__all__ = [
    "Anomaly",
    "Candidate",
    "CollectiveOp",
    "CollectiveSnapshot",
    "CommunicatorProgress",
    "Component",
    "ComponentState",
    "CounterBatch",
    "CounterSample",
    "Endpoint",
    "FaultEvent",
    "FaultState",
    "FlowEntry",
    "FlowTable",
    "Heartbeat",
    "IncidentNote",
    "Matcher",
    "PathTrace",
    "PathWindow",
    "PingList",
    "PingTarget",
    "ProbeResult",
    "ProbeRound",
    "Silence",
    "Skeleton",
    "SkeletonMember",
    "SkeletonPair",
    "Task",
    "TaskEndpoint",
    "TraceHop",
]
