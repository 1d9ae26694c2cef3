"""A recording becomes Parquet: every record once, its fields as columns, times with their type."""

import re
from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from ops.cli.app import build
from ops.log.entry import Entry
from ops.recording import parquet
from ops.recording.manifest import Manifest
from ops.recording.parquet import export
from ops.recording.writer import NotEmptyError, RecordingWriter, prepare_folder
from schemas.codec import Codec
from schemas.enums import Transport
from schemas.records import PathWindow
from schemas.topics import PROBE_ROUND, PROBE_WINDOW, TOPICS, Topic
from tests import ROOT
from tests.unit.ops.recording_samples import START_MS, round_entry
from tests.unit.schemas.golden import all_goldens

HOUR_MS = 3_600_000


def recording(folder: Path, entries: Sequence[tuple[Topic, Entry]]) -> Path:
    """Write a recording."""
    prepare_folder(folder)
    manifest = Manifest(cluster="c", recorded_at="now", from_ms=None, to_ms=None)
    writer = RecordingWriter(folder, manifest, Codec())
    for topic in dict.fromkeys(topic for topic, _ in entries):
        writer.add_topic(topic, 4)
    for topic, entry in entries:
        writer.write_entry(topic, entry)
    writer.close(complete=True)
    return folder


def read(out: Path, topic: Topic) -> pl.DataFrame:
    """Return all that was exported of a topic, in order."""
    return pl.read_parquet(out / topic.name / "**/*.parquet").sort("_partition", "_offset")


def window_entry(number: int, lost: int = 0) -> Entry:
    """Return a window, half an hour after the one before."""
    at_ms = START_MS + number * HOUR_MS // 2
    record = PathWindow(
        cluster="c", path_id=f"a>{number % 2}", src="a", dst=str(number % 2), flow=0,
        agent_id="agent-h0", transport=Transport.UDP, window_start_at=at_ms * 1000,
        window_end_at=(at_ms + 30_000) * 1000, sent=30, ok=30 - lost, lost=lost,
        duplicate_results=0, p50_ns=16_183,
    )  # fmt: skip
    value = Codec().encode(PROBE_WINDOW, record)
    return Entry(
        partition=0, offset=number, timestamp_ms=at_ms, key=record.path_id.encode(), value=value
    )


