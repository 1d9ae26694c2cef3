"""What `lab up --job` asks for first: what no installation of a framework gives."""

from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from ops.cli.app import build
from ops.cli.errors import CliError
from ops.lab import frameworks, kind


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "trains in a netns lab only: add --kind netns"),
        (["--kind", "netns"], "no netns lab here: needs root"),
    ],
)
def test_the_kind_and_root_are_asked_for_before_the_framework(
    options: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A framework of half a gigabyte would be installed in vain."""
    monkeypatch.setattr(frameworks, "job_python", lambda *_: pytest.fail("asked for JAX"))
    netns = kind.LAB_KINDS["netns"]
    lacking = SimpleNamespace(shape=netns.shape, missing=lambda: "needs root")
    monkeypatch.setitem(kind.LAB_KINDS, "netns", lacking)
    where = ["--bootstrap", "127.0.0.1:1"]
    done = CliRunner().invoke(build(), ["lab", "up", "--job", "jax", *options, *where])
    assert isinstance(done.exception, CliError)
    assert said in str(done.exception)
