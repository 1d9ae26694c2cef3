"""`web` and `review`: the operator's page, live or of a recording, and reports of incidents."""

from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ops.cli import options
from ops.cli.errors import DAMAGED, FOUND, STOPPED, USAGE, CliError
from ops.cli.recording_output import open_recording, print_damage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ops.web.actions import Writer
    from ops.web.recorded import RecordedSource
    from ops.web.security import Login
    from ops.web.source import Source
    from schemas.topics import Topic

PORT = 8440


def web(
    *,
    listen: Annotated[
        str,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="Address to serve at; beyond this machine only with TLS and a token",
        ),
    ] = f"127.0.0.1:{PORT}",
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate (PEM)")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="Its private key (PEM)")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="What a browser must know to look at the page: a token on each line, as "
            "NAME: TOKEN where it is somebody's",
        ),
    ] = None,
    allow_actions: Annotated[
        bool,
        typer.Option(
            "--allow-actions",
            help="Whoever may look may also silence, acknowledge and close faults; needs the "
            "access of the role responder as well",
        ),
    ] = False,
    faults_from: Annotated[
        str,
        typer.Option("--faults-from", metavar="WHEN", help="How far back past faults are shown"),
    ] = "-24h",
    recording: Annotated[
        Path | None,
        typer.Option("--recording", metavar="DIR", help="Show a recording instead of live topics"),
    ] = None,
    metrics_listen: Annotated[
        str | None,
        typer.Option(
            "--metrics-listen",
            metavar="HOST:PORT",
            help="Where it exposes its metrics; a port alone is on loopback "
            "[default: listen in the config file's table metrics]",
        ),
    ] = None,
    bootstrap: options.Bootstrap = None,
    config: options.Config = None,
    prefix: options.Prefix = None,
) -> None:
    """Serve a live page of the cluster: open faults first, then who watches, and incidents.

    Reads beside everybody else: no consumer group, nothing committed, one reader
    however many browsers look. Reconnects by itself when the broker was away.
    With --allow-actions people silence, acknowledge and close faults on it, under the
    name that the token file has for their token, else the one that they give. With
    --recording the same pages show any moment of it; where it holds no
    verdicts, they are made anew as by `diagnose`.

    Example: skeletonhunter web --listen 127.0.0.1:8440
    """
    from ops.bridge.operator_topics import OperatorTopics
    from ops.log.reading import now_ms
    from ops.log.timespan import parse_bound
    from ops.web.exposed import Exposed
    from ops.web.live import LiveSource
    from ops.web.source import waits_for
    from schemas.kafka.connection import load_settings
    from schemas.metrics.exposition import exposed
    from schemas.metrics.settings import read_listen
    from schemas.process.errors import CannotRunError
    from schemas.process.eventlog import EventLog
    from schemas.process.health import Health

    if recording is not None:
        from ops.web.recorded import ON_DEMAND, WANTED

        if allow_actions:
            raise CliError("--allow-actions: a recording stays as it is", USAGE)
        with _recorded(recording, WANTED, config, by_time=ON_DEMAND) as recorded:
            _serve(recorded, listen, tls_cert, tls_key, token_file)
        return
    try:
        back = parse_bound(faults_from, now_ms())
    except ValueError as error:
        raise CliError(f"--faults-from: {error}", USAGE) from error
    back_ms = 0 if back.place == "end" else now_ms() - back.at_ms
    settings = replace(load_settings(config, bootstrap=bootstrap, prefix=prefix), role="web")
    source = LiveSource(settings, faults_back_ms=back_ms)
    metrics = read_listen({"config": config, "metrics_listen": metrics_listen})
    try:
        # A reader whose broker is away waits for it, and the page says so.
        health = Health(lambda: None, lambda: waits_for(source))
        families, log = Exposed(source).families, EventLog("web")
        with exposed(metrics, "web", families, health, log) as address:
            if address is not None:
                typer.echo(f"metrics: http://{address}/metrics")
            writer = OperatorTopics(settings) if allow_actions else None
            _serve(source, listen, tls_cert, tls_key, token_file, writer=writer)
    except CannotRunError as error:
        raise CliError(str(error), error.exit_code) from error


def _serve(
    source: "Source",
    listen: str,
    tls_cert: Path | None,
    tls_key: Path | None,
    token_file: Path | None,
    *,
    writer: "Writer | None" = None,
) -> None:
    from ops.web.security import faults_of
    from ops.web.serve import Address, serve

    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        raise CliError(f"--listen {listen}: give HOST:PORT, such as 127.0.0.1:{PORT}", USAGE)
    if (tls_cert is None) != (tls_key is None):
        raise CliError("--tls-cert and --tls-key go together", USAGE)
    logins = () if token_file is None else _logins(token_file)
    wrong = list(faults_of(host, tls=tls_cert is not None, logins=logins))
    if wrong:
        raise CliError("; ".join(wrong), USAGE)
    address = Address(host=host.strip("[]"), port=int(port), certificate=tls_cert, key=tls_key)
    try:
        serve(source, address, logins, writer, lambda url: typer.echo(f"{url}  (Ctrl-C ends it)"))
    except OSError as error:
        raise CliError(f"--listen {listen}: {error.strerror or error}") from error


