"""A recording judged on a laptop says what the run that made it said."""

import json
import shutil
from pathlib import Path
from typing import Any

import fastavro
import pytest
from typer.testing import CliRunner

from arena.run import run_world
from arena.simulation.world import World
from arena.world.cluster import Cluster, JobPlan
from arena.world.fabric import Fabric, FabricShape
from ops.cli.app import build
from ops.cli.errors import DAMAGED, FOUND, INCOMPLETE, USAGE, CliError
from ops.recording.diagnosis import NEEDED
from ops.recording.export import export
from ops.recording.order import round_end_ms
from ops.recording.writer import NotEmptyError
from schemas.codec import to_datum
from schemas.topics import ENDPOINT, HEARTBEAT, PATH_TRACE
from tests.unit.arena.worlds import at, cluster, loss, world

START_US = 1_767_225_600_000_000
LINK = "link:leaf:s0-r0--spine:1"


def incident(seconds: int = 45) -> World:
    """Return a cluster of which a link is cut for a while."""
    shape = FabricShape(hosts=8, rails=2, segment_hosts=2, spines=2)
    on = Cluster(Fabric(shape), (JobPlan(task_id="a", first_host=0, hosts=8),), flows=4)
    return World(
        name="lab-7", seed=3, cluster=on, seconds=seconds,
        effects=(loss(on, LINK, begin_s=25, end_ns=at(35)),),
    )  # fmt: skip


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the recording of the incident."""
    folder = tmp_path_factory.mktemp("arena") / "incident"
    manifest = export(incident(), folder)
    assert manifest.complete
    return folder


def test_the_same_verdicts_as_the_direct_run(recording: Path, tmp_path: Path) -> None:
    """Every transition, field by field; one document for each fault."""
    out = tmp_path / "verdicts.jsonl"
    result = CliRunner().invoke(build(), ["diagnose", str(recording), "--out", str(out)])
    assert result.exit_code == 1, result.output
    direct = run_world(incident())
    found = [json.loads(line) for line in out.read_text().splitlines()]
    (verdict,) = found
    assert verdict["component_id"] == LINK
    assert verdict["resolved"]
    told = [*verdict.pop("history"), {k: v for k, v in verdict.items() if k != "resolved"}]
    wanted = [json.loads(json.dumps(to_datum(e), default=str)) for e in direct.events]
    assert told == wanted
    assert "link:leaf:s0-r0--spine:1" in result.output
    assert "probe.round.v1" in result.output


def test_bounds_and_json(recording: Path) -> None:
    """Before the incident there is nothing to tell: exit code 0."""
    command = ["diagnose", str(recording), "--to", "2026-01-01T00:00:20", "--json"]
    result = CliRunner().invoke(build(), command)
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert said["verdicts"] == []
    assert said["refused"] == {}
    assert said["results"] > 1000


@pytest.mark.parametrize("topic", [topic.name for topic in NEEDED])
def test_what_cannot_be_judged_is_said(recording: Path, tmp_path: Path, topic: str) -> None:
    """Without the records that place a fault, no verdict is no all-clear."""
    folder = tmp_path / "r"
    shutil.copytree(recording, folder)
    (folder / f"{topic}.avro").unlink()
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["topics"][topic]
    path.write_text(json.dumps(manifest))
    result = CliRunner().invoke(build(), ["diagnose", str(folder), "--json"])
    assert result.exit_code == INCOMPLETE, result.output
    said = json.loads(result.stdout)
    assert bool(said["verdicts"]) is (topic in {ENDPOINT.name, HEARTBEAT.name})
    (lack,) = said["lacks"]
    assert lack.startswith(f"no record of {topic} could be used: ")
    assert lack in result.stderr


def test_records_that_cannot_count_are_left_out_and_counted(tmp_path: Path) -> None:
    """Of another cluster; the rest is judged."""
    export(world(4, on=cluster()), tmp_path / "r")
    manifest = tmp_path / "r" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"cluster": "w"', '"cluster": "other"'))
    result = CliRunner().invoke(build(), ["diagnose", str(tmp_path / "r"), "--json"])
    assert result.exit_code == INCOMPLETE, result.output
    assert "no record of probe.round.v1 could be used" in result.stderr
    said = json.loads(result.stdout)
    rounds = said["records"]["probe.round.v1"]
    assert said["refused"]["foreign"] == sum(said["records"].values())
    assert rounds == 24
    assert "of another cluster: --cluster w" in result.stderr
    named = CliRunner().invoke(build(), ["diagnose", str(tmp_path / "r"), "--cluster", "w"])
    assert named.exit_code in {0, FOUND}, named.output


def test_a_record_of_an_absurd_time_silences_nothing(recording: Path, tmp_path: Path) -> None:
    """Whoever writes with timestamps of its own may write any; the others are judged."""
    folder = tmp_path / "r"
    shutil.copytree(recording, folder)
    for topic in (HEARTBEAT, PATH_TRACE):
        path = folder / f"{topic.name}.avro"
        with path.open("rb") as file:
            reader = fastavro.reader(file)
            schema = reader.writer_schema
            records: list[Any] = list(reader)
        records[-1]["timestamp_ms"] = 2**60
        records[0]["timestamp_ms"] = -(2**60)
        with path.open("wb") as file:
            fastavro.writer(file, schema, records)
    result = CliRunner().invoke(build(), ["diagnose", str(folder), "--json"])
    assert result.exit_code == FOUND, result.output
    (verdict,) = json.loads(result.stdout)["verdicts"]
    assert verdict["component_id"] == LINK


def forget_a_partition(folder: Path) -> None:
    """Let a manifest say that the first partition has no rounds."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["topics"]["probe.round.v1"]["offsets"]["0"]
    path.write_text(json.dumps(manifest))


