"""Opening a recording: what its manifest may say, what its files must hold."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ops.log.entry import Entry
from ops.recording import manifest as manifests
from ops.recording.container import DamageError
from ops.recording.manifest import Manifest
from ops.recording.order import Slot, between
from ops.recording.replayer import _Pace, wanted
from ops.recording.source import Item, Source
from ops.recording.writer import RecordingWriter
from schemas.avro import SchemaVersion, current
from schemas.codec import Codec
from schemas.enums import ComponentKind, Layer
from schemas.framing import ConfluentFramer, FramingError
from schemas.records import Component
from schemas.topics import (
    ANOMALY,
    BY_NAME,
    HEARTBEAT,
    PROBE_ROUND,
    PROBE_WINDOW,
    TASK,
    TOPOLOGY,
    Topic,
)
from tests.unit.ops.recording_samples import START_MS, round_entry


def make(folder: Path) -> Path:
    """Write a recording of three rounds and no heartbeats."""
    writer = RecordingWriter(
        folder, Manifest(cluster="c", recorded_at="", from_ms=1, to_ms=None), Codec()
    )
    for topic in (PROBE_ROUND, HEARTBEAT):
        writer.add_topic(topic, 4)
    for i in range(3):
        writer.write_entry(PROBE_ROUND, round_entry(i, 10 + i, at_ms=START_MS + i))
    writer.close(complete=True)
    return folder


def test_the_manifest_is_kept_and_counts(tmp_path: Path) -> None:
    """What is written is read again, with counts, times and offsets by partition."""
    manifest = manifests.load(make(tmp_path))
    rounds = manifest.topics["probe.round.v1"]
    assert (manifest.cluster, manifest.from_ms, manifest.complete) == ("c", 1, True)
    assert (rounds.records, rounds.first_ms, rounds.last_ms) == (3, START_MS, START_MS + 2)
    assert rounds.offsets == {"0": [10, 11], "1": [11, 12], "2": [12, 13]}
    assert manifest.records == 3


def spoil(field: str, value: object) -> Callable[[dict[str, Any]], None]:
    """Return a change of a manifest; a dot leads into the rounds' entry."""

    def change(content: dict[str, Any]) -> None:
        place = content
        name = field
        if field.startswith("."):
            place, name = content["topics"]["probe.round.v1"], field[1:]
        place[name] = value

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (spoil("format", "zip"), "format 'zip'"),
        (spoil("format_version", 2), "format version 2; this program reads up to 1"),
        (spoil("topics", []), "not a manifest"),
        (spoil("topics", {"other.v1": {"file": "x", "partitions": 1}}), "unknown topic 'other.v1'"),
        (spoil(".file", "../../etc/passwd"), "is not in the recording's folder"),
        (spoil(".file", "x" * 5_000), "a file name of 5000 bytes; at most 255"),
        (spoil(".partitions", 0), "0 partitions"),
        (spoil(".partitions", 10**9), "1000000000 partitions"),
    ],
)
def test_a_manifest_that_lies_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], reason: str
) -> None:
    """Whatever is wrong with a manifest is one sentence that names it."""
    path = make(tmp_path) / "manifest.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(DamageError, match=r"manifest\.json") as error:
        Source(tmp_path)
    assert reason in str(error.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}"])
def test_a_manifest_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    """Garbage in its place is damage, not a traceback."""
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(DamageError):
        Source(tmp_path)


def test_what_a_later_program_added_is_ignored(tmp_path: Path) -> None:
    """New keys of the same format version do no harm."""
    path = make(tmp_path) / "manifest.json"
    content = json.loads(path.read_text())
    content["mood"] = "good"
    content["topics"]["probe.round.v1"]["colour"] = "red"
    path.write_text(json.dumps(content))
    assert Source(tmp_path).manifest.records == 3


def test_a_missing_file_is_one_damage(tmp_path: Path) -> None:
    """The other files of the recording are still there."""
    (make(tmp_path) / "agent.heartbeat.v1.avro").unlink()
    with Source(tmp_path) as source:
        (damage,) = source.damages
        assert str(damage) == "agent.heartbeat.v1.avro: damaged at byte 0: the file is missing"
        assert source.summaries["probe.round.v1"].records == 3


