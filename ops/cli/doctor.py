"""`doctor`: what is wrong with a cluster, and what to do about it."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ops.cli import options
from ops.cli.errors import FOUND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ops.doctor.collect import Groups
    from ops.doctor.snapshot import Check
    from schemas.kafka.connection import KafkaSettings


def doctor(
    *,
    listen_s: Annotated[
        float,
        typer.Option("--listen-s", min=0, max=60, help="How long to wait for live heartbeats"),
    ] = 2.5,
    bootstrap: options.Bootstrap = None,
    config: options.Config = None,
    prefix: options.Prefix = None,
    as_json: options.Json = False,
) -> None:
    """Look a cluster over: broker, topics, schemas, agents, clocks, lag, dead letters, skeletons.

    Changes nothing and joins no group. Exit code 1 if a check fails; warnings are
    worth a look, but no failure.

    Example: skeletonhunter doctor --json
    """
    from ops.doctor.collect import Collector
    from ops.doctor.examine import examine
    from ops.doctor.snapshot import Status
    from schemas.kafka.connection import load_settings

    settings = load_settings(config, bootstrap=bootstrap, prefix=prefix)
    collector = Collector(settings, _groups(settings, config), listen_ms=round(listen_s * 1000))
    checks = examine(collector.snapshot())
    if as_json:
        typer.echo(json.dumps({"checks": [asdict(check) for check in checks]}))
    else:
        _print(checks)
    if any(check.status is Status.FAIL for check in checks):
        raise typer.Exit(FOUND)


def _groups(settings: "KafkaSettings", config: Path | None) -> "Groups":
    from ops.doctor.collect import Groups
    from ops.log.positions import worker_group
    from schemas.kafka.leadership import role_group
    from schemas.process.settings import read_table

    return Groups(
        worker=worker_group(settings, read_table(config, "worker")),
        localizer=role_group(settings, "localizer"),
    )


def _print(checks: "Sequence[Check]") -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ops.doctor.snapshot import Status

    colours = {Status.OK: "green", Status.WARN: "yellow", Status.FAIL: "bold red"}
    table = Table(box=None, pad_edge=False)
    for title in ("", "check", "found", "what to do"):
        table.add_column(title, overflow="fold")
    for check in checks:
        # As Text: what agents call themselves must not be taken for markup.
        table.add_row(
            Text(check.status.value, style=colours[check.status]),
            Text(check.name),
            Text(check.found),
            Text(check.todo),
        )
    Console(highlight=False).print(table)
    bad = sum(check.status is Status.FAIL for check in checks)
    odd = sum(check.status is Status.WARN for check in checks)
    typer.echo(f"{len(checks)} checks: {bad} failed, {odd} to look at")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(doctor)
