"""Collective operations of a training job, as one rank recorded them."""

from collections.abc import Sequence
from typing import NamedTuple

from schemas.enums import CollectiveState
from schemas.records.base import record


class CollectiveOp(NamedTuple):
    """One operation that a rank launched on a communicator.

    A tuple: of a large job a million are made in some seconds, of which a dataclass takes ten times
    as many.

    Attributes
    ----------
    communicator
        Name of the group, the same in all its ranks.
    sequence
        Number of the operation on its communicator, counted alike by all ranks; of
        point-to-point operations apart from the others, and counted by each rank for itself.
    sender, receiver
        Ranks *within the group*, of point-to-point operations only.
    input_sizes, output_sizes
        Shapes of the tensors.
    n_bytes
        Of the inputs, outputs where there are none; None for a type of unknown width.
    launched_at, started_at, completed_at
        Microseconds since the epoch, by this rank's clock.
    missing_reason
        Why `started_at` or `completed_at` is None.
    retired
        The framework no longer waits for it: it is done, or timed out. None: not recorded.
    stack
        Where it was launched, innermost first.
    """

    communicator: str
    operation: str
    sequence: int
    is_p2p: bool
    record_id: int
    op_id: int | None
    sender: int | None
    receiver: int | None
    input_sizes: tuple[tuple[int, ...], ...]
    output_sizes: tuple[tuple[int, ...], ...]
    input_dtypes: tuple[str, ...]
    output_dtypes: tuple[str, ...]
    n_bytes: int | None
    launched_at: int | None
    started_at: int | None
    completed_at: int | None
    missing_reason: str | None
    state: CollectiveState
    retired: bool | None
    timeout_ms: int | None
    stack: tuple[str, ...]


@record
class CommunicatorProgress:
    """A communicator as one rank knows it.

    `ranks` is None where its members are not recorded.
    """

    communicator: str
    description: str
    ranks: tuple[int, ...] | None


@record
class CollectiveSnapshot:
    """What one rank recorded up to one moment.

    Attributes
    ----------
    source
        Where it came from: the name of a file.
    library
        `nccl`, `gloo`, …; None if nothing was recorded.
    taken_at
        Microseconds since the epoch, None with a reason.
    dropped_before
        Operations that the ring no longer held; 1 or more where any are missing, so that what is
        there cannot be counted.
    """

    rank: int
    source: str
    library: str | None
    version: str
    taken_at: int | None
    taken_at_missing_reason: str | None
    dropped_before: int
    communicators: tuple[CommunicatorProgress, ...]
    operations: Sequence[CollectiveOp]
