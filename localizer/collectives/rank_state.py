"""What is known of one rank of a running job: its operations, its process, how long it waits.

Batches say what changed.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from localizer.collectives.batch_operations import BatchOperations
from localizer.collectives.histories import histories_of
from localizer.collectives.operation_columns import OperationColumns, records_of
from localizer.collectives.rank_batch import BatchHead
from localizer.collectives.rank_operations import OldestWait, RankOperations, Waits, histories
from schemas.enums import ProcessState
from schemas.records import CollectiveOp, CollectiveSnapshot, CommunicatorProgress
from schemas.units import SECOND_NS, US_NS, us_to_ns

# A collector sends a batch of each rank every two seconds: five have not come.
SILENT_NS: Final = 10 * SECOND_NS
# Readings of the process's CPU time that are kept: ten seconds of them.
CPU_READINGS: Final = 6
# What a process does that works: half of a core. A rank that waits in gloo uses next to nothing;
# what writes its dumps uses some hundredths.
BUSY_SHARE: Final = 0.5
# A collector reckons when a process began from when its host did, which it knows in whole seconds:
# two collectors, one started after the other, may differ by two.
SAME_ATTEMPT_US: Final = 2_000_000
ENDED: Final = frozenset({ProcessState.GONE, ProcessState.ZOMBIE})


@dataclass(slots=True)
class RankState:
    """One rank in its present attempt.

    Attributes
    ----------
    batch
        The latest one.
    attempt
        When its process began, as its first batch says; microseconds since the epoch.
    first_ns, arrived_ns
        When the first and the latest of its attempt reached the broker.
    operations
        What it launched.
    state_ns
        When its process was first seen to do what it does now.
    """

    batch: BatchHead
    attempt: int
    first_ns: int
    arrived_ns: int
    operations: RankOperations = field(default_factory=RankOperations)
    state_ns: int = 0
    _cpu: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=CPU_READINGS))

    @property
    def rank(self) -> int:
        """Its number."""
        return self.batch.rank

    @property
    def process_state(self) -> ProcessState:
        """What the kernel says of its process."""
        return self.batch.process_state

    @property
    def ended(self) -> bool:
        """Whether its process is no more."""
        return self.process_state in ENDED

    @property
    def halted(self) -> bool:
        """Whether the kernel says that its process is stopped, or no more."""
        return self.ended or self.process_state is ProcessState.STOPPED

    @property
    def known_until(self) -> int | None:
        """Up to when it is known what it launched (µs); None: its recorder was never read.

        One that is stopped or has ended writes no more dumps, and launches nothing.
        """
        if self.halted and self.batch.recorded_at is not None:
            return self.batch.taken_at
        return self.batch.recorded_at

    @property
    def read_ns(self) -> int:
        """How young its picture is: when its latest batch would have come from a fresh dump."""
        batch = self.batch
        if batch.recorded_at is None:
            return self.arrived_ns
        return self.arrived_ns - us_to_ns(max(0, batch.taken_at - batch.recorded_at))

    def is_of(self, batch: BatchHead) -> bool:
        """Return whether a batch is of the same process."""
        if batch.attempt == self.attempt:
            return True
        same_pid = batch.pid is not None and batch.pid == self.batch.pid
        return same_pid and abs(batch.attempt - self.attempt) <= SAME_ATTEMPT_US

    def is_silent(self, now_ns: int) -> bool:
        """Return whether nothing has been heard of it for long."""
        return now_ns - self.arrived_ns > SILENT_NS

    def apply_batch(
        self, batch: BatchHead, operations: BatchOperations, arrived_ns: int, keep: int
    ) -> Waits:
        """Apply a batch and its operations; see `RankOperations.apply`."""
        if not self.state_ns or batch.process_state is not self.batch.process_state:
            self.state_ns = arrived_ns
        self.batch, self.arrived_ns = batch, arrived_ns
        if batch.cpu_ns is not None:
            self._cpu.append((batch.taken_at, batch.cpu_ns))
        if batch.dropped_before > 0:
            self.operations.begin_warm()
        return self.operations.apply(operations, keep, whole=batch.snapshot)

    def waited(self, oldest: OldestWait) -> int:
        """Return how long (µs) an operation has waited by the rank's clock.

        Up to where its recorder was read last: what it has not told since may have ended.
        """
        return max(0, (self.batch.recorded_at or 0) - oldest.began_at)

    def cpu_share(self) -> float | None:
        """Return what share of a core the process used lately; None: not known.

        Since its last launch only: before, it worked as always.
        """
        last = self.operations.latest_launch()
        since = [reading for reading in self._cpu if reading[0] >= last]
        if len(since) < 2 or since[-1][0] <= since[0][0]:
            return None
        return (since[-1][1] - since[0][1]) / ((since[-1][0] - since[0][0]) * 1_000)

    def is_busy(self) -> bool:
        """Return whether the process works, or waits for a disk, and so may go on by itself."""
        share = self.cpu_share()
        return self.process_state is ProcessState.DISK or (
            share is not None and share >= BUSY_SHARE
        )

    def _launched_after(self, arrived_ns: int | None) -> int | None:
        """Return a time of arrival by the rank's clock (µs)."""
        if arrived_ns is None:
            return None
        return self.batch.taken_at - (self.arrived_ns - arrived_ns) // US_NS


