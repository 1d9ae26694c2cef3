"""A recording read again: checked and indexed once, then partition by partition."""

from array import array
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, Self

from ops.entry import Entry
from ops.recording import manifest as manifests
from ops.recording.container import Block, ContainerReader, DamageError
from ops.recording.manifest import Manifest, TopicSummary
from ops.recording.shape import Shape, shape_of
from ops.recording.writer import count
from schemas.codec import Codec
from schemas.topics import BY_NAME, PROBE_ROUND, Topic

NS_PER_MS: Final = 1_000_000
US_PER_MS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A recorded record on its way out.

    `at_ms` is when it is written (event time, milliseconds since the epoch); it never
    goes back within a partition. A round waits for the largest timestamp before it.
    Everything else is written no later than its own timestamp says, so it goes with
    the least timestamp that comes after it. `end_ms` is up to when it decides
    things: for a round, when its last probe was sent.
    """

    topic: Topic
    entry: Entry
    at_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A recorded record to be looked at; `at_ms` and `end_ms` as in `Item`.

    `datum` is what the file holds: see `ops.recording.shape`.
    """

    topic: Topic
    datum: dict[str, Any]
    at_ms: int
    end_ms: int


@dataclass(slots=True)
class _IndexedFile:
    """Which blocks hold records of which partition; what was found in the file."""

    topic: Topic
    shape: Shape
    path: Path
    summary: TopicSummary
    blocks: dict[int, list[int]] = field(default_factory=dict)
    times_ms: dict[int, "array[int]"] = field(default_factory=dict)
    reader: ContainerReader | None = None


class Source:
    """An opened recording.

    `summaries` tells what the files really hold, whatever the manifest says;
    `damages` what is wrong with them.

    Raises
    ------
    FileNotFoundError
        If the folder has no manifest.
    DamageError
        If the manifest cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.manifest: Manifest = manifests.load(folder)
        self.damages: list[DamageError] = []
        self._files: list[_IndexedFile] = []
        for name, told in self.manifest.topics.items():
            topic = BY_NAME[name]
            path = folder / told.file
            summary = TopicSummary(file=told.file, partitions=told.partitions)
            file = _IndexedFile(topic, shape_of(topic), path, summary)
            self._files.append(file)
            self._index(file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            if file.reader is not None:
                file.reader.close()

    @property
    def summaries(self) -> dict[str, TopicSummary]:
        """What each file holds."""
        return {f.topic.name: f.summary for f in self._files}

    def streams(self, codec: Codec) -> list[Iterator[Item]]:
        """Return one iterator for each partition that has records, in the partition's order.

        Each keeps one block in memory.
        """
        return [
            self._stream(file, partition, codec)
            for file in self._files
            for partition in sorted(file.blocks)
        ]

    def readings(self, only: Collection[Topic]) -> list[Iterator[Reading]]:
        """Return the same of some topics, as the files hold them: nothing is encoded again."""
        return [
            self._read(file, partition)
            for file in self._files
            if file.topic in only
            for partition in sorted(file.blocks)
        ]

    def _index(self, file: _IndexedFile) -> None:
        try:
            file.reader = ContainerReader(file.path, file.shape.plain)
            for block in file.reader.blocks():
                for datum in block.records:
                    self._note(file, block.position, datum)
        except FileNotFoundError:
            self.damages.append(DamageError(file.path, 0, "the file is missing"))
        except DamageError as damage:
            self.damages.append(damage)

    def _note(self, file: _IndexedFile, position: int, datum: dict[str, Any]) -> None:
        partition = datum["partition"]
        if not 0 <= partition < file.summary.partitions:
            reason = (
                f"partition {partition}; the manifest says {file.summary.partitions} partitions"
            )
            raise DamageError(file.path, position, reason)
        places = file.blocks.setdefault(partition, [])
        if not places or places[-1] != position:
            places.append(position)
        # Eight bytes for each record: all that is kept of it.
        times = file.times_ms.setdefault(partition, array("q"))
        times.append(datum["timestamp_ms"] or 0)
        tombstone = datum["value"] is None and datum["value_bytes"] is None
        count(
            file.summary,
            Entry(
                partition=partition,
                offset=datum["offset"],
                timestamp_ms=datum["timestamp_ms"],
                key=None,
                value=None if tombstone else b"",
            ),
            undecodable=datum["value_bytes"] is not None,
        )

    def _stream(self, file: _IndexedFile, partition: int, codec: Codec) -> Iterator[Item]:
        for datum, at_ms, end_ms in self._walk(file, partition):
            entry = file.shape.entry(datum, codec)
            yield Item(topic=file.topic, entry=entry, at_ms=at_ms, end_ms=end_ms)

    def _read(self, file: _IndexedFile, partition: int) -> Iterator[Reading]:
        for datum, at_ms, end_ms in self._walk(file, partition):
            yield Reading(topic=file.topic, datum=datum, at_ms=at_ms, end_ms=end_ms)

    def _walk(
        self, file: _IndexedFile, partition: int
    ) -> Iterator[tuple[dict[str, Any], int, int]]:
        due = iter(_due_ms(file.times_ms[partition], rounds=file.topic is PROBE_ROUND))
        for position in file.blocks[partition]:
            block = file.reader.block_at(position) if file.reader else Block(position, ())
            for datum in block.records:
                if datum["partition"] == partition:
                    at_ms = next(due)
                    yield datum, at_ms, max(at_ms, _round_end_ms(file.topic, datum["value"]))


def _due_ms(times_ms: "array[int]", *, rounds: bool) -> "array[int]":
    """Return when each record of a partition is due: see `Item.at_ms`."""
    if rounds:
        return array("q", accumulate(times_ms, max))
    return array("q", list(accumulate(reversed(times_ms), min))[::-1])


def _round_end_ms(topic: Topic, value: dict[str, Any] | None) -> int:
    """Return when the last probe of a round was sent (rounded up); 0 for all else."""
    if topic is not PROBE_ROUND or value is None:
        return 0
    last_ns = max((r["sent_offset_ns"] for r in value["results"]), default=0)
    started_ms: int = value["started_at"] // US_PER_MS
    return started_ms + last_ns // NS_PER_MS + 1
