"""Writes a scenario as a recording, as `record` would have written that cluster."""

import zlib
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from arena.run import PARTITIONS
from arena.simulation.timeline import timeline
from arena.simulation.world import World
from ops.log.entry import Entry
from ops.recording.diagnosis import INPUTS
from ops.recording.manifest import Manifest
from ops.recording.writer import RecordingWriter, prepare_folder
from schemas.codec import Codec
from schemas.topics import BY_NAME, PROBE_ROUND, Topic
from schemas.units import MS_NS

FLUSH_S: Final = 10


def export(
    world: World,
    folder: Path,
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[int], None] = lambda _: None,
) -> Manifest:
    """Write a world's records into a new folder; `progress` gets the seconds done.

    Raises
    ------
    NotEmptyError
        If there is something in the folder.
    OSError
        If the disk is full; what was written is kept.
    """
    prepare_folder(folder)
    codec = Codec()
    manifest = Manifest(
        cluster=world.name,
        recorded_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        from_ms=None,
        to_ms=None,
    )
    writer = RecordingWriter(folder, manifest, codec)
    for topic in INPUTS:
        writer.add_topic(topic, PARTITIONS)
    offsets: Counter[tuple[str, int]] = Counter()

    def keep(topic: Topic, partition: int, at_ms: int, key: str, value: bytes | None) -> None:
        offset = offsets[topic.name, partition]
        offsets[topic.name, partition] += 1
        writer.write_entry(
            topic,
            Entry(
                partition=partition,
                offset=offset,
                timestamp_ms=at_ms,
                key=key.encode(),
                value=value,
            ),
        )

    complete = False
    try:
        for number, part in enumerate(timeline(world)):
            for rec in part.records:
                topic = BY_NAME[rec.topic]
                value = None if rec.record is None else codec.encode(topic, rec.record)
                partition = zlib.crc32(rec.key.encode()) % PARTITIONS
                keep(topic, partition, rec.at_ns // MS_NS, rec.key, value)
            for made in part.rounds:
                datum = made.datum()
                value = codec.encode_datum(PROBE_ROUND, datum)
                partition = made.host % PARTITIONS
                keep(PROBE_ROUND, partition, made.arrival_ms, datum["agent_id"], value)
            if number % FLUSH_S == 0:
                writer.flush()
            progress(number + 1)
            if stop():
                break
        else:
            complete = True
    finally:
        writer.close(complete=complete)
    return manifest
