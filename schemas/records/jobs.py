"""Records about the ranks of training jobs, as they go through topics.

The `.avsc` files are the truth and hold doc and unit of every field; a test
holds these classes to them. Times (`*_at`) are integer microseconds since the epoch.
`schemas.records.batches` makes a `CollectiveSnapshot`, which analysis uses, of batches.
"""

from schemas.enums import (
    Certainty,
    CollectiveSource,
    CollectiveState,
    CommunicatorRole,
    FaultLifecycle,
    HangClass,
    ProcessState,
)
from schemas.records.base import record


@record
class Communicator:
    """A communicator of a training job: who is in it and what it is for."""

    cluster: str
    communicator_id: str
    task_id: str
    communicator: str
    description: str | None = None
    role: CommunicatorRole
    ranks: tuple[int, ...]
    members_missing_reason: str | None = None
    updated_at: int
    producer_version: str | None = None


@record
class TensorShape:
    """Sizes of a tensor."""

    sizes: tuple[int, ...]


@record
class OperationSignature:
    """What an operation does, which all its ranks must agree upon."""

    operation: str
    input_shapes: tuple[int, ...]
    output_shapes: tuple[int, ...]
    input_dtypes: tuple[str, ...]
    output_dtypes: tuple[str, ...]


@record
class CallStack:
    """Where an operation was launched."""

    frames: tuple[int, ...]


@record
class BatchOperation:
    """An operation that a rank launched."""

    record_id: int
    communicator: int
    signature: int
    sequence: int
    is_p2p: bool
    op_id: int | None = None
    sender: int | None = None
    receiver: int | None = None
    n_bytes: int | None = None
    launched_at: int | None = None
    started_at: int | None = None
    completed_at: int | None = None
    missing_reason: int | None = None
    state: CollectiveState
    retired: bool | None = None
    timeout_ms: int | None = None
    stack: int | None = None


@record
class CollectiveBatch:
    """A rank's process, and its operations that are new or changed since its last batch."""

    cluster: str
    rank_id: str
    task_id: str
    rank: int
    world_size: int | None = None
    host_id: str
    endpoint_ids: tuple[str, ...]
    attempt: int
    pid: int | None = None
    process_state: ProcessState
    cpu_ns: int | None = None
    source: CollectiveSource
    library: str | None = None
    format_version: str | None = None
    taken_at: int
    recorded_at: int | None = None
    missing_reason: str | None = None
    snapshot: bool
    dropped_before: int
    communicators: tuple[str, ...]
    shapes: tuple[TensorShape, ...]
    signatures: tuple[OperationSignature, ...]
    frames: tuple[str, ...]
    stacks: tuple[CallStack, ...]
    reasons: tuple[str, ...]
    operations: tuple[BatchOperation, ...]
    producer_version: str | None = None


@record
class RankSocket:
    """A connection of a rank. Addresses are those within its network namespace."""

    protocol: str
    local_address: str
    local_port: int
    peer_address: str
    peer_port: int
    peer_rank: int | None = None
    queued_bytes: int | None = None
    unacked_bytes: int | None = None
    unread_bytes: int | None = None
    sent_bytes: int | None = None
    acked_bytes: int | None = None
    received_bytes: int | None = None
    retransmits: int | None = None
    rtt_ns: int | None = None
    backoff: int | None = None
    stalled_ns: int | None = None


@record
class SocketBatch:
    """The sockets of a rank's process at one moment, as the kernel counts them."""

    cluster: str
    rank_id: str
    task_id: str
    rank: int
    host_id: str
    taken_at: int
    missing_reason: str | None = None
    sockets: tuple[RankSocket, ...]
    producer_version: str | None = None


@record
class StuckFlow:
    """Bytes between two ranks that do not arrive."""

    src_rank: int
    dst_rank: int
    src_endpoint_id: str | None = None
    dst_endpoint_id: str | None = None
    unacked_bytes: int
    stalled_ns: int


@record
class Hang:
    """A training job that hangs or is slow: where that begins, and of what class it is."""

    cluster: str
    hang_id: str
    task_id: str
    seq: int
    state: FaultLifecycle
    event_at: int
    onset_at: int
    resolved_at: int | None = None
    hang_class: HangClass
    certainty: Certainty
    ranks: tuple[int, ...]
    waiting_ranks: tuple[int, ...]
    endpoint_ids: tuple[str, ...]
    stuck_flows: tuple[StuckFlow, ...]
    communicator: str | None = None
    sequence: int | None = None
    operation: str | None = None
    waited_ns: int
    summary: str
    evidence: tuple[str, ...]
    next_steps: tuple[str, ...]
    producer_version: str | None = None
