"""`record` and `replay`: keep what the topics said, and say it again elsewhere."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from ops.cli import options
from ops.cli.errors import DAMAGED, FOUND, STOPPED, USAGE, CliError
from ops.cli.recording_output import (
    Line,
    counted,
    open_recording,
    print_manifest,
    print_report,
    processed,
    replayed,
)
from ops.cli.tail import bound
from schemas.version import VERSION

if TYPE_CHECKING:
    from ops.log.tail import Shown
    from ops.recording.replayer import Report, Request
    from ops.recording.source import Source
    from ops.recording.verdicts import Stand
    from schemas.kafka.connection import KafkaSettings
    from schemas.topics import Topic

# Of a replay: each takes some 300 MB.
MAX_WORKERS = 64


def record(
    out_dir: Annotated[
        Path, typer.Argument(metavar="OUT_DIR", help="Folder to make; must be empty if it exists")
    ],
    *,
    topics: Annotated[
        str | None,
        typer.Option(
            "--topics",
            metavar="A,B,…",
            help="Topics to record; `all`: also what worker and localizer wrote, for the pages of "
            "`web --recording` [default: all that worker and localizer read]",
        ),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="WHEN",
            help="beginning, end, ISO time, -10m [default: beginning; with --follow: end]",
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="WHEN",
            help="end, ISO time, -10m; +5m records until then [default: end]",
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Record what comes, until Ctrl-C")
    ] = False,
    codec: Annotated[
        str, typer.Option("--codec", help="Compression of the files: deflate or null")
    ] = "deflate",
    bootstrap: options.Bootstrap = None,
    config: options.Config = None,
    prefix: options.Prefix = None,
    as_json: options.Json = False,
) -> None:
    """Record topics into Avro files that any tool can read, and that `replay` writes again.

    One file per topic and a manifest. In every partition: from the first record at
    or after --from up to the first at or after --to. Of compacted topics also the
    latest state before --from. Ctrl-C, SIGTERM or a full disk end it with whole
    files; even a SIGKILL costs no more than the last second.

    Example: skeletonhunter record incident-42 --from 2026-01-01T10:00 --to 2026-01-01T10:30
    """
    from ops.log.reading import UnknownTopicError, now_ms
    from ops.recording.container import CODECS
    from ops.recording.recorder import DEFAULT_TOPICS, Recorder, Request
    from ops.recording.writer import NotEmptyError
    from schemas.kafka.connection import load_settings
    from schemas.process.signals import stop_flag

    if codec not in CODECS:
        raise CliError(f"--codec {codec!r}: one of {', '.join(CODECS)}", USAGE)
    end = bound(to, "end", "--to")
    following = follow or (end.place == "time" and end.at_ms > now_ms())
    request = Request(
        topics=DEFAULT_TOPICS if topics is None else _topics(topics),
        start=bound(from_, "end" if follow else "beginning", "--from"),
        to=end,
        follow=following,
        codec=codec,
    )
    settings = load_settings(config, bootstrap=bootstrap, prefix=prefix)
    line = Line()
    try:
        with stop_flag() as stop:
            manifest = Recorder(settings, request, VERSION).run(
                out_dir, stop, lambda m: line.show(counted(m))
            )
    except NotEmptyError as error:
        raise CliError(str(error), USAGE) from error
    except UnknownTopicError as error:
        raise CliError(f"{error}; run `skeletonhunter topics apply`") from error
    except OSError as error:
        if isinstance(error, ConnectionError):
            raise
        raise CliError(f"{out_dir}: {error.strerror}; what is in the files is whole") from error
    finally:
        line.end()
    print_manifest(out_dir, manifest, as_json=as_json)


def replay(
    recording: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a recording")],
    *,
    prefix: Annotated[
        str, typer.Option("--prefix", metavar="TEXT", help="Put before every topic name; needed")
    ],
    from_: Annotated[
        str | None, typer.Option("--from", metavar="WHEN", help="Event time to begin at")
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="WHEN", help="Event time to stop before")
    ] = None,
    speed: Annotated[
        str | None,
        typer.Option(
            "--speed",
            metavar="X|max",
            help="1 as it was, 10 ten times as fast [default: 1; with --run: max]",
        ),
    ] = None,
    run: Annotated[
        bool, typer.Option("--run", help="Run workers and localizer on it; print the verdicts")
    ] = False,
    append: Annotated[
        bool, typer.Option("--append", help="Also write to topics that hold records")
    ] = False,
    workers: Annotated[
        int, typer.Option("--workers", min=1, max=MAX_WORKERS, help="With --run: how many workers")
    ] = 1,
    delete_after: Annotated[
        bool, typer.Option("--delete-after", help="With --run: delete the topics at the end")
    ] = False,
    run_id: Annotated[
        str | None, typer.Option("--run-id", help="Value of the run_id header [default: random]")
    ] = None,
    replication_factor: Annotated[
        int, typer.Option("--replication-factor", min=1, help="Copies of the topics that are made")
    ] = 1,
    bootstrap: options.Bootstrap = None,
    config: options.Config = None,
    as_json: options.Json = False,
) -> None:
    """Write a recording again, to topics under a prefix of its own.

    Partitions, order, keys, timestamps and headers are kept; `run_id` and
    `replayed_from` are added. Live topics and groups are never touched: the prefix
    must be new, and not that of the config file. The topics stay afterwards unless
    --delete-after, and never expire. Of a damaged file everything before the damage
    is replayed; exit code 4. With --run exit code 1 if there is a verdict.

    Example: skeletonhunter replay incident-42 --prefix review1. --run
    """
    from ops.recording.recorder import DEFAULT_TOPICS
    from ops.recording.replayer import Request
    from schemas.topics import TOPICS

    if delete_after and not run:
        raise CliError("--delete-after without --run would leave nothing at all", USAGE)
    if workers > 1 and not run:
        raise CliError("--workers without --run: none is started", USAGE)
    settings = _replay_settings(config, bootstrap, prefix)
    pace = _speed(speed or ("max" if run else "1"))
    request = Request(
        run_id=run_id or uuid4().hex,
        speed=pace,
        # Then the processes start when all is written.
        unread=run and pace is None,
        from_ms=event_time(from_, "--from"),
        to_ms=event_time(to, "--to"),
        append=append,
        replication_factor=replication_factor,
        # What worker and localizer have written they write anew.
        topics=DEFAULT_TOPICS if run else TOPICS,
    )
    source = open_recording(recording)
    with source:
        report, verdicts = _replay(
            settings,
            source,
            request,
            _tables(config) if run else None,
            workers=workers,
            delete_after=delete_after,
        )
    print_report(report, source, request.run_id, verdicts, as_json=as_json)
    if source.damages:
        raise typer.Exit(DAMAGED)
    if report.stopped:
        raise typer.Exit(STOPPED)
    if verdicts:
        raise typer.Exit(FOUND)


def _replay(
    settings: "KafkaSettings",
    source: "Source",
    request: "Request",
    tables: "Mapping[str, Mapping[str, Any]] | None",
    *,
    workers: int,
    delete_after: bool,
) -> "tuple[Report, list[Shown] | None]":
    """Replay; with tables, also run workers and localizer on it and return their verdicts."""
    from ops.recording.container import DamageError
    from ops.recording.replayer import Replayer, ReplayRefusedError
    from ops.recording.verdicts import ReplayRun, StalledError
    from ops.running.processes import ChildDiedError
    from schemas.process.signals import stop_flag

    line = Line()
    with stop_flag() as stop, ExitStack() as stack:
        stack.callback(line.end)
        try:
            replayer = Replayer(settings, source, request)
            if delete_after:
                stack.callback(replayer.remove)
            replayer.prepare()
            if tables is None:
                return replayer.run(stop, lambda r: line.show(replayed(r))), None
            processes = stack.enter_context(ReplayRun(settings, source.manifest.cluster, tables))
            if replayer.fresh:
                processes.forget()
            show = _shown(line)
            if not request.unread:
                processes.start(workers)
            report = replayer.run(stop, lambda r: line.show(replayed(r)))
            if request.unread:
                # All of their input is there: nobody takes a pause of the writer for the end of
                # an agent.
                processes.start(workers)
            seen_all = processes.wait_workers(stop, show) and processes.wait_localizer(stop, show)
            report.stopped = report.stopped or not seen_all
            return report, processes.verdicts()
        except ReplayRefusedError as error:
            raise CliError(str(error), USAGE) from error
        except (ChildDiedError, StalledError) as error:
            raise CliError(str(error)) from error
        except DamageError as error:
            raise CliError(str(error), DAMAGED) from error


def _shown(line: Line) -> "Callable[[Stand], None]":
    return lambda stand: line.show(processed(stand))


def _tables(config: Path | None) -> "Mapping[str, Mapping[str, Any]]":
    from ops.recording.verdicts import LOCALIZER, WORKER
    from schemas.process.settings import read_table

    return {name: read_table(config, name) for name in (WORKER, LOCALIZER)}


def _topics(text: str) -> "tuple[Topic, ...]":
    from schemas.topics import TOPICS, topic_named

    if text.strip() == "all":
        return TOPICS
    try:
        return tuple(topic_named(name.strip()) for name in text.split(",") if name.strip())
    except KeyError as error:
        raise CliError(f"--topics: {error.args[0]}", USAGE) from error


def _speed(text: str) -> float | None:
    if text == "max":
        return None
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed < float("inf"):
        raise CliError(f"--speed {text!r}: a number above 0, or max", USAGE)
    return speed


def event_time(text: str | None, option: str) -> int | None:
    """Return a bound of event time in milliseconds; None: there is none."""
    if text is None:
        return None
    place = bound(text, "end", option)
    if place.place == "end" and option == "--from":
        raise CliError("--from end: nothing would be left", USAGE)
    return place.at_ms if place.place == "time" else None


def _replay_settings(config: Path | None, bootstrap: str | None, prefix: str) -> "KafkaSettings":
    from schemas.kafka.connection import load_settings

    live = load_settings(config, bootstrap=bootstrap).topic_prefix
    if not prefix:
        raise CliError("--prefix is empty: a replay never goes to the live topics", USAGE)
    if prefix == live:
        raise CliError(f"--prefix {prefix!r} is that of the live topics in the config file", USAGE)
    return replace(load_settings(config, bootstrap=bootstrap, prefix=prefix), role="")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(record)
    app.command()(replay)
