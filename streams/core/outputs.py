"""What the worker writes: records with their partition-independent addresses and identities."""

import hashlib
from dataclasses import dataclass
from typing import Final

from schemas import topics
from schemas.enums import AnomalyKind, AnomalyState
from schemas.ids import path_id
from schemas.records import Anomaly, PathWindow
from schemas.topics import Topic
from schemas.version import VERSION
from streams.columns.rounds import FlowKey

PROGRESS_KEY: Final = "~progress"
ID_CHARS: Final = 32


@dataclass(frozen=True, slots=True)
class Output:
    """One record for the partition of the same number in another topic.

    `identity` names what the record says, not its bytes: the same input gives the same identity,
    also from a later version of the program. `at_ms` is the record's timestamp, where its topic
    keeps what a producer says: a window has the arrival that closed it.
    """

    topic: Topic
    key: str
    record: PathWindow | Anomaly
    at_ms: int
    identity: str


def window_output(window: PathWindow, at_ms: int) -> Output:
    """Return the output of a window that was closed at an arrival."""
    return Output(
        topics.PROBE_WINDOW,
        window.path_id,
        window,
        at_ms,
        window_identity(window),
    )


def anomaly_output(anomaly: Anomaly) -> Output:
    """Return the output of an anomaly or progress mark."""
    key = PROGRESS_KEY if anomaly.kind is AnomalyKind.PROGRESS else anomaly.path_id
    return Output(topics.ANOMALY, key, anomaly, anomaly.event_at // 1000, anomaly.anomaly_id)


def window_identity(window: PathWindow) -> str:
    """Return what tells a window from every other of its partition."""
    return _digest(
        window.agent_id,
        window.path_id,
        str(window.flow),
        str(window.window_start_at),
        str(window.window_end_at),
    )


def anomaly_identity(
    key: FlowKey, kind: AnomalyKind, state: AnomalyState, onset_at: int, event_at: int
) -> str:
    """Return the deterministic `anomaly_id`."""
    agent, src, dst, flow = key
    return _digest(
        agent, path_id(src, dst), str(flow), kind.value, state.value, str(onset_at), str(event_at)
    )


def progress(cluster: str, partition: int, state: AnomalyState, event_at: int) -> Anomaly:
    """Return a progress mark: all that arrived before `event_at` is decided."""
    return Anomaly(
        cluster=cluster,
        anomaly_id=_digest("progress", str(partition), state.value, str(event_at)),
        kind=AnomalyKind.PROGRESS,
        state=state,
        path_id="",
        src="",
        dst="",
        flow=0,
        agent_id="",
        event_at=event_at,
        onset_at=event_at,
        detector="progress",
        sent=0,
        lost=0,
        producer_version=VERSION,
    )


def _digest(*parts: str) -> str:
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:ID_CHARS]
