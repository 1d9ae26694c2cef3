"""The umbrella command itself."""

import subprocess
import sys
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


def test_help_loads_nothing_heavy() -> None:
    """Not the client, no web server, no numerics: only what prints the help."""
    code = "import sys; from ops.cli.app import build; build(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {
        "confluent_kafka",
        "faust",
        "numpy",
        "numba",
        "polars",
        "playwright",
        "starlette",
        "uvicorn",
    }
    assert heavy.isdisjoint(done.stdout.split())
