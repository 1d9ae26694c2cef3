"""`tail TOPIC`: look at a topic, decoded."""

import contextlib
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ops.cli import options
from ops.cli.errors import DAMAGED, USAGE, CliError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ops.log.tail import Shown, TailTopic
    from ops.log.timespan import Bound
    from schemas.kafka.connection import KafkaSettings

POLL_S = 0.2


def bound(text: str | None, default: str, option: str) -> "Bound":
    """Return a place in the log given on the command line; the default where none is."""
    from ops.log.reading import now_ms
    from ops.log.timespan import parse_bound

    try:
        return parse_bound(default if text is None else text, now_ms())
    except ValueError as error:
        raise CliError(f"{option}: {error}", USAGE) from error


@dataclass(slots=True)
class TailCounts:
    """What came by: records printed, and those that could not be decoded."""

    printed: int = 0
    undecodable: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to show of a topic, and how; `limit` None: all of it."""

    topic: "TailTopic"
    start: "Bound"
    to: "Bound"
    follow: bool
    key: bytes | None
    limit: int | None
    progress: bool
    line: "Callable[[Shown], str]"


def show_all(
    settings: "KafkaSettings",
    request: Request,
    seen: TailCounts,
    stop: "Callable[[], bool]",
    out: "Callable[[str], None]",
) -> None:
    """Give each wanted record as a line to `out` and count it in `seen`."""
    from ops.log.read_range import ReadRange, in_time_order
    from ops.log.reading import LogReader, now_ms
    from ops.log.tail import show
    from schemas.kafka.registry import codec_for

    codec = codec_for(settings, bounded=False)
    with LogReader(settings) as reader:
        ranges = reader.partitions([settings.topic(request.topic.name)])
        starts = reader.offsets_at(ranges, request.start)
        highs = {place: r.high for place, r in ranges.items()}
        wanted = ReadRange(starts, highs, request.to, follow=request.follow)
        reader.start({place: starts[place] for place in wanted.open})
        while wanted.open and not stop():
            entries = reader.batch(POLL_S)
            for place, entry in in_time_order(entries):
                if not wanted.takes(place, entry.offset, entry.timestamp_ms):
                    continue
                if request.key is not None and entry.key != request.key:
                    continue
                shown = show(request.topic, entry, codec)
                if shown.progress and not request.progress:
                    continue
                out(request.line(shown))
                seen.printed += 1
                seen.undecodable += shown.error is not None
                if request.limit is not None and seen.printed >= request.limit:
                    return
            wanted.at_end(reader.ended, now_ms())


def tail(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic, or its .dlq")],
    *,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="WHEN",
            help="Where to begin: beginning, end, ISO time, -10m "
            "[default: end; with --no-follow: beginning]",
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="WHEN", help="Where to stop: end, ISO time, -10m, +5m [default: never]"
        ),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="Only records with this key")] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Stop after so many records")
    ] = None,
    follow: Annotated[
        bool | None,
        typer.Option(
            "--follow/--no-follow",
            help="Wait for records to come [default: follow unless --to is given]",
        ),
    ] = None,
    show_progress: Annotated[
        bool, typer.Option("--all", help="Also the PROGRESS records of anomaly.v1")
    ] = False,
    bootstrap: options.Bootstrap = None,
    config: options.Config = None,
    prefix: options.Prefix = None,
    as_json: options.Json = False,
) -> None:
    """Print the records of a topic, decoded, one line each; Ctrl-C ends it.

    Reads beside everybody else: no consumer group, nothing committed. Records that
    cannot be decoded are shown with their error; exit code 4 if there were any.
    With --json every line is one object: key, partition, offset, timestamp,
    headers, value; value_base64 and error where it could not be decoded.

    Example: skeletonhunter tail fault.event.v1 --from -1h --to end --json
    """
    from ops.log.reading import UnknownTopicError, now_ms
    from ops.log.tail import as_json as json_line
    from ops.log.tail import as_line, find_topic
    from schemas.kafka.connection import load_settings
    from schemas.process.signals import stop_flag

    try:
        found = find_topic(topic)
    except KeyError as error:
        raise CliError(str(error.args[0]), USAGE) from error
    end = bound(to, "end", "--to")
    ahead = end.place == "time" and end.at_ms > now_ms()
    following = (to is None or ahead) if follow is None else follow
    request = Request(
        topic=found,
        start=bound(from_, "end" if following else "beginning", "--from"),
        to=end,
        follow=following,
        key=None if key is None else key.encode(),
        limit=limit,
        progress=show_progress,
        line=json_line if as_json else as_line,
    )
    seen = TailCounts()
    settings = load_settings(config, bootstrap=bootstrap, prefix=prefix)
    try:
        with stop_flag() as stop:
            show_all(settings, request, seen, stop, _print)
    except UnknownTopicError as error:
        raise CliError(f"{error}; run `skeletonhunter topics apply`") from error
    except BrokenPipeError:
        # The reader has what it wanted; the interpreter must not try to flush again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if seen.undecodable:
        with contextlib.suppress(BrokenPipeError):
            typer.echo(f"{seen.undecodable} of {seen.printed} records undecodable", err=True)
        raise typer.Exit(DAMAGED)


def _print(line: str) -> None:
    print(line, flush=True)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(tail)