def test_a_folder_in_the_place_of_a_file_is_one_damage(tmp_path: Path) -> None:
    """A slip of whoever copied it, and no traceback."""
    path = make(tmp_path) / "agent.heartbeat.v1.avro"
    path.unlink()
    path.mkdir()
    with Source(tmp_path) as source:
        (damage,) = source.damages
        assert str(damage).endswith("damaged at byte 0: cannot be read: Is a directory")
        assert source.summaries["probe.round.v1"].records == 3


def test_a_partition_the_manifest_does_not_know_is_damage(tmp_path: Path) -> None:
    """A record cannot be replayed to a partition that the topic will not have."""
    path = make(tmp_path) / "manifest.json"
    content = json.loads(path.read_text())
    content["topics"]["probe.round.v1"]["partitions"] = 2
    path.write_text(json.dumps(content))
    with Source(tmp_path) as source:
        (damage,) = source.damages
        assert "partition 2; the manifest says 2 partitions" in damage.reason
        assert sum(1 for s in source.rounds(Codec()) for _ in s) == 2


def item(topic: Topic, at_ms: int) -> Item:
    """Return a record of that time."""
    entry = Entry(partition=0, offset=0, timestamp_ms=at_ms, key=None, value=None)
    return Item(topic=topic, entry=entry, at_ms=at_ms, end_ms=at_ms)


def test_bounds_of_a_replay_keep_state() -> None:
    """Before --from only what compacted topics said is replayed; after --to nothing."""
    for topic, expected in ((PROBE_ROUND, [5, 7]), (TASK, [1, 5, 7])):
        stream = iter([item(topic, ms) for ms in (1, 5, 7, 9)])
        assert [i.at_ms for i in between(stream, 5, 9)] == expected


def test_old_state_is_not_waited_for() -> None:
    """The clock starts at the first record that is not state, and goes at the given speed."""
    pace = _Pace(100.0)
    week_ms = 7 * 86_400_000
    assert pace.wait_s(Slot(0, [item(TASK, 0)], [])) == 0
    assert pace.wait_s(Slot(week_ms, [], [item(PROBE_ROUND, week_ms)])) == 0
    later: Slot[list[Item], Item] = Slot(
        week_ms + 10_000, [], [item(PROBE_ROUND, week_ms + 10_000)]
    )
    assert 0.05 < pace.wait_s(later) <= 0.1
    assert _Pace(None).wait_s(later) == 0


def test_topics_of_a_replay_lose_nothing() -> None:
    """No retention, no compaction, recorded partition counts; outputs lie beside the rounds."""
    topics = {t.name: t for t in wanted("p.", {"probe.round.v1": 7, "task.v1": 1}, 1)}
    assert topics["p.probe.round.v1"].partitions == 7
    assert topics["p." + PROBE_WINDOW.name].partitions == 7
    assert topics["p." + ANOMALY.name].partitions == 7
    assert topics["p.fault.event.v1"].partitions == 1
    for topic in topics.values():
        assert topic.config["cleanup.policy"] == "delete"
        assert topic.config["retention.ms"] == "-1"


class Ids:
    """Ids as a registry gives them, here by position in the contract."""

    def id_of(self, schema: SchemaVersion) -> int:
        """Return the id."""
        return 1000 + list(BY_NAME).index(schema.topic)

    def schema_of(self, topic: str, schema_id: int) -> SchemaVersion:
        """Return the schema with that id."""
        if list(BY_NAME)[schema_id - 1000] != topic:
            raise FramingError("unknown")
        return current(topic)


def test_a_recording_changes_its_framing(tmp_path: Path) -> None:
    """What was recorded with a registry replays without one: the datum is kept, not the frame."""
    with_registry = Codec(ConfluentFramer(Ids()))
    plain = round_entry()
    framed = replace(plain, value=b"\0" + (1000).to_bytes(4, "big") + (plain.value or b"")[10:])
    writer = RecordingWriter(
        tmp_path, Manifest(cluster="c", recorded_at="", from_ms=None, to_ms=None), with_registry
    )
    writer.add_topic(PROBE_ROUND, 1)
    writer.write_entry(PROBE_ROUND, framed)
    writer.close(complete=True)
    with Source(tmp_path) as source:
        assert source.summaries["probe.round.v1"].undecodable == 0
        for codec, expected in ((Codec(), plain), (with_registry, framed)):
            (stream,) = source.rounds(codec)
            assert [i.entry for i in stream] == [expected]


