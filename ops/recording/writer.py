"""Writes the files of a recording."""

from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ops.log.entry import Entry
from ops.recording import manifest as manifests
from ops.recording.container import ContainerWriter
from ops.recording.manifest import Manifest, TopicSummary
from ops.recording.shape import Shape, shape_of
from schemas.codec import Codec
from schemas.topics import Topic

# Decoded, a round of 80 results takes some 80 KB: this bounds a topic's part to some 16 MB.
PENDING_RECORDS: Final = 200


class NotEmptyError(FileExistsError):
    """The folder holds something already."""


@dataclass(slots=True)
class _TopicFile:
    """One file being written; each block holds records of one partition."""

    shape: Shape
    summary: TopicSummary
    writer: ContainerWriter
    codec: Codec
    pending: dict[int, list[dict[str, Any]]] = field(default_factory=dict)

    def write_entry(self, entry: Entry) -> None:
        datum = self.shape.datum(entry, self.codec)
        self.pending.setdefault(entry.partition, []).append(datum)
        count(self.summary, entry, undecodable=datum["value_bytes"] is not None)
        if sum(map(len, self.pending.values())) >= PENDING_RECORDS:
            self.cut()

    def cut(self) -> None:
        for data in self.pending.values():
            for datum in data:
                self.writer.append(datum)
            self.writer.cut()
        self.pending.clear()

    def close(self) -> None:
        try:
            self.cut()
        finally:
            self.writer.close()


def count(summary: TopicSummary, entry: Entry, *, undecodable: bool) -> None:
    """Add a record to the summary of its topic."""
    summary.records += 1
    summary.tombstones += entry.value is None
    summary.undecodable += undecodable
    first, _ = summary.offsets.get(str(entry.partition), (entry.offset, 0))
    summary.offsets[str(entry.partition)] = [first, entry.offset + 1]
    if entry.timestamp_ms is not None:
        at_ms = entry.timestamp_ms
        summary.first_ms = at_ms if summary.first_ms is None else min(at_ms, summary.first_ms)
        summary.last_ms = at_ms if summary.last_ms is None else max(at_ms, summary.last_ms)


def prepare_folder(folder: Path) -> None:
    """Make the folder of a recording; raises NotEmptyError where there is something in it."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise NotEmptyError(f"{folder} is not empty; a recording takes a folder of its own")


class RecordingWriter:
    """The files and the manifest of a recording in the making."""

    def __init__(self, folder: Path, manifest: Manifest, codec: Codec) -> None:
        self._folder = folder
        self._codec = codec
        self._files: dict[str, _TopicFile] = {}
        self.manifest = manifest
        manifests.save(folder, manifest)

    def add_topic(self, topic: Topic, partitions: int) -> None:
        """Open the topic's file."""
        summary = TopicSummary(file=f"{topic.name}.avro", partitions=partitions)
        shape = shape_of(topic)
        writer = ContainerWriter(self._folder / summary.file, shape.written, self.manifest.codec)
        self._files[topic.name] = _TopicFile(shape, summary, writer, self._codec)
        self.manifest.topics[topic.name] = summary

    def write_entry(self, topic: Topic, entry: Entry) -> None:
        """Add a record."""
        self._files[topic.name].write_entry(entry)

    def flush(self) -> None:
        """Hand everything to the operating system."""
        for file in self._files.values():
            file.cut()
        manifests.save(self._folder, self.manifest)

    def close(self, *, complete: bool) -> None:
        """End all files, and the manifest with them."""
        self.manifest.complete = complete
        with ExitStack() as closing:  # what one file cannot do keeps no other from its end
            closing.callback(manifests.save, self._folder, self.manifest)
            for file in self._files.values():
                closing.callback(file.close)
