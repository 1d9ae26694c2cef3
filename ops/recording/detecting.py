"""Detection over a recording's rounds, in the order in which they stand in their file.

A worker's outputs depend on the rounds of each partition alone, in their order there, and not on
how these are batched. So the file is read once, from front to back, and the rounds of many seconds
go to the machines together, as a worker takes a backlog. What they publish is kept by slots of
event time, and given out when the rounds of all partitions are past a slot: the localizer, which
decides by all partitions and topics, gets what belongs to each slot in its turn.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from arena.detecting import Detection, PublishedAnomaly, SilentPartitions, published_anomalies
from ops.recording.order import SLOT_MS, RoundSlot
from schemas.enums import AnomalyKind
from schemas.units import MS_NS, US_PER_MS
from streams.core.feed import LogMessage

if TYPE_CHECKING:
    from ops.recording.rounds import FiledRounds

# Records in a batch, of all topics: some megabytes, and enough that what each call costs is little.
BATCH_RECORDS: Final = 2_048
# Slots in a batch: whoever watches or stops waits for a batch at most.
BATCH_SLOTS: Final = 64

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Detected:
    """What workers made of the rounds of a slot.

    Attributes
    ----------
    records, results
        How many rounds there are, and probes' results in them.
    heard_ms
        By partition when the last of its rounds went.
    told
        What is published, in the order of the partitions, but for marks of silent ones.
    refused
        Rounds that were put into the dead letters so far, by reason.
    """

    records: int
    results: int
    heard_ms: Mapping[int, int]
    told: Sequence[PublishedAnomaly]
    refused: Mapping[str, int]


def batches(slots: Iterable[S], records_of: Callable[[S], int]) -> Iterator[list[S]]:
    """Put consecutive slots together; each batch has one slot at least."""
    batch: list[S] = []
    records = 0
    for slot in slots:
        batch.append(slot)
        records += records_of(slot)
        if records >= BATCH_RECORDS or len(batch) >= BATCH_SLOTS:
            yield batch
            batch, records = [], 0
    if batch:
        yield batch


@dataclass(slots=True)
class _PartitionSlot:
    """The rounds of a partition in a slot, and what the worker publishes of them."""

    start_ms: int
    messages: list[LogMessage] = field(default_factory=list)
    records: int = 0
    results: int = 0
    # When the last of them went, and up to when they decide things.
    at_ms: int = 0
    reach_ms: int = 0
    told: list[PublishedAnomaly] = field(default_factory=list)

    def add(self, rounds: "FiledRounds", begin: int, end: int, at_ms: int) -> None:
        """Add rounds in a row, the last of which goes at a time."""
        self.messages += rounds.messages[begin:end]
        self.records += end - begin
        self.results += int(rounds.results[begin:end].sum())
        self.at_ms = at_ms
        self.reach_ms = max(self.reach_ms, at_ms, int(rounds.ends_ms[begin:end].max()))


class _Partition:
    """The rounds of a partition: by slot, as they are added.

    Parameters
    ----------
    end
        The offset behind its last round.
    """

    def __init__(self, end: int) -> None:
        self.at_ms = 0
        self._end = end
        # To slots before that nothing is added any more; None: to none.
        self.past_ms: int | None = 0
        # In order.
        self.slots: list[_PartitionSlot] = []

    def add(self, rounds: "FiledRounds", from_ms: int | None, to_ms: int | None) -> None:
        """Add what stands next in the file; what lies outside the bounds only moves the time.

        A round goes with the largest timestamp before it, so that time never goes back.
        """
        at_ms = np.maximum.accumulate(np.maximum(rounds.times_ms, self.at_ms))
        self.at_ms = int(at_ms[-1])
        if rounds.messages[-1].number + 1 >= self._end:
            self.past_ms = None
        else:
            self.past_ms = self.at_ms // SLOT_MS * SLOT_MS
        first = 0 if from_ms is None else int(np.searchsorted(at_ms, from_ms))
        last = len(at_ms) if to_ms is None else int(np.searchsorted(at_ms, to_ms))
        starts_ms = at_ms[first:last] // SLOT_MS * SLOT_MS
        bounds = [first, *(first + 1 + np.flatnonzero(np.diff(starts_ms))).tolist(), last]
        for begin, end in pairwise(bounds):
            if begin < end:
                start_ms = int(starts_ms[begin - first])
                if not self.slots or self.slots[-1].start_ms != start_ms:
                    self.slots.append(_PartitionSlot(start_ms))
                self.slots[-1].add(rounds, begin, end, int(at_ms[end - 1]))

    def pop_past(self) -> list[_PartitionSlot]:
        """Return the slots to which nothing is added any more, and forget them."""
        count = len(self.slots)
        if self.past_ms is not None:
            count = bisect_left(self.slots, self.past_ms, key=lambda slot: slot.start_ms)
        taken, self.slots = self.slots[:count], self.slots[count:]
        return taken


class FileDetection:
    """The stream workers of a recording whose rounds come in the order of their file.

    Parameters
    ----------
    ends
        The offset behind the last round of each partition that has any.
    from_ms, to_ms
        What goes earlier, or not before that, is left out.
    """

    def __init__(
        self,
        detection: Detection,
        ends: Mapping[int, int],
        *,
        from_ms: int | None = None,
        to_ms: int | None = None,
    ) -> None:
        self._detection = detection
        self._bounds_ms = from_ms, to_ms
        self._partitions = {number: _Partition(end) for number, end in ends.items()}
        self._waiting = 0
        # By start and partition what was detected and not given out.
        self._detected: dict[int, dict[int, _PartitionSlot]] = {}

    def add(self, rounds: "FiledRounds") -> None:
        """Add rounds that stand next in the file."""
        partition = self._partitions[rounds.partition]
        partition.add(rounds, *self._bounds_ms)
        self._waiting += len(rounds.messages)
        if len(partition.slots) > BATCH_SLOTS:
            self._waiting = BATCH_RECORDS

    @property
    def ended(self) -> bool:
        """Return whether nothing more comes within the bounds."""
        to_ms = self._bounds_ms[1]
        return to_ms is not None and all(
            p.past_ms is None or p.past_ms >= to_ms for p in self._partitions.values()
        )

    def pop_due(self) -> Iterator[RoundSlot[Detected]]:
        """Yield the slots that all partitions are past, if so much waits that it is worth it."""
        if self._waiting >= BATCH_RECORDS:
            self._waiting = 0
            self._detect_past()
            past_ms = [p.past_ms for p in self._partitions.values() if p.past_ms is not None]
            least_ms = min(past_ms, default=None)
            yield from self._merged([s for s in self._detected if least_ms is None or s < least_ms])

    def finish(self) -> Iterator[RoundSlot[Detected]]:
        """Yield all other slots: nothing more comes."""
        for partition in self._partitions.values():
            partition.past_ms = None
        self._detect_past()
        yield from self._merged(list(self._detected))

    def _merged(self, starts_ms: Sequence[int]) -> Iterator[RoundSlot[Detected]]:
        """Yield slots, by time, and forget them."""
        refused = dict(self._detection.refused)
        for start_ms in sorted(starts_ms):
            own = sorted(self._detected.pop(start_ms).items())
            detected = Detected(
                records=sum(slot.records for _, slot in own),
                results=sum(slot.results for _, slot in own),
                heard_ms={partition: slot.at_ms for partition, slot in own},
                told=[one for _, slot in own for one in slot.told],
                refused=refused,
            )
            yield RoundSlot(start_ms, max(slot.reach_ms for _, slot in own), detected)

    def _detect_past(self) -> None:
        """Let the workers take the rounds of whole slots; note by slot what they publish."""
        for number, partition in self._partitions.items():
            for run in _runs(partition.pop_past()):
                messages = [message for slot in run for message in slot.messages]
                outputs = self._detection.messages(number, messages, timestamp_ms=run[-1].at_ms)
                _place(published_anomalies(number, outputs), run)
                for slot in run:
                    slot.messages = []
                    self._detected.setdefault(slot.start_ms, {})[number] = slot


class MarkedSilence:
    """Adds the marks of partitions that have heard nothing for a while."""

    def __init__(self, cluster: str) -> None:
        self._silent = SilentPartitions(cluster)
        # The last mark of each partition, of the slots that were told.
        self._marked_at: dict[int, int] = {}

    def told(self, start_ms: int, detected: Detected | None) -> list[PublishedAnomaly]:
        """Return what is published in a slot; behind it stand the marks of those silent by its end.

        `detected`: None, if the slot has no rounds.
        """
        told: list[PublishedAnomaly] = []
        if detected is not None:
            told += detected.told
            for partition, at_ms in detected.heard_ms.items():
                self._silent.hear(partition, at_ms * MS_NS)
            for one in told:
                if one.record.kind is AnomalyKind.PROGRESS:
                    self._marked_at[one.partition] = one.record.event_at
        return told + self._silent.idle((start_ms + SLOT_MS) * MS_NS, self._marked_at.get)

    def finish(self) -> list[PublishedAnomaly]:
        """Return the marks of all partitions when nothing more comes."""
        return self._silent.finish(self._marked_at.get)


def _place(published: Iterable[PublishedAnomaly], run: Sequence[_PartitionSlot]) -> None:
    """Put what a partition publishes of a run of slots to the slot that it belongs to.

    A mark belongs to the slot that its time lies in, and what stands before it as well: the
    localizer takes that up with the mark.
    """
    waiting: list[PublishedAnomaly] = []
    place, last = 0, len(run) - 1
    for one in published:
        waiting.append(one)
        if one.record.kind is not AnomalyKind.PROGRESS:
            continue
        at_ms = one.record.event_at // US_PER_MS
        while place < last and at_ms >= run[place + 1].start_ms:
            place += 1
        run[place].told += waiting
        waiting = []
    run[last].told += waiting


def _runs(slots: Iterable[_PartitionSlot]) -> Iterator[list[_PartitionSlot]]:
    """Yield slots in runs of consecutive seconds.

    After a second without a round a partition may be marked as idle: what it published before
    that must not be put behind it.
    """
    run: list[_PartitionSlot] = []
    for slot in slots:
        if run and slot.start_ms != run[-1].start_ms + SLOT_MS:
            yield run
            run = []
        run.append(slot)
    if run:
        yield run
