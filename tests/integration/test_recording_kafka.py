"""Record and replay against a real broker."""

import json
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import fastavro
import pytest

from ops.log.entry import Entry
from ops.log.timespan import END, Bound
from ops.log.writing import LogWriter
from ops.recording import source as sources
from ops.recording.manifest import load
from ops.recording.recorder import Recorder, Request
from ops.recording.replayer import Replayer, ReplayRefusedError, wanted
from ops.recording.replayer import Request as ReplayRequest
from ops.recording.source import Source
from ops.recording.writer import NotEmptyError
from ops.topics.admin import TopicAdmin, apply_topics
from ops.topics.plan import Options, wanted_topics
from schemas.kafka.connection import KafkaSettings
from schemas.topics import HEARTBEAT, PROBE_ROUND, TASK, Topic
from tests.integration.data_tools import cli, produce, read_all, until
from tests.unit.ops.recording_samples import START_MS, round_entry

pytestmark = pytest.mark.broker

TOPICS = (PROBE_ROUND, HEARTBEAT, TASK)
NEVER: Callable[[], bool] = lambda: False  # noqa: E731 - one name for "nobody stops us"


def sample(partition: int, at_s: float, key: str = "a", value: bytes | None = b"poison") -> Entry:
    """Return an entry that need not be decodable."""
    return Entry(
        partition=partition,
        offset=0,
        timestamp_ms=START_MS + round(at_s * 1000),
        key=key.encode(),
        value=value,
        headers=(("h", None), ("h", b"\xff\x00")),
    )


def fill(settings: KafkaSettings) -> None:
    """Write ten seconds of rounds on two partitions, and some state of the other topics."""
    rounds = [round_entry(p, at_ms=START_MS + i * 1000) for i in range(10) for p in (0, 2)]
    produce(settings, PROBE_ROUND, [*rounds, sample(1, 4), replace(sample(1, 5), key=b"\xff\xfe")])
    produce(
        settings,
        HEARTBEAT,
        [
            sample(3, 0, "old"),
            sample(3, 1, "twice", b"first"),
            sample(3, 2, "twice", b"second"),
            sample(3, 2, "gone"),
            sample(3, 3, "gone", None),
            sample(3, 6, "new"),
            sample(3, 7, "old", None),
            sample(3, 9, "late"),
        ],
    )


def record(
    settings: KafkaSettings,
    folder: Path,
    start: Bound = Bound("beginning"),  # noqa: B008 - frozen
    to: Bound = END,
    topics: tuple[Topic, ...] = TOPICS,
) -> None:
    """Record what is there."""
    Recorder(settings, Request(topics=topics, start=start, to=to), "0.1.0").run(folder, NEVER)


def replay(settings: KafkaSettings, folder: Path, run_id: str = "r1", **options: object) -> None:
    """Replay as fast as it goes."""
    request = ReplayRequest(run_id=run_id, speed=None, **options)  # type: ignore[arg-type]
    with Source(folder) as source:
        assert source.damages == []
        replayer = Replayer(settings, source, request)
        replayer.prepare()
        replayer.run(NEVER)


@pytest.mark.parametrize("unread", [False, True])
@pytest.mark.parametrize("kernels_from_bytes", [0, 2**40])
def test_replay_equals_what_was_recorded(
    replay_kafka: KafkaSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, unread: bool,
    kernels_from_bytes: int,
) -> None:  # fmt: skip
    """Partitions, order, keys, timestamps, values and headers survive; two headers are added."""
    monkeypatch.setattr(sources, "KERNELS_FROM_BYTES", kernels_from_bytes)
    fill(replay_kafka)
    record(replay_kafka, tmp_path / "r")
    before = read_all(replay_kafka, TOPICS)
    copy = replace(replay_kafka, topic_prefix=replay_kafka.topic_prefix + "copy.")
    try:
        replay(copy, tmp_path / "r", unread=unread)
        after = read_all(copy, TOPICS)
        assert {p: len(e) for p, e in after.items()} == {p: len(e) for p, e in before.items()}
        for place, entries in before.items():
            for old, new in zip(entries, after[place], strict=True):
                origin = f"default/{place[0]}[{place[1]}]@{old.offset}".encode()
                added = (("run_id", b"r1"), ("replayed_from", origin))
                assert replace(new, offset=0) == replace(
                    old, offset=0, headers=(*old.headers, *added)
                )
    finally:
        TopicAdmin(copy).delete([t.name for t in wanted(copy.topic_prefix, {}, 1)])


def test_bounds_cut_at_records_and_keep_earlier_state(
    replay_kafka: KafkaSettings, tmp_path: Path
) -> None:
    """--from and --to cut rounds by time; compacted topics bring their latest state before."""
    fill(replay_kafka)
    start, to = Bound("time", START_MS + 4_000), Bound("time", START_MS + 8_000)
    record(replay_kafka, tmp_path / "r", start, to)
    with (tmp_path / "r" / "probe.round.v1.avro").open("rb") as file:
        times = [r["timestamp_ms"].timestamp() * 1000 - START_MS for r in fastavro.reader(file)]  # type: ignore[index, call-overload, union-attr]
    assert sorted(times) == [4000] * 3 + [5000] * 3 + [6000] * 2 + [7000] * 2
    with (tmp_path / "r" / "agent.heartbeat.v1.avro").open("rb") as file:
        beats = [(r["key"], r["value_bytes"]) for r in fastavro.reader(file)]  # type: ignore[index, call-overload]
    assert beats == [
        ("old", b"poison"),
        ("twice", b"second"),
        ("new", b"poison"),
        ("old", None),
    ]
    manifest = load(tmp_path / "r")
    assert manifest.complete
    assert manifest.topics["agent.heartbeat.v1"].state == 2
    assert manifest.topics["agent.heartbeat.v1"].tombstones == 1
    assert manifest.topics["probe.round.v1"].undecodable == 2
    assert manifest.topics["probe.round.v1"].partitions == 4
    assert manifest.topics["probe.round.v1"].offsets["0"] == [4, 8]
    assert manifest.topics["task.v1"].records == 0


