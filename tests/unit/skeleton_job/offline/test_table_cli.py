"""`skeleton infer` on files, its meta data, and the settings of the job."""

import json
from pathlib import Path

import polars as pl
import pytest
import typer
from typer.testing import CliRunner

from ops.cli import skeleton as command
from ops.cli.errors import CliError
from schemas.process.settings import ConfigError
from skeleton_job.config import SkeletonConfig, build_config
from skeleton_job.layout.skeleton import DEFAULT_MIN_CONFIDENCE
from skeleton_job.offline.meta import Meta, MetaError, parse_meta
from skeleton_job.offline.table import TableError, infer_table, read_counters
from tests.unit.skeleton_job.traffic import Layout, Workload

WORKLOAD = Workload(Layout(rails=2, seconds=40, idle_hosts=1))


def table(workload: Workload = WORKLOAD) -> pl.DataFrame:
    """Return a job's counters as an operator has them."""
    parts = pl.col("endpoint_id").str.split("/r").list
    return workload.frame().select(
        "time_ns",
        parts[0].alias("host"),
        parts[1].cast(pl.Int64).alias("rail"),
        "tx_bytes",
        "rx_bytes",
    )


def app() -> typer.Typer:
    """Return the group as a command of its own."""
    made = typer.Typer()
    command.register(made)
    return made


def as_pairs(rows: list[list[object]]) -> set[tuple[str, str]]:
    """Return pairs of endpoint ids."""
    return {(f"{a}/r{i}", f"{b}/r{j}") for a, i, b, j in rows}


@pytest.mark.parametrize("name", ["counters.csv", "counters.parquet"])
def test_a_file_gives_the_documented_document(tmp_path: Path, name: str) -> None:
    """Pairs, degrees, groups, stages and pipelines, from either kind of file."""
    path, out = tmp_path / name, tmp_path / "out.json"
    if name.endswith("csv"):
        table().write_csv(path)
    else:
        table().write_parquet(path)
    arguments = ["skeleton", "infer", str(path), "--out", str(out), "--json"]
    done = CliRunner().invoke(app(), arguments)
    assert done.exit_code == 0, done.output
    found = json.loads(out.read_text())
    assert json.loads(done.stdout) == found
    assert as_pairs(found["ping_list"]) >= WORKLOAD.truth.pairs
    assert len(found["ping_list"]) <= 2 * len(WORKLOAD.truth.pairs)
    (task,) = found["tasks"]
    shape = {k: task[k] for k in ("dp", "pp", "tp", "ep", "cp")}
    assert shape == {"dp": 2, "pp": 2, "tp": 2, "ep": 1, "cp": 1}
    assert len(task["rnics"]) == 8
    assert [len(s) for s in task["stages"]] == [4, 4]
    assert sorted(map(len, task["clusters"])) == [2] * 4
    assert [len(c) for c in task["pp_groups"]] == [2] * 4
    assert task["ep_groups"] == []
    assert task["confidence"] > 0.8


def test_idle_files_have_no_task(tmp_path: Path) -> None:
    """Without iterations there is no job to name, and the exit code says so."""
    path, out = tmp_path / "idle.csv", tmp_path / "out.json"
    idle = table().with_columns(tx_bytes=pl.lit(7), rx_bytes=pl.lit(7))
    idle.write_csv(path)
    done = CliRunner().invoke(app(), ["skeleton", "infer", str(path), "--out", str(out)])
    assert done.exit_code == 1
    assert "no RNICs show the iterations" in done.output
    found = json.loads(out.read_text())
    assert (found["ping_list"], found["tasks"], found["warnings"]) == ([], [], [])
    (left,) = found["left_out"]
    assert left["reason"] == "idle: less than 2 Mbit/s"
    assert len(left["rnics"]) == 10
    assert "left out: 10 RNICs, such as job1-w0/r0: idle" in done.output


def test_an_unsure_task_keeps_its_basic_list() -> None:
    """The list for probing is never the guess."""
    short = Workload(Layout(rails=1, seconds=12))
    found = infer_table(table(short), Meta())
    assert found["tasks"][0]["confidence"] < DEFAULT_MIN_CONFIDENCE
    assert len(found["ping_list"]) == 4 * 3 // 2


def test_meta_tells_jobs_apart_and_counts_gpus() -> None:
    """Each job by itself; the one without RNICs gets the rest."""
    meta = parse_meta(
        {
            "tasks": [
                {
                    "task": "a",
                    "gpus": 16,
                    "rnics": [[f"job1-w{h}", r] for h in range(4) for r in (0, 1)],
                },
                {"task": "spare", "gpus": None, "rnics": None},
            ],
            "counter": {"bits": 64},
            "link_gbps": 400,
        }
    )
    first, spare = infer_table(table(), meta)["tasks"]
    assert (first["task"], first["dp"], first["tp"]) == ("a", 2, 4)
    assert (spare["task"], spare["dp"], spare["confidence"]) == ("spare", None, 0.0)


