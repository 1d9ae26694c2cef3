"""`web`: the operator's live page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ops.cli import options
from ops.cli.errors import USAGE, CliError

if TYPE_CHECKING:
    from ops.web.source import Source

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
            "--token-file", metavar="FILE", help="What a browser must know to look at the page"
        ),
    ] = None,
    faults_from: Annotated[
        str,
        typer.Option("--faults-from", metavar="WHEN", help="How far back past faults are shown"),
    ] = "-24h",
    bootstrap: options.Bootstrap = None,
    config: options.Config = None,
    prefix: options.Prefix = None,
) -> None:
    """Serve a live page of the cluster: open faults first, then who watches, and incidents.

    Reads beside everybody else: no consumer group, nothing committed, one reader
    however many browsers look. Reconnects by itself when the broker was away.

    Example: skeletonhunter web --listen 127.0.0.1:8440
    """
    from ops.log.reading import now_ms
    from ops.log.timespan import parse_bound
    from ops.web.live import LiveSource
    from schemas.kafka.connection import load_settings

    try:
        back = parse_bound(faults_from, now_ms())
    except ValueError as error:
        raise CliError(f"--faults-from: {error}", USAGE) from error
    back_ms = 0 if back.place == "end" else now_ms() - back.at_ms
    settings = load_settings(config, bootstrap=bootstrap, prefix=prefix)
    _serve(LiveSource(settings, faults_back_ms=back_ms), listen, tls_cert, tls_key, token_file)


def _serve(
    source: "Source",
    listen: str,
    tls_cert: Path | None,
    tls_key: Path | None,
    token_file: Path | None,
) -> None:
    from ops.web.security import faults_of
    from ops.web.serve import Address, serve

    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        raise CliError(f"--listen {listen}: give HOST:PORT, such as 127.0.0.1:{PORT}", USAGE)
    if (tls_cert is None) != (tls_key is None):
        raise CliError("--tls-cert and --tls-key go together", USAGE)
    token = None if token_file is None else _token(token_file)
    wrong = list(faults_of(host, tls=tls_cert is not None, token=token))
    if wrong:
        raise CliError("; ".join(wrong), USAGE)
    address = Address(host=host.strip("[]"), port=int(port), certificate=tls_cert, key=tls_key)
    try:
        serve(source, address, token, lambda url: typer.echo(f"{url}  (Ctrl-C ends it)"))
    except OSError as error:
        raise CliError(f"--listen {listen}: {error.strerror or error}") from error


def _token(file: Path) -> str:
    from schemas.process.files import read_file

    try:
        return read_file(file).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"--token-file {file}: {error}", USAGE) from error


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(web)
