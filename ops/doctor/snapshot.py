"""A snapshot of a cluster, and the result of a check."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from schemas.kafka.leadership import Leader
from schemas.records import Endpoint, Heartbeat, PingList, Skeleton, Task


class Status(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of the table; `todo` is empty when all is well."""

    name: str
    status: Status
    found: str
    todo: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """Heartbeats of one agent that came in while the doctor listened.

    `delay_ms` is arrival by our clock minus sending by the agent's, of the fastest.
    """

    delay_ms: int
    incarnations: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What the cluster looked like; `*_ms` of events are milliseconds since the epoch.

    Attributes
    ----------
    unreachable, refused
        Why the broker could not be asked; what it refused; all else is empty then.
    missing_topics, topic_differences
        Topics that are not there; lines of the plan about those that are.
    registry_url, registry_error, unregistered
        The registry that is configured; why it does not answer; schemas it lacks.
    heartbeats, live, listened_ms
        Latest heartbeat of each agent; what came in while listening, and for how long.
    rounds_ms, progress_ms
        Timestamp of the last round and event time of the last PROGRESS, by partition.
    worker_lag, localizer_lag
        Records not yet committed, by partition; None: no offset was ever committed.
    leaders
        Who leads each role, or led last; None: nobody ever did.
    dead_letters
        Records in dead-letter topics that have any.
    undecodable
        Records of each topic that the doctor itself could not decode.
    """

    now_ms: int
    bootstrap: str
    unreachable: str | None = None
    refused: str | None = None
    missing_topics: tuple[str, ...] = ()
    topic_differences: tuple[str, ...] = ()
    registry_url: str | None = None
    registry_error: str | None = None
    unregistered: tuple[str, ...] = ()
    heartbeats: Mapping[str, Heartbeat] = field(default_factory=dict)
    live: Mapping[str, Beat] = field(default_factory=dict)
    listened_ms: int = 0
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)
    pinglists: Mapping[str, PingList] = field(default_factory=dict)
    tasks: Mapping[str, Task] = field(default_factory=dict)
    skeletons: Mapping[str, Skeleton] = field(default_factory=dict)
    rounds_ms: Mapping[int, int] = field(default_factory=dict)
    progress_ms: Mapping[int, int] = field(default_factory=dict)
    worker_lag: Mapping[int, int | None] = field(default_factory=dict)
    localizer_lag: Mapping[int, int | None] = field(default_factory=dict)
    leaders: Mapping[str, Leader | None] = field(default_factory=dict)
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    undecodable: Mapping[str, int] = field(default_factory=dict)
