"""The rounds of a recording in the order of their file, read once from front to back."""

from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from ops.recording.blocks import BlockReader, Records
from ops.recording.container import DamageError
from ops.recording.manifest import Manifest
from ops.recording.order import round_end_ms
from ops.recording.shape import Shape, shape_of
from schemas import avro
from schemas.codec import Codec
from schemas.columns.arrays import Int64s
from schemas.topics import PROBE_ROUND
from streams.core.feed import LogMessage

# Blocks that are read ahead.
DEPTH: Final = 4


class FiledRounds(NamedTuple):
    """Rounds of a partition as they stand one after the other in a file.

    Attributes
    ----------
    messages : as Kafka held them; without bytes where a round has no value
    times_ms : (n,) int64; timestamps, 0 where there is none
    ends_ms : (n,) int64; up to when they decide things (`round_end_ms`)
    results : (n,) int64; how many there are
    """

    partition: int
    messages: list[LogMessage]
    times_ms: Int64s
    ends_ms: Int64s
    results: Int64s


@dataclass(frozen=True, slots=True)
class RoundFile:
    """Where a recording has its rounds.

    Attributes
    ----------
    partitions
        How many the topic has.
    ends
        The offset behind the last round of each partition that has any, by the manifest; None: the
        recorder still runs, or was killed before it could say so.
    """

    path: Path
    partitions: int
    ends: Mapping[int, int] | None

    @classmethod
    def of(cls, folder: Path, manifest: Manifest) -> "RoundFile | None":
        """Return what a manifest says; None: no rounds were recorded."""
        told = manifest.topics.get(PROBE_ROUND.name)
        if told is None:
            return None
        ends = None
        if manifest.complete:
            # Whatever stands there in their place, of a recording that somebody has touched.
            with suppress(AttributeError, OverflowError, TypeError, ValueError):
                ends = {int(partition): int(end) for partition, (_, end) in told.offsets.items()}
        return cls(folder / told.file, told.partitions, ends)

    @property
    def size(self) -> int:
        """Its bytes; 0 if it is missing."""
        return self.path.stat().st_size if self.path.is_file() else 0


class RoundReader:
    """Reads the rounds of a file once from front to back.

    Where its manifest does not tell the ends of the partitions, the file is looked through before:
    who does not know them keeps all that is detected until no round comes any more.

    Attributes
    ----------
    ends
        The offset behind the last round of each partition that has any.

    Raises
    ------
    DamageError
        If the file is missing, cannot be opened or has no whole header.
    """

    def __init__(self, file: RoundFile, pool: Executor, *, kernels: bool) -> None:
        self._path = file.path
        self._partitions = file.partitions
        self._blocks = BlockReader(PROBE_ROUND, file.path, pool, kernels=kernels)
        self.ends: Mapping[int, int] = self._found_ends() if file.ends is None else file.ends

    def close(self) -> None:
        """Close the file."""
        self._blocks.close()

    def read(self) -> Generator[FiledRounds, None, None]:
        """Yield all rounds.

        Raises
        ------
        DamageError
            Where the file is broken, or says something else than the manifest: what stands before
            that has been yielded.
        """
        header = Codec().framer.header(avro.current(PROBE_ROUND.name))
        ended: set[int] = set()
        for span, part in self._blocks.read(self._blocks.spans(), header, DEPTH):
            found = self._of_records(part) if isinstance(part, Records) else part.filed_rounds()
            for rounds in found:
                self._check(rounds, span.position, ended)
                yield rounds
            if isinstance(part, Records) and part.damage is not None:
                raise part.damage

    def _found_ends(self) -> dict[int, int]:
        """Return the offsets behind the greatest ones; a damage is told where rounds are read."""
        ends: dict[int, int] = {}
        with suppress(DamageError):
            for _, part in self._blocks.read(self._blocks.spans(), b"", DEPTH):
                if isinstance(part, Records):
                    last = [(datum["partition"], datum["offset"]) for datum in part.records]
                else:
                    last = [(head.partition, head.last_offset) for head in part.heads()]
                for partition, offset in last:
                    ends[partition] = max(offset + 1, ends.get(partition, 0))
                if isinstance(part, Records) and part.damage is not None:
                    break
        return ends

    def _check(self, rounds: FiledRounds, position: int, ended: set[int]) -> None:
        """Raise DamageError if rounds are not where the manifest says; note whose last one is here.

        What comes behind a partition's last round could not be put to its second any more.
        """
        partition, offset = rounds.partition, rounds.messages[-1].number
        end = self.ends.get(partition)
        if not 0 <= partition < self._partitions:
            told = f"the manifest says {self._partitions} partitions"
        elif end is None:
            told = "the manifest says that it has no rounds"
        elif offset >= end:
            told = f"the manifest says that the last one is before offset {end}"
        elif partition in ended:
            told = f"it stands behind the last one, offset {end - 1}"
        else:
            if offset == end - 1:
                ended.add(partition)
            return
        reason = f"offset {offset} of partition {partition}; {told}"
        raise DamageError(self._path, position, reason)

    def _of_records(self, part: Records) -> Iterator[FiledRounds]:
        """Yield what no kernel has read."""
        shape, codec = shape_of(PROBE_ROUND), Codec()
        by_partition = defaultdict[int, list[tuple[LogMessage, int, int, int]]](list)
        trouble: DamageError | None = None
        for datum in part.records:
            try:
                made = _made(shape, datum, codec)
            except ValueError as error:
                trouble = DamageError(self._path, part.position, str(error))
                break
            by_partition[datum["partition"]].append(made)
        for partition, own in by_partition.items():
            messages, times_ms, ends_ms, results = zip(*own, strict=True)
            yield FiledRounds(
                partition,
                list(messages),
                *(np.array(column, np.int64) for column in (times_ms, ends_ms, results)),
            )
        if trouble is not None:
            raise trouble


def _made(shape: Shape, datum: dict[str, Any], codec: Codec) -> tuple[LogMessage, int, int, int]:
    """Return a round's message, timestamp, end and number of results; raises ValueError."""
    entry = shape.entry(datum, codec)
    message = LogMessage(entry.value or b"", entry.offset, entry.timestamp_ms)
    return message, entry.timestamp_ms or 0, *end_and_results(datum)


def end_and_results(datum: dict[str, Any]) -> tuple[int, int]:
    """Return up to when a recorded round decides things, and how many results it has."""
    value = datum["value"]
    if value is None:
        return 0, 0
    last_ns = max((r["sent_offset_ns"] for r in value["results"]), default=0)
    end_ms = round_end_ms(value["started_at"], last_ns, datum["timestamp_ms"])
    return end_ms, len(value["results"])
