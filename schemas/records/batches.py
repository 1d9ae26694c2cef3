"""Snapshots of a rank's collectives as batches that go through `collective.op.v1`, and back.

A batch names each communicator, shape, signature, frame and stack once, and refers to it by its
place: an operation takes some 40 bytes instead of 470.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from schemas.enums import CollectiveSource, CommunicatorRole, ProcessState
from schemas.ids import communicator_id, rank_id
from schemas.records.base import record
from schemas.records.collectives import CollectiveOp, CollectiveSnapshot, CommunicatorProgress
from schemas.records.jobs import (
    BatchOperation,
    CallStack,
    CollectiveBatch,
    Communicator,
    OperationSignature,
    TensorShape,
)
from schemas.version import VERSION

MEMBERS_NOT_RECORDED: Final = "not recorded by this library"
# What PyTorch and Megatron call groups; others have no role.
_ROLES: Final[Mapping[str, CommunicatorRole]] = {
    "default_pg": CommunicatorRole.WORLD,
    "dp": CommunicatorRole.DP, "data_parallel": CommunicatorRole.DP,
    "tp": CommunicatorRole.TP, "tensor_parallel": CommunicatorRole.TP,
    "mp": CommunicatorRole.TP, "model_parallel": CommunicatorRole.TP,
    "pp": CommunicatorRole.PP, "pipeline_parallel": CommunicatorRole.PP,
    "ep": CommunicatorRole.EP, "expert_parallel": CommunicatorRole.EP,
    "cp": CommunicatorRole.CP, "context_parallel": CommunicatorRole.CP,
}  # fmt: skip

T = TypeVar("T", bound=Hashable)


class BatchError(ValueError):
    """An operation of a batch refers to what the batch does not hold."""


@record
class RankProcess:
    """What is known of a rank beside its operations; fields as in `collective.op.v1`."""

    cluster: str
    task_id: str
    rank: int
    world_size: int | None = None
    host_id: str
    endpoint_ids: tuple[str, ...] = ()
    attempt: int
    pid: int | None = None
    process_state: ProcessState
    cpu_ns: int | None = None


class _Table(Generic[T]):
    """Values, each once; a value's place is its index."""

    def __init__(self) -> None:
        self._places: dict[T, int] = {}

    def place(self, value: T) -> int:
        """Return the index of a value, which is added if it is new."""
        return self._places.setdefault(value, len(self._places))

    @property
    def values(self) -> tuple[T, ...]:
        """The values by index."""
        return tuple(self._places)


@dataclass(frozen=True, slots=True)
class _Tables:
    communicators: _Table[str]
    shapes: _Table[tuple[int, ...]]
    signatures: _Table[OperationSignature]
    frames: _Table[str]
    stacks: _Table[tuple[str, ...]]
    reasons: _Table[str]
    # A job does few things, again and again: the place of each signature by what it is made of.
    placed: dict[Any, int]

    def operation(self, operation: CollectiveOp) -> BatchOperation:
        """Return an operation that refers to the tables."""
        reason = operation.missing_reason
        what = (
            operation.operation, operation.input_sizes, operation.output_sizes,
            operation.input_dtypes, operation.output_dtypes,
        )  # fmt: skip
        signature = self.placed.get(what)
        if signature is None:
            signature = self.placed[what] = self._signature(operation)
        return BatchOperation(
            record_id=operation.record_id,
            communicator=self.communicators.place(operation.communicator),
            signature=signature,
            sequence=operation.sequence, is_p2p=operation.is_p2p, op_id=operation.op_id,
            sender=operation.sender, receiver=operation.receiver, n_bytes=operation.n_bytes,
            launched_at=operation.launched_at, started_at=operation.started_at,
            completed_at=operation.completed_at,
            missing_reason=None if reason is None else self.reasons.place(reason),
            state=operation.state, retired=operation.retired, timeout_ms=operation.timeout_ms,
            stack=self.stacks.place(operation.stack) if operation.stack else None,
        )  # fmt: skip

    def _signature(self, operation: CollectiveOp) -> int:
        return self.signatures.place(
            OperationSignature(
                operation=operation.operation,
                input_shapes=tuple(map(self.shapes.place, operation.input_sizes)),
                output_shapes=tuple(map(self.shapes.place, operation.output_sizes)),
                input_dtypes=operation.input_dtypes,
                output_dtypes=operation.output_dtypes,
            )
        )


