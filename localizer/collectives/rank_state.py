"""What is known of one rank of a running job: its operations, its process, how long it waits.

Batches say what changed. Of finished operations only the last of each communicator are kept: they
say how far the rank came, and what usually comes next.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from localizer.collectives.groups import is_finished
from schemas.enums import ProcessState
from schemas.records import (
    CollectiveBatch,
    CollectiveOp,
    CollectiveSnapshot,
    CommunicatorProgress,
)
from schemas.units import SECOND_NS, US_NS, us_to_ns

# A collector sends a batch of each rank every two seconds: five have not come.
SILENT_NS: Final = 10 * SECOND_NS
# Readings of the process's CPU time that are kept: ten seconds of them.
CPU_READINGS: Final = 6
# A rank waits in a few operations at once, one for each of its communicators and buckets.
MAX_PENDING: Final = 4_096
# What a process does that works: half of a core. A rank that waits in gloo uses next to nothing;
# what writes its dumps uses some hundredths.
BUSY_SHARE: Final = 0.5
# An iteration has some hundred operations of a rank.
MOST_COLD: Final = 1_000
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
        By record id: those that wait, and the last that are finished of each communicator.
    pending
        Record ids of the operations that wait, in the order in which they came.
    refused
        Operations beyond the bound.
    newest
        Record id of the last operation that it launched.
    warm_from
        Record id of the first operation beyond its first iteration; None: not that far.
    """

    batch: CollectiveBatch
    attempt: int
    first_ns: int
    arrived_ns: int
    operations: dict[int, CollectiveOp] = field(default_factory=dict)
    pending: dict[int, None] = field(default_factory=dict)
    refused: int = 0
    forgot: bool = False
    newest: int = -1
    warm_from: int | None = None
    _finished: dict[str, deque[int]] = field(default_factory=dict)
    _unmeasured: list[CollectiveOp] = field(default_factory=list)
    _cpu: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=CPU_READINGS))
    _most_pending: int = 0
    # Whether its recorder says when its GPU began an operation.
    _timed: bool = False
    # Of the first iteration, in which connections are made: the kinds of its operations, how many
    # came, how many when the newest kind came, whether it seems to be over, and whether it turned
    # out that it was not.
    _kinds: set[tuple[object, ...]] = field(default_factory=set)
    _came: int = 0
    _came_new: int = 0
    _warm: bool = False
    _was_cold: bool = False

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

    def is_of(self, batch: CollectiveBatch) -> bool:
        """Return whether a batch is of the same process."""
        if batch.attempt == self.attempt:
            return True
        same_pid = batch.pid is not None and batch.pid == self.batch.pid
        return same_pid and abs(batch.attempt - self.attempt) <= SAME_ATTEMPT_US

    def is_silent(self, now_ns: int) -> bool:
        """Return whether nothing has been heard of it for long."""
        return now_ns - self.arrived_ns > SILENT_NS

    def apply_batch(
        self,
        batch: CollectiveBatch,
        operations: tuple[CollectiveOp, ...],
        arrived_ns: int,
        keep: int,
    ) -> Iterator[tuple[CollectiveOp, int]]:
        """Apply a batch; yield each operation that has ended since, and how long it took (µs).

        Parameters
        ----------
        operations
            Those of the batch.
        keep
            How many finished operations of each communicator to keep.
        """
        self.batch, self.arrived_ns = batch, arrived_ns
        if batch.cpu_ns is not None:
            self._cpu.append((batch.taken_at, batch.cpu_ns))
        if batch.dropped_before > 0:
            self._warm, self._came = True, MOST_COLD + 1
        if batch.snapshot:
            self._drop_unmentioned({o.record_id for o in operations})
        for operation in sorted(operations, key=lambda o: o.record_id):
            self._apply(operation)
        self._most_pending = max(self._most_pending, len(self.pending))
        yield from self._measured()
        self.forget_finished(keep)

    def _apply(self, operation: CollectiveOp) -> None:
        number = operation.record_id
        known = self.operations.get(number)
        was_finished = known is not None and is_finished(known)
        if was_finished and not is_finished(operation):
            return
        if known is None and len(self.pending) >= MAX_PENDING and not is_finished(operation):
            # The oldest are those that matter.
            self.refused += 1
            return
        self.operations[number] = operation
        self._timed |= operation.started_at is not None
        self.newest = max(self.newest, number)
        if not is_finished(operation):
            self.pending.setdefault(number)
            return
        self.pending.pop(number, None)
        if was_finished:
            return
        self._finished.setdefault(operation.communicator, deque()).append(number)
        if self._is_warm(operation):
            if self.warm_from is None:
                self.warm_from = number
            self._unmeasured.append(operation)

    def _is_warm(self, operation: CollectiveOp) -> bool:
        """Return whether the rank is beyond its first iteration.

        Its first operation may never come again, as a barrier at the start. So it is over once as
        many operations have brought no new kind as came until the newest; with sizes that always
        change, after a thousand. Microbatches repeat within an iteration: a kind that comes later
        shows that what came before was the first one still.
        """
        if self._came > MOST_COLD:
            return self._warm
        kind = (operation.communicator, operation.operation, operation.input_sizes)
        self._came += 1
        if kind not in self._kinds:
            self._kinds.add(kind)
            self._came_new = self._came
            if self._warm:
                self._was_cold = True
                self._unmeasured.clear()
                return False
        self._warm |= self._came > 2 * self._came_new
        if self._came > MOST_COLD:
            self._warm = True
            self._kinds.clear()
        return self._warm

    def take_cold(self) -> bool:
        """Return once whether waits that were measured were those of its first iteration."""
        cold, self._was_cold = self._was_cold, False
        return cold

    def _measured(self) -> Iterator[tuple[CollectiveOp, int]]:
        """Yield the operations whose end is known, and how long they took.

        The recorder of gloo has no times of an end. One that waits for each operation has ended it
        before it launches the next; one that was never seen to wait for more than n at once, before
        it launches the n-th after.
        """
        if not self._unmeasured:
            return
        at_once = max(1, self._most_pending)
        left = []
        for operation in self._unmeasured:
            if operation.launched_at is None:
                continue
            ended_at = operation.completed_at
            if ended_at is None:
                later = operation.record_id + at_once
                following = self.operations.get(later)
                if following is None and self.newest >= later:
                    # It was never seen, and may have been launched long before what was.
                    continue
                ended_at = None if following is None else following.launched_at
            if ended_at is None:
                left.append(operation)
            else:
                yield operation, max(0, ended_at - (operation.started_at or operation.launched_at))
        self._unmeasured = left

    def _drop_unmentioned(self, mentioned: set[int]) -> None:
        """Drop what waited and is no longer in the rank's recorder: how it ended is not known."""
        for number in [n for n in self.pending if n not in mentioned]:
            del self.pending[number]
            del self.operations[number]
            self.forgot = True

    def forget_finished(self, keep: int) -> None:
        """Keep so many finished operations of each communicator."""
        for held in self._finished.values():
            while len(held) > keep:
                del self.operations[held.popleft()]
                self.forgot = True

    def oldest_wait(self) -> tuple[CollectiveOp, int] | None:
        """Return the operation that has waited longest, and how long (µs) by the rank's clock.

        Up to where its recorder was read last: what it has not told since may have ended. What its
        GPU has not begun, if that is recorded, waits for nobody yet.
        """
        at = self.batch.recorded_at
        if at is None:
            return None
        times = [
            (began_at, number)
            for number in self.pending
            if (began_at := self._began_at(self.operations[number])) is not None
        ]
        if not times:
            return None
        began_at, number = min(times)
        return self.operations[number], max(0, at - began_at)

    def _began_at(self, operation: CollectiveOp) -> int | None:
        return operation.started_at if self._timed else operation.launched_at

    def waits_in(self, communicator: str) -> bool:
        """Return whether it waits in an operation of a communicator."""
        return any(self.operations[n].communicator == communicator for n in self.pending)

    def kinds(self) -> int:
        """Return how many kinds of operations it has, by communicator, name and sizes."""
        held = self.operations.values()
        return len({(o.communicator, o.operation, o.input_sizes) for o in held})

    def cpu_share(self) -> float | None:
        """Return what share of a core the process used lately; None: not known.

        Since its last launch only: before, it worked as always.
        """
        last = max(
            (o.launched_at for o in self.operations.values() if o.launched_at is not None),
            default=0,
        )
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

    def snapshot(
        self, views: Mapping[str, CommunicatorProgress], after_ns: int | None = None
    ) -> CollectiveSnapshot:
        """Return the rank as the analysis reads it.

        Parameters
        ----------
        views
            The job's communicators by name.
        after_ns
            Of what was launched before this time of arrival only the last operation of each
            communicator is left: a hang that was told is no pause that is usual.
        """
        numbers = sorted(self.operations)
        if after_ns is not None:
            after = self.batch.taken_at - (self.arrived_ns - after_ns) // US_NS
            last = {held[-1] for held in self._finished.values() if held} | self.pending.keys()
            numbers = [
                n for n in numbers if n in last or (self.operations[n].launched_at or 0) >= after
            ]
        operations = tuple(self.operations[n] for n in numbers)
        waits = (self.operations[n].communicator for n in self.pending)
        own = sorted({*self._finished, *waits})
        dropped = self.batch.dropped_before
        if (self.forgot or len(numbers) < len(self.operations)) and operations:
            dropped = max(dropped, operations[0].record_id)
        return CollectiveSnapshot(
            rank=self.rank,
            source=self.batch.host_id,
            library=self.batch.library,
            version=self.batch.format_version or "",
            taken_at=self.known_until,
            taken_at_missing_reason=self.batch.missing_reason,
            dropped_before=dropped,
            communicators=tuple(views[name] if name in views else _unknown(name) for name in own),
            operations=operations,
        )


def _unknown(name: str) -> CommunicatorProgress:
    """Return a communicator of which there is no record."""
    return CommunicatorProgress(communicator=name, description="", ranks=None)
