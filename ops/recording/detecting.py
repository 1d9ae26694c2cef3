"""Detection over several slots of a recording at once.

A worker's outputs depend on the rounds of each partition alone, not on how these are batched. So
the rounds of many slots go to the machines together, as a worker takes a backlog: the kernels are
called once for dozens of rounds instead of for the few of a second. The localizer, which decides by
all partitions and topics, still gets what belongs to each slot in its turn.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from arena.detecting import Detection, PublishedAnomaly, SilentPartitions, published_anomalies
from ops.recording.order import SLOT_MS, Slot
from ops.recording.source import Item
from schemas.enums import AnomalyKind
from schemas.units import MS_NS, US_PER_MS
from streams.core.feed import LogMessage

ReadSlot = Slot[Item, Item]
# Records in a batch, of all topics: some megabytes, and enough that what each call costs is little.
BATCH_RECORDS: Final = 2_048
# Slots in a batch: whoever watches or stops waits for a batch at most.
BATCH_SLOTS: Final = 64


def batches(slots: Iterable[ReadSlot]) -> Iterator[list[ReadSlot]]:
    """Put consecutive slots together; each batch has one slot at least."""
    batch: list[ReadSlot] = []
    records = 0
    for slot in slots:
        batch.append(slot)
        records += len(slot.rounds) + len(slot.others)
        if records >= BATCH_RECORDS or len(batch) >= BATCH_SLOTS:
            yield batch
            batch, records = [], 0
    if batch:
        yield batch


class BatchDetection:
    """The stream workers of a recording; says slot by slot what they publish."""

    def __init__(self, detection: Detection, cluster: str) -> None:
        self._detection = detection
        self._silent = SilentPartitions(cluster)
        # The last mark of each partition, of the slots that were told.
        self._marked_at: dict[int, int] = {}

    def anomalies(self, batch: Sequence[ReadSlot]) -> Iterator[list[PublishedAnomaly]]:
        """Yield for each slot what is published in it, in the order of the partitions.

        Behind it stand the marks of partitions that have heard nothing for a while by its end.
        """
        told = self._detect(batch)
        for slot, found in zip(batch, told, strict=True):
            for item in slot.rounds:
                self._silent.hear(item.entry.partition, item.at_ms * MS_NS)
            for one in found:
                if one.record.kind is AnomalyKind.PROGRESS:
                    self._marked_at[one.partition] = one.record.event_at
            end_ns = (slot.start_ms + SLOT_MS) * MS_NS
            yield found + self._silent.idle(end_ns, self._marked_at.get)

    def finish(self) -> list[PublishedAnomaly]:
        """Return the marks of all partitions when nothing more comes."""
        return self._silent.finish(self._marked_at.get)

    def _detect(self, batch: Sequence[ReadSlot]) -> list[list[PublishedAnomaly]]:
        """Return by slot what partitions publish, but for the marks of silent ones."""
        told: list[list[PublishedAnomaly]] = [[] for _ in batch]
        # By partition its rounds in each slot.
        own: defaultdict[int, dict[int, list[Item]]] = defaultdict(dict)
        for number, slot in enumerate(batch):
            for item in slot.rounds:
                own[item.entry.partition].setdefault(number, []).append(item)
        for partition, by_slot in sorted(own.items()):
            for run in _runs(by_slot, batch):
                items = [item for number in run for item in by_slot[number]]
                for number, published in self._published(partition, items, run, batch):
                    told[number].append(published)
        return told

    def _published(
        self, partition: int, items: Sequence[Item], run: Sequence[int], batch: Sequence[ReadSlot]
    ) -> Iterator[tuple[int, PublishedAnomaly]]:
        """Yield what a partition publishes of a run of slots, each with its slot's number.

        A mark belongs to the slot that its time lies in, and what stands before it as well: the
        localizer takes that up with the mark.
        """
        messages = [
            LogMessage(i.entry.value or b"", i.entry.offset, i.entry.timestamp_ms) for i in items
        ]
        outputs = self._detection.messages(partition, messages, timestamp_ms=items[-1].at_ms)
        waiting: list[PublishedAnomaly] = []
        place, last = 0, len(run) - 1
        for one in published_anomalies(partition, outputs):
            waiting.append(one)
            if one.record.kind is not AnomalyKind.PROGRESS:
                continue
            at_ms = one.record.event_at // US_PER_MS
            while place < last and at_ms >= batch[run[place + 1]].start_ms:
                place += 1
            yield from ((run[place], each) for each in waiting)
            waiting = []
        yield from ((run[last], each) for each in waiting)


def _runs(by_slot: dict[int, list[Item]], batch: Sequence[ReadSlot]) -> Iterator[list[int]]:
    """Yield the numbers of slots in runs of consecutive seconds.

    After a second without a round a partition may be marked as idle: what it published before
    that must not be put behind it.
    """
    run: list[int] = []
    for number in sorted(by_slot):
        if run and batch[number].start_ms != batch[run[-1]].start_ms + SLOT_MS:
            yield run
            run = []
        run.append(number)
    if run:
        yield run