def batch_of(
    held: CollectiveSnapshot,
    process: RankProcess,
    *,
    taken_at: int,
    source: CollectiveSource,
    operations: Sequence[CollectiveOp] | None = None,
    whole: bool = True,
) -> CollectiveBatch:
    """Return a snapshot as a batch.

    Parameters
    ----------
    taken_at
        When the process was looked at, microseconds since the epoch.
    operations
        Those to send; None: all that the snapshot holds. The batch names all communicators of the
        snapshot if it is whole, else those of these operations.
    whole
        Whether it is a `snapshot` in the sense of the topic.
    """
    tables = _Tables(_Table(), _Table(), _Table(), _Table(), _Table(), _Table(), {})
    if whole:
        for group in held.communicators:
            tables.communicators.place(group.communicator)
    written = tuple(map(tables.operation, held.operations if operations is None else operations))
    stacks = tuple(
        CallStack(frames=tuple(map(tables.frames.place, stack))) for stack in tables.stacks.values
    )
    return CollectiveBatch(
        cluster=process.cluster, rank_id=rank_id(process.task_id, process.rank),
        task_id=process.task_id, rank=process.rank, world_size=process.world_size,
        host_id=process.host_id, endpoint_ids=process.endpoint_ids, attempt=process.attempt,
        pid=process.pid, process_state=process.process_state, cpu_ns=process.cpu_ns,
        source=source, library=held.library, format_version=held.version or None,
        taken_at=taken_at, recorded_at=held.taken_at, missing_reason=held.taken_at_missing_reason,
        snapshot=whole, dropped_before=held.dropped_before,
        communicators=tables.communicators.values,
        shapes=tuple(TensorShape(sizes=sizes) for sizes in tables.shapes.values),
        signatures=tables.signatures.values, frames=tables.frames.values, stacks=stacks,
        reasons=tables.reasons.values, operations=written, producer_version=VERSION,
    )  # fmt: skip


def communicators_of(
    held: CollectiveSnapshot, process: RankProcess, *, updated_at: int
) -> tuple[Communicator, ...]:
    """Return what a snapshot says of its communicators, as records of `collective.comm.v1`."""
    return tuple(
        Communicator(
            cluster=process.cluster,
            communicator_id=communicator_id(process.task_id, group.communicator),
            task_id=process.task_id, communicator=group.communicator,
            description=group.description or None, role=role_of(group.description),
            ranks=group.ranks or (),
            members_missing_reason=MEMBERS_NOT_RECORDED if group.ranks is None else None,
            updated_at=updated_at, producer_version=VERSION,
        )
        for group in held.communicators
    )  # fmt: skip


def role_of(description: str) -> CommunicatorRole:
    """Return what a communicator is for, by what the job calls it.

    >>> role_of("TP_GROUP").value
    'TP'
    """
    name = description.lower().removesuffix("_group").removeprefix("mesh_")
    return _ROLES.get(name, CommunicatorRole.UNKNOWN)


def snapshot_of(
    batch: CollectiveBatch, communicators: Mapping[str, Communicator]
) -> CollectiveSnapshot:
    """Return a batch as a snapshot, whose source is the rank's id.

    Parameters
    ----------
    communicators
        What is known of the task's communicators, by name; of others neither members nor
        description are.

    Raises
    ------
    BatchError
        If an operation refers to what the batch does not hold.
    """
    return CollectiveSnapshot(
        rank=batch.rank, source=batch.rank_id, library=batch.library,
        version=batch.format_version or "", taken_at=batch.recorded_at,
        taken_at_missing_reason=batch.missing_reason, dropped_before=batch.dropped_before,
        communicators=tuple(
            _progress(name, communicators.get(name)) for name in batch.communicators
        ),
        operations=operations_of(batch),
    )  # fmt: skip


