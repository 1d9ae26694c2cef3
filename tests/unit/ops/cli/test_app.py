"""The umbrella command itself."""

import tomllib
from importlib import metadata
from pathlib import Path

from typer.testing import CliRunner

from ops.cli.app import build
from schemas.version import VERSION


def test_the_version_has_one_source() -> None:
    """The command, the records and the installed package say the same."""
    done = CliRunner().invoke(build(), ["--version"])
    assert (done.exit_code, done.output) == (0, f"skeletonhunter {VERSION}\n")
    assert metadata.version("skeletonhunter") == VERSION
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["dynamic"] == ["version"]
    source = project["tool"]["setuptools"]["dynamic"]["version"]
    assert source == {"attr": "schemas.version.VERSION"}