def test_the_pod_index_orders_the_hosts() -> None:
    """Chains that the traffic does not show follow the platform's index, not the names."""
    workload = Workload(Layout(dp=8, pp=1, rails=1))
    index = {f"job1-w{h}": (h * 3) % 8 for h in range(8)}
    found = infer_table(table(workload), parse_meta({"pod_index": index}))
    place = {pod: host for host, pod in index.items()}
    pairs = {frozenset(p.split("/")[0] for p in pair) for pair in as_pairs(found["ping_list"])}
    assert {frozenset((place[i], place[(i + 1) % 8])) for i in range(8)} <= pairs


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (pl.col("tx_bytes").cast(pl.Int64) * -1, "row 1: tx_bytes=-"),
        (pl.lit("x").alias("rail"), "row 1: rail='x'; it must be a whole number from 0 to 1,023"),
        (pl.lit(4096).alias("rail"), "row 1: rail=4096"),
        (pl.lit(1.5).alias("time_ns"), "row 1: time_ns=1.5; it must be whole nanoseconds"),
        (pl.lit(None, dtype=pl.String).alias("host"), "row 1: host=None; it must be a name"),
    ],
    ids=["negative", "text", "large", "fraction", "null"],
)
def test_bad_values_are_named(tmp_path: Path, change: pl.Expr, says: str) -> None:
    """Row, column, value and bound, from either kind of file."""
    bad = table().with_columns(change)
    bad.write_parquet(tmp_path / "bad.parquet")
    with pytest.raises(TableError) as error:
        read_counters(tmp_path / "bad.parquet")
    assert says in str(error.value)
    assert f"Bad rows: {bad.height} of {bad.height}" in str(error.value)


def test_bad_files_are_named(tmp_path: Path) -> None:
    """Missing columns, no rows, not a table, no file, another kind of file."""
    lacking = tmp_path / "a.csv"
    table().drop("rx_bytes").write_csv(lacking)
    with pytest.raises(TableError, match="no column rx_bytes; it needs time_ns, host"):
        read_counters(lacking)
    empty = tmp_path / "b.csv"
    table().head(0).write_csv(empty)
    with pytest.raises(TableError, match="no rows"):
        read_counters(empty)
    (tmp_path / "c.parquet").write_bytes(b"not a table")
    with pytest.raises(TableError, match=r"c\.parquet"):
        read_counters(tmp_path / "c.parquet")
    with pytest.raises(TableError, match="No such file"):
        read_counters(tmp_path / "none.csv")
    with pytest.raises(TableError, match=r"must end in \.csv or \.parquet"):
        read_counters(tmp_path / "d.txt")
    with pytest.raises(TableError, match="no RNIC has two readings"):
        infer_table(read_counters_of(tmp_path, table().head(1)), Meta())


def read_counters_of(folder: Path, content: pl.DataFrame) -> pl.DataFrame:
    """Write and read a table."""
    content.write_parquet(folder / "t.parquet")
    return read_counters(folder / "t.parquet")


def test_counters_up_to_two_to_the_64_are_read(tmp_path: Path) -> None:
    """A CSV may hold what no signed integer does; an empty cell is a lost sample."""
    path = tmp_path / "big.csv"
    path.write_text("time_ns,host,rail,tx_bytes,rx_bytes\n1,h,0,18446744073709551615,5\n2,h,0,,6\n")
    read = read_counters(path)
    assert read["tx_bytes"].to_list() == [2**64 - 1, None]


def test_what_is_not_known_is_said_and_not_used(tmp_path: Path) -> None:
    """Strange keys, RNICs without a row, hosts without one: warnings, on standard error too."""
    meta = {
        "site": "x",
        "pod_index": {"nowhere": 3},
        "tasks": [
            {"task": "a", "owner": "y", "rnics": [["job1-w0", 0], ["job1-w1", 0], ["gone", 0]]}
        ],
    }
    path, out, counters = tmp_path / "m.json", tmp_path / "out.json", tmp_path / "c.parquet"
    path.write_text(json.dumps(meta))
    table().write_parquet(counters)
    arguments = ["skeleton", "infer", str(counters), "--meta", str(path), "--out", str(out)]
    done = CliRunner().invoke(app(), arguments)
    assert done.exit_code in {0, 1}, done.output
    found = json.loads(out.read_text())
    for says in (
        "site: not used; known keys are link_gbps,",
        "tasks[0].owner: not used; known keys are task, gpus, rnics",
        "task 'a': 1 of 3 RNICs have no row, such as gone/r0",
        "pod_index: 1 of 1 hosts have no row, such as 'nowhere'",
    ):
        assert any(w.startswith(says) for w in found["warnings"])
        assert f"warning: {says}" in done.stderr
    left = {one["reason"]: one["rnics"] for one in found["left_out"]}
    assert len(left["in no task of meta"]) == 8
    with pytest.raises(TableError, match="none of its 1 RNICs has a row, such as gone/r0"):
        infer_table(table(), parse_meta({"tasks": [{"task": "b", "rnics": [["gone", 0]]}]}))