def test_replay_refuses_to_mix(replay_kafka: KafkaSettings, tmp_path: Path) -> None:
    """No prefix, records already there or other partition counts: refused; --append appends."""
    fill(replay_kafka)
    record(replay_kafka, tmp_path / "r")
    with pytest.raises(ReplayRefusedError, match="needs a prefix"):
        replay(replace(replay_kafka, topic_prefix=""), tmp_path / "r")
    with pytest.raises(ReplayRefusedError, match=r"probe\.round\.v1 not empty"):
        replay(replay_kafka, tmp_path / "r")
    replay(replay_kafka, tmp_path / "r", append=True)
    twice = read_all(replay_kafka, (PROBE_ROUND,))
    assert len(twice[("probe.round.v1", 0)]) == 20

    manifest = json.loads((tmp_path / "r" / "manifest.json").read_text())
    manifest["topics"]["probe.round.v1"]["partitions"] = 7
    (tmp_path / "r" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ReplayRefusedError, match="has 4 partitions, the recording 7"):
        replay(replay_kafka, tmp_path / "r", append=True)


def test_replay_refuses_topics_with_timestamps_of_the_broker(
    kafka: KafkaSettings, tmp_path: Path
) -> None:
    """What was recorded would get the time of the replay."""
    fill(kafka)
    record(kafka, tmp_path / "r")
    empty = replace(kafka, topic_prefix=kafka.topic_prefix + "other.")
    apply_topics(empty)
    try:
        with pytest.raises(ReplayRefusedError, match="the broker sets the timestamps"):
            replay(empty, tmp_path / "r")
        apply_topics(empty, Options(keep_all=True))
        replay(empty, tmp_path / "r")
    finally:
        TopicAdmin(empty).delete([t.name for t in wanted_topics(empty.topic_prefix)])


def test_record_refuses_a_folder_in_use(replay_kafka: KafkaSettings, tmp_path: Path) -> None:
    """A recording never writes over something."""
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(NotEmptyError, match="not empty"):
        record(replay_kafka, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["note.txt"]


def recorded(folder: Path) -> int:
    """Return how many records the manifest tells of."""
    try:
        return load(folder).records
    except FileNotFoundError:
        return -1


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_following_survives_its_end(
    kafka: KafkaSettings, tmp_path: Path, ending: signal.Signals
) -> None:
    """Ctrl-C, SIGTERM and SIGKILL leave files that hold all that was flushed, readable by all."""
    folder = tmp_path / "r"
    command = cli(
        kafka, "record", str(folder), "--follow", "--topics", "probe.round.v1",
        "--prefix", kafka.topic_prefix,
    )  # fmt: skip
    until(lambda: recorded(folder) == 0)
    produce(kafka, PROBE_ROUND, [round_entry(p, i) for i in range(50) for p in (0, 1)])
    until(lambda: recorded(folder) == 100)
    command.send_signal(ending)
    out, err = command.communicate(timeout=60)
    killed = ending is signal.SIGKILL
    assert command.returncode == (-signal.SIGKILL if killed else 0), err
    assert load(folder).complete is not killed
    if not killed:
        assert "100  probe.round.v1" in out
    with (folder / "probe.round.v1.avro").open("rb") as file:
        assert sum(1 for _ in fastavro.reader(file)) == 100


def test_replaying_a_damaged_recording_says_so(replay_kafka: KafkaSettings, tmp_path: Path) -> None:
    """What stands before the damage is replayed, the damage named, and the exit code is 1."""
    fill(replay_kafka)
    record(replay_kafka, tmp_path / "r", topics=(PROBE_ROUND,))
    path = tmp_path / "r" / "probe.round.v1.avro"
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 20)
    copy = replace(replay_kafka, topic_prefix=replay_kafka.topic_prefix + "copy.")
    try:
        command = cli(
            replay_kafka, "replay", str(tmp_path / "r"), "--prefix", copy.topic_prefix,
            "--speed", "max", "--json",
        )  # fmt: skip
        out, err = command.communicate(timeout=60)
        assert command.returncode == 4, err
        assert "probe.round.v1.avro: damaged at byte" in err
        report = json.loads(out)
        assert 0 < report["records"]["probe.round.v1"] < 22
        assert report["damages"][0]["file"] == "probe.round.v1.avro"
    finally:
        TopicAdmin(copy).delete([t.name for t in wanted(copy.topic_prefix, {}, 1)])


def test_a_refusal_is_raised_while_more_is_written(kafka: KafkaSettings) -> None:
    """Nobody has to flush to learn of it: a long replay ends where it went wrong."""
    out = LogWriter(kafka)

    def write(key: bytes | None) -> None:
        out.write(kafka.topic(HEARTBEAT.name), key=key, value=b"x", timestamp_ms=START_MS)

    def go_on() -> None:
        until_s = time.monotonic() + 60
        while time.monotonic() < until_s:
            write(b"k")
            time.sleep(0.0005)

    # A compacted topic takes no record without a key.
    write(None)
    with pytest.raises(ConnectionError, match="failed to validate record"):
        go_on()
