"""`broker run | status | fetch`: Apache Kafka by itself, on loopback."""

import json
import time
from pathlib import Path
from typing import Annotated, Final

import typer

from ops.cli import options
from ops.cli.errors import FOUND, CliError
from schemas.kafka.connection import NoBrokerError, load_settings
from schemas.process.signals import interruptible

POLL_S: Final = 0.2
STATUS_TIMEOUT_S: Final = 5.0


def run(
    *,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir",
            metavar="DIR",
            help="Keep the data here [default: a temporary folder, removed at the end]",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", min=1024, max=65535, help="Port to listen on [default: a free one]"),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Run Apache Kafka 4.3.1 on this machine until Ctrl-C; no Docker, no installed Java.

    The first run downloads 45 MB into the cache folder and checks every file's
    hash. Other commands find the broker by themselves while it runs. It listens
    on 127.0.0.1 only.

    Example: skeletonhunter broker run --data-dir ~/kafka-data
    """
    from ops.broker.embedded import EmbeddedKafka
    from ops.broker.errors import EmbeddedServerError
    from ops.broker.progress import ConsoleProgress

    _refuse_second()
    try:
        with (
            interruptible(),
            ConsoleProgress("Apache Kafka") as progress,
            EmbeddedKafka(data_dir=data_dir, port=port, progress=progress) as kafka,
        ):
            _announce(kafka.bootstrap, kafka.data_dir, as_json=as_json)
            while kafka.running:
                time.sleep(POLL_S)
            raise CliError(f"Kafka ended by itself:\n{kafka.log_tail()}")
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)  # the ordinary end
    except EmbeddedServerError as error:
        raise CliError(str(error)) from error


def _refuse_second() -> None:
    """Refuse to start beside a broker that other commands find: they would lose it.

    Raises
    ------
    CliError
        If one runs and answers.
    """
    from ops.broker import announcement
    from ops.broker.ready import answers

    other = announcement.read()
    # Asked, too: a process id that is in use again is no broker.
    if other is not None and other.owner_alive and answers(other.bootstrap):
        raise CliError(
            f"a broker runs already at {other.bootstrap} (process {other.pid}): use it, end it, "
            "or give this one a SKELETONHUNTER_STATE_DIR of its own"
        )


def _announce(bootstrap: str, data_dir: Path, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"bootstrap": bootstrap, "data_dir": str(data_dir)}))
        return
    typer.echo(f"Kafka listens on {bootstrap}; other commands find it by themselves.")
    typer.echo(f"Data and log: {data_dir}. Next: skeletonhunter topics apply. Ctrl-C ends it.")


def status(
    *,
    bootstrap: options.Bootstrap = None,
    config: options.Config = None,
    as_json: options.Json = False,
) -> None:
    """Say which broker the other commands use, and whether it answers.

    Exit code 1 if it does not answer.

    Example: skeletonhunter broker status --json
    """
    from ops.broker import announcement
    from ops.broker.ready import answers

    try:
        settings = load_settings(config, bootstrap=bootstrap)
    except NoBrokerError as error:
        raise CliError(str(error), FOUND) from error
    own = announcement.read()
    embedded = own if own is not None and own.bootstrap == settings.bootstrap else None
    good = answers(settings.bootstrap, settings.librdkafka(), STATUS_TIMEOUT_S)
    if as_json:
        found = {
            "bootstrap": settings.bootstrap,
            "answers": good,
            "pid": None if embedded is None else embedded.pid,
            "data_dir": None if embedded is None else embedded.data_dir,
        }
        typer.echo(json.dumps(found))
    else:
        typer.echo(f"{settings.bootstrap}: {'answers' if good else 'does not answer'}")
        if embedded is not None:
            alive = "runs" if embedded.owner_alive else "has ended without cleaning up"
            typer.echo(f"broker run, process {embedded.pid}, {alive}; data {embedded.data_dir}")
    if not good:
        raise typer.Exit(FOUND)


def fetch(
    *,
    registry: Annotated[
        bool,
        typer.Option("--registry", help="Also the schema registry that the tests use (158 MB)"),
    ] = False,
) -> None:
    """Download the broker's files (45 MB) into the cache, and check them.

    From then on no network is needed. An interrupted download goes on where it
    ended. $SKELETONHUNTER_CACHE_DIR moves the cache. The first time, Kafka is also
    run once, so that it starts in half the time from then on.

    Example: skeletonhunter broker fetch
    """
    from ops.broker import lock
    from ops.broker.errors import EmbeddedServerError
    from ops.broker.fetch import fetch as fetch_locked
    from ops.broker.progress import ConsoleProgress

    names = {lock.KAFKA: "Apache Kafka"} | ({lock.APICURIO: "Apicurio"} if registry else {})
    try:
        with interruptible():
            for name, title in names.items():
                with ConsoleProgress(title) as progress:
                    files = fetch_locked(name, progress=progress)
                typer.echo(f"{title}: {len(files)} verified files in {files[0].parent}")
            _warm_up()
    except EmbeddedServerError as error:
        raise CliError(str(error)) from error


def _warm_up() -> None:
    from ops.broker import warm
    from ops.broker.errors import EmbeddedServerError
    from ops.broker.training import train

    path = warm.cache_file()
    if path is None or warm.is_current(path):
        return
    typer.echo("Apache Kafka: one run to make later starts quick, some 15 s", err=True)
    try:
        train()
    except EmbeddedServerError as error:
        # It starts all the same, only slower.
        typer.echo(f"Apache Kafka: later starts stay slow: {error}", err=True)


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(
        help="Apache Kafka on this machine, without Docker or Java.", no_args_is_help=True
    )
    group.command()(run)
    group.command()(status)
    group.command()(fetch)
    app.add_typer(group, name="broker")