def snapshots_of(
    states: Sequence[RankState],
    views: Mapping[str, CommunicatorProgress],
    after_ns: int | None = None,
    first: Mapping[int, int] | None = None,
) -> list[CollectiveSnapshot]:
    """Return ranks as the analysis reads them.

    Parameters
    ----------
    views
        The job's communicators by name.
    after_ns
        Of what was launched before this time of arrival only the last operation of each
        communicator is left: a hang that was told is no pause that is usual.
    first
        By rank, the record id of the first operation that is wanted; None: all are.
    """
    first = {} if first is None else first
    parts = [
        state.operations.since(state._launched_after(after_ns), first.get(state.rank, 0))
        for state in states
    ]
    operations_of = _histories(states, parts, every=bool(first))
    views_of = _Views(views)
    found = []
    for state, part, operations in zip(states, parts, operations_of, strict=True):
        dropped = state.batch.dropped_before
        if part is not None or not state.operations.whole:
            rows = state.operations.columns if part is None else part
            # Some are missing, also where the first is known.
            dropped = max(dropped, 1, *rows.column("record_id")[:1].tolist())
        found.append(
            CollectiveSnapshot(
                rank=state.rank,
                source=state.batch.host_id,
                library=state.batch.library,
                version=state.batch.format_version or "",
                taken_at=state.known_until,
                taken_at_missing_reason=state.batch.missing_reason,
                dropped_before=dropped,
                communicators=tuple(map(views_of.__getitem__, state.operations.communicators())),
                operations=operations,
            )
        )
    return found


def _histories(
    states: Sequence[RankState], parts: Sequence[OperationColumns | None], *, every: bool
) -> Iterator[Sequence[CollectiveOp]]:
    """Yield the operations of ranks, a part of them or, where that is None, all that are known.

    `every`: whether records of all are wanted, as to compare ranks.
    """
    if every:
        yield from records_of(
            [s.operations.columns if p is None else p for s, p in zip(states, parts, strict=True)]
        )
        return
    cut = iter(histories_of([part for part in parts if part is not None]))
    whole = iter(histories([s.operations for s, p in zip(states, parts, strict=True) if p is None]))
    for part in parts:
        yield next(whole if part is None else cut)


class _Views(dict[str, CommunicatorProgress]):
    """Communicators by name, those of which there is no record as well."""

    def __missing__(self, name: str) -> CommunicatorProgress:
        view = self[name] = CommunicatorProgress(communicator=name, description="", ranks=None)
        return view