def test_every_record_is_there_once_by_hour_and_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in pieces, with tombstones, and with what could not be decoded."""
    monkeypatch.setattr(parquet, "CHUNK_BYTES", 1)
    entries = [(PROBE_WINDOW, window_entry(n, lost=n)) for n in range(5)]
    odd = [
        Entry(partition=1, offset=0, timestamp_ms=START_MS, key=b"a>0", value=None),
        Entry(partition=1, offset=1, timestamp_ms=None, key=b"\xff", value=b"garbage"),
    ]
    folder = recording(tmp_path / "in", entries + [(PROBE_WINDOW, entry) for entry in odd])
    (done,) = export(folder, tmp_path / "out")
    assert (done.topic, done.records, done.damage) == (PROBE_WINDOW.name, 7, None)
    hours = {p.parent.name for p in (tmp_path / "out").rglob("*.parquet")}
    assert hours == {"hour=00", "hour=01", "hour=02", "hour=__HIVE_DEFAULT_PARTITION__"}
    found = read(tmp_path / "out", PROBE_WINDOW)
    assert found.schema["window_start_at"] == pl.Datetime("us", "UTC")
    assert found.schema["_timestamp"] == pl.Datetime("ms", "UTC")
    assert found.schema["p50_ns"] == pl.Int64
    assert found["lost"].to_list() == [0, 1, 2, 3, 4, None, None]
    assert found["_tombstone"].to_list() == [False] * 5 + [True, True]
    assert found["_value_bytes"].to_list() == [None] * 6 + [b"garbage"]
    assert found["_decode_error"][6] is not None
    assert found["window_start_at"][1] == datetime(2026, 1, 1, 0, 30, tzinfo=UTC)


def test_results_of_rounds_stay_together(tmp_path: Path) -> None:
    """A list of structs, in order, a lost probe with its null."""
    folder = recording(tmp_path / "in", [(PROBE_ROUND, round_entry())])
    export(folder, tmp_path / "out")
    found = read(tmp_path / "out", PROBE_ROUND)
    results: list[dict[str, Any]] = found["results"][0].to_list()
    assert [(r["dst"], r["status"], r["rtt_ns"]) for r in results] == [
        ("c1/r0", "OK", 16_183), ("c2/r0", "TIMEOUT", None),
    ]  # fmt: skip
    assert found["_headers"][0].to_list() == [{"name": "producer_version", "value": b"0.1.0"}]


@pytest.mark.parametrize("topic", TOPICS, ids=lambda t: t.name)
def test_every_topic_of_the_contract_can_be_exported(tmp_path: Path, topic: Topic) -> None:
    """All fields are columns, none hides where the record stood."""
    goldens = [g for g in all_goldens() if g.topic == topic.name and g.style == "full"]
    entries = [
        (topic, Entry(partition=0, offset=n, timestamp_ms=START_MS, key=b"k", value=g.framed))
        for n, g in enumerate(goldens)
    ]
    export(recording(tmp_path / "in", entries), tmp_path / "out")
    found = read(tmp_path / "out", topic)
    names = [f.name for f in fields(topic.record)]
    assert found.columns[: len(names)] == names
    assert all(name.startswith("_") for name in found.columns[len(names) :])


def test_what_stands_before_a_damage_is_written(tmp_path: Path) -> None:
    """The damage is told, with its place; exit code 4."""
    folder = recording(tmp_path / "in", [(PROBE_WINDOW, window_entry(n)) for n in range(3)])
    path = folder / f"{PROBE_WINDOW.name}.avro"
    path.write_bytes(path.read_bytes() + b"\x02")
    done = CliRunner().invoke(build(), ["export", str(folder), "--out", str(tmp_path / "out")])
    assert done.exit_code == 4
    assert "damaged at byte" in done.output
    assert len(read(tmp_path / "out", PROBE_WINDOW)) == 3


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    """The default is a folder beside the recording; it must be empty."""
    folder = recording(tmp_path / "in", [(PROBE_WINDOW, window_entry(0))])
    done = CliRunner().invoke(build(), ["export", str(folder), "--to", "parquet"])
    assert done.exit_code == 0
    assert (tmp_path / "in.parquet" / PROBE_WINDOW.name).is_dir()
    with pytest.raises(NotEmptyError):
        export(folder, tmp_path / "in.parquet")


def printed(language: str, what: str) -> str:
    """Return the one block of the guide in a language that has something in it."""
    page = (ROOT / "docs" / "guide" / "recordings.md").read_text(encoding="utf-8")
    blocks = re.findall(rf"```{language}\n(.*?)```", page, re.S)
    (block,) = (block for block in blocks if what in block)
    return str(block)


def test_polars_and_duckdb_read_it_as_the_guide_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one-liners give the paths with most losses first, and what became of probes."""
    entries = [(PROBE_WINDOW, window_entry(n, lost=n)) for n in range(4)]
    entries += [(PROBE_ROUND, round_entry(n)) for n in range(2)]
    folder = recording(tmp_path / "incident-42", entries)
    export(folder, tmp_path / "incident-42.parquet")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(printed("python", "scan_parquet"), "recipe", "exec"), names)  # noqa: S102 - our own documentation
    assert names["worst"].rows() == [("a>1", 60, 4), ("a>0", 60, 2)]
    duckdb = pytest.importorskip("duckdb", reason="no duckdb: run `make setup` again")
    worst, answers = printed("sql", "read_parquet('incident-42.parquet").split(";\n\n")
    assert [row[:2] for row in duckdb.sql(worst).fetchall()] == [("a>1", 4), ("a>0", 2)]
    assert sorted(duckdb.sql(answers).fetchall()) == [
        ("c0/r0", "c1/r0", 2, 2),
        ("c0/r0", "c2/r0", 2, 0),
    ]
