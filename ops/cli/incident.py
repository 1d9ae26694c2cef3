"""`incident ack | close | comment | notes`: what people do about a fault."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ops.cli import options
from ops.cli.errors import USAGE, CliError
from schemas import topics
from schemas.enums import NoteAction
from schemas.kafka.connection import load_settings
from schemas.units import US_PER_MS, ns_to_us

if TYPE_CHECKING:
    from ops.bridge.operator_topics import OperatorTopics
    from schemas.records import IncidentNote

# PagerDuty cuts a summary at 1,024 characters; what is longer belongs into a ticket.
MAX_TEXT: Final = 1_000
# Config file, broker and prefix, where they are given.
Where = tuple[Path | None, str | None, str | None]
FaultId = Annotated[str, typer.Argument(metavar="FAULT_ID", help="Fault, as in fault.state.v1")]
Text = Annotated[str, typer.Option("--text", metavar="TEXT", help="For people")]


def ack(
    fault_id: FaultId,
    *,
    text: Text = "",
    author: options.Author = None,
    bootstrap: options.Bootstrap = None,
    config: options.Config = None,
    prefix: options.Prefix = None,
    as_json: options.Json = False,
) -> None:
    """Say that you are at it: its page says so, and PagerDuty calls nobody else.

    Example: skeletonhunter incident ack f-2e02b90120121261 --text "on my way"
    """
    written = _note(fault_id, NoteAction.ACKNOWLEDGE, text=text, author=author)
    _write(written, (config, bootstrap, prefix), as_json=as_json)


def close(
    fault_id: FaultId,
    *,
    cause: Annotated[str, typer.Option("--cause", metavar="TEXT", help="What it was")],
    text: Text = "",
    author: options.Author = None,
    bootstrap: options.Bootstrap = None,
    config: options.Config = None,
    prefix: options.Prefix = None,
    as_json: options.Json = False,
) -> None:
    """Say that it is done, and what it was: its page ends, unless the fault comes back.

    Example: skeletonhunter incident close f-2e02b90120121261 --cause "dirty optics, cleaned"
    """
    written = _note(fault_id, NoteAction.CLOSE, text=text, author=author, cause=cause)
    _write(written, (config, bootstrap, prefix), as_json=as_json)


def comment(
    fault_id: FaultId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="For people")],
    *,
    author: options.Author = None,
    bootstrap: options.Bootstrap = None,
    config: options.Config = None,
    prefix: options.Prefix = None,
    as_json: options.Json = False,
) -> None:
    """Write a note that changes nothing else.

    Example: skeletonhunter incident comment f-2e02b90120121261 "vendor case 4711"
    """
    written = _note(fault_id, NoteAction.COMMENT, text=text, author=author)
    _write(written, (config, bootstrap, prefix), as_json=as_json)


def notes(
    fault_id: FaultId,
    *,
    bootstrap: options.Bootstrap = None,
    config: options.Config = None,
    prefix: options.Prefix = None,
    as_json: options.Json = False,
) -> None:
    """List who did what about a fault.

    Example: skeletonhunter incident notes f-2e02b90120121261
    """
    topic = operator_topics(config, bootstrap, prefix)
    _show(topic.notes(fault_id), as_json=as_json)


def operator_topics(
    config: Path | None, bootstrap: str | None, prefix: str | None
) -> "OperatorTopics":
    """Return the topics that people write to."""
    from ops.bridge.operator_topics import OperatorTopics

    return OperatorTopics(load_settings(config, bootstrap=bootstrap, prefix=prefix))


def check_text(option: str, text: str, *, needed: bool) -> None:
    """Refuse a text for people that says nothing, or too much; `USAGE`."""
    if needed and not text.strip():
        raise CliError(f"{option} is empty: say it in some words", USAGE)
    if len(text) > MAX_TEXT:
        raise CliError(
            f"{option} has {len(text):,} characters, at most {MAX_TEXT:,}: link to the rest", USAGE
        )


def _note(
    fault_id: str, action: NoteAction, *, text: str, author: str | None, cause: str | None = None
) -> dict[str, Any]:
    from ops.bridge.operator_topics import new_id, whoami

    check_text("the text", text, needed=action is NoteAction.COMMENT)
    if cause is not None:
        check_text("--cause", cause, needed=True)
    return {
        "fault_id": fault_id, "note_id": new_id("n"), "action": action,
        "noted_at": ns_to_us(time.time_ns()), "author": author or whoami(), "text": text,
        "cause": cause,
    }  # fmt: skip


def _write(fields: dict[str, Any], where: Where, *, as_json: bool) -> None:
    from ops.bridge.operator_topics import UnknownNameError
    from schemas.records import IncidentNote

    topic = operator_topics(*where)
    try:
        topic.fault(fields["fault_id"])
    except UnknownNameError as error:
        raise CliError(str(error), USAGE) from error
    written = IncidentNote(**topic.stamp, **fields)
    topic.write(topics.INCIDENT_NOTE, written)
    _show([written], as_json=as_json)


def _row(note: "IncidentNote") -> dict[str, Any]:
    from ops.log.timespan import iso_ms

    return {
        "fault_id": note.fault_id,
        "note_id": note.note_id,
        "action": note.action.lower(),
        "at": iso_ms(note.noted_at // US_PER_MS),
        "author": note.author,
        "text": note.text,
        "cause": note.cause,
    }


def _show(found: list["IncidentNote"], *, as_json: bool) -> None:
    from ops.view.texts import visible

    rows = [_row(note) for note in found]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        said = "; ".join(part for part in (row["cause"], row["text"]) if part)
        line = f"{row['at']} {row['author']}: {row['action']}{': ' if said else ''}{said}"
        typer.echo(visible(line))
    if not rows:
        typer.echo("no note")


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(help="What people do about a fault.", no_args_is_help=True)
    for command in (ack, close, comment, notes):
        group.command()(command)
    app.add_typer(group, name="incident")
