"""`schemas check | register` without a registry."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
import typer
from typer.testing import CliRunner

from ops.cli import schemas as schemas_cli
from ops.cli.errors import USAGE, CliError
from schemas import avro
from schemas.avro import SchemaVersion
from schemas.kafka.registry import RegistryError
from schemas.topics import PROBE_ROUND, TOPICS


def run(*arguments: str) -> tuple[int, str, BaseException | None]:
    """Run `schemas ...`; return exit code, output and the error that left the command."""
    app = typer.Typer()
    schemas_cli.register(app)
    result = CliRunner().invoke(app, ["schemas", *arguments])
    return result.exit_code, result.output, result.exception


def test_check_needs_neither_broker_nor_registry() -> None:
    """The versions in this program are compared with each other, and found good."""
    code, output, _ = run("check")
    assert code == 0
    assert output.startswith(f"{len(TOPICS)} topics, ")
    code, output, _ = run("check", "--json")
    assert (code, json.loads(output)) == (0, {"faults": [], "registry": None, "ids": {}})


@pytest.fixture
def broken_evolution(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give one topic one more version, which cannot read those before."""
    real: Callable[[str], tuple[SchemaVersion, ...]] = avro.versions

    def versions(topic: str) -> tuple[SchemaVersion, ...]:
        found = real(topic)
        if topic != PROBE_ROUND.name:
            return found
        schema = json.loads(found[-1].text)
        schema["fields"][0]["type"] = "long"
        return (*found, replace(found[-1], version=len(found) + 1, text=json.dumps(schema)))

    monkeypatch.setattr(avro, "versions", versions)


@pytest.mark.usefixtures("broken_evolution")
def test_broken_evolution_is_exit_code_1() -> None:
    """Topic, versions, field and change are named; nothing would be registered."""
    code, output, _ = run("check")
    assert code == 1
    new = len(avro.versions(PROBE_ROUND.name))
    for old in range(1, new):
        why = f"version {new} cannot read version {old}: cluster: string became long"
        assert f"probe.round.v1: {why}" in output
    _, _, error = run("register", "--registry", "http://127.0.0.1:1")
    assert isinstance(error, CliError)
    assert error.exit_code == 1
    assert "nothing was registered" in str(error)


def test_register_without_a_registry_is_a_usage_error() -> None:
    """The message names the option and the setting."""
    _, _, error = run("register")
    assert isinstance(error, CliError)
    assert error.exit_code == USAGE
    assert "--registry" in str(error)


def test_registry_that_is_away_is_an_environment_error() -> None:
    """The umbrella turns this error into exit code 3."""
    _, _, error = run("check", "--registry", "http://127.0.0.1:1")
    assert isinstance(error, RegistryError)
