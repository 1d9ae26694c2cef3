"""`broker fetch | status` and the help of all groups, without a broker."""

import io
import json
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from ops.broker import announcement
from ops.broker.announcement import Announcement
from ops.broker.errors import CACHE_ENV
from ops.broker.fetch import fetch_artifacts
from ops.broker.progress import ConsoleProgress
from ops.cli import broker, topics
from ops.cli import schemas as schemas_cli
from ops.cli.errors import ENVIRONMENT, FOUND, CliError
from tests.unit.ops.broker_files import FolderSource, artifacts

NOBODY = "127.0.0.1:1"


def app() -> typer.Typer:
    """Return a command with the three groups."""
    found = typer.Typer()
    for group in (broker, topics, schemas_cli):
        group.register(found)
    return found


@pytest.mark.parametrize(
    "command",
    ["broker run", "broker status", "broker fetch", "topics plan", "topics apply",
     "topics describe", "schemas check", "schemas register"],
)  # fmt: skip
def test_help_has_an_example(command: str) -> None:
    """Each subcommand teaches itself, and shows one line to copy."""
    result = CliRunner().invoke(app(), [*command.split(), "--help"])
    assert result.exit_code == 0
    assert f"Example: skeletonhunter {command}" in " ".join(result.output.split())


def test_status_without_any_broker(state_dir: Path) -> None:
    """Where none is known, that is what the command finds: exit code 1."""
    del state_dir
    error = CliRunner().invoke(app(), ["broker", "status"]).exception
    assert isinstance(error, CliError)
    assert error.exit_code == FOUND
    assert "broker run" in str(error)


def test_status_of_a_broker_that_is_gone(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file left by a machine that lost power is told from a broker that runs."""
    monkeypatch.setattr(broker, "STATUS_TIMEOUT_S", 0.3)
    gone = Announcement(bootstrap=NOBODY, pid=2**22 - 1, data_dir="/data")
    announcement.write(gone)
    result = CliRunner().invoke(app(), ["broker", "status"])
    assert result.exit_code == FOUND
    assert f"{NOBODY}: does not answer" in result.output
    assert "has ended without cleaning up" in result.output
    result = CliRunner().invoke(app(), ["broker", "status", "--json", "--bootstrap", "127.0.0.1:2"])
    assert json.loads(result.output) == {
        "bootstrap": "127.0.0.1:2", "answers": False, "pid": None, "data_dir": None,
    }  # fmt: skip
    assert state_dir.is_dir()


def test_fetch_without_network_is_an_environment_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says how many files are missing, and what to do."""
    config = tmp_path / "jgo.conf"
    config.write_text(f"[repositories]\ncentral = http://{NOBODY}/repo\n")
    monkeypatch.setenv("JGO_CONFIG_FILE", str(config))
    monkeypatch.setenv(CACHE_ENV, str(tmp_path / "cache"))
    error = CliRunner().invoke(app(), ["broker", "fetch"]).exception
    assert isinstance(error, CliError)
    assert error.exit_code == ENVIRONMENT
    assert "files are still missing" in str(error)


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_shown(tmp_path: Path, terminal: bool) -> None:
    """In a terminal and elsewhere the user sees what is downloaded, and that it is verified."""
    console = Console(force_terminal=terminal, record=True, width=100, file=io.StringIO())
    (tmp_path / "jar00-1.0.jar").write_bytes(b"")
    fetch_artifacts(artifacts(2)[:1], tmp_path, source=FolderSource())
    with ConsoleProgress("Kafka", console) as progress:
        fetch_artifacts(artifacts(9), tmp_path, source=FolderSource(), progress=progress)
    shown = console.export_text()
    assert "Kafka: downloading 8 files, 1 are there already" in shown
    assert "Kafka: all files are there, and their hashes right" in shown
    if not terminal:
        assert "Kafka: 4 of 8 files" in shown


def test_progress_says_who_is_waited_for() -> None:
    """While another process downloads, the user is told."""
    console = Console(record=True, width=100, file=io.StringIO())
    ConsoleProgress("Kafka", console).waiting()
    assert "another process is downloading" in console.export_text()
