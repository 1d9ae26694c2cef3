"""`import-csv` as its user runs it: into a recording, into Kafka."""

import json
from pathlib import Path

import pytest

from schemas.codec import Codec
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.murmur2 import partition_of
from schemas.records import ProbeRound
from schemas.topics import PROBE_ROUND
from tests.integration.data_tools import cli, read_all
from tests.unit.ops.importing.test_csv import GOOD, SENT_NS, text

pytestmark = pytest.mark.broker


def csv_file(folder: Path, bad: int) -> Path:
    """Write a file of 40 sources and some bad rows."""
    good = [
        {**GOOD, "src_node_id": f"c{i % 40}", "ping_time": str(SENT_NS + i * 10**8)}
        for i in range(200)
    ]
    path = folder / "samples.csv"
    path.write_text(text(*good, *([{**GOOD, "latency": "?"}] * bad)).getvalue())
    return path


def test_to_kafka_and_to_a_recording_are_the_same(
    replay_kafka: KafkaSettings, tmp_path: Path
) -> None:
    """Both ways give the same rounds in the same partitions, and the recording replays."""
    path = csv_file(tmp_path, bad=0)
    out = tmp_path / "imported"
    for way in (["--prefix", replay_kafka.topic_prefix], ["--out", str(out)]):
        command = cli(replay_kafka, "import-csv", str(path), "--json", *way)
        told, err = command.communicate(timeout=60)
        assert command.returncode == 0, err
        report = json.loads(told)
        assert (report["rows"], report["bad"], report["results"]) == (200, 0, 200)
    direct = read_all(replay_kafka, (PROBE_ROUND,))
    replay = cli(
        replay_kafka,
        "replay",
        str(out),
        "--prefix",
        replay_kafka.topic_prefix,
        "--append",
        "--speed",
        "max",
    )
    _, err = replay.communicate(timeout=60)
    assert replay.returncode == 0, err
    both = read_all(replay_kafka, (PROBE_ROUND,))
    assert sum(len(e) for e in direct.values()) == report["rounds"]
    for place, entries in direct.items():
        again = both[place][len(entries) :]
        assert [(e.key, e.value, e.timestamp_ms) for e in entries] == [
            (e.key, e.value, e.timestamp_ms) for e in again
        ]
        assert {partition_of(e.key or b"", 4) for e in entries} == {place[1]}
        record: ProbeRound = Codec().decode(PROBE_ROUND, entries[0].value or b"")
        assert record.results[0].rtt_ns == 16_183


def test_bad_rows_decide_the_exit_code(kafka: KafkaSettings, tmp_path: Path) -> None:
    """Bad rows are named and skipped; the code is 4 unless so many are allowed."""
    path = csv_file(tmp_path, bad=3)
    for number, (allowed, expected) in enumerate([("2", 4), ("3", 0)]):
        command = cli(
            kafka, "import-csv", str(path), "--out", str(tmp_path / f"r{number}"),
            "--allow-bad", allowed,
        )  # fmt: skip
        out, err = command.communicate(timeout=60)
        assert command.returncode == expected
        assert "line 202: latency='?': a finite number" in err
        assert "3 BAD rows skipped" in out
