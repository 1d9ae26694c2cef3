"""The recipes that docs/ calls tested are run as they are printed, or as their files are."""

import io
import json
import os
import re
import shlex
import shutil
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import fastavro
import pytest
from confluent_kafka import Producer

from localizer.edge.outbox import cloud_event_headers
from ops.broker.cache import cache_dir
from ops.broker.fetch import fetch, fetch_artifacts
from ops.broker.lock import KAFKA, LockedArtifact
from ops.log.timespan import END
from ops.recording.recorder import Recorder, Request
from schemas.codec import Codec
from schemas.enums import Transport
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.options import producer_options
from schemas.records import FaultEvent, PathWindow
from schemas.topics import FAULT_EVENT, PROBE_ROUND, PROBE_WINDOW, Topic
from tests import ROOT
from tests.integration.data_tools import produce
from tests.unit.ops.recording_samples import START_MS, round_entry
from tests.unit.schemas.golden import all_goldens

pytestmark = pytest.mark.broker
# What the Java recipe needs beside the jars of the embedded Kafka.
AVRO = LockedArtifact(
    group="org.apache.avro",
    name="avro",
    version="1.12.1",
    sha256="72600f057bfbe2efe35fa55433e7756d45667dc938934be38a6e2be368aca237",
)

RECIPES = ROOT / "docs" / "recipes"
INSTALL = {
    "javac": "a JDK 17 or newer",
    "go": "Go 1.26 or newer",
    "npm": "Node.js 20 or newer with npm",
}
MARK = "run by tests/integration/test_tapping_recipes.py\n"
# A first build of Go compiles its network library, half a minute of processor time.
WAIT_S = 300
WINDOW = PathWindow(
    cluster="c",
    path_id="a>b",
    src="a",
    dst="b",
    flow=0,
    agent_id="agent-h0",
    transport=Transport.UDP,
    window_start_at=START_MS * 1000,
    window_end_at=(START_MS + 30_000) * 1000,
    sent=30,
    ok=29,
    lost=1,
    duplicate_results=0,
    p50_ns=16_183,
)


def recipe(page: str, language: str = "python") -> str:
    """Return the one recipe of a page in that language that says it is run here."""
    text = (ROOT / "docs" / "guide" / page).read_text(encoding="utf-8")
    (code,) = (
        block
        for block in re.findall(rf"```{language}\n(.*?)```", text, re.S)
        if MARK in block.splitlines(keepends=True)[0]
    )
    return str(code)


def run(code: str) -> dict[str, Any]:
    """Run a recipe; return its variables."""
    names: dict[str, Any] = {}
    exec(compile(code, "recipe", "exec"), names)  # noqa: S102 - our own documentation
    return names


def test_a_topic_is_read_without_any_of_our_code(kafka: KafkaSettings) -> None:
    """fastavro, confluent-kafka and the schema file are enough to read windows."""
    entry = round_entry()
    value = Codec().encode(PROBE_WINDOW, WINDOW)
    newer = newer_schema(PROBE_WINDOW)
    produce(
        kafka,
        PROBE_WINDOW,
        [
            type(entry)(partition=0, offset=0, timestamp_ms=START_MS, key=b"a>b", value=v)
            for v in (value, None, framed_by_a_registry(PROBE_WINDOW, WINDOW, newer))
        ],
    )
    code = recipe("tapping.md")
    assert "ops" not in re.findall(r"(?:import|from) (\w+)", code)
    assert "schemas" not in re.findall(r"(?:import|from) (\w+)", code)
    code = code.replace('"127.0.0.1:9092", "probe.window.v1"',
                        f'"{kafka.bootstrap}", "{kafka.topic(PROBE_WINDOW.name)}"')  # fmt: skip
    code = code.replace('"my-own-group"', f'"{kafka.topic_prefix}group"')
    code = code.replace('"schemas/avsc', f'"{ROOT}/schemas/avsc')
    with registry(newer) as url:
        records = run(code.replace("http://127.0.0.1:8081", url))["records"]
    assert [key for key, _ in records] == ["a>b", "a>b"]
    found = records[0][1]
    assert found == records[1][1]
    assert (found["sent"], found["lost"], found["p50_ns"], found["p99_ns"]) == (30, 1, 16_183, None)
    assert found["window_end_at"].isoformat() == "2026-01-01T00:00:30+00:00"


