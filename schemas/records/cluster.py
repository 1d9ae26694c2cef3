"""Records that say what the cluster is made of and what runs on it.

The `.avsc` files are the truth and hold doc and unit of every field; a test
holds these classes to them. Times (`*_at`) are integer microseconds since the
epoch, durations (`*_ns`) integer nanoseconds.
"""

from schemas.enums import ComponentKind, Layer, Transport
from schemas.records.base import record


@record
class TaskEndpoint:
    """An RNIC of a container of the job."""

    endpoint_id: str
    container_id: str
    host_id: str
    agent_id: str
    rail: int


@record
class Task:
    """A training job: its endpoints, when submitted, when ended."""

    cluster: str
    task_id: str
    submitted_at: int
    ended_at: int | None = None
    gpus_per_host: int | None = None
    producer_version: str | None = None
    endpoints: tuple[TaskEndpoint, ...]


@record
class Endpoint:
    """A registered endpoint: it is up, and answers probes."""

    cluster: str
    endpoint_id: str
    agent_id: str
    container_id: str
    host_id: str
    task_id: str | None = None
    rail: int
    transport: Transport
    address: str
    port: int
    qkey: int | None = None
    incarnation: int
    registered_at: int
    producer_version: str | None = None


@record
class Component:
    """A component of the network and what it is joined to."""

    cluster: str
    component_id: str
    kind: ComponentKind
    layer: Layer
    a: str | None = None
    b: str | None = None
    parent: str | None = None
    tier: int | None = None
    updated_at: int
    producer_version: str | None = None
    addresses: tuple[str, ...]


@record
class FlowEntry:
    """At node, traffic to dst goes to next_hop."""

    node: str
    dst: str
    next_hop: str | None = None
    offloaded: bool | None = None


@record
class FlowTable:
    """The forwarding tables of one host's virtual components."""

    cluster: str
    host_id: str
    captured_at: int
    producer_version: str | None = None
    entries: tuple[FlowEntry, ...]


@record
class ComponentState:
    """What a reader on the spot says of one attribute of a component."""

    cluster: str
    state_id: str
    component_id: str
    attribute: str
    text: str | None = None
    number: float | None = None
    missing_reason: str | None = None
    changed_at: int
    observed_at: int
    source: str
    producer_version: str | None = None


@record
class SkeletonMember:
    """Where an endpoint stands."""

    endpoint_id: str
    group: int | None = None
    stage: int | None = None


@record
class SkeletonPair:
    """Two endpoints that exchange data."""

    a: str
    b: str


@record
class Skeleton:
    """The inferred traffic skeleton of a job."""

    cluster: str
    task_id: str
    version: int
    window_start_at: int
    window_end_at: int
    confidence: float
    reason: str | None = None
    period_ns: int | None = None
    dp: int | None = None
    pp: int | None = None
    tp: int | None = None
    ep: int | None = None
    cp: int | None = None
    producer_version: str | None = None
    members: tuple[SkeletonMember, ...]
    pairs: tuple[SkeletonPair, ...]