def operations_of(batch: CollectiveBatch) -> tuple[CollectiveOp, ...]:
    """Return the operations of a batch; raises BatchError as `snapshot_of`."""
    tables = tables_of(batch)
    operations = batch.operations
    # A negative index would be another one in Python.
    _check_each([o.communicator for o in operations], batch.communicators, "communicators")
    _check_each([o.signature for o in operations], batch.signatures, "signatures")
    reasons = [o.missing_reason for o in operations if o.missing_reason is not None]
    _check_each(reasons, batch.reasons, "reasons")
    stacks = [o.stack for o in operations if o.stack is not None]
    _check_each(stacks, batch.stacks, "stacks")
    return tuple(
        CollectiveOp(
            record_id=o.record_id, communicator=batch.communicators[o.communicator],
            sequence=o.sequence, is_p2p=o.is_p2p, op_id=o.op_id, sender=o.sender,
            receiver=o.receiver, n_bytes=o.n_bytes, launched_at=o.launched_at,
            started_at=o.started_at, completed_at=o.completed_at,
            missing_reason=None if o.missing_reason is None else batch.reasons[o.missing_reason],
            state=o.state, retired=o.retired, timeout_ms=o.timeout_ms,
            stack=() if o.stack is None else tables.stacks[o.stack],
            **tables.signatures[o.signature]._asdict(),
        )
        for o in operations
    )  # fmt: skip


class Signature(NamedTuple):
    """What an operation does: fields of `CollectiveOp`."""

    operation: str
    input_sizes: tuple[tuple[int, ...], ...]
    output_sizes: tuple[tuple[int, ...], ...]
    input_dtypes: tuple[str, ...]
    output_dtypes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tables:
    """What the operations of a batch refer to, by index.

    Attributes
    ----------
    stacks
        Frames, innermost first.
    """

    signatures: tuple[Signature, ...]
    stacks: tuple[tuple[str, ...], ...]
    reasons: tuple[str, ...]

    @property
    def entries(self) -> int:
        """How many shapes, types, frames and texts they hold: what they take in memory."""
        shapes = (shape for s in self.signatures for shape in (*s.input_sizes, *s.output_sizes))
        types = sum(len(s.input_dtypes) + len(s.output_dtypes) for s in self.signatures)
        frames = sum(1 + len(stack) for stack in self.stacks)
        sizes = sum(1 + len(shape) for shape in shapes)
        return len(self.signatures) + sizes + types + frames + len(self.reasons)


def tables_of(batch: CollectiveBatch) -> Tables:
    """Return what the operations of a batch refer to; raises BatchError as `snapshot_of`."""
    for signature in batch.signatures:
        _check_each(signature.input_shapes, batch.shapes, "shapes")
        _check_each(signature.output_shapes, batch.shapes, "shapes")
    for stack in batch.stacks:
        _check_each(stack.frames, batch.frames, "frames")
    shapes = [shape.sizes for shape in batch.shapes]
    return Tables(
        tuple(
            Signature(
                s.operation,
                tuple(shapes[p] for p in s.input_shapes),
                tuple(shapes[p] for p in s.output_shapes),
                s.input_dtypes,
                s.output_dtypes,
            )
            for s in batch.signatures
        ),
        tuple(tuple(batch.frames[place] for place in stack.frames) for stack in batch.stacks),
        batch.reasons,
    )


def _progress(name: str, known: Communicator | None) -> CommunicatorProgress:
    return CommunicatorProgress(
        communicator=name,
        description="" if known is None else known.description or "",
        ranks=known.ranks if known is not None and known.members_missing_reason is None else None,
    )


def _check_each(indices: Sequence[int], values: Sequence[Any], what: str) -> None:
    if indices and not (min(indices) >= 0 and max(indices) < len(values)):
        raise BatchError(f"an index beyond the {len(values)} {what} of the batch")
