"""`silence add | list | expire`: faults of which nobody is to be paged for a while."""

import json
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ops.cli import options
from ops.cli.errors import USAGE, CliError
from ops.cli.incident import authorship, operator_topics, usage
from schemas import topics
from schemas.units import US_PER_MS, ns_to_us

if TYPE_CHECKING:
    from schemas.records import Matcher, Silence


def add(
    matches: Annotated[
        list[str] | None,
        typer.Argument(metavar="LABEL=PATTERN…", help="What is silenced; all of them must fit"),
    ] = None,
    *,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for people")],
    begin: Annotated[
        str, typer.Option("--from", metavar="TIME", help="ISO time, or +30m from now")
    ] = "+0s",
    until: Annotated[
        str, typer.Option("--until", metavar="TIME", help="ISO time, or +2h from now")
    ] = "+1h",
    everything: Annotated[bool, typer.Option("--all", help="Silence every fault")] = False,
    author: options.Author = None,
    bootstrap: options.Bootstrap = None,
    config: options.Config = None,
    prefix: options.Prefix = None,
    as_json: options.Json = False,
) -> None:
    """Page nobody of some faults for a while; the faults themselves are found as ever.

    Labels are component, component_kind, kind, layer, severity, task and
    fault_id. In a pattern * stands for any characters and ? for one.

    Example: skeletonhunter silence add 'component=link:leaf:p0-1--*' --reason "new optics"
    """
    from ops.bridge.operator_records import new_silence
    from ops.bridge.operator_topics import new_id

    topic = operator_topics(config, bootstrap, prefix)
    by = authorship(topic, author)
    with usage():
        silence = new_silence(
            by,
            new_id("s"),
            matchers=[_matcher(text) for text in matches or ()],
            everything=everything,
            from_us=_time(begin, by.at_us),
            until_us=_time(until, by.at_us),
            reason=reason,
        )
    topic.write(topics.SILENCE, silence)
    _show([silence], by.at_us, as_json=as_json)


def list_silences(
    *,
    everything: Annotated[bool, typer.Option("--all", help="Also those that have ended")] = False,
    bootstrap: options.Bootstrap = None,
    config: options.Config = None,
    prefix: options.Prefix = None,
    as_json: options.Json = False,
) -> None:
    """List the silences that are in force, or will be.

    Example: skeletonhunter silence list --all --json
    """
    now_us = ns_to_us(time.time_ns())
    found = operator_topics(config, bootstrap, prefix).silences()
    _show([s for s in found if everything or s.until_at > now_us], now_us, as_json=as_json)


def expire(
    silence_id: Annotated[str, typer.Argument(metavar="ID", help="Silence")],
    *,
    author: options.Author = None,
    bootstrap: options.Bootstrap = None,
    config: options.Config = None,
    prefix: options.Prefix = None,
    as_json: options.Json = False,
) -> None:
    """End a silence now; what is still open is paged. The record stays, with who ended it.

    Example: skeletonhunter silence expire s-1f6c2a9d0b3e
    """
    from ops.bridge.operator_records import expired

    topic = operator_topics(config, bootstrap, prefix)
    with usage():
        silence = topic.silence(silence_id)
        by = authorship(topic, author)
        ended = expired(silence, by)
    if ended is not None:
        topic.write(topics.SILENCE, ended)
    _show([ended or silence], by.at_us, as_json=as_json)


def _matcher(text: str) -> "Matcher":
    from schemas.records import Matcher

    label, _, pattern = text.partition("=")
    return Matcher(label=label, pattern=pattern)


def _time(text: str, now_us: int) -> int:
    from ops.log.timespan import parse_bound

    try:
        bound = parse_bound(text, now_us // US_PER_MS)
    except ValueError as error:
        raise CliError(str(error), USAGE) from error
    if bound.place != "time":
        raise CliError(f"{text!r} is no time", USAGE)
    return bound.at_ms * US_PER_MS


def _row(silence: "Silence", now_us: int) -> dict[str, Any]:
    from ops.bridge.operator_records import state_of
    from ops.log.timespan import iso_ms

    return {
        "silence_id": silence.silence_id,
        "state": state_of(silence, now_us),
        "matchers": [f"{m.label}={m.pattern}" for m in silence.matchers],
        "from": iso_ms(silence.from_at // US_PER_MS),
        "until": iso_ms(silence.until_at // US_PER_MS),
        "author": silence.author,
        "reason": silence.reason,
        "ended_by": silence.ended_by,
    }


def _show(silences: list["Silence"], now_us: int, *, as_json: bool) -> None:
    from ops.view.texts import visible

    rows = [_row(silence, now_us) for silence in silences]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        what = " ".join(row["matchers"]) or "every fault"
        by = f", ended by {row['ended_by']}" if row["ended_by"] else ""
        line = (
            f"{row['silence_id']}: {row['state']}, {row['from']} to {row['until']}, {what}; "
            f"{row['reason']} ({row['author']}{by})"
        )
        typer.echo(visible(line))
    if not rows:
        typer.echo("no silence")


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(help="Faults of which nobody is paged for a while.", no_args_is_help=True)
    group.command()(add)
    group.command("list")(list_silences)
    group.command()(expire)
    app.add_typer(group, name="silence")
