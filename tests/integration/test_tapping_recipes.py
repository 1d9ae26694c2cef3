"""The recipes that docs/ calls tested are run as they are printed."""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from ops.log.timespan import END
from ops.recording.recorder import Recorder, Request
from schemas.codec import Codec
from schemas.enums import Transport
from schemas.kafka.connection import KafkaSettings
from schemas.records import PathWindow
from schemas.topics import PROBE_ROUND, PROBE_WINDOW
from tests import ROOT
from tests.integration.data_tools import produce
from tests.unit.ops.recording_samples import START_MS, round_entry

pytestmark = pytest.mark.broker

MARK = "# run by tests/integration/test_tapping_recipes.py\n"


def recipe(page: str) -> str:
    """Return the one Python recipe of a page that says it is run here."""
    text = (ROOT / "docs" / "guide" / page).read_text(encoding="utf-8")
    (code,) = (
        block for block in re.findall(r"```python\n(.*?)```", text, re.S) if block.startswith(MARK)
    )
    return str(code)


def run(code: str) -> dict[str, Any]:
    """Run a recipe; return its variables."""
    names: dict[str, Any] = {}
    exec(compile(code, "recipe", "exec"), names)  # noqa: S102 - our own documentation
    return names


def test_a_topic_is_read_without_any_of_our_code(kafka: KafkaSettings) -> None:
    """fastavro, confluent-kafka and the schema file are enough to read windows."""
    window = PathWindow(
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
    entry = round_entry()
    value = Codec().encode(PROBE_WINDOW, window)
    produce(
        kafka,
        PROBE_WINDOW,
        [
            type(entry)(partition=0, offset=0, timestamp_ms=START_MS, key=b"a>b", value=v)
            for v in (value, None, value)
        ],
    )
    code = recipe("tapping.md")
    assert "ops" not in re.findall(r"(?:import|from) (\w+)", code)
    assert "schemas" not in re.findall(r"(?:import|from) (\w+)", code)
    code = code.replace('"127.0.0.1:9092", "probe.window.v1"',
                        f'"{kafka.bootstrap}", "{kafka.topic(PROBE_WINDOW.name)}"')  # fmt: skip
    code = code.replace('"my-own-group"', f'"{kafka.topic_prefix}group"')
    code = code.replace('"schemas/avsc', f'"{ROOT}/schemas/avsc')
    records = run(code)["records"]
    assert [key for key, _ in records] == ["a>b", "a>b"]
    found = records[0][1]
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
