"""What a rank's recorder shows that was not told yet: operations that are new or went on.

A recorder is a ring that is read again and again. An operation is known by its `record_id`, which
its process counts up; once it is finished it does not change any more.
"""

from typing import Final

from probers.collectives.flight_recorder import Dump
from schemas.bounds import MAX_LONG, MAX_RANK, MAX_TIME_US
from schemas.enums import CollectiveState
from schemas.records import CollectiveOp, CollectiveSnapshot, CommunicatorProgress

# Of operations that a rank waits for: a job has a few, one that never ends any of them has a ring.
MAX_PENDING: Final = 65_536
MAX_COMMUNICATORS: Final = 4_096
# What an index of a batch's shapes reaches.
MAX_TENSORS: Final = 65_536
LEFT_THE_RING: Final = "the ring lost it before it was seen to end"


class OperationChanges:
    """What was told of one attempt of one rank.

    Attributes
    ----------
    dropped_before
        Operations that the ring lost before they were read.
    refused
        Operations with numbers that no topic takes.
    """

    def __init__(self) -> None:
        self.dropped_before = 0
        self.refused = 0
        self.library: str | None = None
        self.version = ""
        self._highest = -1
        self._pending: dict[int, CollectiveOp] = {}
        self._last: dict[tuple[str, bool], CollectiveOp] = {}
        self._communicators: dict[str, CommunicatorProgress] = {}

    @property
    def communicators(self) -> tuple[CommunicatorProgress, ...]:
        """All communicators seen so far."""
        return tuple(self._communicators.values())

    def is_settled(self, record_id: int) -> bool:
        """Whether an operation was told to its end: it need not be read again."""
        return record_id <= self._highest and record_id not in self._pending

    def observe(self, dump: Dump) -> tuple[CollectiveOp, ...]:
        """Take in what a recorder holds now; return what is new or changed, by `record_id`.

        Parameters
        ----------
        dump
            May lack settled operations; its snapshot's `dropped_before` counts those before the
            ring's first.
        """
        held = dump.snapshot
        self.library = held.library or self.library
        self.version = held.version or self.version
        for group in held.communicators:
            known = self._communicators.get(group.communicator)
            if known is not None or len(self._communicators) < MAX_COMMUNICATORS:
                # A reading without the group's members does not take them back.
                if known is not None and known.ranks is not None and group.ranks is None:
                    continue
                self._communicators[group.communicator] = group
        self.dropped_before += max(0, held.dropped_before - self._highest - 1)
        changed = []
        for operation in held.operations:
            told = self._pending.get(operation.record_id)
            if told == operation or (told is None and operation.record_id <= self._highest):
                continue
            if not _fits(operation):
                self.refused += 1
                continue
            changed.append(operation)
        changed += self._lost(held)
        for operation in changed:
            self._note(operation)
        self._highest = max(self._highest, dump.highest_record_id)
        return tuple(sorted(changed, key=lambda operation: operation.record_id))

    def repeated(self) -> tuple[CollectiveOp, ...]:
        """Return what a snapshot holds: what is pending, and each communicator's last."""
        found = {o.record_id: o for o in self._last.values()}
        found.update(self._pending)
        return tuple(found[number] for number in sorted(found))

    def _lost(self, held: CollectiveSnapshot) -> list[CollectiveOp]:
        """Return pending operations that the ring has overrun: how they went nobody knows."""
        return [
            operation._replace(state=CollectiveState.UNKNOWN, missing_reason=LEFT_THE_RING)
            for number, operation in self._pending.items()
            if number < held.dropped_before
        ]

    def _note(self, operation: CollectiveOp) -> None:
        if _is_over(operation):
            self._pending.pop(operation.record_id, None)
        elif len(self._pending) < MAX_PENDING:
            self._pending[operation.record_id] = operation
        key = operation.communicator, operation.is_p2p
        last = self._last.get(key)
        if last is None or last.record_id <= operation.record_id:
            self._last[key] = operation


def _is_over(operation: CollectiveOp) -> bool:
    return (
        operation.state is CollectiveState.COMPLETED
        or operation.retired is True
        or operation.missing_reason == LEFT_THE_RING
    )


def _fits(operation: CollectiveOp) -> bool:
    """Whether readers of the topic take the operation."""
    o = operation
    # None is none of the bounds' business; 0 stands for it here.
    return (
        0 <= (o.sender or 0) <= MAX_RANK
        and 0 <= (o.receiver or 0) <= MAX_RANK
        and 0 <= (o.launched_at or 0) <= MAX_TIME_US
        and 0 <= (o.started_at or 0) <= MAX_TIME_US
        and 0 <= (o.completed_at or 0) <= MAX_TIME_US
        and 0 <= o.record_id <= MAX_LONG
        and 0 <= (o.n_bytes or 0) <= MAX_LONG
        and abs(o.op_id or 0) <= MAX_LONG
        and abs(o.timeout_ms or 0) <= MAX_LONG
        and len(o.input_sizes) + len(o.output_sizes) <= MAX_TENSORS
    )
