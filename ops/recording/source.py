"""Reads a recording: checked and indexed once, then partition by partition."""

from array import array
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from ops.log.entry import Entry
from ops.recording import manifest as manifests
from ops.recording.blocks import Records
from ops.recording.container import BlockExtent, DamageError
from ops.recording.indexed import IndexedFile
from ops.recording.manifest import Manifest, TopicSummary
from ops.recording.rounds import end_and_results
from schemas import avro
from schemas.codec import Codec
from schemas.topics import BY_NAME, PROBE_ROUND, TOPICS, Topic

# What inflates blocks and walks over them lets other threads run meanwhile.
THREADS: Final = 2
# In a smaller recording fastavro is done before the kernels are loaded.
KERNELS_FROM_BYTES: Final = 2**20


class Item(NamedTuple):
    """A recorded record on its way out.

    `at_ms` is when it is written (event time, milliseconds since the epoch); it never
    goes back within a partition. A round waits for the largest timestamp before it.
    Everything else is written no later than its own timestamp says, so it goes with
    the least timestamp that comes after it. `end_ms` is up to when it decides
    things: for a round, when its last probe was sent. `results`: how many a round has.
    """

    topic: Topic
    entry: Entry
    at_ms: int
    end_ms: int
    results: int = 0


class Source:
    """An opened recording; `only`: of these topics, so that large files are not read for nothing.

    `summaries` tells what the files really hold, whatever the manifest says;
    `damages` what is wrong with them.

    Raises
    ------
    FileNotFoundError
        If the folder has no manifest.
    DamageError
        If the manifest cannot be read.
    """

    def __init__(self, folder: Path, only: Collection[Topic] = TOPICS) -> None:
        self.folder = folder
        self.manifest: Manifest = manifests.load(folder)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="recording")
        files = {n: told for n, told in self.manifest.topics.items() if BY_NAME[n] in only}
        paths = {name: folder / told.file for name, told in files.items()}
        size = sum(path.stat().st_size for path in paths.values() if path.exists())
        kernels = size >= KERNELS_FROM_BYTES
        self._files = [
            IndexedFile(BY_NAME[name], paths[name], told.partitions, self._pool, kernels=kernels)
            for name, told in files.items()
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        for file in self._files:
            file.close()

    @property
    def summaries(self) -> dict[str, TopicSummary]:
        """What each file holds."""
        return {f.topic.name: f.summary for f in self._files}

    @property
    def damages(self) -> list[DamageError]:
        """Return what is wrong with the files."""
        return [f.damage for f in self._files if f.damage is not None]

    def rounds(self, codec: Codec) -> list[Iterator[Item]]:
        """Return one iterator for each partition that has rounds, in the partition's order.

        Each keeps a few blocks in memory; it raises DamageError at a value that no message can
        be made of, and where the file has changed since it was opened.
        """
        return [
            _rounds(file, partition, codec)
            for file in self._files
            if file.topic is PROBE_ROUND
            for partition in file.partitions
        ]

    def between(self, topic: Topic, from_ms: int, to_ms: int, codec: Codec) -> Iterator[Entry]:
        """Yield the records of a topic whose timestamps lie between two times, both included.

        Partition by partition; only what holds such records is read. Raises DamageError as the
        others do. Rounds are not found by time.
        """
        for file in self._files:
            for partition in file.partitions if file.topic is topic else ():
                spans = file.spans_between(partition, from_ms, to_ms)
                for entry, _, _ in _messages_of(file, partition, codec, spans):
                    if from_ms <= (entry.timestamp_ms or 0) <= to_ms:
                        yield entry

    def others(self, codec: Codec, only: Collection[Topic] = TOPICS) -> list[Iterator[Item]]:
        """Return the same of all other topics, or of some of them."""
        return [
            _others(file, partition, codec)
            for file in self._files
            if file.topic is not PROBE_ROUND and file.topic in only
            for partition in file.partitions
        ]


def _rounds(file: IndexedFile, partition: int, codec: Codec) -> Iterator[Item]:
    at_ms: int | None = None
    for entry, end_ms, results in _messages(file, partition, codec):
        time_ms = entry.timestamp_ms or 0
        at_ms = time_ms if at_ms is None else max(at_ms, time_ms)
        yield Item(file.topic, entry, at_ms, max(at_ms, end_ms), results)


def _others(file: IndexedFile, partition: int, codec: Codec) -> Iterator[Item]:
    due_ms = array("q", list(accumulate(reversed(file.times_ms[partition]), min))[::-1])
    for at_ms, (entry, _, _) in zip(due_ms, _messages(file, partition, codec), strict=True):
        yield Item(file.topic, entry, at_ms, at_ms)


def _messages(file: IndexedFile, partition: int, codec: Codec) -> Iterator[tuple[Entry, int, int]]:
    """Yield each record, for a round also when it ends, and how many results it has."""
    spans = file.spans(partition)
    return islice(_messages_of(file, partition, codec, spans), file.counts[partition])


def _messages_of(
    file: IndexedFile, partition: int, codec: Codec, spans: Iterable[BlockExtent]
) -> Iterator[tuple[Entry, int, int]]:
    header = codec.framer.header(avro.current(file.topic.name))
    rounds = file.topic is PROBE_ROUND
    for part in file.parts(spans, header):
        if isinstance(part, Records):
            for datum in part.records:
                if datum["partition"] == partition:
                    told = end_and_results(datum) if rounds else (0, 0)
                    yield _entry(file, part, datum, codec), *told
            if part.damage is not None:
                # What was counted stands before it, unless the file is another one by now.
                raise part.damage
        else:
            yield from part.of(partition)


def _entry(file: IndexedFile, part: Records, datum: dict[str, Any], codec: Codec) -> Entry:
    try:
        return file.shape.entry(datum, codec)
    except ValueError as error:
        raise DamageError(file.path, part.position, str(error)) from error