def review(
    recording: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a recording")],
    *,
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="FILE", help="Report to write: .html, one file that loads nothing; .md"
        ),
    ],
    fault: Annotated[
        list[str] | None,
        typer.Option("--fault", metavar="ID", help="Only this fault; may be repeated"),
    ] = None,
    config: options.Config = None,
) -> None:
    """Write the report of a recording's incidents: each from first symptom to end.

    Time line, evidence as it was known at each moment, 5-tuples, and the commands
    that replay it. No server, no broker. Where the recording holds no verdicts, they
    are made anew as by `diagnose`. Exit code 1: there is an incident.

    Example: skeletonhunter review incident-42 --out incident.html
    """
    from ops.view.texts import counted
    from ops.web.pages.page import UnknownItemError
    from ops.web.pages.report import to_html, to_markdown
    from ops.web.recorded import OF_INCIDENTS
    from ops.web.review import incidents

    if out.suffix not in (".html", ".md"):
        raise CliError(f"--out {out}: give a name that ends with .html or .md", USAGE)
    # Verdicts that are made anew take minutes: what cannot be written is said before.
    if out.is_dir() or not out.parent.is_dir():
        why = "is a folder" if out.is_dir() else f"there is no folder {out.parent}"
        raise CliError(f"--out {out}: {why}; give the name of a file to write", USAGE)
    with _recorded(recording, OF_INCIDENTS, config) as source:
        try:
            found = incidents(source, fault or [])
        except UnknownItemError as error:
            raise CliError(f"{error}; {error.todo}", USAGE) from error
    written = to_html if out.suffix == ".html" else to_markdown
    try:
        out.write_text(written(found.documents, found.commands), encoding="utf-8")
    except OSError as error:
        raise CliError(f"--out {out}: {error.strerror}", USAGE) from error
    typer.echo(f"{out}: {counted(len(found.documents), 'incident')}")
    if source.trouble is not None:
        raise typer.Exit(DAMAGED)
    if found.documents:
        raise typer.Exit(FOUND)


@contextmanager
def _recorded(
    folder: Path, only: "Sequence[Topic]", config: Path | None, by_time: "Sequence[Topic]" = ()
) -> "Iterator[RecordedSource]":
    """Open a recording for the pages, with verdicts made anew if it holds none.

    `by_time`: topics of which only what is looked at is read.
    """
    from localizer.config import build_config as localizer_config
    from ops.recording.container import DamageError
    from ops.recording.detection_process import LostProcessError
    from ops.recording.diagnosis import BESIDE_ROUNDS
    from ops.web.anew import holds_verdicts, verdicts_of
    from ops.web.recorded import RecordedSource
    from schemas.process.settings import read_table
    from schemas.process.signals import stop_flag
    from streams.config import build_config as worker_config

    # What is missing or damaged is said by `open_recording`.
    told = False
    with suppress(FileNotFoundError, DamageError):
        told = holds_verdicts(folder)
    if told:
        with open_recording(folder, (*only, *by_time)) as recording:
            yield RecordedSource(recording, only=only)
        return
    with open_recording(folder, BESIDE_ROUNDS) as recording:
        detection = worker_config({}, read_table(config, "worker")).detection()
        localizer = localizer_config({}, read_table(config, "localizer"))
        typer.echo("no verdicts in the recording: they are made anew, as by `diagnose`", err=True)
        with stop_flag() as stop:
            try:
                core = localizer.core(recording.manifest.cluster)
                made = verdicts_of(recording, detection, core, stop)
            except DamageError as error:
                raise CliError(str(error), DAMAGED) from error
            except LostProcessError as error:
                raise CliError(str(error)) from error
            if stop():
                raise typer.Exit(STOPPED)
        if made.damage is not None:
            print_damage(made.damage)
        yield RecordedSource(recording, made.records, only, made.damage)


def _logins(file: Path) -> "tuple[Login, ...]":
    from ops.web.security import logins_of
    from schemas.process.files import read_file

    try:
        found = logins_of(read_file(file).decode())
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"--token-file {file}: {error}", USAGE) from error
    if not found:
        raise CliError(f"--token-file {file} is empty", USAGE)
    return found


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(web)
    app.command()(review)
