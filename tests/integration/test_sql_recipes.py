"""The recipes for ClickHouse and Flink: their SQL is held to the schemas, and parsed or run."""

import json
import os
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from ops.broker.cache import cache_dir
from ops.broker.fetch import fetch_artifacts
from ops.broker.lock import parse_lock
from schemas.topics import FAULT_EVENT, PROBE_WINDOW, Topic
from tests import ROOT
from tests.integration.test_tapping_recipes import (
    RECIPES,
    WINDOW,
    framed_by_a_registry,
    newer_schema,
    newest_schema,
    registry,
    succeed,
)

# SQL's types of the recipes, and Avro's.
AVRO_TYPES = {
    "String": "string", "Int32": "int", "Int64": "long", "DateTime64(6, 'UTC')": "long",
    "STRING": "string", "INT": "int", "BIGINT": "long",
}  # fmt: skip
# ClickHouse without its server has no threads for its Kafka engine: it checks the settings of the
# table, says so, and the values go into a table that stands for it.
CLICKHOUSE = """
import os, re, sys
from chdb.session import Session

sql, columns, values, registry = sys.argv[1:]
run = Session().query
statements = re.sub("--.*", "", open(sql).read()).split(";")
queue, *rest = [text for text in statements if text.strip()]
run("CREATE DATABASE recipe")
run("USE recipe")
try:
    run(queue)
except Exception as error:
    assert "Shutdown was called" in str(error), error
    run("DROP TABLE windows_queue")
run("CREATE TABLE windows_queue (" + columns + ", _error String, _raw_message String, "
    "_partition UInt64, _offset UInt64) ENGINE = Null")
for text in rest:
    run(text)
quoted = columns.replace("'", "''")
run(
    "INSERT INTO windows_queue SELECT *, '', '', 0, 0 "
    f"FROM file('{values}', AvroConfluent, '{quoted}') "
    f"SETTINGS format_avro_schema_registry_url = '{registry}'"
)
run("INSERT INTO windows_queue (_error, _raw_message) VALUES ('no registry', 'x')")
for what in ("path_id, toUnixTimestamp64Micro(window_end_at) AS end_us, sent, p50_ns, p99_ns "
             "FROM windows FINAL", "reason FROM windows_unread"):
    print(run(f"SELECT {what} SETTINGS output_format_json_quote_64bit_integers = 0", "JSONEachRow"))
sys.stdout.flush()
os._exit(0)  # it may crash at its end
"""


def columns(sql: str, table: str) -> dict[str, tuple[str, bool]]:
    """Return the columns of a table that come from records: their types, and whether null."""
    (body,) = re.findall(rf"CREATE TABLE {table} \(\n(.*?)\n\) (?:ENGINE|WITH)", sql, re.S)
    plain = re.sub(r" *--.*", "", body)
    found = {}
    for part in re.split(r",(?![^<(]*[>)])", plain):
        name, _, kind = part.strip().partition(" ")
        if kind.startswith(("AS ", "KEY ", "FOR ")) or "METADATA" in kind:
            continue
        inner = re.fullmatch(r"Nullable\((.*)\)", kind)
        flink = "ENGINE" not in sql
        nullable = not kind.endswith(" NOT NULL") if flink else inner is not None
        found[name] = (inner[1] if inner else kind.removesuffix(" NOT NULL"), nullable)
    return found


@pytest.mark.parametrize(
    ("recipe", "table", "topic"),
    [
        ("clickhouse", "windows_queue", PROBE_WINDOW),
        ("flink", "windows", PROBE_WINDOW),
        ("flink", "fault_events", FAULT_EVENT),
    ],
)
def test_the_columns_of_sql_are_fields_of_the_schema(recipe: str, table: str, topic: Topic) -> None:
    """By name, type, and whether they may be missing."""
    fields = {}
    for field in newest_schema(topic)["fields"]:
        kinds = field["type"] if isinstance(field["type"], list) else [field["type"]]
        (kind,) = (k for k in kinds if k != "null")
        fields[field["name"]] = (kind["type"] if isinstance(kind, dict) else kind, "null" in kinds)
    sql = (RECIPES / recipe / "windows.sql").read_text(encoding="utf-8")
    found = columns(sql, table)
    assert len(found) >= 6
    for name, (kind, nullable) in found.items():
        assert fields[name] == (AVRO_TYPES[kind], nullable), name


def test_clickhouse_takes_the_tables_and_reads_the_values(tmp_path: Path) -> None:
    """Settings and types are right; a value by a newer schema is read, one unread is kept."""
    if find_spec("chdb") is None:
        pytest.skip("no ClickHouse: pip install chdb (900 MB with what it needs)")
    newer = newer_schema(PROBE_WINDOW)
    sql = RECIPES / "clickhouse" / "windows.sql"
    (listed,) = re.findall(
        r"CREATE TABLE windows_queue \((.*?)\) ENGINE", sql.read_text(encoding="utf-8"), re.S
    )
    values = tmp_path / "values.bin"
    values.write_bytes(framed_by_a_registry(PROBE_WINDOW, WINDOW, newer))
    with registry(newer) as url:
        done = succeed([sys.executable, "-c", CLICKHOUSE, str(sql), listed, str(values), url])
    rows = [json.loads(line) for line in done.stdout.splitlines() if line]
    assert rows == [
        {
            "path_id": "a>b",
            "end_us": WINDOW.window_end_at,
            "sent": 30,
            "p50_ns": 16_183,
            "p99_ns": None,
        },
        {"reason": "no registry"},
    ]


@pytest.mark.skipif(shutil.which("javac") is None, reason="no javac: install a JDK 17 or newer")
def test_flink_parses_its_tables() -> None:
    """Flink's own parser takes each statement; Flink itself does not run here."""
    data = ROOT / "tests" / "data" / "flink"
    locked = parse_lock((data / "parser.lock").read_text(encoding="utf-8"))
    jars = os.pathsep.join(map(str, fetch_artifacts(locked, cache_dir() / "flink")))
    sql = RECIPES / "flink" / "windows.sql"
    done = succeed(["java", "-cp", jars, str(data / "Parse.java"), str(sql)])
    assert done.stdout.split() == ["CREATE_TABLE", "CREATE_TABLE", "SELECT"]
