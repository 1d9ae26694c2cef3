"""`record` and `replay` refuse what makes no sense, before they touch a broker."""

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from ops.cli import recording
from ops.cli.errors import DAMAGED, USAGE, CliError

# Nobody listens here; a command that got so far would fail with another code.
NOWHERE = ["--bootstrap", "127.0.0.1:1"]


def refused(*arguments: str) -> CliError:
    """Run a command; return the error with which it ended."""
    app = typer.Typer()
    recording.register(app)
    result = CliRunner().invoke(app, [*arguments, *NOWHERE])
    assert isinstance(result.exception, CliError), result.output
    return result.exception


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--prefix", ""], "--prefix is empty: a replay never goes to the live topics"),
        (["--prefix", "x.", "--speed", "0"], "--speed '0': a number above 0, or max"),
        (["--prefix", "x.", "--speed", "fast"], "--speed 'fast'"),
        (["--prefix", "x.", "--speed", "inf"], "--speed 'inf'"),
        (["--prefix", "x.", "--from", "end"], "--from end: nothing would be left"),
        (["--prefix", "x.", "--to", "soon"], "--to: 'soon' is no time"),
        (["--prefix", "x.", "--delete-after"], "--delete-after without --run"),
        (["--prefix", "x.", "--workers", "2"], "--workers without --run"),
        (["--prefix", "x."], "holds no recording (no manifest.json)"),
    ],
)
def test_replay_refuses(tmp_path: Path, options: list[str], message: str) -> None:
    """Each nonsense is a usage error with its own sentence."""
    error = refused("replay", str(tmp_path), *options)
    assert message in str(error)
    assert error.exit_code == USAGE


def test_replay_refuses_the_live_prefix(tmp_path: Path) -> None:
    """The prefix of the config file is that of live topics, however empty they are."""
    config = tmp_path / "c.toml"
    config.write_text('[kafka]\n"topic.prefix" = "prod."\n')
    error = refused("replay", str(tmp_path), "--prefix", "prod.", "--config", str(config))
    assert "is that of the live topics" in str(error)
    assert error.exit_code == USAGE


def test_a_damaged_manifest_is_a_finding(tmp_path: Path) -> None:
    """A recording that cannot be opened at all ends with code 1."""
    (tmp_path / "manifest.json").write_text("{")
    error = refused("replay", str(tmp_path), "--prefix", "x.")
    assert "manifest.json: damaged" in str(error)
    assert error.exit_code == DAMAGED


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--codec", "zip"], "--codec 'zip': one of deflate, null"),
        (["--topics", "probe.round.v1,nonsense"], "no topic 'nonsense' in the contract"),
        (["--from", "10m"], "--from: '10m' is no time"),
    ],
)
def test_record_refuses(tmp_path: Path, options: list[str], message: str) -> None:
    """Options that make no sense are named, and no folder is made."""
    folder = tmp_path / "out"
    error = refused("record", str(folder), *options)
    assert message in str(error)
    assert error.exit_code == USAGE
    assert not folder.exists()
