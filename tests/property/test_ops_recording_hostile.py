"""Files that others made: whatever is in them, a command ends soon, with a sentence and its code.

`make test` tries some hundred mutated files; `make fuzz` ten thousand.
"""

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import fastavro
import pytest
from typer.testing import CliRunner

from ops.cli.app import build
from ops.cli.errors import CliError
from ops.jobs.task_file import TaskFileError, parse_task_file
from ops.recording.container import DamageError
from ops.recording.diagnosis import INPUTS
from ops.recording.export import export
from ops.recording.manifest import FILE
from ops.recording.source import Source
from schemas.codec import Codec
from schemas.process.settings import ConfigError, read_table
from tests.unit.ops.recording.test_diagnosis import incident

FILES = int(os.environ.get("SKELETONHUNTER_FUZZ_FILES", "300"))
# A busy machine; a good file takes a tenth of a second.
LIMIT_S = 30
ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1,
    2**31,
    2**63,
    2**70,
    1e308,
    "",
    "\0",
    "../x",
    [],
    {},
    [[]],
    "x" * 9_999,
)
TASK = """\
task_id = "job1"
gpus_per_host = 8

[[containers]]
container_id = "job1-w0"
host_id = "gpu-node-17"
agent_id = "agent-17"
rails = [0, 2, 4, 6]
"""
CSV = "src_node_id,dst_node_id,ping_time,latency\n" + "".join(
    f"c{i % 4},c{i % 3},17000000{i:02}000000000,{i}.5\n" for i in range(40)
)


@contextmanager
def soon() -> Iterator[None]:
    """Fail what takes long."""

    def late(_signal: int, _frame: FrameType | None) -> None:
        raise AssertionError(f"hangs for {LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small recording."""
    folder = tmp_path_factory.mktemp("parsers") / "r"
    export(incident(3), folder)
    return folder


def mutated(content: bytes, random: Random) -> bytes:
    """Change some bytes, cut, repeat or insert."""
    data = bytearray(content)
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(data) + 1)
        match random.randrange(5):
            case 0 if at < len(data):
                data[at] = random.randrange(256)
            case 1:
                del data[at : at + random.choice((1, 7, 4_000))]
            case 2:
                data[at:at] = data[at : at + random.choice((1, 50, 3_000))]
            case 3:
                data[at:at] = random.randbytes(random.choice((1, 9, 200)))
            case _ if at < len(data):
                data[at] ^= 1 << random.randrange(8)
    return bytes(data)


def mutated_json(content: str, random: Random) -> str:
    """Change one value of a JSON document, at any depth."""
    document = json.loads(content)
    node = document
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            break
        key = random.choice(keys)
        if isinstance(node[key], dict | list) and node[key] and random.random() < 0.8:
            node = node[key]
            continue
        node[key] = random.choice(ODD)
        break
    return json.dumps(document)


def read_all(folder: Path) -> None:
    """Read a recording as `diagnose` and `replay` do; what is wrong is damage."""
    try:
        source = Source(folder)
    except (FileNotFoundError, DamageError):
        return
    with source:
        for stream in [*source.rounds(Codec()), *source.others(Codec(), INPUTS)]:
            try:
                for _ in stream:
                    pass
            except DamageError:
                continue


def test_mutated_recordings_and_manifests(recording: Path, tmp_path: Path) -> None:
    """Each is read as far as it is whole, or refused."""
    random = Random(1)
    names = sorted(p.name for p in recording.iterdir())
    for number in range(FILES):
        folder = tmp_path / str(number)
        shutil.copytree(recording, folder)
        path = folder / (FILE if number % 3 == 0 else random.choice(names))
        if path.name == FILE and number % 2:
            path.write_text(mutated_json(path.read_text(), random))
        else:
            path.write_bytes(mutated(path.read_bytes(), random))
        with soon():
            read_all(folder)
        shutil.rmtree(folder)


def test_mutated_task_files_and_settings(tmp_path: Path) -> None:
    """The error names what is wrong."""
    random = Random(2)
    config = tmp_path / "c.toml"
    refused = 0
    for number in range(FILES):
        content = mutated(TASK.encode(), random)
        with soon():
            try:
                parse_task_file("t.toml", content, cluster="c", submitted_at=1)
            except TaskFileError:
                refused += 1
            config.write_bytes(content)
            try:
                read_table(config, "worker")
            except ConfigError:
                refused += 1
        as_json = json.dumps({"task_id": "a", "containers": [{"rails": number}]})
        with soon(), pytest.raises(TaskFileError):
            parse_task_file("t.json", mutated_json(as_json, random).encode(), cluster="c",
                            submitted_at=1)  # fmt: skip
    assert 0 < refused < 2 * FILES


