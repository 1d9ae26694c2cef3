"""The hang watcher over a recording says what it says of the same records live."""

from pathlib import Path

from localizer.collectives.hang_watch import HangWatch
from ops.log.entry import Entry
from ops.recording.hangs import hang_items, hangs_of
from ops.recording.manifest import Manifest
from ops.recording.source import Source
from ops.recording.writer import RecordingWriter, prepare_folder
from schemas.codec import Codec
from schemas.records import CollectiveBatch, Communicator, Hang
from schemas.topics import COLLECTIVE_COMM, COLLECTIVE_HANG, COLLECTIVE_OP
from schemas.units import MS_NS
from tests.collective_batches import CLUSTER, Arrival, Job, arrivals

CODEC = Codec()
TOPICS = {CollectiveBatch: COLLECTIVE_OP, Communicator: COLLECTIVE_COMM}


def recorded(log: list[Arrival], folder: Path) -> None:
    """Record what collectors sent, in one partition of each topic."""
    prepare_folder(folder)
    manifest = Manifest(
        cluster=CLUSTER, recorded_at="2026-01-01T00:00:00.000+00:00", from_ms=None, to_ms=None,
        codec="null", producer_version=None,
    )  # fmt: skip
    writer = RecordingWriter(folder, manifest, CODEC)
    for topic in TOPICS.values():
        writer.add_topic(topic, 1)
    for offset, arrival in enumerate(log):
        topic = TOPICS[type(arrival.record)]
        value = CODEC.encode(topic, arrival.record)
        writer.write_entry(
            topic,
            Entry(
                partition=0, offset=offset, timestamp_ms=arrival.at_ns // MS_NS,
                key=arrival.key.encode(), value=value,
            ),
        )  # fmt: skip
    writer.close(complete=True)


def test_a_recorded_job_has_the_hang_that_it_had(tmp_path: Path) -> None:
    """One that never launched, and nothing of another cluster's."""
    log = sorted(arrivals(Job.load("stalled", tmp_path)), key=lambda a: a.at_ns)
    recorded(log, tmp_path / "recording")
    watch, live = HangWatch(CLUSTER), list[Hang]()
    for arrival in log:
        at_ns = arrival.at_ns // MS_NS * MS_NS
        live += watch.advance(at_ns)
        watch.feed(arrival.key, arrival.record, at_ns)
    with Source(tmp_path / "recording") as source:
        again = list(hangs_of(source, CLUSTER, CODEC))
        assert list(hangs_of(source, "other", CODEC)) == []
    assert [(h.hang_class, h.ranks, h.hang_id) for h in again] == [
        (h.hang_class, h.ranks, h.hang_id) for h in live
    ]
    (item,) = hang_items(iter(again), CODEC)
    assert item.entry.value is not None
    assert CODEC.decode(COLLECTIVE_HANG, item.entry.value) == again[0]