def diagnosed(folder: Path) -> tuple[int, dict[str, Any], str]:
    """Return exit code, what is said, and what stands on standard error."""
    result = CliRunner().invoke(build(), ["diagnose", str(folder), "--json"])
    return result.exit_code, json.loads(result.stdout), result.stderr


def test_a_broken_file_of_rounds_is_read_up_to_the_damage(recording: Path, tmp_path: Path) -> None:
    """The fault before it is told, and the damage; so are offsets the manifest does not know."""
    exit_code, whole, _ = diagnosed(recording)
    assert exit_code == FOUND
    cut, lying, none = tmp_path / "cut", tmp_path / "lying", tmp_path / "none"
    for folder in (cut, lying, none):
        shutil.copytree(recording, folder)
    path = cut / "probe.round.v1.avro"
    path.write_bytes(path.read_bytes()[:-2_000])
    manifest = json.loads((lying / "manifest.json").read_text())
    kept = next(iter(manifest["topics"]["probe.round.v1"]["offsets"].values()))
    kept[1] -= 1
    (lying / "manifest.json").write_text(json.dumps(manifest))
    (none / "probe.round.v1.avro").unlink()
    exit_code, said, errors = diagnosed(none)
    assert (exit_code, said["records"]["probe.round.v1"]) == (DAMAGED, 0)
    assert "the file is missing" in errors
    for folder, reason in ((cut, "the file ends"), (lying, "that the last one is before offset")):
        exit_code, said, errors = diagnosed(folder)
        assert exit_code == DAMAGED, errors
        assert reason in errors
        assert said["records"]["probe.round.v1"] < whole["records"]["probe.round.v1"]
        (verdict,) = said["verdicts"]
        assert verdict["component_id"] == LINK


def test_the_same_verdicts_where_the_recorder_was_killed(recording: Path, tmp_path: Path) -> None:
    """Then the manifest does not say which partitions have rounds, or says something else."""
    _, whole, _ = diagnosed(recording)
    for number, offsets in enumerate((None, {"0": "?"}, {"x": [0, 1]})):
        folder = tmp_path / str(number)
        shutil.copytree(recording, folder)
        manifest = json.loads((folder / "manifest.json").read_text())
        if offsets is None:
            manifest["complete"] = False
        else:
            manifest["topics"]["probe.round.v1"]["offsets"] = offsets
        (folder / "manifest.json").write_text(json.dumps(manifest))
        assert diagnosed(folder)[:2] == (FOUND, whole)


def test_a_round_that_claims_to_end_late_lets_nothing_go_first() -> None:
    """Workers refuse it; the records of other topics wait for the rounds of their time."""
    hour_us = 3_600_000_000
    assert round_end_ms(START_US, 900_000_001, START_US // 1_000) == START_US // 1_000 + 901
    assert round_end_ms(START_US + hour_us, 0, START_US // 1_000) == START_US // 1_000 + 90_000
    assert round_end_ms(START_US, 0, 0) == START_US // 1_000 + 1
    assert round_end_ms(START_US + hour_us, 0, None) == (START_US + hour_us) // 1_000 + 1


def test_plain_errors(recording: Path, tmp_path: Path) -> None:
    """No recording, a bad bound, no place to write to: a sentence and exit code 2."""
    for command, reason in (
        ([str(tmp_path)], "holds no recording"),
        ([str(recording), "--from", "yesterday"], "yesterday"),
        ([str(recording), "--out", str(tmp_path / "no" / "where")], "No such file"),
    ):
        result = CliRunner().invoke(build(), ["diagnose", *command])
        assert isinstance(result.exception, CliError), result.output
        assert result.exception.exit_code == USAGE
        assert reason in str(result.exception)
    with pytest.raises(NotEmptyError):
        export(world(2), recording)
