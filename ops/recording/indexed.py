"""One file of a recording: scanned once for its contents and their places, then read."""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ops.log.entry import Entry
from ops.recording.blocks import BlockReader, Records
from ops.recording.container import BlockExtent, DamageError
from ops.recording.manifest import TopicSummary
from ops.recording.shape import shape_of
from ops.recording.writer import count
from schemas.topics import PROBE_ROUND, Topic

if TYPE_CHECKING:
    from ops.recording.messages import MessageBlock

# Blocks begun at a time: of the file while it is read through, of a partition later.
INDEX_DEPTH: Final = 4
STREAM_DEPTH: Final = 2


class IndexedFile:
    """Which blocks hold records of which partition; what was found in the file.

    Parameters
    ----------
    pool
        Where blocks are read before they are asked for.
    kernels
        Whether a kernel reads what it can.

    Attributes
    ----------
    topic, path, shape
        Whose records these are, where, and as what.
    summary
        What the file really holds, whatever the manifest says.
    damage
        Where it is broken; what stands before is whole.
    counts
        How many records each partition has: what stands behind a damage is not of them.
    times_ms
        The timestamps of each partition's records; of rounds none.
    """

    def __init__(
        self, topic: Topic, path: Path, partitions: int, pool: Executor, *, kernels: bool
    ) -> None:
        self.topic = topic
        self.shape = shape_of(topic)
        self.summary = TopicSummary(file=path.name, partitions=partitions)
        self.damage: DamageError | None = None
        self.counts: Counter[int] = Counter()
        self.times_ms: dict[int, array[int]] = {}
        self.path = path
        self._spans: dict[int, list[BlockExtent]] = {}
        # For each of these blocks, how many of the partition's records stand before it.
        self._firsts: dict[int, list[int]] = {}
        self._reader: BlockReader | None = None
        try:
            self._reader = BlockReader(topic, path, pool, kernels=kernels)
            self._index(self._reader)
        except DamageError as damage:
            self.damage = damage

    @property
    def partitions(self) -> list[int]:
        """The partitions that have records."""
        return sorted(self._spans)

    def close(self) -> None:
        """Close the file."""
        if self._reader is not None:
            self._reader.close()

    def spans(self, partition: int) -> Sequence[BlockExtent]:
        """Return where the blocks are that hold records of a partition, in order."""
        return self._spans[partition]

    def spans_between(self, partition: int, from_ms: int, to_ms: int) -> Iterator[BlockExtent]:
        """Yield those of them with records between two times; of rounds none."""
        times_ms = self.times_ms.get(partition, array("q"))
        firsts = self._firsts[partition]
        ends = [*firsts[1:], len(times_ms)]
        for span, first, end in zip(self._spans[partition], firsts, ends, strict=True):
            own = times_ms[first:end]
            if own and min(own) <= to_ms and max(own) >= from_ms:
                yield span

    def parts(
        self, spans: Iterable[BlockExtent], header: bytes
    ) -> "Iterator[MessageBlock | Records]":
        """Yield what stands in some blocks.

        Parameters
        ----------
        header
            What goes before the datum of a message; only a `MessageBlock` holds messages.
        """
        if self._reader is not None:
            for _, part in self._reader.read(spans, header, STREAM_DEPTH):
                yield part

    def _index(self, reader: BlockReader) -> None:
        for span, part in reader.read(reader.spans(), b"", INDEX_DEPTH):
            if isinstance(part, Records):
                self._note(span, part)
            elif not self._note_block(span, part):
                self._note(span, reader.records(span))

    def _note_block(self, span: BlockExtent, block: "MessageBlock") -> bool:
        """Note what a kernel read; False if a record is of no partition."""
        summary = self.summary
        if not block.within(summary.partitions):
            return False
        for head in block.heads():
            self._note_span(head.partition, span)
            self._note_times(head.partition, head.times_ms.tolist())
            self.counts[head.partition] += head.records
            summary.records += head.records
            summary.tombstones += head.tombstones
            kept = summary.offsets.setdefault(str(head.partition), [head.first_offset, 0])
            kept[1] = head.last_offset + 1
            if head.first_ms is not None and head.last_ms is not None:
                first, last = summary.first_ms, summary.last_ms
                summary.first_ms = head.first_ms if first is None else min(first, head.first_ms)
                summary.last_ms = head.last_ms if last is None else max(last, head.last_ms)
        return True

    def _note(self, span: BlockExtent, part: Records) -> None:
        for datum in part.records:
            self._note_record(span, datum)
        if part.damage is not None:
            raise part.damage

    def _note_record(self, span: BlockExtent, datum: dict[str, Any]) -> None:
        partition = datum["partition"]
        if not 0 <= partition < self.summary.partitions:
            reason = (
                f"partition {partition}; the manifest says {self.summary.partitions} partitions"
            )
            raise DamageError(self.path, span.position, reason)
        self._note_span(partition, span)
        self.counts[partition] += 1
        self._note_times(partition, (datum["timestamp_ms"] or 0,))
        tombstone = datum["value"] is None and datum["value_bytes"] is None
        count(
            self.summary,
            Entry(
                partition=partition,
                offset=datum["offset"],
                timestamp_ms=datum["timestamp_ms"],
                key=None,
                value=None if tombstone else b"",
            ),
            undecodable=datum["value_bytes"] is not None,
        )

    def _note_times(self, partition: int, times_ms: Iterable[int]) -> None:
        # Eight bytes for each record: all that is kept of it.
        if self.topic is not PROBE_ROUND:
            self.times_ms.setdefault(partition, array("q")).extend(times_ms)

    def _note_span(self, partition: int, span: BlockExtent) -> None:
        spans = self._spans.setdefault(partition, [])
        if not spans or spans[-1] is not span:
            spans.append(span)
            self._firsts.setdefault(partition, []).append(len(self.times_ms.get(partition, ())))
