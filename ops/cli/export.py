"""`export`: a recording as files for other tools."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ops.cli.errors import DAMAGED, USAGE, CliError

if TYPE_CHECKING:
    from ops.recording.parquet import Exported


class Format(StrEnum):
    """What a recording is written as."""

    PARQUET = "parquet"


def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Recording to read")],
    *,
    to: Annotated[Format, typer.Option("--to", help="Format")] = Format.PARQUET,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="OUT_DIR", help="Folder to make, must be empty [default: DIR.FORMAT]"
        ),
    ] = None,
) -> None:
    """Write a recording as partitioned Parquet: a table for each topic, by day and hour.

    Columns are the record's fields; times have their type (UTC), what begins with _ is
    where the record stood in Kafka. Exit code 4 if a file is damaged; what stands before
    the damage is written.

    Example: skeletonhunter export incident-42 --to parquet
    """
    from ops.recording import parquet
    from ops.recording.container import DamageError
    from ops.recording.writer import NotEmptyError

    target = out or folder.with_name(f"{folder.resolve().name}.{to.value}")
    try:
        done = parquet.export(folder, target, _show)
    except FileNotFoundError as error:
        raise CliError(f"{folder} holds no recording (no manifest.json)", USAGE) from error
    except NotEmptyError as error:
        raise CliError(str(error), USAGE) from error
    except DamageError as error:
        raise CliError(str(error), DAMAGED) from error
    typer.echo(f"{sum(one.records for one in done):,} records written to {target}")
    if any(one.damage is not None for one in done):
        raise typer.Exit(DAMAGED)


def _show(one: "Exported") -> None:
    if one.damage is not None:
        typer.echo(f"skeletonhunter: {one.damage}; what stands before it is written", err=True)
    if one.records:
        typer.echo(f"{one.topic}: {one.records:,} records, {one.files:,} files")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(export)
