"""Runs an import of a probe CSV into a recording or a topic."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

from ops.importing.csv import BadRow, Row, Skipped
from ops.importing.rounds import RoundBuilder
from ops.log.entry import Entry
from ops.log.reading import LogReader
from ops.log.writing import LogWriter
from ops.recording.manifest import Manifest
from ops.recording.writer import RecordingWriter, prepare_folder
from schemas.codec import Codec
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.murmur2 import partition_of
from schemas.kafka.registry import codec_for
from schemas.records import ProbeRound
from schemas.topics import PROBE_ROUND
from schemas.units import MS_NS, US_NS

# Bad rows kept for the report; all are counted.
KEPT_BAD_ROWS: Final = 100


class RoundSink(Protocol):
    """Where rounds go."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def write_round(self, record: ProbeRound) -> None:
        """Take a round."""
        ...


class RecordingSink:
    """Writes a recording, its partitions chosen as a producer would."""

    def __init__(self, folder: Path, cluster: str, version: str | None) -> None:
        prepare_folder(folder)
        manifest = Manifest(
            cluster=cluster,
            recorded_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            from_ms=None,
            to_ms=None,
            producer_version=version,
        )
        self._codec = Codec()
        self._writer = RecordingWriter(folder, manifest, self._codec)
        self._writer.add_topic(PROBE_ROUND, PROBE_ROUND.partitions)
        self._next = [0] * PROBE_ROUND.partitions

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._writer.close(complete=kind is None)

    def write_round(self, record: ProbeRound) -> None:
        """Take a round."""
        key = record.agent_id.encode()
        partition = partition_of(key, PROBE_ROUND.partitions)
        self._writer.write_entry(
            PROBE_ROUND,
            Entry(
                partition=partition,
                offset=self._next[partition],
                timestamp_ms=_arrival_ms(record),
                key=key,
                value=self._codec.encode(PROBE_ROUND, record),
            ),
        )
        self._next[partition] += 1


class KafkaSink:
    """Writes to `probe.round.v1`.

    Raises
    ------
    UnknownTopicError
        If the topic is not there.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._topic = settings.topic(PROBE_ROUND.name)
        with LogReader(settings) as reader:
            reader.partitions([self._topic])
        self._codec = codec_for(settings)
        self._out = LogWriter(settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._out.flush()

    def write_round(self, record: ProbeRound) -> None:
        """Take a round."""
        self._out.write(
            self._topic,
            key=record.agent_id.encode(),
            value=self._codec.encode(PROBE_ROUND, record),
            timestamp_ms=_arrival_ms(record),
        )


def _arrival_ms(record: ProbeRound) -> int:
    """Return when a live agent's round would have arrived: its last probe has been sent."""
    reach_ns = max((result.sent_offset_ns for result in record.results), default=0)
    return -(-(record.started_at * US_NS + reach_ns) // MS_NS)


@dataclass(slots=True)
class Report:
    """What became of the rows; times are microseconds since the epoch."""

    rows: int = 0
    rounds: int = 0
    results: int = 0
    traceroutes: int = 0
    disordered: int = 0
    bad: int = 0
    bad_rows: list[BadRow] = field(default_factory=list)
    first_at: int | None = None
    last_at: int | None = None
    stopped: bool = False


def import_rows(
    rows: Iterator[Row | BadRow | Skipped],
    builder: RoundBuilder,
    sink: RoundSink,
    stop: Callable[[], bool],
    note: Callable[[BadRow], None] = lambda _bad: None,
) -> Report:
    """Put all good rows into rounds and these into the sink; bad ones are counted and noted."""
    report = Report()

    def put(rounds: list[ProbeRound]) -> None:
        for record in rounds:
            sink.write_round(record)
            report.rounds += 1
            report.results += len(record.results)
            at = record.started_at
            report.first_at = at if report.first_at is None else min(at, report.first_at)
            report.last_at = at if report.last_at is None else max(at, report.last_at)

    with ExitStack() as stack:
        stack.enter_context(sink)
        for row in rows:
            if stop():
                report.stopped = True
                break
            bad = row if isinstance(row, BadRow) else None
            if isinstance(row, Skipped):
                report.traceroutes += 1
            elif isinstance(row, Row):
                rounds, bad = builder.add_row(row)
                put(rounds)
                report.rows += bad is None
            if bad is not None:
                report.bad += 1
                if len(report.bad_rows) < KEPT_BAD_ROWS:
                    report.bad_rows.append(bad)
                note(bad)
        put(builder.flush())
    report.disordered = builder.disordered
    return report