def test_mutated_csvs(tmp_path: Path) -> None:
    """Bad rows are counted, a bad header refused."""
    random = Random(3)
    for number in range(FILES // 10):
        path = tmp_path / f"{number}.csv"
        path.write_bytes(mutated(CSV.encode(), random))
        with soon():
            code, output = command("import-csv", str(path), "--out", str(tmp_path / f"o{number}"))
        assert code in {0, 1, 2}, output


def command(*arguments: str) -> tuple[int, str]:
    """Run the command; return its exit code and what it says."""
    done = CliRunner().invoke(build(), list(arguments))
    if isinstance(done.exception, CliError | ConfigError):
        return done.exception.exit_code, str(done.exception)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


def with_schema(folder: Path, schema: object, blocks: bytes = b"") -> None:
    """Put a container file with a schema of its own in place of a topic's."""
    text = schema if isinstance(schema, str) else json.dumps(schema)
    head = b"Obj\x01\x02" + varint(len("avro.schema")) + b"avro.schema"
    head += varint(len(text)) + text.encode() + b"\0" + bytes(16)
    (folder / "probe.round.v1.avro").write_bytes(head + blocks)


def varint(number: int) -> bytes:
    """Encode a number as Avro does."""
    raw, out = number << 1, bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def record(*fields: object) -> dict[str, object]:
    """Return a schema with fields of these types."""
    named = [{"name": f"f{n}", "type": kind} for n, kind in enumerate(fields)]
    return {"type": "record", "name": "R", "fields": named}


def nulls(folder: Path) -> None:
    """Claim an array of 2^40 nulls, in ten bytes."""
    payload = varint(2**40) + b"\0"
    block = varint(1) + varint(len(payload)) + payload + bytes(16)
    with_schema(folder, record({"type": "array", "items": "null"}), block)


def no_bytes(folder: Path) -> None:
    """Claim many records that have no bytes."""
    with_schema(folder, record("null"), varint(60_000_000) + b"\0" + bytes(16))


def nested(folder: Path) -> None:
    """Nest a schema 5,000 deep."""
    with_schema(folder, '{"type":"array","items":' * 5_000 + '"int"' + "}" * 5_000)


def very_nested(folder: Path) -> None:
    """Nest one deeper than a parser of JSON goes."""
    with_schema(folder, "[" * 200_000)


def recursive(folder: Path) -> None:
    """Let a record contain itself."""
    with_schema(folder, record(["null", "R"]))


def deep_manifest(folder: Path) -> None:
    """Nest the manifest deep."""
    (folder / FILE).write_text('{"a":' * 100_000)


def nul_name(folder: Path) -> None:
    """Put a NUL into a file name."""
    manifest = json.loads((folder / FILE).read_text())
    manifest["topics"]["probe.round.v1"]["file"] = "a\0b"
    (folder / FILE).write_text(json.dumps(manifest))


def pipe(folder: Path) -> None:
    """Put a named pipe that nobody writes to in a file's place."""
    (folder / "probe.round.v1.avro").unlink()
    os.mkfifo(folder / "probe.round.v1.avro")


def manifest_pipe(folder: Path) -> None:
    """Put one in place of the manifest."""
    (folder / FILE).unlink()
    os.mkfifo(folder / FILE)


@pytest.mark.parametrize(
    "change",
    [nulls, no_bytes, nested, very_nested, recursive, deep_manifest, nul_name, pipe, manifest_pipe],
)
def test_hostile_recordings(
    recording: Path, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    """Named with the file and what is wrong; the exit code says so."""
    folder = tmp_path / "r"
    shutil.copytree(recording, folder)
    change(folder)
    with soon():
        code, output = command("diagnose", str(folder))
    assert code == 1
    assert "damaged at byte 0: " in output
    assert len(output) < 3_000


@pytest.mark.parametrize("option", ["diagnose", "replay", "import-csv", "task submit"])
def test_a_pipe_is_no_file(tmp_path: Path, option: str) -> None:
    """Nobody writes to it: it is refused, not waited for."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    more = {"replay": ["--prefix", "x."], "import-csv": ["--out", str(tmp_path / "o")]}
    broker = ["--bootstrap", "127.0.0.1:1"] if option in {"replay", "task submit"} else []
    with soon():
        code, output = command(*option.split(), str(path), *more.get(option, []), *broker)
    assert code == 2
    assert str(path) in output
    with soon(), pytest.raises(ConfigError, match="Not a regular file"):
        read_table(path, "kafka")


def test_a_good_recording_stays_good(recording: Path) -> None:
    """The same check passes what our own recorder writes."""
    with Source(recording) as source:
        assert source.damages == []
        assert source.summaries["probe.round.v1"].records > 10
    with (recording / "probe.round.v1.avro").open("rb") as file:
        assert next(iter(fastavro.reader(file)))
