"""A batch as the hang watcher takes it: what it says of the rank's process, and its operations.

A large job sends thousands a second, of which one is looked at again: named tuples take a fifth of
the time of records.
"""

from typing import NamedTuple, Self

from localizer.collectives.batch_operations import BatchOperations
from schemas.enums import CollectiveSource, ProcessState
from schemas.records import CollectiveBatch


class Who(NamedTuple):
    """What batches of a rank's process say again and again; fields of `CollectiveBatch`."""

    cluster: str
    rank_id: str
    task_id: str
    rank: int
    world_size: int | None
    host_id: str
    endpoint_ids: tuple[str, ...]


class BatchHead(NamedTuple):
    """A batch without its arrays, endpoints excepted; fields of `CollectiveBatch`.

    Those of `Who` come first.
    """

    cluster: str
    rank_id: str
    task_id: str
    rank: int
    world_size: int | None
    host_id: str
    endpoint_ids: tuple[str, ...]
    attempt: int
    pid: int | None
    process_state: ProcessState
    cpu_ns: int | None
    source: CollectiveSource
    library: str | None
    format_version: str | None
    taken_at: int
    recorded_at: int | None
    missing_reason: str | None
    snapshot: bool
    dropped_before: int

    @classmethod
    def of(cls, batch: CollectiveBatch) -> Self:
        """Return the head of a batch."""
        return cls._make(getattr(batch, name) for name in cls._fields)


class RankBatch(NamedTuple):
    """The head of a batch, and its operations."""

    head: BatchHead
    operations: BatchOperations

    @property
    def cluster(self) -> str:
        """The batch's cluster."""
        return self.head.cluster

    @property
    def rank_id(self) -> str:
        """The batch's key."""
        return self.head.rank_id

    @property
    def task_id(self) -> str:
        """The batch's job."""
        return self.head.task_id

    @classmethod
    def of(cls, batch: CollectiveBatch) -> Self:
        """Return a batch with its operations apart; raises BatchError if that cannot be."""
        return cls(BatchHead.of(batch), BatchOperations.of_batch(batch))
