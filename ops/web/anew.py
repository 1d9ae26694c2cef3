"""Verdicts made anew of a recording that holds none, as records for the pages."""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

from arena.detecting import PublishedAnomaly
from localizer.config import CoreConfig
from ops.log.decoding import SeenRecord
from ops.recording.container import DamageError
from ops.recording.detection_process import Stop
from ops.recording.diagnosis import diagnose
from ops.recording.manifest import load
from ops.recording.source import Source
from schemas.enums import AnomalyKind
from schemas.records import FaultEvent
from schemas.topics import ANOMALY, FAULT_EVENT, Topic
from schemas.units import US_PER_MS
from streams.config import DetectionConfig


class MadeAnew(NamedTuple):
    """What worker and localizer would have published, and what is wrong with the rounds' file."""

    records: list[SeenRecord]
    damage: DamageError | None


def holds_verdicts(folder: Path) -> bool:
    """Return whether a recording holds transitions of faults; it is then told as it was.

    Raises
    ------
    FileNotFoundError
        If the folder has no manifest.
    DamageError
        If the manifest cannot be read.
    """
    held = load(folder).topics.get(FAULT_EVENT.name)
    return held is not None and held.records > 0


def verdicts_of(
    recording: Source, detection: DetectionConfig, core: CoreConfig, stop: Stop
) -> MadeAnew:
    """Return anomalies and transitions as worker and localizer would have published them.

    Each counts from its event time on: when it would have arrived is not known. `recording` is
    not asked for its rounds.

    Raises
    ------
    DamageError
        If a file is another one than when it was opened.
    LostProcessError
        If a process that detects was killed.
    """
    made = _Made()
    found = diagnose(
        recording, detection, core, stop, lambda _: None, observe=made.add_anomaly, processes=2
    )
    for event in found.events:
        made.add_event(event)
    return MadeAnew(sorted(made.records, key=lambda record: record.timestamp_ms or 0), found.damage)


class _Made:
    """Records, each with a place of its own."""

    def __init__(self) -> None:
        self.records: list[SeenRecord] = []
        self._next: Counter[tuple[str, int]] = Counter()

    def add_anomaly(self, one: PublishedAnomaly) -> None:
        """Add what the worker would have published."""
        # Marks come four times a second and partition; the last of each says as much.
        if one.record.kind is not AnomalyKind.PROGRESS:
            self._add(ANOMALY, one.partition, one.key, one.record.event_at, one.record)

    def add_event(self, event: FaultEvent) -> None:
        """Add what the localizer would have published."""
        self._add(FAULT_EVENT, 0, event.fault_id, event.event_at, event)

    def _add(self, topic: Topic, partition: int, key: str, at_us: int, record: object) -> None:
        offset = self._next[topic.name, partition]
        self._next[topic.name, partition] += 1
        self.records.append(
            SeenRecord(
                topic=topic,
                partition=partition,
                offset=offset,
                timestamp_ms=at_us // US_PER_MS,
                key=key,
                record=record,
            )
        )
