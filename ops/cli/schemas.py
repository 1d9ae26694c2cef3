"""`schemas check | register`: the contract's schemas, among themselves and in a registry."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ops.cli import options
from ops.cli.errors import FOUND, USAGE, CliError
from schemas.kafka.connection import KafkaSettings, settings_from_table
from schemas.process.settings import read_table
from schemas.topics import TOPICS

if TYPE_CHECKING:
    from ops.topics.schema_registry import SubjectState

Registry = Annotated[
    str | None,
    typer.Option(
        "--registry",
        metavar="URL",
        help="Schema registry with Confluent's API [default: schema.registry.url of the config]",
    ),
]


def check(
    *,
    registry: Registry = None,
    config: options.Config = None,
    as_json: options.Json = False,
) -> None:
    """Check that every schema version reads every other one, here and in the registry.

    Without a registry only the versions in this program are checked. Exit code 1
    if a rule is broken; schemas that are merely not registered yet are no fault.

    Example: skeletonhunter schemas check --registry http://registry:8081
    """
    from schemas import avro
    from schemas.evolution import evolution_faults

    settings = _settings(config, registry)
    faults = [
        f"{t.name}: {fault}" for t in TOPICS for fault in evolution_faults(avro.versions(t.name))
    ]
    states: list[SubjectState] = []
    if settings.registry_url is not None:
        from ops.topics.schema_registry import RegistryAdmin

        admin = RegistryAdmin(settings)
        states = [admin.state(t.name) for t in TOPICS]
        faults += [fault for state in states for fault in state.faults]
    missing = [s.topic for s in states if not s.registered]
    if as_json:
        registered: dict[str, Any] = {s.topic: s.ids for s in states}
        found = {"faults": faults, "registry": settings.registry_url, "ids": registered}
        typer.echo(json.dumps(found, indent=2))
    else:
        for fault in faults:
            typer.echo(fault)
        _say_what_is_good(settings.registry_url, faults, missing)
    if faults:
        raise typer.Exit(FOUND)


def _say_what_is_good(url: str | None, faults: list[str], missing: list[str]) -> None:
    from schemas import avro

    n_versions = sum(len(avro.versions(t.name)) for t in TOPICS)
    if not faults:
        typer.echo(f"{len(TOPICS)} topics, {n_versions} schema versions: each reads each other")
    if missing:
        typer.echo(
            f"not registered yet: {', '.join(missing)}; run `skeletonhunter schemas register`"
        )
    elif url is not None:
        typer.echo(f"all are registered at {url}")


def register_schemas(
    *,
    registry: Registry = None,
    config: options.Config = None,
    as_json: options.Json = False,
) -> None:
    """Register every schema version, under FULL_TRANSITIVE; doing it again changes nothing.

    Exit code 1 if a schema breaks a rule; then nothing is registered.

    Example: skeletonhunter schemas register --registry http://registry:8081
    """
    from ops.topics.schema_registry import RegistryAdmin
    from schemas import avro
    from schemas.evolution import evolution_faults

    settings = _settings(config, registry)
    if settings.registry_url is None:
        raise CliError("no schema registry: give --registry URL or schema.registry.url", USAGE)
    faults = [f for t in TOPICS for f in evolution_faults(avro.versions(t.name))]
    if faults:
        raise CliError(f"nothing was registered, run `schemas check`: {faults[0]}", FOUND)
    admin = RegistryAdmin(settings)
    done = [admin.register(t.name) for t in TOPICS]
    if as_json:
        rows = [{"topic": d.topic, "ids": d.ids, "new": list(d.new)} for d in done]
        typer.echo(json.dumps(rows, indent=2))
        return
    for result in done:
        ids = ", ".join(
            f"version {n} id {i}{' (new)' if n in result.new else ''}"
            for n, i in result.ids.items()
        )
        typer.echo(f"{result.topic}: {ids}")


def _settings(config: Path | None, registry: str | None) -> KafkaSettings:
    table = dict(read_table(config, "kafka"))
    if registry is not None:
        table["schema.registry.url"] = registry
    # No broker is asked: the address is never used.
    return settings_from_table("", table)


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(
        help="The contract's Avro schemas: evolution and registry.", no_args_is_help=True
    )
    group.command()(check)
    group.command("register")(register_schemas)
    app.add_typer(group, name="schemas")