def test_partition_order_wins_over_timestamps(tmp_path: Path) -> None:
    """A record whose clock went back stays behind its predecessor, in that one's time."""
    writer = RecordingWriter(
        tmp_path, Manifest(cluster="c", recorded_at="", from_ms=None, to_ms=None), Codec()
    )
    writer.add_topic(PROBE_ROUND, 1)
    for offset, at_ms in enumerate((START_MS, START_MS - 9_000, START_MS + 5)):
        writer.write_entry(PROBE_ROUND, replace(round_entry(0, offset), timestamp_ms=at_ms))
    writer.close(complete=True)
    with Source(tmp_path) as source:
        (stream,) = source.rounds(Codec())
        items = list(stream)
    assert [i.entry.offset for i in items] == [0, 1, 2]
    assert [i.at_ms - START_MS for i in items] == [0, 0, 5]
    # The last probe of each round was sent 100 ms after its start.
    assert all(i.end_ms >= START_MS + 100 for i in items)


def test_other_topics_never_come_later_than_they_say(tmp_path: Path) -> None:
    """A trace that was overtaken goes with the earliest that follows it, in its partition's order.

    A localizer counts it for its own time: written with the largest before it, it
    would come after the rounds that moved the localizer beyond that time.
    """
    writer = RecordingWriter(
        tmp_path, Manifest(cluster="c", recorded_at="", from_ms=None, to_ms=None), Codec()
    )
    writer.add_topic(HEARTBEAT, 1)
    for offset, at_ms in enumerate((5_000, 5_900, 5_100, 7_000)):
        writer.write_entry(HEARTBEAT, replace(round_entry(0, offset), timestamp_ms=at_ms))
    writer.close(complete=True)
    with Source(tmp_path) as source:
        (stream,) = source.others(Codec())
        assert [(i.entry.offset, i.at_ms) for i in stream] == [
            (0, 5_000),
            (1, 5_100),
            (2, 5_100),
            (3, 7_000),
        ]


def plainly(folder: Path, topic: Topic, entries: list[Entry]) -> Path:
    """Write a recording of one partition without compression; return its topic's file."""
    manifest = Manifest(cluster="c", recorded_at="", from_ms=1, to_ms=None, codec="null")
    writer = RecordingWriter(folder, manifest, Codec(bounded=False))
    writer.add_topic(topic, 1)
    for entry in entries:
        writer.write_entry(topic, entry)
    writer.close(complete=True)
    return folder / f"{topic.name}.avro"


def test_a_file_that_changes_while_it_is_read_is_damage(tmp_path: Path) -> None:
    """What was counted when it was opened is no longer there: that is said, not passed over."""
    entries = [round_entry(0, i, at_ms=START_MS + i) for i in range(3)]
    path = plainly(tmp_path, PROBE_ROUND, entries)
    with Source(tmp_path) as source:
        assert not source.damages
        content = path.read_bytes()
        path.write_bytes(content.replace(b"agent-h0", b"agent-h\xff"))
        (stream,) = source.rounds(Codec())
        with pytest.raises(DamageError, match="record 0 of the block"):
            list(stream)
        path.write_bytes(content[:-20])
        (stream,) = source.rounds(Codec())
        with pytest.raises(DamageError, match="no sync marker"):
            list(stream)


def test_a_value_that_makes_no_message_is_named(tmp_path: Path) -> None:
    """A number that the schema has no room for, as only a foreign writer puts it down."""
    node = Component(
        cluster="c",
        component_id="n",
        kind=ComponentKind.HOST,
        layer=Layer.UNDERLAY,
        tier=2**31 - 1,
        updated_at=1,
        addresses=(),
    )
    value = Codec().encode(TOPOLOGY, node)
    path = plainly(tmp_path, TOPOLOGY, [replace(round_entry(), key=b"n", value=value)])
    most = b"\xfe\xff\xff\xff\x0f"
    content = path.read_bytes()
    assert content.count(most) == 1
    path.write_bytes(content.replace(most, b"\xfe\xff\xff\xff\x7f"))
    with Source(tmp_path) as source:
        (stream,) = source.others(Codec())
        with pytest.raises(DamageError, match=r"topology.v1.avro: .*not a topology.v1 value"):
            list(stream)