def test_polars_reads_a_recording_as_printed(
    kafka: KafkaSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Polars recipe gives loss and median per pair from a recording."""
    produce(kafka, PROBE_ROUND, [round_entry(i % 2, at_ms=START_MS + i * 1000) for i in range(10)])
    request = Request(topics=(PROBE_ROUND,), to=END)
    Recorder(kafka, request, None).run(tmp_path / "incident-42", lambda: False)
    monkeypatch.chdir(tmp_path)
    assert os.listdir() == ["incident-42"]
    lost = run(recipe("recordings.md"))["lost"]
    assert sorted(lost.rows()) == [
        ("c0/r0", "c1/r0", 10, 0, 16.183),
        ("c0/r0", "c2/r0", 10, 10, None),
    ]


def fault(seq: int) -> FaultEvent:
    """Return a transition of a fault."""
    goldens = (g for g in all_goldens() if (g.topic, g.style) == (FAULT_EVENT.name, "full"))
    golden = max(goldens, key=lambda g: g.version)
    record: FaultEvent = Codec(bounded=False).decode(FAULT_EVENT, golden.framed)
    return replace(record, fault_id="f1", seq=seq, summary=f"transition {seq}")


def write_transitions(settings: KafkaSettings) -> None:
    """Write two transitions, and between them one of a transaction that is given up."""
    outbox = Producer(
        producer_options(settings, fixed={"transactional.id": f"{settings.topic_prefix}tap"})
    )
    outbox.init_transactions(30)
    for seq, commit in ((1, True), (2, False), (2, True)):
        outbox.begin_transaction()
        outbox.produce(
            settings.topic(FAULT_EVENT.name),
            key="f1",
            value=Codec().encode(FAULT_EVENT, fault(seq if commit else 99)),
            headers=cloud_event_headers(fault(seq)) if commit else [],
        )
        outbox.flush(30)
        if commit:
            outbox.commit_transaction(30)
        else:
            outbox.abort_transaction(30)


@pytest.mark.skipif(shutil.which("kcat") is None, reason="no kcat: apt install kcat")
def test_kcat_shows_committed_transitions_as_printed(kafka: KafkaSettings) -> None:
    """Its headers name the fault; what was given up is not seen."""
    write_transitions(kafka)
    line = recipe("tapping.md", "sh").splitlines()[1]
    line = line.replace("127.0.0.1:9092", kafka.bootstrap)
    line = line.replace(FAULT_EVENT.name, kafka.topic(FAULT_EVENT.name))
    done = subprocess.run(
        shlex.split(line), capture_output=True, text=True, timeout=WAIT_S, check=True
    )
    rows = done.stdout.splitlines()
    assert len(rows) == 2
    for seq, row in enumerate(rows, 1):
        partition, _, key, headers = row.split(" ", 3)
        assert (partition, key) == ("0", "f1")
        assert f"ce_id=f1/{seq}," in headers


def framed_by_a_registry(topic: Topic, record: Any, schema: dict[str, Any]) -> bytes:
    """Return a record as Confluent's serializer writes it, by a schema of its own, with id 7."""
    values = fastavro.schemaless_reader(
        io.BytesIO(Codec().encode(topic, record)[10:]), newest_schema(topic)
    )
    body = io.BytesIO()
    fastavro.schemaless_writer(body, schema, cast(dict[str, Any], values))
    return struct.pack(">bI", 0, 7) + body.getvalue()


def newest_schema(topic: Topic) -> dict[str, Any]:
    """Return the schema of a topic, as its file says it."""
    files = (ROOT / "schemas" / "avsc" / topic.name).glob("*.avsc")
    newest = max(files, key=lambda file: int(file.stem))
    schema: dict[str, Any] = json.loads(newest.read_text(encoding="utf-8"))
    return schema


def newer_schema(topic: Topic) -> dict[str, Any]:
    """Return what a later version of a schema may be: with one field more."""
    schema = newest_schema(topic)
    schema["fields"].append({"name": "added_later", "type": "string", "default": ""})
    return schema


@contextmanager
def registry(schema: dict[str, Any]) -> Iterator[str]:
    """Serve one schema, with the id 7, as a registry does; give its address."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path == "/schemas/ids/7"
            self.send_response(200 if found else 404)
            self.end_headers()
            self.wfile.write(json.dumps({"schema": json.dumps(schema)}).encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def build_java(folder: Path) -> list[str]:
    """Compile the recipe for Java; return what runs it."""
    (avro,) = fetch_artifacts([AVRO], cache_dir() / "avro")
    jars = os.pathsep.join(map(str, (avro, *fetch(KAFKA))))
    (folder / "Tap.java").write_text(recipe("tapping.md", "java"), encoding="utf-8")
    succeed(["javac", "-cp", jars, "-d", str(folder), str(folder / "Tap.java")])
    return ["java", "-cp", os.pathsep.join([str(folder), jars]), "Tap"]


def build_go(folder: Path) -> list[str]:
    """Build the recipe for Go; return what runs it."""
    succeed(["go", "build", "-o", str(folder / "tap"), "."], RECIPES / "go")
    return [str(folder / "tap")]


def build_javascript(folder: Path) -> list[str]:
    """Copy the recipe for JavaScript and fetch its packages; return what runs it."""
    own = shutil.copytree(
        RECIPES / "javascript", folder / "own", ignore=shutil.ignore_patterns("node_modules")
    )
    succeed(["npm", "ci", "--no-audit", "--no-fund", "--prefer-offline"], own)
    return ["node", str(own / "tap.js")]


def succeed(argv: list[str], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program that must succeed."""
    done = subprocess.run(
        argv, cwd=cwd, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.parametrize(
    ("tool", "build"),
    [
        pytest.param("javac", build_java, id="java"),
        pytest.param("go", build_go, id="go"),
        pytest.param("npm", build_javascript, id="javascript"),
    ],
)
def test_both_framings_are_read_by_old_and_by_newer_schemas(
    kafka: KafkaSettings, tmp_path: Path, tool: str, build: Callable[[Path], list[str]]
) -> None:
    """Only committed transitions; fields that a newer writer added are passed over.

    What cannot be read, such as a schema that nobody knows, is said and passed over.
    """
    if shutil.which(tool) is None:
        pytest.skip(f"no {tool}: install {INSTALL[tool]}")
    write_transitions(kafka)
    newer = newer_schema(FAULT_EVENT)
    odd = b"\xc3\x01" + bytes(8) + b"?"
    values = [None, odd, framed_by_a_registry(FAULT_EVENT, fault(3), newer)]
    # As agents and workers write.
    producer = Producer(producer_options(kafka, fixed={"compression.type": "lz4"}))
    for value in values:
        producer.produce(kafka.topic(FAULT_EVENT.name), key="f1", value=value)
    producer.flush(30)
    with registry(newer) as url:
        done = succeed(
            [*build(tmp_path), kafka.bootstrap, kafka.topic(FAULT_EVENT.name),
             f"{kafka.topic_prefix}{tool}",
             str(ROOT / "schemas" / "avsc" / FAULT_EVENT.name), url]
        )  # fmt: skip
    state = fault(1).state.value
    expected = [f"0 f1 {seq} {state} transition {seq}" for seq in (1, 2, 3)]
    assert done.stdout.splitlines() == expected, done.stderr
    assert done.stderr.count("newer than the files") == 1, done.stderr