@pytest.mark.parametrize("kind", [pl.Int64, pl.Float64, pl.String])
def test_hosts_are_numbers_or_text(tmp_path: Path, kind: type[pl.DataType]) -> None:
    """As the table's writer has them, and either way in meta."""
    numbered = table().with_columns(pl.col("host").str.slice(6).cast(pl.Int64).cast(kind))
    numbered.write_parquet(tmp_path / "c.parquet")
    read = read_counters(tmp_path / "c.parquet")
    assert set(read["host"]) == {"0", "1", "2", "3", "4"}
    found = [
        infer_table(read, parse_meta({"tasks": [{"task": "a", "rnics": rnics}]}))
        for rnics in (
            [[h, r] for h in range(4) for r in (0, 1)],
            [[str(h), r] for h in range(4) for r in (0, 1)],
        )
    ]
    assert found[0] == found[1]
    assert found[0]["tasks"][0]["dp"] == 2
    assert not found[0]["warnings"]
    with pytest.raises(MetaError, match="rnics holds"):
        parse_meta({"tasks": [{"task": "a", "rnics": [[True, 0]]}]})


def test_counters_of_another_type_of_number_are_read() -> None:
    """Narrow counters wrap as unsigned numbers do, whatever the caller's column is."""
    counters = pl.col("tx_bytes", "rx_bytes")
    narrow = table().with_columns(counters.cast(pl.UInt64) % 2**34)
    meta = parse_meta({"counter.bits": 34})
    signed = infer_table(narrow.with_columns(counters.cast(pl.Int64)), meta)
    assert signed["tasks"][0]["dp"] == 2
    assert signed == infer_table(narrow, meta)


def test_meta_names_all_its_faults() -> None:
    """Every wrong key at once, with value and bound."""
    with pytest.raises(MetaError) as error:
        parse_meta(
            {
                "link_gbps": -1,
                "counter": {"bits": 7},
                "pod_index": {"h": "x"},
                "tasks": [{"gpus": 0, "rnics": [["h"]]}, {"rnics": None}, {"rnics": None}],
            }
        )
    for part in (
        "link_gbps=-1: a number from 0.1 to 10000",
        "counter.bits=7: a whole number from 8 to 64",
        "pod_index['h']='x'",
        "tasks[0].gpus=0",
        "tasks[0].rnics holds ['h']",
        "at most one may leave its rnics open",
    ):
        assert part in str(error.value)
    assert parse_meta({"counter.bits": 34}).counter_bits == 34
    with pytest.raises(MetaError):
        parse_meta([])
    unknown = parse_meta({"tasks": [{"task": "a", "rnics": [["nowhere", 0]]}]})
    with pytest.raises(TableError, match="none of its 1 RNICs has a row, such as nowhere/r0"):
        infer_table(table(), unknown)


def test_errors_become_sentences_with_the_exit_code_for_usage(tmp_path: Path) -> None:
    """The command raises the error that the umbrella prints."""
    arguments = ["skeleton", "infer", str(tmp_path / "x.csv"), "--out", str(tmp_path / "o")]
    done = CliRunner().invoke(app(), arguments)
    assert isinstance(done.exception, CliError)
    assert done.exception.exit_code == 2
    help_text = CliRunner().invoke(app(), ["skeleton", "infer", "--help"])
    assert "Example:" in help_text.output


def test_settings_come_from_flags_then_environment_then_file() -> None:
    """And the default last; text and numbers both serve."""
    table = {"interval_s": 9, "window_s": 90, "flows": 2}
    environment = {
        "SKELETONHUNTER_SKELETON_WINDOW_S": "80",
        "SKELETONHUNTER_SKELETON_INTERVAL_S": "8",
    }
    found = build_config({"interval_s": "7", "config": None}, table, environment)
    assert found == SkeletonConfig(interval_s=7.0, window_s=80.0, flows=2)
    assert found.inference().window_ns == 80 * 10**9


def test_wrong_settings_are_all_named() -> None:
    """Unknown names, wrong kinds, values out of bounds."""
    with pytest.raises(ConfigError) as error:
        build_config({"flows": "1.5"}, {"window": 3, "interval_s": True, "min_confidence": 2}, {})
    for part in (
        "[skeleton] window: no such setting",
        "flows='1.5': a whole number from 1 to 64",
        "interval_s=True: a number from 1 to 3600",
        "min_confidence=2: a number from 0 to 1",
    ):
        assert part in str(error.value)
