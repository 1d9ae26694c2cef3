"""`incident ack | close | comment | notes`: what people do about a fault."""

import json
import time
from contextlib import contextmanager
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
    from collections.abc import Iterator

    from ops.bridge.operator_records import Authorship
    from ops.bridge.operator_topics import OperatorTopics
    from schemas.records import IncidentNote

# What a field of a record is called on the command line.
OPTIONS: Final = {
    "author": "--author",
    "cause": "--cause",
    "fault_id": "FAULT_ID",
    "from_at": "--from",
    "matchers": "LABEL=PATTERN (or --all)",
    "reason": "--reason",
    "text": "the text",
    "until_at": "--until",
}
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
    where = config, bootstrap, prefix
    _write(where, author, fault_id, NoteAction.ACKNOWLEDGE, text=text, as_json=as_json)


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
    where = config, bootstrap, prefix
    _write(where, author, fault_id, NoteAction.CLOSE, text=text, cause=cause, as_json=as_json)


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
    where = config, bootstrap, prefix
    _write(where, author, fault_id, NoteAction.COMMENT, text=text, as_json=as_json)


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


def authorship(topic: "OperatorTopics", author: str | None) -> "Authorship":
    """Return who writes now."""
    from ops.bridge.operator_records import Authorship
    from ops.bridge.operator_topics import whoami

    return Authorship(
        cluster=topic.cluster,
        author=whoami() if author is None else author,
        at_us=ns_to_us(time.time_ns()),
    )


@contextmanager
def usage() -> "Iterator[None]":
    """Say what is wrong with what was entered; `USAGE`."""
    from ops.bridge.operator_records import InvalidEntryError
    from ops.bridge.operator_topics import UnknownNameError

    try:
        yield
    except InvalidEntryError as error:
        name = OPTIONS.get(error.field, error.field)
        raise CliError(f"{name} {error.why}", USAGE) from error
    except UnknownNameError as error:
        raise CliError(str(error), USAGE) from error


def _write(
    where: Where,
    author: str | None,
    fault_id: str,
    action: NoteAction,
    *,
    text: str,
    cause: str | None = None,
    as_json: bool,
) -> None:
    from ops.bridge.operator_records import new_note
    from ops.bridge.operator_topics import new_id

    topic = operator_topics(*where)
    with usage():
        by = authorship(topic, author)
        written = new_note(by, new_id("n"), fault_id, action, text=text, cause=cause)
        topic.fault(fault_id)
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
