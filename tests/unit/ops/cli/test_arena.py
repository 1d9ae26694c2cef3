"""The arena's commands: what they print, write, and refuse."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ops.cli.app import build
from ops.cli.errors import USAGE, CliError

SCENARIO = """
name = "one"
seed = 7
seconds = 90
[fabric]
hosts = 8
rails = 2
[[fault]]
kind = "switch_port_down"
begin_s = 40
end_s = 70
"""


def arena(*arguments: str) -> Result:
    """Run a subcommand."""
    return CliRunner().invoke(build(), ["arena", *arguments])


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the results of one scenario, of ours and of a baseline."""
    folder = tmp_path_factory.mktemp("results")
    (folder / "one.toml").write_text(SCENARIO)
    out = folder / "one.jsonl"
    done = arena(
        "run", str(folder / "one.toml"), "--with", "ours", "--with", "votes", "--out", str(out)
    )
    assert done.exit_code == 0, done.output
    assert "one  ours: port_down after" in done.output
    assert "one  007 (votes): " in done.output
    return out


def test_list_names_everything_that_run_takes() -> None:
    """Suites with their seeds, kinds, confounders, diagnosers; the same as JSON."""
    said = json.loads(arena("list", "--json").output)
    assert {s["suite"] for s in said["suites"]} == {"smoke", "dev", "test", "healthy-month"}
    assert said["diagnosers"][0] == "ours"
    text = arena("list").output
    for row in said["faults"]:
        assert f"  {row['kind']} " in text
    for name in (*said["confounders"], *said["diagnosers"]):
        assert name in text


def test_scores_and_report_of_results(results: Path, tmp_path: Path) -> None:
    """Scored again as they were, drawn as a page and as a picture."""
    text = arena("score", str(results)).output
    assert "recall_hard         1.0000" in text
    said = json.loads(arena("score", str(results), "--json").output)
    assert said["ours"]["scores"]["top1"] == {"value": 1.0, "low": 1.0, "high": 1.0, "of": 1.0}
    assert said["ours"]["delay_s"]["hard"] < 5
    assert said["ours"]["delay_s"]["gray"] is None
    page, picture = tmp_path / "one.html", tmp_path / "one.png"
    done = arena("report", str(results), "--out", str(page), "--png", str(picture))
    assert done.exit_code == 0, done.output
    assert "<html" in page.read_text()
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["run", "--suite", "rain"], "--suite 'rain': one of smoke, dev, test, healthy"),
        (["run", "nope.toml"], "nope.toml: "),
        (["run", "--out", "no/such/folder/x"], "--out no/such/folder/x: No such file"),
        (["score", "nope.jsonl"], "nope.jsonl: No such file"),
        (["export", "nope.toml", "x"], "nope.toml: "),
    ],
)
def test_plain_errors(arguments: list[str], reason: str) -> None:
    """One sentence, exit code 2."""
    done = arena(*arguments)
    assert isinstance(done.exception, CliError), done.output
    assert done.exception.exit_code == USAGE
    assert reason in str(done.exception)


def test_a_file_that_holds_no_results(tmp_path: Path) -> None:
    """The line is named; an empty file has nothing to draw."""
    bad, empty = tmp_path / "bad.jsonl", tmp_path / "empty.jsonl"
    bad.write_text("{}\n")
    empty.write_text("")
    done = arena("score", str(bad))
    assert isinstance(done.exception, CliError)
    assert "bad.jsonl, line 1" in str(done.exception)
    done = arena("report", str(empty), "--out", str(tmp_path / "x.html"))
    assert isinstance(done.exception, CliError)
    assert "holds no results" in str(done.exception)


def test_export_tells_the_truth_beside_the_recording(tmp_path: Path) -> None:
    """The recording holds none of it; a folder that is in use is refused."""
    (tmp_path / "one.toml").write_text(SCENARIO)
    command = ("export", str(tmp_path / "one.toml"), str(tmp_path / "rec"))
    done = arena(*command)
    assert done.exit_code == 0, done.output
    assert "truth: port_down at link:" in done.output
    assert (tmp_path / "rec" / "manifest.json").exists()
    again = arena(*command)
    assert isinstance(again.exception, CliError)
    assert "not empty" in str(again.exception)
